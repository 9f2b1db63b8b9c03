"""The sink in real jobs where something is wrong: topics, messages, the service."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from pyflink.common import Types, WatermarkStrategy
from pyflink.common.serialization import SimpleStringSchema
from pyflink.datastream import DataStream, StreamExecutionEnvironment

from flink_pubsub import (
    CreateDisposition,
    FailedElement,
    FailureHandler,
    PubSubPublisherOptions,
    PubSubSerializationSchema,
    PubSubSink,
    TopicDestination,
)
from flink_pubsub.emulator import Emulator
from flink_pubsub.sink import PubSubSinkBuilder
from tests.bridge_connectors import CountingSource
from tests.flink.jobs import bridge_source, environment, failure_of, running
from tests.flink.pubsub_jobs import SUBSCRIPTION, Pipe, pipe

TOPIC = "projects/p/topics/topic-a"


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator() as emulator:
        emulator.create_topic(TOPIC)
        yield emulator


def sink(emulator: Emulator, schema: PubSubSerializationSchema, **options: Any) -> PubSubSinkBuilder:
    builder = PubSubSink.builder().topic(TopicDestination("p", "topic-a")).serializer(schema)
    return builder.emulator_endpoint(emulator.endpoint).publisher_options(PubSubPublisherOptions(**options))


def numbers(env: StreamExecutionEnvironment, count: int) -> DataStream:
    return env.from_collection(list(range(count)))


def data(emulator: Emulator, topic: str = TOPIC) -> list[int]:
    return [json.loads(message.data) for message in emulator.published(topic)]


def payload() -> PubSubSerializationSchema:
    return PubSubSerializationSchema.payload(lambda number: json.dumps(number).encode())


class KeepInFile(FailureHandler[FailedElement]):
    """Appends what fails to a file, and drops it."""

    def __init__(self, path: str) -> None:
        self.path = path

    def handle(self, element: FailedElement) -> None:
        payload = None if element.payload is None else element.payload.decode(errors="replace")
        with Path(self.path).open("a") as file:
            file.write(json.dumps({"error": element.error, "payload": payload, "cause": str(element.cause)}) + "\n")


def kept(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.feature("SNK-11")
@pytest.mark.feature("SNK-07")
def test_a_topic_that_turns_out_to_be_missing_is_created_and_its_keys_keep_their_order(emulator: Emulator) -> None:
    emulator.set_topic_propagation(1.0)
    env = environment(checkpoint_millis=100)
    schema = payload().with_ordering_key(lambda number: f"k{number % 7}")
    builder = sink(emulator, schema, enable_message_ordering=True).destination_resolver(
        lambda number, context: TopicDestination("p", "topic-a" if number < 2000 else "topic-new")
    )
    numbers(env, 5000).sink_to(builder.build())
    env.execute("publish")
    assert sorted(data(emulator)) == list(range(2000))
    arrived = data(emulator, "projects/p/topics/topic-new")
    for key in range(7):
        assert [number for number in arrived if number % 7 == key] == [n for n in range(2000, 5000) if n % 7 == key]


@pytest.mark.feature("SNK-11")
def test_a_missing_topic_that_may_not_be_created_fails_the_job_naming_the_disposition(emulator: Emulator) -> None:
    emulator.delete_topic(TOPIC)
    env = environment()
    numbers(env, 1).sink_to(sink(emulator, payload()).create_disposition(CreateDisposition.CREATE_NEVER).build())
    message = failure_of(env)
    for part in (TOPIC, "NOT_FOUND", "CreateDisposition.CREATE_NEVER"):
        assert part in message


@pytest.mark.feature("SNK-12")
@pytest.mark.feature("SNK-13")
@pytest.mark.feature("SNK-14")
def test_a_bad_message_reaches_a_dropping_handler_and_costs_its_neighbours_nothing(emulator: Emulator, tmp_path: Path) -> None:
    env = environment(checkpoint_millis=100)
    schema = PubSubSerializationSchema.payload(lambda number: json.dumps(10 // (number - 7) * 0 + number).encode())
    schema = schema.with_attributes(lambda number: {"googled" if number == 555 else "n": str(number)})
    schema = schema.with_ordering_key(lambda number: f"k{number % 3}")
    options = {"enable_message_ordering": True, "batch_request_byte_threshold": 100_000}
    kept_in = tmp_path / "kept"
    numbers(env, 1000).sink_to(sink(emulator, schema, **options).failed_message_handler(KeepInFile(str(kept_in))).build())
    env.execute("publish")
    arrived = data(emulator)
    for key in range(3):
        survivors = [number for number in range(1000) if number % 3 == key and number not in (7, 555)]
        assert [number for number in arrived if number % 3 == key] == survivors
    by_serializer, by_service = kept(kept_in)
    assert by_serializer["payload"] is None
    assert "the function given to payload raised ZeroDivisionError" in by_serializer["error"]
    assert "googled" in by_service["payload"]
    assert f"publishing to {TOPIC} failed: INVALID_ARGUMENT" in by_service["error"]


@pytest.mark.feature("SNK-13")
def test_what_a_schema_in_the_jvm_fails_on_reaches_the_handler_with_the_java_exception(
    emulator: Emulator, tmp_path: Path
) -> None:
    env = environment()
    kept_in = tmp_path / "kept"
    schema = PubSubSerializationSchema.payload(SimpleStringSchema())
    stream = env.from_collection([1, 2, 3], Types.LONG())  # a schema for strings, which it fails on
    stream.sink_to(sink(emulator, schema).failed_message_handler(KeepInFile(str(kept_in))).build())
    env.execute("publish")
    assert emulator.published_count(TOPIC) == 0
    assert [failed["payload"] for failed in kept(kept_in)] == [None] * 3
    for failed in kept(kept_in):
        assert "making its payload in the JVM raised java.lang.ClassCastException" in failed["error"]
        assert TOPIC in failed["error"]


@pytest.mark.feature("SNK-10")
@pytest.mark.parametrize("ordering", [False, True])
def test_an_outage_fails_the_job_within_the_progress_timeout_naming_pubsub(emulator: Emulator, ordering: bool) -> None:
    emulator.stop_answering("Publish")
    env = environment()
    schema = payload().with_ordering_key(lambda number: "k") if ordering else payload()
    options = {"enable_message_ordering": ordering, "publish_progress_timeout": timedelta(seconds=1)}
    numbers(env, 5000).sink_to(sink(emulator, schema, **options).build())
    message = failure_of(env)
    emulator.resume("Publish")
    assert "Pub/Sub has completed no publish for 1.0 s" in message
    assert "messages are outstanding" in message
    assert TOPIC in message


@pytest.mark.feature("SNK-06")
def test_checkpoints_complete_while_a_slow_service_keeps_writes_at_their_cap() -> None:
    batching = PubSubPublisherOptions(max_in_flight_messages=20, batch_element_count_threshold=20)
    with pipe(2000, batching=batching) as job_pipe:
        job_pipe.emulator.delay("Publish", 0.05)
        env = environment(checkpoint_millis=100)
        job_pipe.build(env)
        with running(env) as job:
            some_are_acknowledged(job_pipe, job)


def some_are_acknowledged(job_pipe: Pipe, job: Any) -> None:
    """Only a completed checkpoint acknowledges; two of them cover different numbers of messages."""
    acked = set[int]()

    def three_checkpoints() -> bool:
        acked.add(job_pipe.emulator.counts(SUBSCRIPTION).acked)
        return len(acked - {0, 2000}) >= 3

    job.wait_until(three_checkpoints, "three checkpoints completed on the way")


@pytest.mark.feature("SNK-06")
@pytest.mark.feature("SNK-09")
def test_a_job_is_cancelled_at_once_while_a_write_waits_at_its_cap(emulator: Emulator) -> None:
    emulator.stop_answering("Publish")
    env = environment()
    source = bridge_source(CountingSource(count=100_000, quirk="never ends"), bounded=False)
    schema = PubSubSerializationSchema.payload(bytes)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "endless")
    stream.sink_to(sink(emulator, schema, max_in_flight_messages=10).build())
    with running(env) as job:
        job.wait_until(lambda: emulator.calls("Publish") > 0, "the service was called")
        started = time.monotonic()
        job.cancel()
        assert time.monotonic() - started < 10
    emulator.resume("Publish")


@pytest.mark.feature("SNK-08")
def test_ten_thousand_topics_in_turn_go_through_ten_at_a_time(emulator: Emulator) -> None:
    topics = [f"projects/p/topics/topic-{number}" for number in range(10_000)]
    for topic in topics:
        emulator.create_topic(topic)
    emulator.fail_rate("Publish", grpc.StatusCode.UNAVAILABLE, every=50)
    env = environment(checkpoint_millis=100)
    builder = sink(emulator, payload(), max_active_publishers=10).destination_resolver(
        lambda number, context: TopicDestination("p", f"topic-{number}")
    )
    numbers(env, 10_000).sink_to(builder.build())
    env.execute("publish")
    assert {emulator.published_count(topic) for topic in topics} == {1}
