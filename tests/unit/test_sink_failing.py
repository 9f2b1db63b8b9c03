"""What a writer hands to its failure handler, and what fails the job."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import grpc
import pytest

from flink_pubsub.destinations import TopicDestination
from flink_pubsub.errors import PublishError, PubSubConnectorError, SerializationError
from flink_pubsub.failures import FailedMessage, FailureHandler
from flink_pubsub.messages import PubsubMessage
from flink_pubsub.schemas import JvmPayloadEncoding, PubSubSerializationSchema
from flink_pubsub.wire import pubsub_pb2 as wire
from tests.unit.failing_support import LONG, PATH, Journal, keyed, open_writer, published, refusing_bad
from tests.unit.sink_support import Listener, PublishServer, write_batch


@pytest.fixture
def server() -> Iterator[PublishServer]:
    with PublishServer() as running:
        running.verdict = refusing_bad
        yield running


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.mark.feature("SNK-12")
@pytest.mark.feature("SNK-13")
def test_one_bad_message_of_a_batch_reaches_the_handler_and_its_neighbours_the_topic(
    server: PublishServer, listener: Listener
) -> None:
    handler = Journal()
    serializer = PubSubSerializationSchema.payload(bytes).with_attributes(lambda element: {"of": element.decode()})
    writer = open_writer(server, listener, handler, serializer, batch_delay_threshold=LONG, batch_request_byte_threshold=10**6)
    try:
        writer.write(write_batch([b"a", b"b", b"bad", b"d"]))
        writer.flush(1, end_of_input=False)
        listener.wait_for_flush(1)
    finally:
        writer.close(10)
    assert sorted(published(server)) == [b"a", b"b", b"d"]
    assert [len(request.messages) for request in server.requests] == [4, 1, 1, 1, 1]
    (failed,) = handler.elements
    assert isinstance(failed, FailedMessage)
    assert (failed.connector, failed.destination) == ("pubsub", PATH)
    assert failed.message == PubsubMessage(b"bad", {"of": "bad"})
    assert failed.payload is not None
    assert wire.PubsubMessage.FromString(failed.payload).attributes == {"of": "bad"}
    assert failed.error == f"publishing to {PATH} failed: INVALID_ARGUMENT: Pub/Sub refuses this very message: not like this"
    assert isinstance(failed.cause, PublishError)
    assert failed.cause.status == "INVALID_ARGUMENT"
    assert listener.records == 4
    counters = writer.metrics().counters
    assert (counters["numRecordsSend"], counters["numRecordsSendErrors"]) == (4, 1)
    assert counters["errorClass.INVALID_ARGUMENT.errors"] == 1


@pytest.mark.feature("SNK-13")
@pytest.mark.feature("SNK-21")
def test_without_a_handler_the_verdict_on_the_message_fails_the_job_and_is_counted(
    server: PublishServer, listener: Listener
) -> None:
    writer = open_writer(server, listener, FailureHandler.fail_job(), batch_delay_threshold=LONG)
    try:
        writer.write(write_batch([b"a", b"bad"]))
        writer.flush(1, end_of_input=False)
        error = listener.wait_for_failure()
    finally:
        writer.close(10)
    assert isinstance(error, PublishError)
    assert str(error).endswith("INVALID_ARGUMENT: Pub/Sub refuses this very message: not like this")
    assert ("flushed", 1) not in listener.events
    assert writer.metrics().counters["numRecordsSendErrors"] == 1


@pytest.mark.feature("SNK-13")
@pytest.mark.feature("SNK-21")
def test_what_a_handler_raises_fails_the_job_after_it_was_counted(server: PublishServer, listener: Listener) -> None:
    handler = Journal()
    handler.raising = {"handle"}
    writer = open_writer(server, listener, handler)
    writer.write(write_batch([b"bad"]))
    error = listener.wait_for_failure()
    assert isinstance(error, ValueError)
    assert writer.metrics().counters["numRecordsSendErrors"] == 1
    writer.close(10)
    assert handler.calls[-1] == "close"


@pytest.mark.feature("SNK-13")
@pytest.mark.parametrize("handler", [FailureHandler.log_and_drop(), Journal()])
def test_a_record_that_is_not_serialized_reaches_the_handler_and_the_others_the_topic(
    server: PublishServer, listener: Listener, handler: FailureHandler[Any]
) -> None:
    serializer = PubSubSerializationSchema.payload(lambda element: b"%d" % (6 // int(element)))
    writer = open_writer(server, listener, handler, serializer, max_consecutive_rejections=1)
    try:
        writer.write(write_batch([b"1", b"0", b"2", b"0", b"3"]))
        writer.flush(1, end_of_input=False)
        listener.wait_for_flush(1)
    finally:
        writer.close(10)
    assert sorted(published(server)) == [b"2", b"3", b"6"]
    counters = writer.metrics().counters
    assert (counters["numRecordsSend"], counters["numRecordsSendErrors"], counters["recordsSkipped"]) == (3, 2, 0)
    assert (listener.records, listener.size) == (5, 5)
    if isinstance(handler, Journal):
        failed = handler.elements[0]
        assert isinstance(failed, FailedMessage)
        assert (failed.destination, failed.payload, failed.message) == (PATH, None, None)
        assert isinstance(failed.cause, SerializationError)
        assert isinstance(failed.cause.__cause__, ZeroDivisionError)


@pytest.mark.feature("SNK-13")
def test_what_the_jvms_schema_failed_on_reaches_the_handler_with_the_java_exception(
    server: PublishServer, listener: Listener
) -> None:
    handler = Journal()
    writer = open_writer(server, listener, handler, JvmPayloadEncoding(None), element_coding="none", payload_coding="message")
    assert writer.settings.takes_failures
    trace = b"org.example.BadRecordException: secret\n\tat org.example.Schema.serialize(Schema.java:7)"
    try:
        writer.write(write_batch(payloads=[trace], failures=True))
        writer.flush(1, end_of_input=False)
        listener.wait_for_flush(1)
    finally:
        writer.close(10)
    (failed,) = handler.elements
    assert failed.error == (
        f"a record cannot be serialized: making its payload in the JVM raised org.example.BadRecordException (topic {PATH})"
    )
    assert failed.cause is not None
    assert "Schema.java:7" in str(failed.cause.__cause__)
    assert (listener.records, listener.size) == (1, len(trace))
    assert writer.metrics().counters["recordsSkipped"] == 0


@pytest.mark.feature("SNK-13")
def test_failures_in_the_jvm_are_not_handed_over_where_they_would_only_fail_the_job(
    server: PublishServer, listener: Listener
) -> None:
    writer = open_writer(server, listener, FailureHandler.fail_job())
    assert not writer.settings.takes_failures
    writer.close(10)


@pytest.mark.feature("SNK-13")
def test_a_resolver_that_fails_and_a_key_without_ordering_never_reach_the_handler(
    server: PublishServer, listener: Listener
) -> None:
    handler = Journal()
    for settings in ({"destination_resolver": lambda element, context: None}, {"serializer": keyed()}):
        writer = open_writer(server, listener, handler, **settings)
        with pytest.raises(PubSubConnectorError):
            writer.write(write_batch([b"a"]))
        writer.close(10)
    assert handler.elements == []


@pytest.mark.feature("SNK-12")
@pytest.mark.feature("SNK-13")
@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code.name in ("PERMISSION_DENIED", "RESOURCE_EXHAUSTED")])
def test_an_outage_or_a_missing_permission_never_reaches_the_handler(
    server: PublishServer, listener: Listener, code: grpc.StatusCode
) -> None:
    handler = Journal()
    server.verdict = lambda request: (code, "no")
    writer = open_writer(server, listener, handler, retry_max_attempts=2, retry_initial_delay=timedelta(0))
    writer.write(write_batch([b"a"]))
    assert isinstance(listener.wait_for_failure(), PublishError)
    writer.close(10)
    assert handler.elements == []


@pytest.mark.feature("SNK-14")
def test_dropping_keyed_messages_leaves_the_others_of_the_key_in_order(server: PublishServer, listener: Listener) -> None:
    handler = Journal()
    options = {"enable_message_ordering": True, "batch_element_count_threshold": 7, "batch_request_byte_threshold": 10**6}
    writer = open_writer(server, listener, handler, keyed(lambda element: element[-1:].decode()), **options)
    elements = [b"%s-%03d-%d" % (b"bad" if number % 5 == 3 else b"good", number, number % 3) for number in range(300)]
    try:
        for start in range(0, 300, 30):
            writer.write(write_batch(elements[start : start + 30]))
        writer.flush(1, end_of_input=False)
        listener.wait_for_flush(1)
    finally:
        writer.close(10)
    for key in (b"0", b"1", b"2"):
        of_key = [element for element in elements if element.endswith(key)]
        assert [data for data in published(server) if data.endswith(key)] == [e for e in of_key if e.startswith(b"good")]
    assert len(handler.elements) == sum(element.startswith(b"bad") for element in elements)
    assert listener.records == 300


@pytest.mark.feature("SNK-14")
def test_a_key_waits_for_a_handler_that_fails_so_nothing_after_a_gap_is_published(
    server: PublishServer, listener: Listener
) -> None:
    handler = Journal()
    handler.raising = {"handle"}
    options = {"enable_message_ordering": True, "batch_element_count_threshold": 1}
    writer = open_writer(server, listener, handler, keyed(), **options)
    writer.write(write_batch([b"a", b"bad", b"c"]))
    listener.wait_for_failure()
    writer.close(10)
    assert published(server) == [b"a"]


@pytest.mark.feature("SNK-15")
def test_a_stream_that_is_refused_wholesale_fails_after_the_handler_had_the_last_of_the_run(
    server: PublishServer, listener: Listener
) -> None:
    handler = Journal()
    topics = [TopicDestination("p", name) for name in ("one", "two")]
    writer = open_writer(
        server,
        listener,
        handler,
        destination_resolver=lambda element, context: topics[int(element[-1:]) % 2],
        max_consecutive_rejections=10,
    )
    try:
        writer.write(write_batch([b"bad%d" % number for number in range(30)]))
        error = listener.wait_for_failure()
    finally:
        writer.close(10)
    assert isinstance(error, PublishError)
    assert "10 messages in a row" in str(error)
    assert "max_consecutive_rejections" in str(error)
    assert "INVALID_ARGUMENT: not like this" in str(error)
    assert len(handler.elements) == 10


@pytest.mark.feature("SNK-13")
def test_a_drop_is_logged_with_what_raised_and_without_what_that_said(
    server: PublishServer, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    serializer = PubSubSerializationSchema.payload(lambda element: b"%d" % int(element))
    writer = open_writer(server, listener, FailureHandler.log_and_drop(), serializer)
    writer.write(write_batch([b"secret"]))
    writer.close(10)
    assert f"dropped an element of pubsub for {PATH}: " in caplog.text
    assert "the function given to payload raised ValueError" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.feature("SNK-15")
def test_nothing_is_handed_over_any_more_once_the_job_has_failed(server: PublishServer, listener: Listener) -> None:
    handler = Journal()
    writer = open_writer(server, listener, handler, batch_element_count_threshold=1, max_consecutive_rejections=1)
    writer.write(write_batch([b"bad1", b"bad2"]))
    for _ in range(2):
        assert server.arrived.acquire(timeout=30)
    with listener._changed:
        assert listener._changed.wait_for(lambda: len(listener._submitted) == 2, 30)
    for action in list(listener._submitted):
        action()
    writer.close(10)
    assert len(handler.elements) == 1
