"""Reading subscriptions with SQL, in PyFlink's table environment."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import pytest
from pyflink.common import RowKind

from flink_pubsub.emulator import Emulator, ManualClock
from flink_pubsub.wire.pubsub_pb2 import PubsubMessage
from tests.flink.jobs import eventually, workers
from tests.flink.tables import (
    SUBSCRIPTION,
    TOPIC,
    formats_jar,
    json_messages,
    orders,
    refusal,
    rows,
    table,
    table_environment,
    to_the_middle_of_a_minute,
    with_clause,
)

COLUMNS = """
    id STRING,
    amount INT,
    detail ROW<size INT, color STRING>,
    message_id STRING METADATA FROM 'message-id' VIRTUAL,
    publish_time TIMESTAMP_LTZ(3) METADATA FROM 'publish-time' VIRTUAL,
    attrs MAP<STRING, STRING> METADATA FROM 'attributes' VIRTUAL,
    ordering_key STRING METADATA FROM 'ordering-key' VIRTUAL,
    subscription STRING METADATA VIRTUAL,
    WATERMARK FOR publish_time AS publish_time - INTERVAL '5' SECOND
"""
ONLY_METADATA = "attrs MAP<STRING, STRING> METADATA FROM 'attributes' VIRTUAL, id STRING METADATA FROM 'message-id' VIRTUAL"


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return table_environment(formats_jar(tmp_path_factory.mktemp("formats")))


def subscribe(emulator: Emulator, *names: str, topic: str = TOPIC) -> None:
    for name in names:
        emulator.create_subscription(f"projects/p/subscriptions/{name}", topic, ack_deadline_seconds=10)


def reading(subscription: str) -> str:
    """The table orders on another subscription: what one query reads does not get lost for the others of a union."""
    return f"orders /*+ OPTIONS('subscription' = '{subscription}') */"


@pytest.mark.feature("SQL-02")
@pytest.mark.feature("SQL-03")
@pytest.mark.feature("SQL-12")
def test_a_message_is_a_row_of_payload_and_metadata(env: Any) -> None:
    full = PubsubMessage(
        data=b'{"id": "a", "amount": 3, "detail": {"size": 7, "color": "red"}}',
        attributes={"k": "v", "x": "\u00e4", "empty": ""},
        ordering_key="key",
    )
    bare = PubsubMessage(data=b'{"id": "b"}')
    query = "SELECT id, amount, detail, message_id, CAST(publish_time AS STRING), attrs, ordering_key, subscription FROM orders"
    env.get_config().set_local_timezone("UTC")
    with orders(full, bare) as emulator, table(env, COLUMNS, with_clause(emulator)):
        first, second = sorted(rows(env, query, 2))
        one, two = emulator.published(TOPIC)

    def published(message: PubsubMessage) -> str:
        return message.publish_time.ToDatetime().isoformat(sep=" ", timespec="milliseconds")

    assert first[:2] == ("a", 3)
    assert tuple(first[2]) == (7, "red")
    assert first[3:] == (one.message_id, published(one), dict(full.attributes), "key", SUBSCRIPTION)
    assert second == ("b", None, None, two.message_id, published(two), {}, None, SUBSCRIPTION)


@pytest.mark.feature("SQL-03")
def test_any_columns_are_read_in_any_order(env: Any) -> None:
    message = PubsubMessage(
        data=b'{"id": "a", "amount": 3, "detail": {"size": 7, "color": "red"}}', attributes={"k": "v"}, ordering_key="key"
    )
    with orders() as emulator, table(env, COLUMNS, with_clause(emulator)):
        names = ["swapped", "nested", "none", "no-payload"]
        subscribe(emulator, *names)
        emulator.publish_all(TOPIC, [message])
        queries = [
            f"SELECT subscription, CAST(amount AS STRING), attrs['k'], id FROM {reading('swapped')}",
            f"SELECT detail.color, ordering_key, id, 'nested' FROM {reading('nested')}",
            f"SELECT '1', '2', '3', '4' FROM {reading('none')}",
            f"SELECT ordering_key, '', subscription, attrs['k'] FROM {reading('no-payload')}",
        ]
        found = rows(env, " UNION ALL ".join(queries), len(queries))
    assert sorted(found) == sorted(
        [
            ("projects/p/subscriptions/swapped", "3", "v", "a"),
            ("red", "key", "a", "nested"),
            ("1", "2", "3", "4"),
            ("key", "", "projects/p/subscriptions/no-payload", "v"),
        ]
    )


@pytest.mark.feature("SQL-02")
@pytest.mark.feature("SQL-03")
def test_a_format_that_cannot_project_has_its_columns_picked_and_its_own_metadata_first(env: Any) -> None:
    columns = (
        "subscription STRING METADATA VIRTUAL, a STRING, n INT METADATA FROM 'line-number' VIRTUAL, b STRING, c STRING,"
        " message_id STRING METADATA FROM 'message-id' VIRTUAL"
    )
    with orders() as emulator, table(env, columns, with_clause(emulator, {"format": "lines"})):
        names = ["all", "some", "number", "raw"]
        subscribe(emulator, *names)
        [message_id] = emulator.publish_all(TOPIC, [PubsubMessage(data=b"1,2,3\n4,5,6")])
        queries = [
            f"SELECT a, b, c, n, message_id, subscription FROM {reading('all')}",
            f"SELECT c, a, '', n, '', subscription FROM {reading('some')}",
            f"SELECT '', '', '', n, message_id, '' FROM {reading('number')}",
        ]
        found = rows(env, " UNION ALL ".join(queries), 6)
    assert sorted(found) == sorted(
        [
            ("1", "2", "3", 0, message_id, "projects/p/subscriptions/all"),
            ("4", "5", "6", 1, message_id, "projects/p/subscriptions/all"),
            ("3", "1", "", 0, "", "projects/p/subscriptions/some"),
            ("6", "4", "", 1, "", "projects/p/subscriptions/some"),
            ("", "", "", 0, message_id, ""),
            ("", "", "", 1, message_id, ""),
        ]
    )


@pytest.mark.feature("SQL-03")
def test_a_table_of_metadata_alone_decodes_no_payload(env: Any) -> None:
    with orders() as emulator, table(env, ONLY_METADATA, with_clause(emulator, {"format": "raw"})):
        subscribe(emulator, "json", "raw")
        [first] = emulator.publish_all(TOPIC, [PubsubMessage(data=b"no json", attributes={"k": "v"})])
        [second] = emulator.publish_all(TOPIC, [PubsubMessage(attributes={"k": "w"})])
        found = rows(
            env,
            f"SELECT id, attrs['k'] FROM {reading('raw')} UNION ALL SELECT id, attrs['k'] FROM orders"
            " /*+ OPTIONS('subscription' = 'json', 'format' = 'json') */",
            4,
        )
    assert sorted(found) == sorted([(first, "v"), (second, "w")] * 2)


@pytest.mark.feature("SQL-02")
@pytest.mark.feature("SQL-03")
def test_a_changelog_format_gives_changes_and_its_own_metadata(env: Any) -> None:
    columns = (
        "message_id STRING METADATA FROM 'message-id' VIRTUAL, origin STRING METADATA FROM 'source.table' VIRTUAL,"
        " id STRING, amount INT"
    )
    before, after = {"id": "a", "amount": 1}, {"id": "a", "amount": 5}
    changes: list[dict[str, Any]] = [
        {"before": None, "after": before, "op": "c"},
        {"before": before, "after": after, "op": "u"},
        {"before": after, "after": None, "op": "d"},
    ]
    messages = json_messages(*(json.dumps({**change, "source": {"table": "shop"}}) for change in changes))
    with orders(*messages) as emulator, table(env, columns, with_clause(emulator, {"format": "debezium-json"})):
        created, updated, deleted = [message.message_id for message in emulator.published(TOPIC)]
        with env.execute_sql("SELECT amount, origin, message_id FROM orders").collect() as changed:
            found = [(row.get_row_kind(), *row) for row in islice(changed, 4)]
        eventually(lambda: not workers(), "the query's workers are gone")
    assert found == [
        (RowKind.INSERT, 1, "shop", created),
        (RowKind.UPDATE_BEFORE, 1, "shop", updated),
        (RowKind.UPDATE_AFTER, 5, "shop", updated),
        (RowKind.DELETE, 5, "shop", deleted),
    ]


@pytest.mark.feature("SQL-03")
def test_a_clash_between_the_metadata_of_format_and_connector_is_refused(env: Any) -> None:
    with table(env, "a STRING", with_clause(options={"format": "clashing"})):
        said = refusal(env, "EXPLAIN SELECT a FROM orders")
    assert "The format 'clashing' and the connector 'pubsub' both have metadata 'attributes'" in said


@pytest.mark.feature("SQL-02")
def test_rows_before_a_broken_message_of_a_batch_and_after_it_are_kept_when_it_is_dropped(env: Any) -> None:
    messages = [PubsubMessage(data=data) for data in (b"a\nb", b"c\n!\nd", b"!", b"e\nnull\nf", b"g")]
    clause = {"format": "lines", "scan.deserialization-failure-policy": "drop"}
    with (
        orders(*messages) as emulator,
        table(env, "a STRING, n INT METADATA FROM 'line-number'", with_clause(emulator, clause)),
    ):
        with env.execute_sql("SELECT a, n FROM orders").collect() as found:
            kept = [tuple(row) for row in islice(found, 5)]
            emulator.wait_until(lambda: emulator.counts(SUBSCRIPTION).acked == len(messages), timeout=60)
        eventually(lambda: not workers(), "the query's workers are gone")
    assert kept == [("a", 0), ("b", 1), ("c", 0), ("e", 0), ("g", 0)]


@pytest.mark.feature("SQL-02")
@pytest.mark.feature("SQL-07")
@pytest.mark.feature("SQL-08")
def test_a_broken_message_is_given_back_until_the_service_takes_it_away(env: Any) -> None:
    dead = "projects/p/topics/dead"
    clause = {
        "scan.deserialization-failure-policy": "nack",
        "scan.auto-create.topics.made": "orders",
        "scan.auto-create.dead-letter.topic": "dead",
        "scan.auto-create.dead-letter.max-delivery-attempts": "5",
        "subscription": "made",
        "scan.startup.mode": "earliest-retained",
    }
    with Emulator() as emulator, table(env, COLUMNS, with_clause(emulator, clause)):
        emulator.create_topic(TOPIC, message_retention_duration={"seconds": 3600})
        emulator.create_topic(dead)
        emulator.publish_all(TOPIC, json_messages('{"id": "a"}', "no json", '{"id": "b"}'))
        with env.execute_sql("SELECT id FROM orders").collect() as found:
            kept = [row[0] for row in islice(found, 2)]
            emulator.wait_until(lambda: emulator.published_count(dead) == 1, timeout=60)
        eventually(lambda: not workers(), "the query's workers are gone")
        [letter] = emulator.published(dead)
    assert sorted(kept) == ["a", "b"]
    assert letter.data == b"no json"


@pytest.mark.feature("SQL-02")
def test_a_broken_message_fails_the_query_by_default(env: Any) -> None:
    with (
        orders(*json_messages('{"id": "a"}', "no json")) as emulator,
        table(env, COLUMNS, with_clause(emulator)),
        # Classes only: what the format says quotes the payload.
        pytest.raises(
            Exception, match=r"Message \d+ of split projects/p/subscriptions/orders-sub#0 cannot be decoded: [\w.$ ]+\n"
        ),
    ):
        rows(env, "SELECT id FROM orders", 3)
    eventually(lambda: not workers(), "the query's workers are gone")


@pytest.mark.feature("SQL-02")
def test_what_a_format_leaves_out_is_acknowledged_like_the_rest(env: Any) -> None:
    messages = [
        PubsubMessage(attributes={"no": "payload"}),
        *json_messages("no json", '{"id": "a"}', '[{"id": "b"}, {"id": "c"}]'),
    ]
    with orders(*messages) as emulator:
        clause = with_clause(emulator, {"json.ignore-parse-errors": "true"})
        with table(env, COLUMNS, clause), env.execute_sql("SELECT id FROM orders").collect() as found:
            kept = [row[0] for row in islice(found, 3)]
            emulator.wait_until(lambda: emulator.counts(SUBSCRIPTION).acked == len(messages), timeout=60)
    eventually(lambda: not workers(), "the query's workers are gone")
    assert kept == ["a", "b", "c"]


@pytest.mark.feature("SQL-03")
def test_windows_over_the_publish_time_are_complete_for_all_subscriptions(env: Any) -> None:
    """Watermarks are per split: what one subscription delivers late in time order does not make the other's early rows late."""
    clock = ManualClock(start=1000.0)
    with orders(clock=clock) as emulator:
        names = ["first", "second", "third"]
        to_the_middle_of_a_minute(clock)
        subscribe(emulator, *names)
        for minute in range(3):
            emulator.publish_all(TOPIC, json_messages(*(json.dumps({"id": f"{minute}-{i}"}) for i in range(10))))
            clock.advance(60)
        with table(env, COLUMNS, with_clause(emulator, {"subscription": ";".join(names)})):
            found = rows(
                env,
                "SELECT COUNT(*), COUNT(DISTINCT id), COUNT(DISTINCT subscription) FROM TABLE(TUMBLE(TABLE orders,"
                " DESCRIPTOR(publish_time), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end",
                2,
            )
    assert found == [(30, 10, 3), (30, 10, 3)]
