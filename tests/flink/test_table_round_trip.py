"""What SQL writes SQL reads back, with all its metadata, and event time from the service's publish time."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from flink_pubsub.emulator import Emulator, ManualClock
from tests.flink.inserts import run, written
from tests.flink.tables import (
    SUBSCRIPTION,
    TOPIC,
    orders,
    rows,
    table,
    table_environment,
    to_the_middle_of_a_minute,
    with_clause,
)

WRITTEN = """
    order_id STRING,
    amount   INT,
    attrs    MAP<STRING, STRING> METADATA FROM 'attributes',
    okey     STRING              METADATA FROM 'ordering-key'
"""
READ = """
    order_id      STRING,
    amount        INT,
    message_id    STRING              METADATA FROM 'message-id'   VIRTUAL,
    publish_time  TIMESTAMP_LTZ(3)    METADATA FROM 'publish-time' VIRTUAL,
    attrs         MAP<STRING, STRING> METADATA FROM 'attributes'   VIRTUAL,
    ordering_key  STRING              METADATA FROM 'ordering-key' VIRTUAL,
    subscription  STRING              METADATA                     VIRTUAL,
    WATERMARK FOR publish_time AS publish_time - INTERVAL '5' SECOND
"""
PER_KEY = {"scan.ordering-mode": "per-key"}
MINUTE = 60


@pytest.fixture(scope="module")
def env() -> Any:
    made = table_environment()
    made.get_config().set_local_timezone("UTC")
    return made


@pytest.mark.feature("SQL-02")
@pytest.mark.feature("SQL-03")
@pytest.mark.feature("SQL-04")
@pytest.mark.feature("SQL-12")
@pytest.mark.feature("SQL-13")
def test_what_sql_writes_sql_reads_back_with_all_metadata(env: Any) -> None:
    staged = [
        ("a", 1, {"source": "sql", "grün": "größe"}, "k1"),
        ("b", -2, {}, "k2"),
        ("c", None, {"source": "sql"}, None),
        ("", 2**31 - 1, None, ""),
    ]
    inserts = [f"INSERT INTO orders VALUES {_row(*row)}" for row in staged]
    with orders(ordered=True) as emulator:
        with table(env, WRITTEN, written({"sink.message-ordering.enabled": "true"}, to=emulator)):
            run(env, *inserts)
        with table(env, READ, with_clause(emulator, PER_KEY), "incoming_orders"):
            columns = "order_id, amount, attrs, ordering_key, message_id, CAST(publish_time AS STRING), subscription"
            found = rows(env, f"SELECT {columns} FROM incoming_orders", len(staged))
        messages = {json.loads(message.data)["order_id"]: message for message in emulator.published(TOPIC)}
    assert sorted(found, key=str) == sorted(
        [
            (name, amount, attrs or {}, key or None, messages[name].message_id, _time(messages[name]), SUBSCRIPTION)
            for name, amount, attrs, key in staged
        ],
        key=str,
    )


def _row(order_id: str, amount: int | None, attrs: dict[str, str] | None, key: str | None) -> str:
    """A row in which anything may be missing."""
    text = [f"'{order_id}'", "CAST(NULL AS INT)" if amount is None else str(amount)]
    entries = ", ".join(f"'{part}'" for entry in (attrs or {}).items() for part in entry)
    text.append(f"MAP[{entries}]" if entries else "CAST(NULL AS MAP<STRING, STRING>)")
    return f"({', '.join([*text, 'CAST(NULL AS STRING)' if key is None else repr(key)])})"


def _time(message: Any) -> str:
    """The publish time as SQL shows it: to the millisecond, not rounded."""
    whole = datetime.fromtimestamp(message.publish_time.seconds, timezone.utc)
    return f"{whole:%Y-%m-%d %H:%M:%S}.{message.publish_time.nanos // 1_000_000:03}"


@pytest.mark.feature("SQL-03")
@pytest.mark.feature("SQL-13")
@pytest.mark.parametrize(
    ("columns", "counts"),
    [
        pytest.param("window_start, window_end", [(0, 3), (1, 2)], id="one result of each window that is over"),
        pytest.param("window_start", [(0, 1), (0, 1), (0, 2), (0, 2), (0, 3), (1, 1), (1, 1), (1, 2), (2, 1)], id="updates"),
    ],
)
def test_orders_are_counted_by_the_minute_of_their_publish_time(env: Any, columns: str, counts: list[tuple[int, int]]) -> None:
    clock = ManualClock()
    query = f"""
        SELECT window_start, COUNT(*)
        FROM TABLE(TUMBLE(TABLE incoming_orders, DESCRIPTOR(publish_time), INTERVAL '1' MINUTE))
        GROUP BY {columns}
    """
    with Emulator(clock=clock) as emulator:
        to_the_middle_of_a_minute(clock)
        emulator.create_topic(TOPIC)
        emulator.create_subscription(SUBSCRIPTION, TOPIC, enable_message_ordering=True)
        for count in (3, 2, 1):
            for n in range(count):  # of one key, as messages of several may overtake each other and then are late
                emulator.publish(TOPIC, json.dumps({"order_id": "x", "amount": n}).encode(), ordering_key="k")
            clock.advance(MINUTE)
        [first, *_] = emulator.published(TOPIC)
        with table(env, READ, with_clause(emulator, PER_KEY), "incoming_orders"):
            found = rows(env, query, len(counts))
    start = datetime.fromtimestamp(first.publish_time.seconds // MINUTE * MINUTE, timezone.utc).replace(tzinfo=None)
    assert found == [(start + timedelta(minutes=minute), count) for minute, count in counts]
