"""The reader's metrics over Flink's REST API in running jobs: each is there, and changes when its cause happens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from pyflink.common import Types, WatermarkStrategy
from pyflink.common.serialization import SimpleStringSchema
from pyflink.datastream.formats.json import JsonRowDeserializationSchema

from flink_pubsub import (
    DeserializationFailurePolicy,
    PubSubDeserializationSchema,
    PubsubMessage,
    PubSubSerializationSchema,
    PubSubSink,
    SubscriptionDestination,
    TopicDestination,
)
from flink_pubsub.emulator import Emulator
from tests.flink.jobs import Job, environment, eventually, running, workers
from tests.flink.reader_jobs import PATH, arrived, emulator_of_a_pipe, publish, source, to_output

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
EMPTY = ("pendingAcks", "bufferedMessages", "bufferedBytes", "fetcherBufferedMessages", "fetcherBufferedBytes")
BUDGET = 4_000

pytestmark = [pytest.mark.timeout(240), pytest.mark.feature("SRC-28")]


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with emulator_of_a_pipe() as emulator:
        yield emulator


def show(job: Job, **expected: int) -> None:
    """Waits until the source shows these values."""
    job.shown(lambda: job.metrics("input"), {name: str(value) for name, value in expected.items()})


class Some(PubSubDeserializationSchema):
    """A record per message, none for "skip"."""

    def deserialize(self, message: PubsubMessage, subscription: SubscriptionDestination, collector: Any) -> None:
        if message.data != b"skip":
            collector.collect(json.loads(message.data))


@pytest.mark.feature("SRC-02")
@pytest.mark.feature("SRC-30")
def test_what_a_python_schema_skips_and_drops_is_acknowledged_and_counted(emulator: Emulator) -> None:
    publish(emulator, b"1", b"two", b"3", b"skip", b"skip")
    env = environment()
    to_output(emulator, env, source(emulator, Some(), DeserializationFailurePolicy.DROP))
    with running(env) as job:
        show(
            job,
            messagesReceived=5,
            messagesAcked=5,
            messagesDropped=1,
            recordsSkipped=2,
            numRecordsInErrors=1,
            messagesNacked=0,
            pendingAcks=0,
        )
        assert emulator.counts(PATH).acked == 5
    assert sorted(arrived(emulator)) == [1, 3]


@pytest.mark.feature("SRC-24")
@pytest.mark.feature("SRC-30")
@pytest.mark.parametrize(
    ("ignores", "expected"),
    [
        (False, {"messagesDropped": 1, "recordsSkipped": 0, "numRecordsInErrors": 1}),
        (True, {"messagesDropped": 0, "recordsSkipped": 1, "numRecordsInErrors": 0}),
    ],
)
def test_what_a_jvm_schema_skips_or_drops_is_acknowledged_and_counted(
    emulator: Emulator, ignores: bool, expected: dict[str, int]
) -> None:
    publish(emulator, b'{"n": 1}', b"two", b'{"n": 3}')
    builder = JsonRowDeserializationSchema.builder().type_info(Types.ROW_NAMED(["n"], [Types.LONG()]))
    schema = (builder.ignore_parse_errors() if ignores else builder).build()
    env = environment()
    built = source(emulator, PubSubDeserializationSchema.payload(schema), DeserializationFailurePolicy.DROP)
    stream = env.from_source(built, WatermarkStrategy.no_watermarks(), "input").map(lambda row: row["n"])
    serializer = PubSubSerializationSchema.payload(lambda n: json.dumps(n).encode())
    sink = PubSubSink.builder().topic(TopicDestination("p", "output")).serializer(serializer)
    stream.sink_to(sink.emulator_endpoint(emulator.endpoint).build())
    with running(env) as job:
        show(job, messagesReceived=3, messagesAcked=3, pendingAcks=0, **expected)
    assert sorted(arrived(emulator)) == [1, 3]


def test_a_checkpoint_under_way_is_pending_until_it_completes(emulator: Emulator) -> None:
    publish(emulator, b"1")
    emulator.stop_answering("Publish")
    env = environment()
    built = source(emulator, PubSubDeserializationSchema.payload(SimpleStringSchema()))
    # Apart from the sink, the source's task takes part in a checkpoint that the sink holds up.
    stream = env.from_source(built, WatermarkStrategy.no_watermarks(), "input").rebalance()
    sink = PubSubSink.builder().topic(TopicDestination("p", "output"))
    sink.serializer(PubSubSerializationSchema.payload(SimpleStringSchema()))
    stream.sink_to(sink.emulator_endpoint(emulator.endpoint).build())
    with running(env) as job:
        show(job, pendingCheckpoints=1, pendingAcks=1, messagesAcked=0)
        emulator.resume("Publish")
        show(job, pendingAcks=0, messagesAcked=1)


@pytest.mark.feature("SRC-10")
@pytest.mark.feature("SRC-28")
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
        subscriber_buffer_max_messages=BUDGET,
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
        buffered: list[int] = []

        def three_periods_are_over() -> bool:
            sizes.append(worker.memory_info().rss)
            buffered.append(int(job.metrics("input").get("bufferedMessages", 0)))
            return emulator.counts(PATH).nacks > 3 * BUDGET // 2

        eventually(three_periods_are_over, "what waits in the reader went back three times")
        most_held = int(job.shown(lambda: job.metrics("input"), {"messagesAcked": "0"})["pendingAcks"])
        emulator.resume("Publish")
        job.wait_until(lambda: emulator.counts(PATH).acked == count, "everything is acknowledged")
        now = job.shown(lambda: job.metrics("input"), dict.fromkeys(EMPTY, "0") | {"messagesAcked": str(count)})
        assert int(now["messagesNacked"]) > 3 * BUDGET // 2
        deliveries = emulator.counts(PATH).delivered
    numbers = arrived(emulator)
    duplicates = len(numbers) - len(set(numbers))
    peak = max(sizes) >> 20
    figures = {"deliveries": deliveries, "redeliveries": deliveries - count, "duplicates": duplicates, "peak_megabytes": peak}
    for name, figure in figures.items():
        record_property(name, figure)
    print("blocked:", figures, f"buffered={max(buffered)} held={most_held}")
    assert set(numbers) == set(range(count))
    assert duplicates == 0
    assert max(buffered) <= BUDGET
    assert peak < 56 + 64
