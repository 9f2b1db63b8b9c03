"""Two subscriptions under watermark alignment: the one ahead stops, the other goes on, and a paused one is still watched."""

from __future__ import annotations

import json
from collections.abc import Iterator
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
    """Waits until the one ahead has stopped while the other one was drained; returns how far it got."""
    seen = [-1, -2, -3, -4]

    def still() -> bool:
        seen.append(emulator.counts(path("ahead")).acked)
        return len(set(seen[-20:])) == 1 and emulator.counts(path("behind")).acked == SHORT

    job.wait_until(still, "the one behind is drained and the one ahead has stopped")
    return seen[-1]


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
        job.wait_until(lambda: "splitsParked" in job.metrics("aligned"), "metrics are shown")
        metrics = job.metrics("aligned")
        assert (metrics["splitsParked"], metrics["parkedSplits"]) == ("0", "0")
        assert 0 < int(metrics["bufferedMessages"]) <= 1000
        deliveries = emulator.counts(path("ahead")).delivered
        publish(emulator, "behind", range(SHORT, COUNT))
        for name in ("ahead", "behind"):
            job.wait_until(lambda name=name: emulator.counts(path(name)).acked == COUNT, f"{name} is drained")  # type: ignore[misc]
    records = emitted(emulator)
    duplicates = len(records) - len(set(records))
    peak = max(sizes) >> 20
    record_property("duplicates", duplicates)
    record_property("peak_megabytes", peak)
    print(f"deliveries={deliveries} duplicates={duplicates} peak={peak} MiB")
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
        job.wait_until(lambda: int(job.metrics("aligned")["splitsParked"]) >= 1, "the park is counted")
    assert set(emitted(emulator)) == {f"{name} {second}" for name in ("ahead", "behind") for second in range(COUNT)}


@pytest.mark.feature("SRC-27")
def test_deleting_the_subscription_of_a_paused_split_fails_the_job_naming_it(emulator: Emulator) -> None:
    with running(aligned(emulator)) as job:
        stopped(emulator, job)
        emulator.delete_subscription(path("ahead"))
        eventually(lambda: not job.alive, "the job has failed")
        message = job.failure()
    assert path("ahead") in message
    assert "NOT_FOUND" in message
