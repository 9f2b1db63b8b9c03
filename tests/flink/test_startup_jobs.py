"""How real jobs start, restart, and start again from savepoints with another parallelism."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from grpc import StatusCode
from pyflink.common import Configuration, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.java_gateway import get_gateway

from flink_pubsub import (
    Collector,
    OrderingMode,
    PubSubDeserializationSchema,
    PubsubMessage,
    PubSubSerializationSchema,
    PubSubSink,
    PubSubSource,
    StartPosition,
    SubscriptionCreateOptions,
    SubscriptionDestination,
    TopicDestination,
)
from flink_pubsub.emulator import Emulator
from flink_pubsub.source import PubSubSourceBuilder
from flink_pubsub.wire.pubsub_pb2 import PubsubMessage as WireMessage
from tests.flink.jobs import JavaObject, Job, environment, failure_of, running, workers

TOPIC = "projects/p/topics/orders"
ORDERS, RETURNS = SubscriptionDestination("p", "orders"), SubscriptionDestination("p", "returns")

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator() as emulator:
        emulator.create_topic(TOPIC)
        yield emulator


@dataclass
class Journal(PubSubDeserializationSchema):
    """Writes down which worker got what from where; every process has a file of its own."""

    folder: Path

    def deserialize(self, message: PubsubMessage, subscription: SubscriptionDestination, collector: Collector) -> None:
        with open(self.folder / str(os.getpid()), "a") as file:
            file.write(f"{subscription.subscription} {message.data.decode()}\n")
        collector.collect(message.data)


@dataclass
class Arrivals:
    """What a job's readers got, by process."""

    folder: Path
    schema: Journal = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.schema = Journal(self.folder)

    def readers(self) -> dict[int, set[str]]:
        """The subscriptions that each reader's process got messages from."""
        return {int(file.name): {line.split()[0] for line in _lines(file)} for file in self.folder.iterdir()}

    def data(self) -> list[str]:
        return sorted(line.split()[1] for file in self.folder.iterdir() for line in _lines(file))

    def are(self, numbers: range) -> bool:
        """Whether these have arrived, once or more often, and no others."""
        return {int(data) for data in self.data()} == set(numbers)


def _lines(file: Path) -> list[str]:
    return [line for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]


@pytest.fixture
def arrivals(tmp_path: Path) -> Arrivals:
    return Arrivals(tmp_path / "arrivals")


def builder(emulator: Emulator, arrivals: Arrivals) -> PubSubSourceBuilder:
    return PubSubSource.builder().deserializer(arrivals.schema).emulator_endpoint(emulator.endpoint)


def job_of(
    source: PubSubSource, sink: PubSubSink | None = None, *, savepoint: str | None = None, **settings: Any
) -> StreamExecutionEnvironment:
    """A job that reads, and writes to the sink or discards."""
    env = environment(**settings)
    configuration = Configuration()
    configuration.set_string("metrics.fetcher.update-interval", "100 ms")  # how old what the REST API shows may be
    if savepoint is not None:
        configuration.set_string("execution.state-recovery.path", savepoint)
    env.configure(configuration)
    nowhere = get_gateway().jvm.org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink()
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "orders").uid("orders")
    stream.sink_to(sink or JavaObject(nowhere)).uid("sink")
    return env


def savepoint_of(job: Job, folder: Path, *, stop: bool) -> str:
    """Takes a savepoint of a running job, and returns where it is."""
    client = job._client._j_job_client
    canonical = get_gateway().jvm.org.apache.flink.core.execution.SavepointFormatType.CANONICAL
    taken = client.stopWithSavepoint(False, str(folder), canonical) if stop else client.triggerSavepoint(str(folder), canonical)
    path: str = taken.get()
    return path


def publish(emulator: Emulator, numbers: range, topic: str = TOPIC) -> None:
    emulator.publish_all(topic, [WireMessage(data=str(n).encode()) for n in numbers])


def shows(job: Job, **gauges: int) -> Callable[[], bool]:
    """Whether the enumerator's gauges have these values."""

    def shown() -> bool:
        try:
            now = job.rest().enumerator("orders")
        except OSError:
            return False
        return all(now.get(name) == value for name, value in gauges.items())

    return shown


@pytest.mark.feature("SRC-19")
def test_a_job_with_wrong_subscriptions_fails_with_every_reason_before_anything_is_sought(
    emulator: Emulator, arrivals: Arrivals
) -> None:
    emulator.create_subscription(ORDERS.resource_path, TOPIC)
    source = builder(emulator, arrivals).subscriptions(ORDERS, RETURNS).ordering_mode(OrderingMode.PER_KEY)
    failure = failure_of(job_of(source.start_position(StartPosition.latest()).build()))
    assert "flink_pubsub.errors.StartupCheckError" in failure
    assert "the source cannot start for 2 reasons" in failure
    assert "subscription projects/p/subscriptions/orders delivers without order" in failure
    assert "subscription projects/p/subscriptions/returns does not exist" in failure
    assert emulator.calls("Seek") == 0
    assert emulator.calls("StreamingPull") == 0


@pytest.mark.feature("SRC-20")
@pytest.mark.feature("SRC-21")
def test_a_created_subscription_brings_back_what_its_topic_retains(emulator: Emulator, arrivals: Arrivals) -> None:
    retaining = "projects/p/topics/retaining"
    emulator.create_topic(retaining, message_retention_duration={"seconds": 3600})
    publish(emulator, range(100), retaining)
    options = SubscriptionCreateOptions(topic=TopicDestination("p", "retaining"), never_expire=True)
    source = builder(emulator, arrivals).subscription(ORDERS, options).start_position(StartPosition.earliest_retained())
    with running(job_of(source.build())) as job:
        job.wait_until(lambda: len(arrivals.data()) == 100, "the retained messages arrive")
        publish(emulator, range(100, 200), retaining)
        job.wait_until(lambda: arrivals.are(range(200)), "new messages arrive")
    assert emulator.subscriptions() == [ORDERS.resource_path]


@pytest.mark.feature("SRC-21")
def test_earliest_retained_replays_acknowledged_messages(emulator: Emulator, arrivals: Arrivals) -> None:
    emulator.create_subscription(ORDERS.resource_path, TOPIC, retain_acked_messages=True)
    publish(emulator, range(100))
    source = builder(emulator, arrivals).subscriptions(ORDERS)
    with running(job_of(source.build())) as job:
        job.wait_until(lambda: emulator.counts(ORDERS.resource_path).acked >= 100, "everything is acknowledged")
    assert arrivals.are(range(100))
    with running(job_of(source.start_position(StartPosition.earliest_retained()).build())) as job:
        job.wait_until(lambda: len(arrivals.data()) >= 200, "everything arrives again")
    assert arrivals.data() == sorted([str(n) for n in range(100)] * 2)


@pytest.mark.feature("SRC-07")
@pytest.mark.feature("SRC-21")
@pytest.mark.feature("SRC-31")
def test_savepoints_with_1_3_and_2_subtasks_lose_nothing_and_never_seek_again(
    emulator: Emulator, arrivals: Arrivals, tmp_path: Path
) -> None:
    output = "projects/p/topics/output"
    emulator.create_topic(output)
    topics = own_topics(emulator)
    publish(emulator, range(-1000, 0), topics[0])
    source = builder(emulator, arrivals).subscriptions(ORDERS, RETURNS).start_position(StartPosition.latest()).build()
    sink = PubSubSink.builder().topic(TopicDestination("p", "output")).emulator_endpoint(emulator.endpoint)
    sink.serializer(PubSubSerializationSchema.payload(bytes))
    savepoint, count = None, 0
    for parallelism in (1, 3, 2):
        env = job_of(source, sink.build(), savepoint=savepoint, parallelism=parallelism, checkpoint_millis=1000)
        with running(env) as job:
            job.wait_until(partial(streams_are_open, emulator, max(2, parallelism)), "every split is read")
            for topic in topics * 2:
                publish(emulator, range(count, count + 1000), topic)
                count += 1000
            job.wait_until(lambda: emulator.published_count(output) > 0, "the first messages are through")
            savepoint = savepoint_of(job, tmp_path, stop=True)  # with others under way
        for topic in topics:
            publish(emulator, range(count, count + 500), topic)
            count += 500
    with running(job_of(source, sink.build(), savepoint=savepoint)) as job:
        job.wait_until(partial(nothing_waits, emulator), "everything is acknowledged")
    assert {int(message.data) for message in emulator.published(output)} == set(range(count))
    assert emulator.calls("Seek") == 2


def nothing_waits(emulator: Emulator) -> bool:
    """Whether every message is settled. A count of acknowledgements would not tell: a seek settles messages too."""
    counts = [emulator.counts(each.resource_path) for each in (ORDERS, RETURNS)]
    return all(each.acked == each.received for each in counts)


def streams_are_open(emulator: Emulator, count: int) -> bool:
    return emulator.open_streams() == count


def own_topics(emulator: Emulator, **settings: Any) -> list[str]:
    """Gives both subscriptions a topic of their own, and returns the topics."""
    topics = []
    for each in (ORDERS, RETURNS):
        topics.append(f"projects/p/topics/{each.subscription}-own")
        emulator.create_topic(topics[-1])
        emulator.create_subscription(each.resource_path, topics[-1], **settings)
    return topics


@pytest.mark.feature("SRC-08")
@pytest.mark.feature("SRC-28")
def test_a_reader_that_registers_again_gets_the_same_splits(emulator: Emulator, arrivals: Arrivals) -> None:
    topics = own_topics(emulator, enable_message_ordering=True)
    for topic in topics:
        publish(emulator, range(10), topic)
    source = builder(emulator, arrivals).subscriptions(ORDERS, RETURNS).ordering_mode(OrderingMode.PER_KEY).build()
    with running(job_of(source, parallelism=3, restarts=1)) as job:
        job.wait_until(lambda: len(arrivals.data()) == 20, "both subscriptions are read")
        job.wait_until(shows(job, assignedSplits=2, unassignedSplits=0, unassignedReaders=0), "the gauges show the plan")
        by_subscription = {name: reader for reader, [name] in arrivals.readers().items()}
        assert by_subscription.keys() == {"orders", "returns"}
        [killed] = [worker for worker in workers("reader") if worker.pid == by_subscription["returns"]]
        job.wait_until(lambda: emulator.counts(RETURNS.resource_path).acked == 10, "a checkpoint completed")
        before = {worker.pid for worker in workers("reader")}
        killed.kill()
        killed.wait()
        job.wait_until(
            lambda: bool({w.pid for w in workers("reader")} - before) and emulator.open_streams() == 2,
            "another reader took the place of the killed one",
        )
        for topic in topics:
            publish(emulator, range(10, 20), topic)
        job.wait_until(lambda: len(arrivals.data()) == 40, "both subscriptions are read again")
        after = arrivals.readers()
        assert after[by_subscription["orders"]] == {"orders"}
        [replacement] = after.keys() - set(by_subscription.values())
        assert after[replacement] == {"returns"}
        assert emulator.calls("GetSubscription") == 2
        job.wait_until(shows(job, assignedSplits=2, unassignedSplits=0), "the gauges show the plan again")
        rest = job.rest()
        finished = [task["status"] for task in rest.get(f"/vertices/{rest.vertex('orders')['id']}")["subtasks"]]
        assert finished == ["RUNNING", "RUNNING", "FINISHED"]


@pytest.mark.feature("SRC-28")
def test_gauges_follow_the_enumerator_that_a_restart_of_the_job_makes(emulator: Emulator, arrivals: Arrivals) -> None:
    emulator.create_subscription(ORDERS.resource_path, TOPIC)
    publish(emulator, range(1))
    emulator.fail_next("GetSubscription", StatusCode.PERMISSION_DENIED, "not yet")
    with running(job_of(builder(emulator, arrivals).subscriptions(ORDERS).build(), restarts=1)) as job:
        job.wait_until(lambda: arrivals.data() == ["0"], "the second check succeeds")
        job.wait_until(shows(job, assignedSplits=1, unassignedReaders=0), "the gauges show the second plan")


@pytest.mark.feature("SRC-19")
@pytest.mark.feature("SRC-28")
@pytest.mark.feature("SRC-31")
def test_readers_wait_for_the_check_and_a_savepoint_before_its_end_says_that_nothing_was_sought(
    emulator: Emulator, arrivals: Arrivals, tmp_path: Path
) -> None:
    emulator.create_subscription(ORDERS.resource_path, TOPIC)
    publish(emulator, range(100))
    source = builder(emulator, arrivals).subscriptions(ORDERS).start_position(StartPosition.latest()).build()
    emulator.stop_answering("GetSubscription")
    with running(job_of(source, parallelism=2)) as job:
        job.wait_until(shows(job, assignedSplits=0, unassignedReaders=2), "readers wait")
        savepoint = savepoint_of(job, tmp_path, stop=False)
        assert emulator.calls("StreamingPull") == 0
        job.cancel()
        assert "JobCancellationException" in job.failure()  # and no other failure
    assert not workers()
    emulator.resume("GetSubscription")
    with running(job_of(source, savepoint=savepoint)) as job:
        job.wait_until(partial(streams_are_open, emulator, 1), "the restored job reads")
        publish(emulator, range(100, 200))
        job.wait_until(lambda: len(arrivals.data()) >= 100, "what came after the check arrives")
    assert arrivals.are(range(100, 200))
    assert emulator.calls("Seek") == 1
