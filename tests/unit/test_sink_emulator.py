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
from flink_pubsub.failures import FailureHandler
from flink_pubsub.messages import PubsubMessage
from flink_pubsub.options import Connection, PubSubPublisherOptions
from flink_pubsub.rpc.topics import topic_of
from flink_pubsub.schemas import PubSubSerializationSchema
from flink_pubsub.sink import SinkSpec
from flink_pubsub.topic_options import CreateDisposition, TopicCreateOptions
from flink_pubsub.wire import pubsub_pb2 as wire
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
    topic_create_options: TopicCreateOptions | None = None,
    handler: FailureHandler[Any] | None = None,
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
        topic_create_options=topic_create_options,
        failed_message_handler=handler or FailureHandler.fail_job(),
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
    assert str(error).endswith("(after 1 attempt). The sink does not create it, as CreateDisposition.CREATE_NEVER says")


@pytest.mark.feature("SNK-11")
@pytest.mark.feature("SNK-07")
def test_a_missing_topic_is_created_with_its_settings_and_everything_follows_in_the_order_of_its_key() -> None:
    options = TopicCreateOptions(
        message_retention=timedelta(days=3),
        kms_key_name="projects/p/locations/l/keyRings/r/cryptoKeys/k",
        allowed_persistence_regions=["europe-west1"],
        enforce_in_transit=True,
    )
    listener = Listener()
    with Emulator(topic_propagation_seconds=1.0) as emulator:
        serializer = PubSubSerializationSchema.payload(bytes).with_ordering_key(lambda element: element[-1:].decode())
        writer = open_writer(
            emulator,
            listener,
            serializer,
            topic_create_options=options,
            enable_message_ordering=True,
            batch_element_count_threshold=10,
            recovery_initial_backoff=timedelta(milliseconds=50),
        )
        try:
            elements = [b"%d" % number for number in range(500)]
            for start in range(0, 500, 50):
                writer.write(write_batch(elements[start : start + 50]))
            writer.flush(1, end_of_input=False)
            listener.wait_for_flush(1)
        finally:
            writer.close(10)
        counters = writer.metrics().counters
        for key in range(10):
            digit = b"%d" % key
            of_key = [message.data for message in emulator.published(PATH) if message.data.endswith(digit)]
            assert of_key == [element for element in elements if element.endswith(digit)]
        with grpc.insecure_channel(emulator.endpoint) as channel:
            get: grpc.UnaryUnaryMultiCallable[bytes, wire.Topic] = channel.unary_unary(
                "/google.pubsub.v1.Publisher/GetTopic", response_deserializer=wire.Topic.FromString
            )
            topic = get(wire.GetTopicRequest(topic=PATH).SerializeToString())
        assert topic_of(PATH, options) == wire.Topic(
            name=topic.name,
            kms_key_name=topic.kms_key_name,
            message_retention_duration=topic.message_retention_duration,
            message_storage_policy=topic.message_storage_policy,
        )
    assert counters["topicsCreated"] == 1
    assert counters["numRecordsSend"] == 500
    assert counters["errorClass.NOT_FOUND.errors"] >= 2, "it was not known at first"


@pytest.mark.feature("SNK-11")
def test_a_topic_that_somebody_else_created_meanwhile_is_as_good(emulator: Emulator) -> None:
    listener = Listener()
    emulator.fail_next("Publish", grpc.StatusCode.NOT_FOUND)
    writer = open_writer(emulator, listener, PubSubSerializationSchema.payload(bytes))
    writer.write(write_batch([b"a"]))
    writer.flush(1, end_of_input=False)
    listener.wait_for_flush(1)
    writer.close(10)
    assert emulator.published_count(PATH) == 1
    assert emulator.calls("CreateTopic") == 1
    assert writer.metrics().counters["topicsCreated"] == 1


@pytest.mark.feature("SNK-11")
def test_existing_topics_cost_no_admin_call(emulator: Emulator) -> None:
    listener = Listener()
    writer = open_writer(emulator, listener, PubSubSerializationSchema.payload(bytes))
    writer.write(write_batch([b"a"]))
    writer.flush(1, end_of_input=False)
    listener.wait_for_flush(1)
    writer.close(10)
    assert (emulator.calls("CreateTopic"), emulator.calls("GetTopic")) == (0, 0)


@pytest.mark.feature("SNK-11")
def test_a_creation_without_the_permission_fails_naming_it() -> None:
    listener = Listener()
    with Emulator() as emulator:
        emulator.deny("CreateTopic")
        writer = open_writer(emulator, listener, PubSubSerializationSchema.payload(bytes))
        writer.write(write_batch([b"a"]))
        error = listener.wait_for_failure()
        writer.close(10)
    assert isinstance(error, PublishError)
    assert (error.topic, error.status) == (PATH, "PERMISSION_DENIED")
    assert "pubsub.topics.create" in str(error)


@pytest.mark.feature("SNK-16")
def test_a_topic_that_never_becomes_known_fails_when_the_attempts_are_spent() -> None:
    listener = Listener()
    with Emulator(topic_propagation_seconds=3600) as emulator:
        writer = open_writer(
            emulator,
            listener,
            PubSubSerializationSchema.payload(bytes),
            recovery_initial_backoff=timedelta(milliseconds=10),
            recovery_max_attempts=3,
        )
        writer.write(write_batch([b"a", b"b"]))
        writer.flush(1, end_of_input=False)
        error = listener.wait_for_failure()
        writer.close(10)
    assert isinstance(error, PublishError)
    assert error.status == "NOT_FOUND"
    assert "kept failing; the sink has created the topic. All 3 attempts of recovery_max_attempts are spent" in str(error)


def largest_payload(attributes: dict[str, str]) -> int:
    """Bytes of data with which a message fills a request to the service's limit."""
    size, over = 10_000_000, 1
    while over:
        message = wire.PubsubMessage(data=bytes(size), attributes=attributes)
        over = wire.PublishRequest(topic=PATH, messages=[message]).ByteSize() - 10_000_000
        size -= over
    return size


@pytest.mark.feature("SNK-12")
@pytest.mark.parametrize("attributes", [{}, {"key": "value", "ü": "x" * 1000}])
def test_a_message_at_the_limit_of_a_request_passes_and_one_byte_more_is_its_own_verdict(
    emulator: Emulator, attributes: dict[str, str]
) -> None:
    listener = Listener()
    room = largest_payload(attributes)
    serializer = PubSubSerializationSchema.payload(lambda size: b"x" * int(size)).with_attributes(lambda size: attributes)
    writer = open_writer(emulator, listener, serializer, handler=FailureHandler.log_and_drop(), **LARGE)
    try:
        writer.write(write_batch([b"1", b"%d" % room, b"2", b"%d" % (room + 1), b"3"]))
        writer.flush(1, end_of_input=False)
        listener.wait_for_flush(1)
    finally:
        writer.close(10)
    assert sorted(len(message.data) for message in emulator.published(PATH)) == [1, 2, 3, room]
    counters = writer.metrics().counters
    assert counters["numRecordsSendErrors"] == 1
    assert emulator.calls("Publish") <= 5, "its neighbours were sent again"


@pytest.mark.feature("SNK-12")
@pytest.mark.feature("SNK-13")
@pytest.mark.parametrize(
    ("data", "attributes"),
    [
        (b"", {}),
        (b"x", {"a" * 257: ""}),
        (b"x", {"a": "b" * 1025}),
        (b"x", {"googled": ""}),
        (b"x", {str(number): "" for number in range(101)}),
    ],
    ids=["empty", "long attribute key", "long attribute value", "reserved attribute key", "many attributes"],
)
def test_what_the_service_refuses_reaches_the_handler_alone(
    emulator: Emulator, data: bytes, attributes: dict[str, str]
) -> None:
    class Whole(PubSubSerializationSchema):
        def serialize(self, element: Any) -> PubsubMessage:
            return PubsubMessage(data, attributes) if element == b"bad" else PubsubMessage(element)

    listener = Listener()
    writer = open_writer(emulator, listener, Whole(), handler=FailureHandler.log_and_drop(), **LARGE)
    try:
        writer.write(write_batch([b"a", b"bad", b"b"]))
        writer.flush(1, end_of_input=False)
        listener.wait_for_flush(1)
    finally:
        writer.close(10)
    assert sorted(message.data for message in emulator.published(PATH)) == [b"a", b"b"]
    assert writer.metrics().counters["numRecordsSendErrors"] == 1


@pytest.mark.feature("SNK-12")
@pytest.mark.feature("SNK-14")
def test_an_ordering_key_that_is_too_long_costs_its_own_messages_only(emulator: Emulator) -> None:
    listener = Listener()
    serializer = PubSubSerializationSchema.payload(bytes).with_ordering_key(lambda element: element.decode() * 600)
    writer = open_writer(emulator, listener, serializer, handler=FailureHandler.log_and_drop(), enable_message_ordering=True)
    try:
        writer.write(write_batch([b"a", b"xx", b"a", b"xx"]))
        writer.flush(1, end_of_input=False)
        listener.wait_for_flush(1)
    finally:
        writer.close(10)
    assert [message.data for message in emulator.published(PATH)] == [b"a", b"a"]
    assert writer.metrics().counters["numRecordsSendErrors"] == 2
