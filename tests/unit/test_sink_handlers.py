"""A failure handler's life in a writer: when it is called, on which thread, for how long."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from flink_pubsub import PubSubDeadLetterQueue
from flink_pubsub.bridge.frames import NO_TIMESTAMP, Kind
from flink_pubsub.emulator import Emulator
from flink_pubsub.errors import RecordError
from flink_pubsub.failures import FailureHandler
from flink_pubsub.messages import PubsubMessage
from flink_pubsub.options import Connection
from flink_pubsub.schemas import PubSubSerializationSchema
from flink_pubsub.sink import SinkSpec
from flink_pubsub.worker.sink import PubSubSinkConnector
from flink_pubsub.worker.writer import PubSubSinkWriter
from tests.bridge_driver import WorkerDriver
from tests.unit.failing_support import PATH, TOPIC, Journal, open_writer, refusing_bad
from tests.unit.sink_support import Listener, PublishServer, write_batch


@pytest.fixture
def server() -> Iterator[PublishServer]:
    with PublishServer() as running:
        running.verdict = refusing_bad
        yield running


@pytest.fixture
def listener() -> Listener:
    return Listener()


def listener_failed(listener: Listener) -> None:
    with listener._changed:
        assert listener._changed.wait_for(lambda: listener.error is not None, 30)


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


@pytest.mark.feature("SNK-13")
@pytest.mark.feature("SNK-21")
def test_closing_interrupts_a_handler_that_waits_on_the_command_thread_and_then_closes_it() -> None:
    with Emulator() as emulator, WorkerDriver() as worker:
        emulator.create_topic(PATH)
        emulator.stop_answering("Publish")
        queue = PubSubDeadLetterQueue(
            topic=TOPIC, emulator_endpoint=emulator.endpoint, max_in_flight_messages=0, shutdown_timeout=timedelta(seconds=0.1)
        )
        spec = SinkSpec(
            topic=TOPIC,
            destination_resolver=None,
            serializer=PubSubSerializationSchema.payload(lambda element: b"%d" % (1 // (len(element) - 1))),
            element_coding="bytes",
            connection=Connection(emulator_endpoint=emulator.endpoint),
            failed_message_handler=FailureHandler.send_to_dead_letter_queue(queue),
        )
        worker.open(PubSubSinkConnector(spec), "writer")
        worker.expect(Kind.READY)
        worker.send(Kind.WRITE, struct.pack(">IBqI", 1, 1, NO_TIMESTAMP, 1) + b"a")
        emulator.wait_until(lambda: emulator.calls("Publish") > 0)
        worker.send_json(Kind.CLOSE, seconds=60)
        failed = worker.expect_json(Kind.FAILED)
        worker.expect(Kind.CLOSED)
        assert worker.ended() == 0
    assert "the job ends while 1 dead letters are unconfirmed" in failed["message"]


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


@pytest.mark.feature("SNK-21")
def test_a_handler_is_closed_though_closing_the_publisher_raises(listener: Listener) -> None:
    class Unclosable:
        def unary_unary(self, method: str) -> None: ...

        def close(self) -> None:
            raise OSError("the channel does not close")

    handler = Journal()
    spec = SinkSpec(
        topic=TOPIC,
        destination_resolver=None,
        serializer=PubSubSerializationSchema.payload(bytes),
        failed_message_handler=handler,
    )
    writer = PubSubSinkWriter(spec, Unclosable(), listener)  # type: ignore[arg-type]
    with pytest.raises(OSError, match="the channel does not close"):
        writer.close(10)
    assert handler.calls == ["open", "close"]


@pytest.mark.feature("SNK-09")
@pytest.mark.feature("SNK-13")
def test_closing_may_take_the_publishers_and_the_handlers_time(server: PublishServer, listener: Listener) -> None:
    writer = open_writer(server, listener, Journal(), shutdown_timeout=timedelta(seconds=3))
    assert writer.settings == replace(writer.settings, close_seconds=10)
    writer.close(10)
