"""Two subscriptions under watermark alignment: the one ahead stops, the other goes on, and a paused one is still watched."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from pyflink.common import Duration, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment

from flink_pubsub import (
    PubSubDeserializationSchema,
    PubsubMessage,
    PubSubSerializationSchema,
    PubSubSink,
    PubSubSource,
    PubSubSubscriberOptions,
    SubscriptionDestination,
    TopicDestination,
)
from flink_pubsub.emulator import Emulator
from flink_pubsub.wire import pubsub_pb2 as wire
from tests.flink.jobs import Job, environment, eventually, running, workers

OUT_TOPIC = "projects/p/topics/output"
COUNT = 6000
"""Seconds of event time, and messages, of each subscription."""
SHORT = 100
"""How far the one behind gets at first."""

pytestmark = [pytest.mark.timeout(240), pytest.mark.feature("SRC-23")]


class Seconds(PubSubDeserializationSchema):
    """A record per message, whose event time is the second it carries."""

    def deserialize(self, message: PubsubMessage, subscription: SubscriptionDestination, collector: Any) -> None:
        second = int(message.data)
        collector.collect(f"{subscription.subscription} {second}", timestamp=second * 1000)


def path(name: str) -> str:
    return f"projects/p/subscriptions/{name}"


def publish(emulator: Emulator, name: str, seconds: range) -> None:
    messages = [wire.PubsubMessage(data=str(second).encode()) for second in seconds]
    for low in range(0, len(messages), 1000):
        emulator.publish_all(f"projects/p/topics/{name}", messages[low : low + 1000])


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator() as emulator:
        emulator.create_topic(OUT_TOPIC)
        for name in ("ahead", "behind"):
            emulator.create_topic(f"projects/p/topics/{name}")
            emulator.create_subscription(path(name), f"projects/p/topics/{name}", ack_deadline_seconds=10)
        publish(emulator, "ahead", range(COUNT))
        publish(emulator, "behind", range(SHORT))
        yield emulator


def aligned(emulator: Emulator, **options: Any) -> StreamExecutionEnvironment:
    """A job that reads both, lets neither run ahead by more than ten seconds, and publishes what it reads."""
    env = environment()
    builder = PubSubSource.builder().deserializer(Seconds()).emulator_endpoint(emulator.endpoint)
    builder.subscriptions(SubscriptionDestination("p", "ahead"), SubscriptionDestination("p", "behind"))
    builder.subscriber_options(PubSubSubscriberOptions(max_records_per_fetch=10, **options))
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_watermark_alignment(
        "group", Duration.of_seconds(10), Duration.of_millis(50)
    )
    sink = PubSubSink.builder().topic(TopicDestination("p", "output"))
    sink.serializer(PubSubSerializationSchema.payload(lambda record: json.dumps(record).encode()))
    stream = env.from_source(builder.build(), strategy, "aligned")
    stream.sink_to(sink.emulator_endpoint(emulator.endpoint).build())
    return env


def stopped(emulator: Emulator, job: Job) -> int:
    """Waits until the one behind is drained and the one ahead stood still for five checkpoints; returns how far it got."""
    reached, since = -1, 0

    def still() -> bool:
        nonlocal reached, since
        checkpoints = job.rest().completed_checkpoints()
        acked = emulator.counts(path("ahead")).acked
        if acked != reached or not acked or emulator.counts(path("behind")).acked < SHORT:
            reached, since = acked, checkpoints
        return checkpoints >= since + 5

    job.wait_until(still, "the one behind is drained and the one ahead has stopped")
    return reached


def emitted(emulator: Emulator) -> list[str]:
    return [json.loads(message.data) for message in emulator.published(OUT_TOPIC)]


@pytest.mark.feature("BEY-01")
@pytest.mark.feature("BEY-02")
@pytest.mark.feature("SRC-28")
def test_the_split_that_is_ahead_stops_for_several_lease_periods_and_goes_on_without_a_duplicate(
    emulator: Emulator, record_property: Any
) -> None:
    env = aligned(emulator, max_ack_extension_period=timedelta(seconds=10))
    with running(env) as job:
        reached = stopped(emulator, job)
        assert SHORT <= reached < COUNT - 1000
        [worker] = workers("reader")
        sizes: list[int] = []
        before = emulator.counts(path("ahead")).delivered

        def periods_over() -> bool:
            sizes.append(worker.memory_info().rss)
            return emulator.counts(path("ahead")).delivered > before + 2500

        eventually(periods_over, "what is held was delivered anew twice at least")
        assert emulator.counts(path("ahead")).acked == reached
        metrics = job.shown(lambda: job.metrics("aligned"), {"splitsParked": "0", "parkedSplits": "0"})
        assert 0 < int(metrics["bufferedMessages"]) <= 1000
        publish(emulator, "behind", range(SHORT, COUNT))
        for name in ("ahead", "behind"):
            job.wait_until(lambda name=name: emulator.counts(path(name)).acked == COUNT, f"{name} is drained")  # type: ignore[misc]
        deliveries = emulator.counts(path("ahead")).delivered
    records = emitted(emulator)
    duplicates = len(records) - len(set(records))
    peak = max(sizes) >> 20
    figures = {"deliveries": deliveries, "redeliveries": deliveries - COUNT, "duplicates": duplicates, "peak_megabytes": peak}
    for name, figure in figures.items():
        record_property(name, figure)
    print("paused:", figures)
    assert set(records) == {f"{name} {second}" for name in ("ahead", "behind") for second in range(COUNT)}
    assert duplicates == 0
    assert peak < 56 + 64


def test_a_paused_split_parks_beyond_its_bound_and_comes_back_when_it_is_resumed(emulator: Emulator) -> None:
    env = aligned(emulator, paused_split_buffer_max_messages=500)
    with running(env) as job:
        job.wait_until(lambda: job.metrics("aligned").get("parkedSplits") == "1", "the split ahead is parked")
        emulator.wait_until(lambda: emulator.open_streams(path("ahead")) == 0)
        assert emulator.counts(path("ahead")).outstanding == 0
        publish(emulator, "behind", range(SHORT, COUNT))
        for name in ("ahead", "behind"):
            job.wait_until(lambda name=name: emulator.counts(path(name)).acked == COUNT, f"{name} is drained")  # type: ignore[misc]
        job.wait_until(lambda: int(job.metrics("aligned").get("splitsParked", 0)) >= 1, "the park is counted")
    assert set(emitted(emulator)) == {f"{name} {second}" for name in ("ahead", "behind") for second in range(COUNT)}


@pytest.mark.feature("SRC-27")
@pytest.mark.parametrize(
    ("cause", "status"),
    [
        (lambda emulator: emulator.delete_subscription(path("ahead")), "NOT_FOUND"),
        (lambda emulator: emulator.deny("StreamingPull", path("ahead")), "PERMISSION_DENIED"),
        (lambda emulator: emulator.detach_subscription(path("ahead")), "FAILED_PRECONDITION"),
    ],
    ids=["deleted", "denied", "detached"],
)
def test_losing_the_subscription_of_a_paused_split_fails_the_job_naming_it(
    emulator: Emulator, cause: Callable[[Emulator], None], status: str
) -> None:
    with running(aligned(emulator)) as job:
        stopped(emulator, job)
        cause(emulator)
        eventually(lambda: not job.alive, "the job has failed")
        message = job.failure()
    assert path("ahead") in message
    assert status in message
