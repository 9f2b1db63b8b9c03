"""SQL without Python around it: Flink's own SQL client and a standalone cluster, with the jar in `lib`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flink_pubsub._jarfile import jar_path
from flink_pubsub.emulator import Emulator
from flink_pubsub.emulator.clock import ManualClock
from tests.cluster.sql_client import gateway_jar, sql_client
from tests.cluster.standalone import Cluster, cluster
from tests.flink.jobs import eventually

TOPIC, SUBSCRIPTION = "projects/my-project/topics/orders", "projects/my-project/subscriptions/orders-sub"

TABLES = """
    SET 'execution.checkpointing.interval' = '200 ms';
    SET 'sql-client.execution.result-mode' = 'tableau';
    SET 'table.dml-sync' = 'true';

    CREATE TABLE outgoing_orders (
      order_id STRING,
      amount INT,
      attrs MAP<STRING, STRING> METADATA FROM 'attributes',
      ordering_key STRING METADATA FROM 'ordering-key'
    ) WITH (
      'connector' = 'pubsub',
      'project' = 'my-project',
      'topic' = 'orders',
      'format' = 'json',
      'sink.message-ordering.enabled' = 'true',
      'emulator-endpoint' = '{endpoint}'
    );

    CREATE TABLE incoming_orders (
      order_id STRING,
      amount INT,
      publish_time TIMESTAMP_LTZ(3) METADATA FROM 'publish-time' VIRTUAL,
      attrs MAP<STRING, STRING> METADATA FROM 'attributes' VIRTUAL,
      ordering_key STRING METADATA FROM 'ordering-key' VIRTUAL,
      WATERMARK FOR publish_time AS publish_time - INTERVAL '5' SECOND
    ) WITH (
      'connector' = 'pubsub',
      'project' = 'my-project',
      'subscription' = 'orders-sub',
      'format' = 'json',
      'scan.ordering-mode' = 'per-key',
      'emulator-endpoint' = '{endpoint}'
    );
"""

INSERT = """
    INSERT INTO outgoing_orders
    VALUES
      ('a-1', 10, MAP['source', 'sql', 'profile-key', 'customer-1'], 'customer-1'),
      ('a-2', 20, MAP['source', 'sql', 'profile-key', 'customer-1'], 'customer-1');
"""

SELECT = """
    SELECT ordering_key, MIN(attrs['source']) AS source, SUM(amount) AS amount, COUNT(*) AS orders
    FROM TABLE(TUMBLE(TABLE incoming_orders, DESCRIPTOR(publish_time), INTERVAL '1' MINUTE))
    GROUP BY window_start, window_end, ordering_key;
"""


@pytest.fixture
def standalone(tmp_path: Path, pytestconfig: pytest.Config) -> Iterator[Cluster]:
    assert pytestconfig.cache is not None
    gateway = gateway_jar(pytestconfig.cache.mkdir("flink"))
    (tmp_path / "cluster").mkdir()
    with cluster(tmp_path / "cluster", jars=[jar_path()], opt=[gateway]) as started:
        yield started


@pytest.mark.feature("SQL-12")
@pytest.mark.feature("SQL-13")
@pytest.mark.timeout(240)
def test_the_sql_client_reads_back_what_it_wrote(standalone: Cluster, tmp_path: Path) -> None:
    clock = ManualClock()
    with Emulator(clock=clock) as emulator:
        emulator.create_topic(TOPIC)
        emulator.create_subscription(SUBSCRIPTION, TOPIC, enable_message_ordering=True)
        tables = TABLES.format(endpoint=emulator.endpoint)
        with sql_client(standalone, tmp_path / "insert", tables, INSERT) as client:
            assert "Complete execution of the SQL update statement." in client.end()
        assert emulator.published_count(TOPIC) == 2
        clock.advance(120)  # what comes now is past the window, and ends it
        emulator.publish(TOPIC, b'{"order_id": "a-3", "amount": 40}', ordering_key="customer-1")
        with sql_client(standalone, tmp_path / "select", tables, SELECT) as client:
            client.wait_for("customer-1")
            [job] = standalone.jobs("RUNNING")
            standalone.cancel(job)
            rows = [[cell.strip() for cell in line.split("|")[2:-1]] for line in client.end().splitlines() if "| +I |" in line]
        assert rows == [["customer-1", "sql", "30", "2"]]
        eventually(lambda: not standalone.workers(), "no worker is left")
