"""Lineage as a listener of Flink gets it when a job is created. The listener knows no class of the connector."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyflink.common import WatermarkStrategy
from pyflink.table import StreamTableEnvironment

from flink_pubsub import (
    PubSubDeserializationSchema,
    PubSubSerializationSchema,
    PubSubSink,
    PubSubSource,
    SubscriptionDestination,
    TopicDestination,
)
from flink_pubsub.emulator import Emulator
from tests.flink.jobs import Job, environment, running
from tests.flink.lineage import listener_jar, listening


@pytest.fixture(scope="module")
def listener(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return listener_jar(tmp_path_factory.mktemp("listener"))


@pytest.mark.feature("LIN-01")
def test_a_listener_is_told_what_a_job_reads_and_writes(listener: Path, tmp_path: Path) -> None:
    lineage = tmp_path / "lineage"
    env = environment(settings=listening(lineage))
    env.add_jars(listener.as_uri())
    with Emulator() as emulator:
        for name in ("orders", "returns", "known"):
            emulator.create_topic(f"projects/p/topics/{name}")
        for name in ("orders", "returns"):
            emulator.create_subscription(f"projects/p/subscriptions/{name}", f"projects/p/topics/{name}")
        source = PubSubSource.builder().deserializer(PubSubDeserializationSchema.payload(bytes.decode))
        source.subscriptions(SubscriptionDestination("p", "orders"), SubscriptionDestination("p", "returns"))
        texts = env.from_source(source.emulator_endpoint(emulator.endpoint).build(), WatermarkStrategy.no_watermarks(), "texts")
        serializer = PubSubSerializationSchema.payload(str.encode)
        known = PubSubSink.builder().serializer(serializer).topic(TopicDestination("p", "known"))
        texts.map(str.upper).sink_to(known.emulator_endpoint(emulator.endpoint).build())
        dynamic = PubSubSink.builder().serializer(serializer).destination_resolver(lambda text, _: TopicDestination("p", text))
        texts.sink_to(dynamic.emulator_endpoint(emulator.endpoint).build())
        with running(env) as job:
            job.wait_until(lineage.exists, "the listener has written the lineage")
    orders, returns, topic = (
        f"pubsub/{name} gcp{{dynamic=false, resources={name}}}"
        for name in ("subscription:p:orders", "subscription:p:returns", "topic:p:known")
    )
    assert sorted(lineage.read_text().splitlines()) == [
        f"edge {orders} {returns} ->",
        f"edge {orders} {returns} -> {topic}",
        "sink",
        f"sink {topic}",
        f"source CONTINUOUS_UNBOUNDED {orders} {returns}",
    ]


@pytest.mark.feature("LIN-01")
def test_a_listener_is_told_what_tables_read_and_write_under_their_names(listener: Path, tmp_path: Path) -> None:
    lineage = tmp_path / "lineage"
    env = environment(parallelism=2, settings=listening(lineage))
    env.add_jars(listener.as_uri())
    tables = StreamTableEnvironment.create(env)
    with Emulator() as emulator:
        for name in ("orders", "returns", "known"):
            emulator.create_topic(f"projects/p/topics/{name}")
        for name in ("orders", "returns"):
            emulator.create_subscription(f"projects/p/subscriptions/{name}", f"projects/p/topics/{name}")
        common = f"'connector' = 'pubsub', 'project' = 'p', 'format' = 'json', 'emulator-endpoint' = '{emulator.endpoint}'"
        tables.execute_sql(
            "CREATE TABLE read (id STRING, `publish-time` TIMESTAMP_LTZ(3) METADATA VIRTUAL,"
            f" WATERMARK FOR `publish-time` AS `publish-time`) WITH ({common}, 'subscription' = 'orders;returns')"
        )
        tables.execute_sql(f"CREATE TABLE written (id STRING) WITH ({common}, 'topic' = 'known')")
        tables.execute_sql(
            "CREATE TABLE routed (id STRING, okey STRING METADATA FROM 'ordering-key', dest STRING METADATA FROM 'topic')"
            f" WITH ({common}, 'topic' = 'known', 'sink.message-ordering.enabled' = 'true', 'sink.parallelism' = '2')"
        )
        together = tables.create_statement_set().add_insert_sql("INSERT INTO written SELECT UPPER(id) FROM read")
        job = Job(together.add_insert_sql("INSERT INTO routed SELECT id, id, id FROM read").execute().get_job_client())
        try:
            job.wait_until(lineage.exists, "the listener has written the lineage")
        finally:
            job.cancel()
    read = (
        "pubsub/default_catalog.default_database.read"
        " gcp{dynamic=false, resources=subscription:p:orders;subscription:p:returns}"
    )
    written = "pubsub/default_catalog.default_database.written gcp{dynamic=false, resources=topic:p:known}"
    routed = "pubsub/default_catalog.default_database.routed gcp{dynamic=true, resources=topic:p:known}"
    assert sorted(lineage.read_text().splitlines()) == [
        f"edge {read} -> {routed}",
        f"edge {read} -> {written}",
        f"sink {routed}",
        f"sink {written}",
        f"source CONTINUOUS_UNBOUNDED {read}",
    ]
