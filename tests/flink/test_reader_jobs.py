"""The reader in real jobs: failure policies, checkpoints that do not come, budgets, blocked jobs, and metrics over REST."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import cloudpickle
import psutil
import pytest
from pyflink.common import Types, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.formats.json import JsonRowDeserializationSchema
from pyflink.java_gateway import get_gateway

from flink_pubsub import (
    DeserializationFailurePolicy,
    OrderingMode,
    PubSubDeserializationSchema,
    PubSubPublisherOptions,
    PubSubSerializationSchema,
    PubSubSink,
    PubSubSource,
    PubSubSubscriberOptions,
    SubscriptionDestination,
    TopicDestination,
)
from flink_pubsub.emulator import Emulator
from flink_pubsub.wire import pubsub_pb2 as wire
from tests.bridge_connectors import CollectingSink, CountingSource
from tests.flink.jobs import JavaObject, bridge_source, environment, eventually, failure_of, running, worker_spec, workers

IN_TOPIC, OUT_TOPIC, LETTERS = (f"projects/p/topics/{name}" for name in ("input", "output", "letters"))
PATH = "projects/p/subscriptions/input"

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator() as emulator:
        for topic in (IN_TOPIC, OUT_TOPIC, LETTERS):
            emulator.create_topic(topic)
        policy = wire.DeadLetterPolicy(dead_letter_topic=LETTERS, max_delivery_attempts=5)
        emulator.create_subscription(
            PATH, IN_TOPIC, ack_deadline_seconds=10, dead_letter_policy=policy, enable_message_ordering=True
        )
        yield emulator


def publish(emulator: Emulator, *payloads: bytes, key: str = "") -> None:
    for low in range(0, len(payloads), 1000):
        messages = [wire.PubsubMessage(data=data, ordering_key=key) for data in payloads[low : low + 1000]]
        emulator.publish_all(IN_TOPIC, messages)


def source(
    emulator: Emulator,
    schema: PubSubDeserializationSchema,
    policy: DeserializationFailurePolicy = DeserializationFailurePolicy.FAIL,
    mode: OrderingMode = OrderingMode.NONE,
    **options: Any,
) -> PubSubSource:
    builder = PubSubSource.builder().subscriptions(SubscriptionDestination("p", "input")).deserializer(schema)
    builder.deserialization_failure_policy(policy).ordering_mode(mode)
    builder.subscriber_options(PubSubSubscriberOptions(**options))
    return builder.emulator_endpoint(emulator.endpoint).build()


def to_output(emulator: Emulator, env: StreamExecutionEnvironment, built: PubSubSource, cap: int = 1000) -> None:
    """A job that publishes what it reads, as JSON."""
    schema = PubSubSerializationSchema.payload(lambda record: json.dumps(record).encode())
    builder = PubSubSink.builder().topic(TopicDestination("p", "output")).serializer(schema)
    builder.publisher_options(PubSubPublisherOptions(max_in_flight_messages=cap))
    stream = env.from_source(built, WatermarkStrategy.no_watermarks(), "input")
    stream.sink_to(builder.emulator_endpoint(emulator.endpoint).build())


def arrived(emulator: Emulator) -> list[Any]:
    return [json.loads(message.data) for message in emulator.published(OUT_TOPIC)]


@pytest.mark.feature("SRC-24")
@pytest.mark.feature("SRC-28")
@pytest.mark.feature("SRC-30")
def test_drop_goes_on_and_acknowledges_what_cannot_be_decoded(emulator: Emulator) -> None:
    publish(emulator, b"1", b"two", b"3")
    env = environment()
    to_output(
        emulator, env, source(emulator, PubSubDeserializationSchema.payload(json.loads), DeserializationFailurePolicy.DROP)
    )
    with running(env) as job:
        job.wait_until(lambda: emulator.counts(PATH).acked == 3, "all three are acknowledged")
        job.wait_until(lambda: job.metrics("input").get("messagesDropped") == "1", "the drop is counted")
        assert job.metrics("input")["numRecordsInErrors"] == "1"
    assert sorted(arrived(emulator)) == [1, 3]


@pytest.mark.feature("SRC-24")
@pytest.mark.feature("SRC-22")
@pytest.mark.parametrize("decoded_in", ["worker", "jvm"])
def test_nack_sends_what_cannot_be_decoded_to_the_dead_letter_topic_and_keeps_the_order_of_its_key(
    emulator: Emulator, decoded_in: str
) -> None:
    numbers = [json.dumps({"n": n}).encode() for n in range(20)]
    publish(emulator, *numbers[:3], b"{broken", *numbers[3:], key="k")
    row = Types.ROW_NAMED(["n"], [Types.LONG()])
    schema = PubSubDeserializationSchema.payload(
        json.loads if decoded_in == "worker" else JsonRowDeserializationSchema.builder().type_info(row).build()
    )
    env = environment()
    built = source(emulator, schema, DeserializationFailurePolicy.NACK, OrderingMode.PER_KEY)
    stream = env.from_source(built, WatermarkStrategy.no_watermarks(), "input")
    if decoded_in == "jvm":
        stream = stream.map(lambda record: {"n": record["n"]})
    serializer = PubSubSerializationSchema.payload(lambda record: json.dumps(record["n"]).encode())
    sink = PubSubSink.builder().topic(TopicDestination("p", "output")).serializer(serializer)
    stream.sink_to(sink.emulator_endpoint(emulator.endpoint).build())
    with running(env) as job:
        job.wait_until(lambda: emulator.published_count(OUT_TOPIC) > 3, "something behind the broken message arrives")
        assert [letter.data for letter in emulator.published(LETTERS)] == [b"{broken"], "it did not overtake"
        job.wait_until(lambda: emulator.published_count(OUT_TOPIC) == 20, "everything else arrives")
        job.wait_until(lambda: job.metrics("input").get("numRecordsInErrors") == "5", "each attempt is counted")
    assert arrived(emulator) == list(range(20))


@pytest.mark.feature("SRC-16")
def test_a_job_without_checkpoints_fails_naming_the_setting(emulator: Emulator) -> None:
    publish(emulator, b"1")
    env = environment(checkpoint_millis=None)
    schema = PubSubDeserializationSchema.payload(json.loads)
    built = source(emulator, schema, first_checkpoint_timeout=timedelta(seconds=1))
    env.from_source(built, WatermarkStrategy.no_watermarks(), "input").print()
    message = failure_of(env)
    assert "execution.checkpointing.interval" in message
    assert "first_checkpoint_timeout" in message


@pytest.mark.feature("SRC-18")
def test_a_service_that_confirms_nothing_fails_the_job_naming_the_option(emulator: Emulator) -> None:
    emulator.stop_answering("Acknowledge")
    publish(emulator, b"1")
    env = environment()
    schema = PubSubDeserializationSchema.payload(json.loads)
    built = source(emulator, schema, await_ack_confirmation=timedelta(seconds=1))
    env.from_source(built, WatermarkStrategy.no_watermarks(), "input").print()
    message = failure_of(env)
    assert "await_ack_confirmation" in message
    assert "did not confirm 1 acknowledgements" in message


@pytest.mark.feature("SRC-18")
def test_confirmed_checkpoints_go_on(emulator: Emulator) -> None:
    env = environment()
    schema = PubSubDeserializationSchema.payload(json.loads)
    to_output(emulator, env, source(emulator, schema, await_ack_confirmation=timedelta(seconds=30)))
    with running(env) as job:
        for n in range(3):
            publish(emulator, json.dumps(n).encode())
            job.wait_until(lambda n=n: emulator.counts(PATH).acked == n + 1, f"message {n} is acknowledged")  # type: ignore[misc]
    assert arrived(emulator) == [0, 1, 2]


@pytest.mark.feature("SRC-10")
@pytest.mark.feature("SRC-27")
@pytest.mark.parametrize("cause", ["a message beyond the budget", "a deleted subscription"])
def test_a_failure_reaches_the_coordinator_while_downstream_is_blocked(emulator: Emulator, cause: str) -> None:
    publish(emulator, *(str(n).encode() for n in range(100)))
    emulator.stop_answering("Publish")
    env = environment()
    schema = PubSubDeserializationSchema.payload(json.loads)
    built = source(emulator, schema, subscriber_buffer_max_bytes=20_000, flow_control_max_outstanding_element_count=200)
    to_output(emulator, env, built, cap=5)
    with running(env) as job:
        job.wait_until(lambda: emulator.calls("Publish") > 0 and len(workers("reader")) == 1, "the sink publishes")
        job.wait_until(lambda: job.metrics("input").get("fetcherBufferedMessages") == "100", "the job holds everything")
        if cause == "a deleted subscription":
            emulator.delete_subscription(PATH)
        else:
            publish(emulator, b"1" * 30_000)
        eventually(lambda: not job.alive, "the job has failed")
        message = job.failure()
    assert PATH in message
    assert ("NOT_FOUND" if cause == "a deleted subscription" else "subscriber_buffer_max_bytes") in message


@pytest.mark.feature("SRC-25")
def test_a_message_that_downstream_fails_on_is_given_back_before_the_reader_closes(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    bridge = get_gateway().jvm.io.github.flinkpubsub.bridge
    longs = get_gateway().jvm.org.apache.flink.api.common.typeinfo.Types.LONG.createSerializer(None)
    sink = bridge.PythonSink(
        cloudpickle.dumps(CollectingSink(str(tmp_path / "out"))), worker_spec(), bridge.SerializerEncoder(longs), None
    )
    env = environment()
    stream = env.from_source(bridge_source(CountingSource(journal=str(journal))), WatermarkStrategy.no_watermarks(), "count")
    stream.sink_to(JavaObject(sink))
    assert "ClassCastException" in failure_of(env)
    said = journal.read_text().splitlines()
    assert said.index("failed s0 0 True") < said.index("close")


COUNTERS = {
    "messagesReceived",
    "messagesAcked",
    "messagesNacked",
    "messagesDropped",
    "recordsSkipped",
    "numRecordsInErrors",
    "splitsParked",
}
GAUGES = {
    "pendingAcks",
    "pendingCheckpoints",
    "bufferedMessages",
    "bufferedBytes",
    "fetcherBufferedMessages",
    "fetcherBufferedBytes",
    "parkedSplits",
    "subscriberShutdownsAbandoned",
    "subscriberFailuresUnreported",
}


@pytest.mark.feature("SRC-28")
@pytest.mark.feature("SRC-17")
@pytest.mark.feature("BEY-01")
@pytest.mark.feature("BEY-02")
def test_a_job_blocked_for_several_lease_periods_emits_nothing_twice_and_shows_what_it_holds(
    emulator: Emulator, record_property: Any
) -> None:
    count = 20_000
    publish(emulator, *(json.dumps({"n": n, "fill": "x" * 1000}).encode() for n in range(count)))
    emulator.stop_answering("Publish")
    env = environment()
    built = source(
        emulator,
        PubSubDeserializationSchema.payload(lambda data: json.loads(data)["n"]),
        flow_control_max_outstanding_element_count=8_000,
        max_ack_extension_period=timedelta(seconds=10),
    )
    to_output(emulator, env, built, cap=100)
    with running(env) as job:
        job.wait_until(lambda: job.metrics("input").get("bufferedMessages", "0") != "0", "the reader holds messages back")
        held = job.metrics("input")
        assert held.keys() >= COUNTERS | GAUGES
        assert "pendingRecords" not in held
        assert int(held["fetcherBufferedMessages"]) > 0
        assert int(held["fetcherBufferedBytes"]) > 0
        assert int(held["pendingAcks"]) > int(held["bufferedMessages"]) > 0
        assert held["messagesAcked"] == "0"
        [worker] = workers("reader")
        sizes: list[int] = []

        def three_periods_are_over() -> bool:
            sizes.append(worker.memory_info().rss)
            return emulator.counts(PATH).delivered > 3 * 8_000

        eventually(three_periods_are_over, "three lease periods are over")
        now = job.metrics("input")
        most_buffered, most_held = int(now["bufferedMessages"]), int(now["pendingAcks"])
        delivered = emulator.counts(PATH).delivered
        emulator.resume("Publish")
        job.wait_until(lambda: emulator.counts(PATH).acked >= count, "everything is acknowledged")
        job.wait_until(lambda: job.metrics("input")["bufferedMessages"] == "0", "nothing is buffered any more")
        job.wait_until(lambda: int(job.metrics("input")["messagesAcked"]) >= count, "every acknowledgement is counted")
    numbers = arrived(emulator)
    duplicates = len(numbers) - len(set(numbers))
    peak = max(sizes) >> 20
    record_property("duplicates", duplicates)
    record_property("peak_megabytes", peak)
    print(f"deliveries={delivered} duplicates={duplicates} peak={peak} MiB buffered={most_buffered} held={most_held}")
    assert set(numbers) == set(range(count))
    assert duplicates == 0
    assert most_buffered <= 5_000 + 1_000
    assert peak < 56 + 64
    assert psutil.pid_exists(worker.pid) is False
