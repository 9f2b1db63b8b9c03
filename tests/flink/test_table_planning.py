"""What the planner makes of `pubsub` tables, and what it refuses. No job runs here."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from pyflink.table import ExplainDetail

from tests.flink.tables import refusal, table, table_environment, with_clause

ROUND_TRIP = {"topic": "orders"}
READ, WRITE = "EXPLAIN SELECT id FROM orders", "EXPLAIN INSERT INTO orders VALUES ('a')"


@pytest.fixture(scope="module")
def env() -> Any:
    return table_environment()


@pytest.mark.feature("VAL-04")
@pytest.mark.parametrize(
    ("options", "statement", "message"),
    [
        # Found by the Python side, each one of a family that its own tests go through.
        pytest.param(
            {"scan.ordering-mode": "per-key", "scan.parallel-pull-count": "2"},
            READ,
            "'scan.parallel-pull-count' must be 1 with 'scan.ordering-mode' = 'per-key'",
            marks=pytest.mark.feature("SQL-07"),
        ),
        pytest.param(
            {"scan.auto-create.topics": "orders-sub:orders,else:orders"},
            READ,
            "'scan.auto-create.topics' must have the names in 'subscription' for keys, which does not have 'else'",
            marks=pytest.mark.feature("SQL-08"),
        ),
        pytest.param(
            {"scan.auto-create.topics.returns-sub": "orders"},
            READ,
            "in 'subscription', and has none for 'orders-sub'",
            marks=pytest.mark.feature("SQL-08"),
        ),
        pytest.param(
            {
                "scan.auto-create.topics.orders-sub": "orders",
                "scan.auto-create.expiration-ttl": "2 d",
                "scan.auto-create.never-expire": "true",
            },
            READ,
            "'scan.auto-create.expiration-ttl' cannot be combined with 'scan.auto-create.never-expire'",
            marks=pytest.mark.feature("SQL-08"),
        ),
        pytest.param(
            {"scan.auto-create.topics.orders-sub": "orders", "scan.auto-create.dead-letter.topic": "dead"},
            READ,
            "'scan.auto-create.dead-letter.max-delivery-attempts' is missing",
            marks=pytest.mark.feature("SQL-08"),
        ),
        pytest.param(
            {"sink.create-disposition": "create-never", "sink.auto-create.message-retention": "1 d"},
            WRITE,
            "'sink.auto-create.*' cannot be combined with 'sink.create-disposition' = 'create-never'",
            marks=pytest.mark.feature("SQL-09"),
        ),
        pytest.param(
            {"emulator-endpoint": "localhost:1", "service-account-key-file": "/k.json"},
            READ,
            "'service-account-key-file' cannot be combined with 'emulator-endpoint'",
            marks=pytest.mark.feature("SQL-10"),
        ),
        pytest.param(
            {"subscription": "projects/p/subscriptions/orders-sub"},
            READ,
            "'subscription' must be the bare subscription id",
            marks=pytest.mark.feature("SQL-01"),
        ),
        pytest.param(
            {"topic": "projects/p/topics/orders"},
            WRITE,
            "'topic' must be the bare topic id",
            marks=pytest.mark.feature("SQL-01"),
        ),
        # Found in the JVM.
        pytest.param(
            {"scan.auto-create.topics": "orders-sub:orders", "scan.auto-create.topics.orders-sub": "orders"},
            READ,
            "'scan.auto-create.topics' and 'scan.auto-create.topics.orders-sub' are two forms of one map",
            marks=pytest.mark.feature("SQL-08"),
        ),
        pytest.param(
            {"scan.auto-create.topics": "orders-sub"}, READ, "scan.auto-create.topics", marks=pytest.mark.feature("SQL-08")
        ),
        ({"subscription": "orders-sub;;returns-sub"}, READ, "'subscription' must not have an empty entry"),
        ({"subscription": "orders-sub;"}, READ, "'subscription' must not have an empty entry"),
        ({"subscription": ""}, READ, "'subscription' must not have an empty entry"),
        ({"scan.auto-create.topics": "orders-sub:orders,"}, READ, "'scan.auto-create.topics' must not have an empty entry"),
        (
            {"sink.auto-create.storage-policy.allowed-regions": "a;;b"},
            WRITE,
            "'sink.auto-create.storage-policy.allowed-regions' must not have an empty entry",
        ),
        ({"scan.no-such-option": "1"}, READ, "Unsupported options found for 'pubsub'.\n\nUnsupported options:\n\nscan.no-such"),
        ({"json.no-such-option": "1"}, READ, "Unsupported options:\n\njson.no-such-option"),
        ({"scan.shutdown-timeout": "soon"}, READ, "Invalid value for option 'scan.shutdown-timeout'"),
        ({"scan.parallel-pull-count": "1.5"}, READ, "Invalid value for option 'scan.parallel-pull-count'"),
        ({"sink.in-flight.max-bytes": "64 apples"}, WRITE, "Invalid value for option 'sink.in-flight.max-bytes'"),
        ({"sink.message-ordering.enabled": "yes"}, WRITE, "Invalid value for option 'sink.message-ordering.enabled'"),
    ],
)
def test_what_can_be_known_to_be_wrong_is_refused(env: Any, options: dict[str, str], statement: str, message: str) -> None:
    with table(env, "id STRING", with_clause(options={**ROUND_TRIP, **options})):
        assert message in refusal(env, statement)


@pytest.mark.feature("SQL-01")
@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("project", "Missing required options are:\n\nproject"),
        ("format", "Could not find required scan format 'format'"),
    ],
)
def test_project_and_format_are_required(env: Any, missing: str, message: str) -> None:
    clause = with_clause(options=ROUND_TRIP).replace(f"'{missing}' = ", "'json.ignore-parse-errors' = 'true', 'scan.x' = ")
    with table(env, "id STRING", clause):
        assert message in refusal(env, READ)


@pytest.mark.feature("SQL-01")
def test_a_table_serves_one_direction_without_what_the_other_needs(env: Any) -> None:
    with table(env, "id STRING", with_clause()):
        env.execute_sql(READ)
        assert "'topic' is missing: a table that is written" in refusal(env, WRITE)
    only_topic = with_clause(options=ROUND_TRIP).replace("'subscription' = 'orders-sub', ", "")
    with table(env, "id STRING", only_topic):
        env.execute_sql(WRITE)
        assert "'subscription' is missing: a table that is read" in refusal(env, READ)


def test_the_options_of_the_other_direction_do_not_matter(env: Any) -> None:
    wrong = {"sink.retry.total-timeout": "0 s", "scan.parallel-pull-count": "0"}
    with table(env, "id STRING", with_clause(options={**ROUND_TRIP, **wrong})):
        assert "'scan.parallel-pull-count'" in refusal(env, READ)
        assert "'sink.retry.total-timeout'" in refusal(env, WRITE)
        env.execute_sql("EXPLAIN SELECT id FROM orders /*+ OPTIONS('scan.parallel-pull-count' = '1') */")


@pytest.mark.feature("SQL-06")
def test_an_updating_query_is_refused(env: Any) -> None:
    with table(env, "id STRING", with_clause(options=ROUND_TRIP)):
        updating = "EXPLAIN INSERT INTO orders SELECT CAST(COUNT(*) AS STRING) FROM orders GROUP BY id"
        assert "doesn't support consuming update changes" in refusal(env, updating)


@pytest.mark.feature("SQL-02")
@pytest.mark.parametrize(("format_", "mode"), [("json", "[I]"), ("debezium-json", "[I,UB,UA,D]")])
def test_the_changelog_mode_is_the_formats(env: Any, format_: str, mode: str) -> None:
    with table(env, "id STRING", with_clause(options={"format": format_})):
        plan = env.explain_sql("SELECT id FROM orders", ExplainDetail.CHANGELOG_MODE)
    assert f"changelogMode={mode}" in plan.replace(" ", "")


@pytest.mark.feature("SQL-03")
def test_watermarks_and_columns_are_pushed_into_the_scan(env: Any) -> None:
    columns = (
        "id STRING, amount INT, detail ROW<x INT, y STRING>, okey STRING METADATA FROM 'ordering-key' VIRTUAL,"
        " ts TIMESTAMP_LTZ(3) METADATA FROM 'publish-time' VIRTUAL, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"
    )
    with table(env, columns, with_clause(options={"scan.watermark.idle-timeout": "5 s"})):
        plan = env.explain_sql("SELECT detail.y, amount, ts FROM orders")
    scan = plan.rpartition("== Optimized Execution Plan ==")[2]
    assert "WatermarkAssigner" not in scan
    assert "watermark=[-(CAST(ts AS TIMESTAMP_LTZ(3) *ROWTIME*), 5000:INTERVAL SECOND)]" in scan
    assert "fields=[detail, amount, ts]" in scan


@pytest.mark.feature("SQL-07")
def test_the_parallelism_of_a_source_is_its_own(env: Any) -> None:
    with table(env, "id STRING", with_clause(options={"scan.parallelism": "3"})):
        plan = env.explain_sql("SELECT id FROM orders", ExplainDetail.JSON_EXECUTION_PLAN)
    nodes = json.loads(plan.rpartition("== Physical Execution Plan ==")[2])["nodes"]
    [source] = [node for node in nodes if node["pact"] == "Data Source"]
    assert source["parallelism"] == 3
    assert "PubSubSource-orders" in source["type"] + source["contents"]


@pytest.mark.feature("DEP-04")
def test_a_python_that_is_not_there_is_one_clear_error(env: Any) -> None:
    config = env.get_config()
    config.set("python.executable", "/no/such/python")
    try:
        with table(env, "id STRING", with_clause()):
            said = refusal(env, READ)
    finally:
        config.set("python.executable", sys.executable)
    assert "The Python interpreter /no/such/python (python.executable of the session) cannot be started" in said
    assert "With python.executable of the session or of Flink, name one that exists on this host" in said
