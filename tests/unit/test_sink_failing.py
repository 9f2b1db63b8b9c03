"""What a writer hands to its failure handler, when, and on which thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import grpc
import pytest

from flink_pubsub.bridge.connector import SinkWriter
from flink_pubsub.destinations import TopicDestination
from flink_pubsub.errors import PublishError, PubSubConnectorError, RecordError, SerializationError
from flink_pubsub.failures import FailedElement, FailedMessage, FailureHandler, FailureHandlerContext
from flink_pubsub.messages import PubsubMessage
from flink_pubsub.options import Connection, PubSubPublisherOptions
from flink_pubsub.schemas import JvmPayloadEncoding, PubSubSerializationSchema
from flink_pubsub.sink import SinkSpec
from flink_pubsub.wire import pubsub_pb2 as wire
from flink_pubsub.worker.sink import PubSubSinkConnector
from flink_pubsub.worker.writer import PubSubSinkWriter
from tests.unit.sink_support import Listener, PublishServer, Verdict, write_batch

TOPIC = TopicDestination("p", "orders")
PATH = TOPIC.resource_path
INVALID = (grpc.StatusCode.INVALID_ARGUMENT, "not like this")
LONG = timedelta(hours=1)


class Journal(FailureHandler[FailedElement]):
    """Remembers its life, and drops."""

    shutdown_timeout = timedelta(seconds=7)

    def __init__(self, on_handle: Callable[[FailedElement], None] = lambda element: None) -> None:
        self.on_handle = on_handle
        self.calls: list[str] = []
        self.elements: list[FailedElement] = []
        self.threads: set[int] = set()
        self.raising: set[str] = set()

    def _call(self, name: str) -> None:
        self.calls.append(name)
        self.threads.add(threading.get_ident())
        if name in self.raising:
            raise ValueError(f"{name} raised")

    def open(self, context: FailureHandlerContext) -> None:
        context.metrics.counter("handled", lambda: len(self.elements))
        context.metrics.gauge("subtaskOfHandler", lambda: context.subtask)
        context.metrics.counter("numRecordsSend", lambda: -1)
        self._call("open")

    def handle(self, element: FailedElement) -> None:
        self.elements.append(element)
        self.on_handle(element)
        self._call("handle")

    def flush(self) -> None:
        self._call("flush")

    def close(self) -> None:
        self._call("close")


@pytest.fixture
def server() -> Iterator[PublishServer]:
    with PublishServer() as running:
        running.verdict = refusing_bad
        yield running


@pytest.fixture
def listener() -> Listener:
    return Listener()


def refusing_bad(request: wire.PublishRequest) -> Verdict:
    return INVALID if any(message.data.startswith(b"bad") for message in request.messages) else None


def open_writer(
    server: PublishServer, listener: Listener, handler: FailureHandler[Any], serializer: Any = None, **settings: Any
) -> PubSubSinkWriter:
    names = {"destination_resolver", "element_coding", "payload_coding", "topic"}
    spec = SinkSpec(
        **{
            "topic": None if "destination_resolver" in settings else TOPIC,
            "destination_resolver": None,
            "element_coding": "bytes",
            **{name: value for name, value in settings.items() if name in names},
        },
        serializer=serializer or PubSubSerializationSchema.payload(bytes),
        options=PubSubPublisherOptions(**{name: value for name, value in settings.items() if name not in names}),
        connection=Connection(emulator_endpoint=server.endpoint),
        failed_message_handler=handler,
    )
    writer: SinkWriter = PubSubSinkConnector(spec).open_writer(listener)
    assert isinstance(writer, PubSubSinkWriter)
    return writer


def keyed(function: Callable[[bytes], str] = lambda element: "k") -> PubSubSerializationSchema:
    return PubSubSerializationSchema.payload(bytes).with_ordering_key(function)


def published(server: PublishServer) -> list[bytes]:
    return [message.data for message in server.published.get(PATH, ())]


@pytest.mark.feature("SNK-13")
def test_a_handlers_life_is_open_handle_flush_close_all_on_the_command_thread(
    server: PublishServer, listener: Listener
) -> None:
    handler = Journal()
    writer = open_writer(server, listener, handler)
    assert handler.calls == ["open"]
    writer.write(write_batch([b"a", b"bad", b"c"]))
    writer.flush(1, end_of_input=False)
    listener.wait_for_flush(1)
    assert handler.calls == ["open", "handle", "flush"]
    writer.flush(2, end_of_input=True)
    listener.wait_for_flush(2)
    writer.close(10)
    assert handler.calls == ["open", "handle", "flush", "flush", "close"]
    assert handler.threads == {threading.get_ident()}


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
        f"a record cannot be serialized: the payload schema raised org.example.BadRecordException in the JVM (topic {PATH})"
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
def test_a_flush_waits_for_the_handler_and_for_its_flush(server: PublishServer, listener: Listener) -> None:
    handler = Journal(on_handle=lambda element: listener.events.append(("handled", 0)))
    writer = open_writer(server, listener, handler)
    writer.write(write_batch([b"bad"]))
    writer.flush(1, end_of_input=False)
    listener.wait_for_flush(1)
    assert listener.events == [("handled", 0), ("settled", 1), ("flushed", 1)]
    handler.raising = {"flush"}
    writer.flush(2, end_of_input=False)
    assert isinstance(listener.wait_for_failure(), ValueError)
    assert ("flushed", 2) not in listener.events
    writer.close(10)


@pytest.mark.feature("SNK-10")
def test_a_handler_that_does_not_return_fails_the_job_within_the_progress_timeout(
    server: PublishServer, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    handler = Journal(on_handle=lambda element: listener_failed(listener))
    writer = open_writer(server, listener, handler, publish_progress_timeout=timedelta(milliseconds=200))
    writer.write(write_batch([b"bad"]))
    error = listener.wait_for_failure()
    writer.close(10)
    assert "failed_message_handler.handle has not returned for 0.2 s" in str(error)
    assert "1 messages for Pub/Sub are outstanding" in str(error)
    assert "failed_message_handler.handle has not returned for 0.0 s" in caplog.text


def listener_failed(listener: Listener) -> None:
    with listener._changed:
        assert listener._changed.wait_for(lambda: listener.error is not None, 30)


@pytest.mark.feature("SNK-17")
def test_a_handlers_metrics_appear_beside_the_writers_whose_own_names_win(server: PublishServer, listener: Listener) -> None:
    writer = open_writer(server, listener, Journal())
    writer.write(write_batch([b"bad"]))
    writer.flush(1, end_of_input=False)
    listener.wait_for_flush(1)
    metrics = writer.metrics()
    assert metrics.counters["handled"] == 1
    assert metrics.counters["numRecordsSend"] == 1
    assert metrics.gauges["subtaskOfHandler"] == 0
    writer.close(10)


@pytest.mark.feature("SNK-21")
def test_a_handler_is_closed_when_opening_it_fails_and_when_opening_the_serializer_does(
    server: PublishServer, listener: Listener
) -> None:
    class Closed(PubSubSerializationSchema):
        def open(self) -> None:
            raise RecordError("the serializer does not open")

        def serialize(self, element: Any) -> PubsubMessage:
            return PubsubMessage(element)

    handler = Journal()
    handler.raising = {"open"}
    with pytest.raises(ValueError, match="open raised"):
        open_writer(server, listener, handler)
    assert handler.calls == ["open", "close"]
    handler = Journal()
    with pytest.raises(RecordError):
        open_writer(server, listener, handler, Closed())
    assert handler.calls == ["open", "close"]


@pytest.mark.feature("SNK-21")
def test_what_closing_a_handler_raises_is_logged_and_stops_nothing(
    server: PublishServer, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    handler = Journal()
    handler.raising = {"close"}
    writer = open_writer(server, listener, handler)
    writer.close(10)
    assert "closing the failure handler failed" in caplog.text
    assert "close raised" in caplog.text


@pytest.mark.feature("SNK-09")
@pytest.mark.feature("SNK-13")
def test_closing_may_take_the_publishers_and_the_handlers_time(server: PublishServer, listener: Listener) -> None:
    writer = open_writer(server, listener, Journal(), shutdown_timeout=timedelta(seconds=3))
    assert writer.settings == replace(writer.settings, close_seconds=10)
    writer.close(10)
