"""Writing topics with SQL: what is published where, by which writer, and what is refused when."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from pyflink.table import EnvironmentSettings, StreamTableEnvironment
from pyflink.util.exceptions import TableException

from flink_pubsub.emulator import Emulator
from tests.flink.inserts import ATTRIBUTES, DEST, KEY, ORDERED, failure, numbers, plan, run, strategies, values, written
from tests.flink.jobs import environment
from tests.flink.tables import refusal, table, table_environment, with_clause
from tests.unit.sink_support import PublishServer

ORDERS = "order_id STRING, amount INT"


@pytest.fixture(scope="module")
def env() -> Any:
    return table_environment()


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator() as emulator:
        yield emulator


@contextmanager
def tables(env: StreamTableEnvironment, **definitions: tuple[str, str]) -> Iterator[None]:
    """Temporary tables, each of columns and a WITH clause."""
    with ExitStack() as stack:
        for name, (columns, clause) in definitions.items():
            stack.enter_context(table(env, columns, clause, name))
        yield


def published(emulator: Emulator, topic: str = "orders") -> list[tuple[Any, dict[str, str], str]]:
    """Data, attributes and ordering key of what is on a topic, in the order in which it came."""
    messages = emulator.published(f"projects/p/topics/{topic}")
    return [(json.loads(message.data), dict(message.attributes), message.ordering_key) for message in messages]


def unordered(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=str)


def order(order_id: str, amount: int | None) -> dict[str, Any]:
    return {"order_id": order_id, "amount": amount}


@pytest.mark.feature("SQL-02")
@pytest.mark.feature("SQL-04")
@pytest.mark.feature("SQL-09")
def test_rows_are_published_with_attributes_and_key_to_a_topic_that_is_made_for_them(env: Any, emulator: Emulator) -> None:
    settings = {"sink.auto-create.message-retention": "1 d", "sink.auto-create.storage-policy.allowed-regions": "here"}
    clause = written({**ORDERED, **settings}, to=emulator)
    rows = [("a", 1, {"source": "sql"}, "k"), ("b", 2, {"source": "sql", "ä": "ö"}, "k"), ("c", 3, {"source": "sql"}, "")]
    with table(env, f"{ORDERS}, {ATTRIBUTES}, {KEY}", clause):
        run(env, f"INSERT INTO orders {values(*rows)}", "INSERT INTO orders (order_id) VALUES ('d')")
    expected = [(order(name, amount), attributes, key) for name, amount, attributes, key in rows]
    assert unordered(published(emulator)) == unordered([*expected, (order("d", None), {}, "")])


@pytest.mark.feature("SQL-02")
@pytest.mark.feature("SQL-09")
def test_one_job_writes_several_tables_each_in_its_format(env: Any, emulator: Emulator) -> None:
    names = ("csv", "json", "debezium-json", "raw")
    for name in names:
        emulator.create_topic(f"projects/p/topics/topic-{name}")
    never = {"sink.create-disposition": "create-never", "sink.parallelism": "1"}
    clauses = {name: written({"format": name, **never}, topic=f"topic-{name}", to=emulator) for name in names}
    columns = dict.fromkeys(names, ORDERS) | {"raw": "line STRING"}
    with tables(env, **{f"`{name}`": (columns[name], clauses[name]) for name in names}):
        inserts = [f"INSERT INTO `{name}` {values(('ä', 1), ('b', 2))}" for name in names[:3]]
        run(env, *inserts, "INSERT INTO `raw` VALUES ('ä')")
    csv, raw = (
        [message.data.decode() for message in emulator.published(f"projects/p/topics/topic-{name}")] for name in ("csv", "raw")
    )
    assert (csv, raw) == (["ä,1", "b,2"], ["ä"])
    assert [row[0] for row in published(emulator, "topic-json")] == [order("ä", 1), order("b", 2)]
    assert [row[0] for row in published(emulator, "topic-debezium-json")] == [
        {"before": None, "after": each, "op": "c"} for each in (order("ä", 1), order("b", 2))
    ]


def writers_of(server: PublishServer) -> dict[str, Counter[str]]:
    """How many messages of each ordering key came from each writer."""
    writers: dict[str, Counter[str]] = defaultdict(Counter)
    for request, peer in zip(server.requests, server.peers, strict=True):
        for message in request.messages:
            writers[message.ordering_key][peer] += 1
    return writers


@pytest.mark.feature("SQL-05")
def test_a_key_has_one_writer_at_any_parallelism_and_rows_without_are_spread() -> None:
    # Unaligned checkpoints: Flink refuses them where it could not restore what is on its way to another parallelism.
    job = environment(parallelism=2)
    job.get_checkpoint_config().enable_unaligned_checkpoints()
    env = StreamTableEnvironment.create(job)
    key = "CASE WHEN MOD(n, 4) < 2 THEN CAST(MOD(n, 40) AS STRING) WHEN MOD(n, 4) = 2 THEN '' END"
    with PublishServer() as server:
        clause = written({"sink.parallelism": "3", **ORDERED}, to=server)
        with tables(env, orders=(f"n BIGINT, {KEY}", clause), numbers=numbers(1200)):
            run(env, f"INSERT INTO orders SELECT n, {key} FROM numbers")
        writers = writers_of(server)
    spread = writers.pop("")
    assert len(spread) == 3
    assert max(spread.values()) - min(spread.values()) <= 2
    assert len(writers) == 20
    assert all(sum(writer.values()) == 30 and len(writer) == 1 for writer in writers.values())
    assert {peer for writer in writers.values() for peer in writer} == set(spread)


@pytest.mark.feature("SQL-05")
def test_the_rows_of_a_key_keep_their_order(env: Any, emulator: Emulator) -> None:
    key, dest = "CAST(MOD(n, 5) AS STRING)", "CASE WHEN MOD(n, 3) > 0 THEN 'topic-' || CAST(MOD(n, 2) AS STRING) END"
    options = {"sink.parallelism": "3", "sink.batching.element-count-threshold": "10", **ORDERED}
    clause = written(options, topic="topic-0", to=emulator)
    with tables(env, orders=(f"n BIGINT, {KEY}, {DEST}", clause), numbers=numbers(600)):
        run(env, f"INSERT INTO orders SELECT n, {key}, {dest} FROM numbers")
    for topic in (0, 1):
        arrived = published(emulator, f"topic-{topic}")
        for k in range(5):
            sent = [n for n in range(k, 600, 5) if (n % 2 if n % 3 else 0) == topic]
            assert [row[0]["n"] for row in arrived if row[2] == str(k)] == sent


@pytest.mark.feature("SQL-02")
@pytest.mark.feature("SQL-05")
def test_a_batch_job_publishes_everything_and_keeps_a_key_at_one_writer() -> None:
    job = environment(parallelism=2, checkpoint_millis=None)
    env = StreamTableEnvironment.create(job, EnvironmentSettings.in_batch_mode())
    with PublishServer() as server:
        with tables(env, orders=(f"n BIGINT, {KEY}", written(ORDERED, to=server)), numbers=numbers(300)):
            run(env, "INSERT INTO orders SELECT n, CAST(MOD(n, 6) AS STRING) FROM numbers WHERE n > 5")
        writers = writers_of(server)
    assert {key: list(writer.values()) for key, writer in writers.items()} == {str(key): [49] for key in range(6)}


Ways = dict[str, tuple[list[str], int]]


def ways(env: StreamTableEnvironment, columns: str, parallelism: int | None = None) -> Ways:
    """How rows get to the split by key, if there is one, and to the writers, and the parallelism of both."""
    options = ORDERED if parallelism is None else {**ORDERED, "sink.parallelism": str(parallelism)}
    with tables(env, orders=(f"n BIGINT, {columns}", written(options)), numbers=numbers(1)):
        nodes = plan(env, "INSERT INTO orders (n) SELECT n FROM numbers")
    return {
        part: (strategies(node), node["parallelism"]) for node in nodes for part in ("Split", "Writer") if part in node["type"]
    }


@pytest.mark.feature("SQL-05")
def test_the_plan_has_an_exchange_only_for_keys_and_several_writers(env: Any) -> None:
    two = table_environment(parallelism=2)
    assert ways(env, KEY) == {"Writer": (["FORWARD"], 1)}
    assert ways(two, ATTRIBUTES) == {"Writer": (["FORWARD"], 2)}
    assert ways(two, KEY, 1) == {"Writer": (["REBALANCE"], 1)}
    split, partitioned = (["FORWARD"], 2), ["HASH", "REBALANCE"]
    assert ways(two, KEY) == {"Split": split, "Writer": (partitioned, 2)}
    assert ways(two, KEY, 3) == {"Split": split, "Writer": (partitioned, 3)}


@pytest.mark.feature("SQL-05")
@pytest.mark.parametrize("parallelism", [1, 3])
def test_behind_a_source_of_another_parallelism_the_split_has_the_jobs(parallelism: int) -> None:
    env = table_environment(parallelism=parallelism)
    read = "n BIGINT", with_clause(options={"emulator-endpoint": "localhost:1", "scan.parallelism": "2"})
    with tables(env, read=read, orders=(f"n BIGINT, {KEY}", written(ORDERED))):
        nodes = plan(env, "INSERT INTO orders (n) SELECT n FROM `read`")
    found = {part: node["parallelism"] for node in nodes for part in ("Source", "Split", "Writer") if part in node["type"]}
    assert found == {"Source": 2, "Writer": parallelism, **({} if parallelism == 1 else {"Split": parallelism})}


@pytest.mark.feature("SQL-05")
def test_nothing_spreads_the_rows_of_a_key_before_they_are_split() -> None:
    """Neither for event times nor for a primary key may Flink put operators of the sink's parallelism before the split."""
    env = table_environment(parallelism=2)
    timed = "n BIGINT, ts AS CURRENT_TIMESTAMP, WATERMARK FOR ts AS ts", "WITH ('connector' = 'datagen')"
    columns = f"n BIGINT PRIMARY KEY NOT ENFORCED, ts TIMESTAMP_LTZ(3), {KEY}"
    with tables(env, timed=timed, orders=(columns, written({"sink.parallelism": "3", **ORDERED}))):
        *before, writer = plan(env, "INSERT INTO orders SELECT n, ts, 'k' FROM timed")
    assert any("TimestampInserter" in node["type"] for node in before)
    assert any("ConstraintEnforcer" in node["type"] for node in before)
    assert {strategy for node in before for strategy in strategies(node)} == {"FORWARD"}
    assert {node["parallelism"] for node in before} == {2}
    assert strategies(writer) == ["HASH", "REBALANCE"]


@pytest.mark.feature("SQL-06")
def test_a_query_that_updates_is_refused_when_it_is_planned(env: Any) -> None:
    with tables(env, orders=("n BIGINT", written()), numbers=numbers(1)), pytest.raises(TableException) as caught:
        env.explain_sql("INSERT INTO orders SELECT COUNT(*) FROM numbers")
    assert "Table sink 'default_catalog.default_database.orders' doesn't support consuming update changes" in str(caught.value)


@pytest.mark.feature("SQL-01")
@pytest.mark.feature("SQL-04")
@pytest.mark.feature("SQL-09")
@pytest.mark.feature("VAL-04")
@pytest.mark.parametrize(
    ("columns", "clause", "said"),
    [
        (KEY, written(), "'sink.message-ordering.enabled' must be 'true' for a table with the metadata column 'ordering-key'"),
        (ATTRIBUTES, written(topic=None), "'topic' is missing"),
        (DEST, written({"project": "projects/p"}, topic=None), "'project' must be a bare project id"),
        ("id STRING METADATA FROM 'message-id'", written(), "Invalid metadata key 'message-id'"),
        (KEY, written({"sink.parallelism": "0", **ORDERED}), "'sink.parallelism' must be at least 1"),
        (KEY, written({"sink.parallelism": "-1", **ORDERED}), "'sink.parallelism' must be at least 1"),
    ],
)
def test_what_does_not_fit_the_columns_is_refused_when_the_statement_is_planned(
    env: Any, columns: str, clause: str, said: str
) -> None:
    with table(env, f"{ORDERS}, {columns}", clause):
        assert said in refusal(env, "EXPLAIN INSERT INTO orders (order_id) VALUES ('a')")


@pytest.mark.feature("BEY-11")
def test_each_row_names_its_topic_and_null_stands_for_the_tables(env: Any, emulator: Emulator) -> None:
    routed, named = (
        (f"{ORDERS}, {DEST}", written(to=emulator)),
        (f"{ORDERS}, {DEST}, {ATTRIBUTES}", written(topic=None, to=emulator)),
    )
    with tables(env, routed=routed, named=named):
        run(
            env,
            f"INSERT INTO routed {values(('a', 1, 'returns'), ('b', 2, 'orders'))}",
            "INSERT INTO routed (order_id, amount) VALUES ('c', 3)",
            f"INSERT INTO named {values(('d', 4, 'returns', {'a': '1'}))}",
        )
    assert unordered(published(emulator)) == [(order("b", 2), {}, ""), (order("c", 3), {}, "")]
    assert unordered(published(emulator, "returns")) == [(order("a", 1), {}, ""), (order("d", 4), {"a": "1"}, "")]


@pytest.mark.feature("BEY-11")
@pytest.mark.parametrize(
    ("dest", "said"), [("projects/p/topics/orders", "topic must be the bare topic id"), (None, "it is NULL, and the table has")]
)
def test_a_row_without_a_topic_fails_the_job_naming_the_column(
    env: Any, emulator: Emulator, dest: str | None, said: str
) -> None:
    with table(env, f"{ORDERS}, {DEST}", written(topic=None, to=emulator)):
        text = failure(env, f"INSERT INTO orders {values(('secret-id', 1, dest))}")
    assert f"the metadata column 'topic' gave no topic for a record: {said}" in text
    assert "secret" not in text


@pytest.mark.feature("SQL-04")
def test_a_null_in_the_map_of_attributes_fails_the_job_naming_the_column(env: Any, emulator: Emulator) -> None:
    with table(env, f"{ORDERS}, {ATTRIBUTES}", written(to=emulator)):
        text = failure(env, f"INSERT INTO orders {values(('secret-id', 1, {'secret-key': None}))}")
    assert "the map in the metadata column 'attributes' has a NULL value" in text
    assert "secret" not in text


@pytest.mark.feature("SQL-09")
def test_a_missing_topic_that_may_not_be_created_fails_the_job(env: Any, emulator: Emulator) -> None:
    with table(env, ORDERS, written({"sink.create-disposition": "create-never"}, to=emulator)):
        text = failure(env, "INSERT INTO orders VALUES ('a', 1)")
    assert "publishing to projects/p/topics/orders failed: NOT_FOUND" in text
    assert "'sink.create-disposition' = 'create-never'" in text
    assert "CREATE_NEVER" not in text
    assert emulator.topics() == []
