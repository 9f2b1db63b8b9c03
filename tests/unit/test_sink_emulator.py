"""A writer against the emulator, which has the service's limits and verdicts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import grpc
import pytest

from flink_pubsub.bridge.connector import SinkWriter
from flink_pubsub.destinations import TopicDestination
from flink_pubsub.emulator import Emulator
from flink_pubsub.errors import PublishError
from flink_pubsub.options import Connection, PubSubPublisherOptions
from flink_pubsub.schemas import PubSubSerializationSchema
from flink_pubsub.sink import SinkSpec
from flink_pubsub.topic_options import CreateDisposition
from flink_pubsub.worker.sink import PubSubSinkConnector
from tests.unit.sink_support import Listener, write_batch

TOPIC = TopicDestination("p", "orders")
PATH = TOPIC.resource_path
LARGE: dict[str, Any] = {"batch_element_count_threshold": 1000, "batch_request_byte_threshold": 10_000_000}


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator() as running:
        running.create_topic(PATH)
        yield running


def open_writer(
    emulator: Emulator,
    listener: Listener,
    serializer: PubSubSerializationSchema,
    *,
    create: CreateDisposition = CreateDisposition.CREATE_IF_NEEDED,
    **options: Any,
) -> SinkWriter:
    spec = SinkSpec(
        topic=TOPIC,
        destination_resolver=None,
        serializer=serializer,
        element_coding="bytes",
        options=PubSubPublisherOptions(**options),
        connection=Connection(emulator_endpoint=emulator.endpoint),
        create_disposition=create,
    )
    return PubSubSinkConnector(spec).open_writer(listener)


@pytest.mark.feature("SNK-05")
@pytest.mark.feature("SNK-07")
def test_with_a_tenth_of_the_calls_failing_nothing_is_lost_or_doubled_and_keys_keep_their_order(emulator: Emulator) -> None:
    listener = Listener()
    serializer = PubSubSerializationSchema.payload(bytes).with_ordering_key(lambda element: element[-1:].decode())
    emulator.fail_rate("Publish", grpc.StatusCode.UNAVAILABLE, every=10)
    options: dict[str, Any] = {
        "enable_message_ordering": True,
        "batch_element_count_threshold": 20,
        "retry_initial_delay": timedelta(0),
    }
    writer = open_writer(emulator, listener, serializer, **options)
    try:
        for start in range(0, 5000, 250):
            writer.write(write_batch([b"%d" % number for number in range(start, start + 250)]))
        writer.flush(1, end_of_input=True)
        listener.wait_for_flush(1)
    finally:
        writer.close(10)
    by_key: dict[str, list[int]] = defaultdict(list)
    for message in emulator.published(PATH):
        by_key[message.ordering_key].append(int(message.data))
    assert by_key == {str(key): list(range(key, 5000, 10)) for key in range(10)}


@pytest.mark.feature("SNK-05")
def test_an_answer_that_gets_lost_costs_a_duplicate_and_no_message(emulator: Emulator) -> None:
    listener = Listener()
    emulator.lose_answers("Publish")
    writer = open_writer(emulator, listener, PubSubSerializationSchema.payload(bytes), retry_initial_delay=timedelta(0))
    try:
        writer.write(write_batch([b"a"]))
        writer.flush(1, end_of_input=False)
        listener.wait_for_flush(1)
    finally:
        writer.close(10)
    assert [message.data for message in emulator.published(PATH)] == [b"a", b"a"]
    assert listener.records == 1


def test_large_batches_keep_to_the_services_limits(emulator: Emulator) -> None:
    listener = Listener()
    writer = open_writer(emulator, listener, PubSubSerializationSchema.payload(lambda element: element * 500_000), **LARGE)
    try:
        writer.write(write_batch([b"x", b"y"] * 21))
        writer.flush(1, end_of_input=False)
        listener.wait_for_flush(1)
    finally:
        writer.close(10)
    assert emulator.published_count(PATH) == 42


@pytest.mark.feature("SNK-19")
def test_an_empty_message_is_left_to_the_services_verdict(emulator: Emulator) -> None:
    listener = Listener()
    writer = open_writer(emulator, listener, PubSubSerializationSchema.payload(bytes))
    try:
        writer.write(write_batch([b""]))
        error = listener.wait_for_failure()
    finally:
        writer.close(10)
    assert isinstance(error, PublishError)
    assert error.status == "INVALID_ARGUMENT"


@pytest.mark.feature("SNK-19")
def test_a_topic_that_does_not_exist_and_may_not_be_created_fails_naming_it_and_the_disposition(emulator: Emulator) -> None:
    listener = Listener()
    emulator.delete_topic(PATH)
    writer = open_writer(emulator, listener, PubSubSerializationSchema.payload(bytes), create=CreateDisposition.CREATE_NEVER)
    try:
        writer.write(write_batch([b"a"]))
        error = listener.wait_for_failure()
    finally:
        writer.close(10)
    assert isinstance(error, PublishError)
    assert (error.topic, error.status) == (PATH, "NOT_FOUND")
    assert str(error).endswith("(after 1 attempt). The sink does not create it, as its create_disposition is CREATE_NEVER")
