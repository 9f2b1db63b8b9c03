"""Reading subscriptions with SQL, in PyFlink's table environment."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from flink_pubsub.wire.pubsub_pb2 import PubsubMessage
from tests.flink.tables import SUBSCRIPTION, orders, rows, table, table_environment, with_clause

COLUMNS = """
    id STRING,
    amount INT,
    message_id STRING METADATA FROM 'message-id' VIRTUAL,
    publish_time TIMESTAMP_LTZ(3) METADATA FROM 'publish-time' VIRTUAL,
    attrs MAP<STRING, STRING> METADATA FROM 'attributes' VIRTUAL,
    ordering_key STRING METADATA FROM 'ordering-key' VIRTUAL,
    subscription STRING METADATA VIRTUAL,
    WATERMARK FOR publish_time AS publish_time - INTERVAL '5' SECOND
"""


@pytest.fixture(scope="module")
def env() -> Any:
    return table_environment()


@pytest.mark.feature("SQL-02")
@pytest.mark.feature("SQL-03")
@pytest.mark.feature("SQL-12")
def test_a_message_is_a_row_of_payload_and_metadata(env: Any) -> None:
    bare = PubsubMessage(data=b'{"id": "b"}', attributes={"only": "this"})
    full = PubsubMessage(data=b'{"id": "a", "amount": 3}', attributes={"k": "v", "x": "ä"}, ordering_key="key")
    before = datetime.now(timezone.utc)
    with orders(full, bare) as emulator, table(env, COLUMNS, with_clause(emulator)):
        query = (
            "SELECT id, amount, message_id, CAST(UNIX_TIMESTAMP(CAST(publish_time AS STRING)) AS BIGINT), attrs, ordering_key,"
            " subscription FROM orders"
        )
        first, second = sorted(rows(env, query, 2))
        [one, two] = emulator.published("projects/p/topics/orders")
    assert first[:2] == ("a", 3)
    assert first[2] == one.message_id
    assert abs(first[3] - before.timestamp()) < 60
    assert first[4:] == ({"k": "v", "x": "ä"}, "key", SUBSCRIPTION)
    assert second[:3] == ("b", None, two.message_id)
    assert second[4:] == ({"only": "this"}, None, SUBSCRIPTION)
