"""Whatever the service does, a writer's waits end within an option's time, and it keeps to a bounded amount of everything."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import grpc
import pytest

from flink_pubsub.core.batching import Thresholds
from flink_pubsub.core.outbox import Outbox
from flink_pubsub.core.publish_rules import PublishRules
from flink_pubsub.destinations import TopicDestination
from flink_pubsub.errors import PublishError
from flink_pubsub.failures import FailedElement, FailureHandler
from flink_pubsub.options import Connection, PubSubPublisherOptions
from flink_pubsub.rpc.publisher import Publisher
from flink_pubsub.schemas import PubSubSerializationSchema
from flink_pubsub.sink import SinkSpec
from flink_pubsub.wire.pubsub_pb2 import PublishResponse
from flink_pubsub.worker.sink import PubSubSinkConnector
from flink_pubsub.worker.writer import PubSubSinkWriter
from tests.growth import GRPC_THREADS, Footprint, assert_settles_to, footprint
from tests.unit.sink_support import Listener, PublishServer, write_batch

TOPIC = TopicDestination("p", "orders")
PATH = TOPIC.resource_path
STALL = timedelta(milliseconds=300)
ORDERING = pytest.mark.parametrize("ordering", [False, True], ids=["unordered", "ordered"])


@pytest.fixture
def server() -> Iterator[PublishServer]:
    with PublishServer() as running:
        yield running


@pytest.fixture
def listener() -> Listener:
    return Listener()


def open_writer(
    endpoint: str,
    listener: Listener,
    resolver: Callable[[Any, Any], TopicDestination] | None = None,
    ordering: bool = False,
    **options: Any,
) -> PubSubSinkWriter:
    serializer = PubSubSerializationSchema.payload(bytes)
    spec = SinkSpec(
        topic=TOPIC if resolver is None else None,
        destination_resolver=resolver,
        serializer=serializer.with_ordering_key(lambda element: "k") if ordering else serializer,
        element_coding="bytes",
        options=PubSubPublisherOptions(enable_message_ordering=ordering, **options),
        connection=Connection(emulator_endpoint=endpoint),
    )
    writer = PubSubSinkConnector(spec).open_writer(listener)
    assert isinstance(writer, PubSubSinkWriter)
    return writer


def end_of(writer: PubSubSinkWriter, listener: Listener) -> tuple[PublishError, float]:
    """How the writer fails, and after how long."""
    started = time.monotonic()
    try:
        error = listener.wait_for_failure()
    finally:
        writer.close(10)
    assert isinstance(error, PublishError)
    return error, time.monotonic() - started


@ORDERING
@pytest.mark.feature("SNK-10")
def test_a_service_that_never_answers_fails_the_flush_in_time_after_warnings(
    server: PublishServer, listener: Listener, ordering: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server.gate.clear()
    writer = open_writer(server.endpoint, listener, ordering=ordering, publish_progress_timeout=STALL)
    writer.write(write_batch([b"a", b"b"]))
    writer.flush(1, end_of_input=False)
    error, seconds = end_of(writer, listener)
    assert seconds < 5
    assert (error.topic, error.status) == (PATH, "DEADLINE_EXCEEDED")
    assert error.problem.startswith("Pub/Sub has completed no publish for 0.3 s while the sink waits for a flush: 2 messages")
    assert error.problem.endswith("no call has been answered")
    warnings = [record for record in caplog.records if "Pub/Sub has completed no publish" in record.message]
    assert 1 <= len(warnings) <= 9
    assert listener.events == [("failed", 0)]


@ORDERING
@pytest.mark.parametrize("flushed", [False, True], ids=["writing", "flushing"])
@pytest.mark.feature("SNK-10")
@pytest.mark.feature("BEY-06")
def test_an_endpoint_where_nobody_listens_fails_in_time_naming_the_wait_the_count_and_the_status(
    listener: Listener, ordering: bool, flushed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with PublishServer() as gone:
        pass
    writer = open_writer(gone.endpoint, listener, ordering=ordering, publish_progress_timeout=STALL)
    writer.write(write_batch([b"a", b"b"]))
    if flushed:
        writer.flush(1, end_of_input=False)
    error, seconds = end_of(writer, listener)
    assert seconds < 5
    assert (error.topic, error.status) == (PATH, "UNAVAILABLE")
    wait = "a flush" if flushed else "answers"
    assert error.problem.startswith(f"Pub/Sub has completed no publish for 0.3 s while the sink waits for {wait}: 2 messages")
    assert "the last answer was UNAVAILABLE" in error.problem
    assert "Pub/Sub has completed no publish for 0.0 s" in caplog.text, "a warning after a tenth"
    assert listener.events == [("failed", 0)]


@ORDERING
@pytest.mark.feature("SNK-05")
@pytest.mark.feature("BEY-06")
def test_the_retry_budget_ends_an_outage_with_ordering_too(server: PublishServer, listener: Listener, ordering: bool) -> None:
    server.verdict = lambda request: (grpc.StatusCode.RESOURCE_EXHAUSTED, "quota")
    writer = open_writer(
        server.endpoint, listener, ordering=ordering, retry_total_timeout=STALL, batch_element_count_threshold=1
    )
    writer.write(write_batch([b"a", b"b"]))
    writer.flush(1, end_of_input=True)
    error, seconds = end_of(writer, listener)
    assert seconds < 5
    assert error.status == "RESOURCE_EXHAUSTED"
    assert "within the retry budget" in error.problem
    if ordering:
        assert {request.messages[0].data for request in server.requests} == {b"a"}, "the key's next message was sent"


@pytest.mark.feature("SNK-10")
def test_a_slow_service_never_spends_the_progress_timeout(server: PublishServer, listener: Listener) -> None:
    writer = open_writer(
        server.endpoint,
        listener,
        ordering=True,
        batch_element_count_threshold=1,
        publish_progress_timeout=timedelta(seconds=1.2),
    )
    server.gate.clear()
    writer.write(write_batch([b"%d" % number for number in range(3)]))
    writer.flush(1, end_of_input=False)
    started = time.monotonic()
    pause = threading.Event()
    for number in range(3):
        assert server.arrived.acquire(timeout=30)
        pause.wait(0.5)  # well within the timeout, and together beyond it
        server.gate.set()
        listener.wait(lambda answered=number: listener.records > answered or listener.error is not None)  # type: ignore[misc]
        server.gate.clear()
    server.gate.set()
    listener.wait_for_flush(1)
    writer.close(10)
    assert time.monotonic() - started > 1.2


@pytest.mark.feature("SNK-08")
@pytest.mark.feature("SNK-10")
def test_waiting_for_room_among_topics_of_which_none_is_settled_ends_in_time(server: PublishServer, listener: Listener) -> None:
    server.gate.clear()
    writer = open_writer(
        server.endpoint,
        listener,
        lambda element, context: TopicDestination("p", f"topic-{element.decode()}"),
        max_active_publishers=2,
        publish_progress_timeout=STALL,
    )
    writer.write(write_batch([b"1", b"2", b"3"]))
    error, _ = end_of(writer, listener)
    assert "waits for one of 2 topics in use to be settled, as max_active_publishers allows no more" in error.problem
    assert "3 messages are outstanding" in error.problem


@pytest.mark.feature("SNK-09")
@pytest.mark.feature("BEY-06")
def test_closing_ends_while_the_service_does_not_answer(server: PublishServer, listener: Listener) -> None:
    server.gate.clear()
    writer = open_writer(server.endpoint, listener, ordering=True)
    writer.write(write_batch([b"a"] * 50))
    writer.flush(1, end_of_input=False)
    assert server.arrived.acquire(timeout=30)
    started = time.monotonic()
    writer.close(10)
    assert time.monotonic() - started < 5
    assert writer.metrics().lasting["publisherShutdownsAbandoned"] == 0


class StuckCall:
    def cancel(self) -> None:
        pass

    def add_done_callback(self, callback: object) -> None:
        pass


class StuckChannel:
    """A channel whose calls never end, not even when they are cancelled."""

    def unary_unary(self, *arguments: object, **options: object) -> StuckChannel:
        return self

    def future(self, *arguments: object, **options: object) -> StuckCall:
        return StuckCall()

    def close(self) -> None:
        pass


@pytest.mark.feature("SNK-09")
@pytest.mark.feature("SNK-17")
def test_calls_that_cannot_be_ended_are_left_behind_and_counted_after_the_budget(
    listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = Outbox(PublishRules(Thresholds(1, 1000, 1.0)), lambda: 0.5)
    publisher = Publisher(StuckChannel(), outbox, listener)  # type: ignore[arg-type]
    publisher.add([((PATH, ""), b"\x12\x00", [2])])
    publisher.close(0.05)
    assert publisher.shutdowns_abandoned == 1
    assert "1 calls are left behind" in caplog.text


@pytest.mark.feature("SNK-09")
def test_a_call_that_starts_while_the_publisher_is_closed_is_cancelled(listener: Listener) -> None:
    cancelled: list[StuckCall] = []

    class LateCall(StuckCall):
        def cancel(self) -> None:
            cancelled.append(self)

    class Closing(StuckChannel):
        def future(self, *arguments: object, **options: object) -> StuckCall:
            publisher.close(0)
            return LateCall()

    outbox = Outbox(PublishRules(Thresholds(1, 1000, 1.0)), lambda: 0.5)
    publisher = Publisher(Closing(), outbox, listener)  # type: ignore[arg-type]
    publisher.add([((PATH, ""), b"\x12\x00", [2])])
    assert len(cancelled) == 1


@pytest.mark.feature("SNK-08")
def test_ten_thousand_topics_in_turn_leave_a_bounded_number_and_nothing_grows(
    server: PublishServer, listener: Listener
) -> None:
    numbers = iter(range(10**6))
    writer = open_writer(server.endpoint, listener, lambda element, context: TopicDestination("p", f"topic-{next(numbers)}"))
    server.gate.clear()  # so that the first topics start all of the service's own threads
    before = None
    most = 0
    for flush in range(100):
        writer.write(write_batch([b"a"] * 100))
        for _ in range(0 if server.gate.is_set() else PublishServer.THREADS):
            assert server.arrived.acquire(timeout=30)
        server.gate.set()
        writer.flush(flush, end_of_input=False)
        listener.wait_for_flush(flush)
        most = max(most, dict(writer.metrics().gauges)["activePublishers"])
        before = before or footprint()
    assert before is not None
    assert_settles_to(before, threads=GRPC_THREADS)
    writer.close(10)
    assert most == 100
    assert len(server.published) == listener.records == 10_000


class AnsweredCall:
    """A call of one message that is published at once."""

    def cancel(self) -> None:
        pass

    def result(self) -> bytes:
        return PublishResponse(message_ids=["1"]).SerializeToString()


class AnsweringChannel(StuckChannel):
    """A channel that answers on a thread of its own."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1)

    def future(self, *arguments: object, **options: object) -> AnsweringChannel:  # type: ignore[override]
        return self

    def add_done_callback(self, callback: Callable[[AnsweredCall], None]) -> None:
        self._executor.submit(callback, AnsweredCall())

    def close(self) -> None:
        self._executor.shutdown()


class Drop(FailureHandler[FailedElement]):
    """Drops, and keeps nothing of it."""

    def handle(self, element: FailedElement) -> None:
        pass


def keyed() -> dict[str, Any]:
    serializer = PubSubSerializationSchema.payload(bytes).with_ordering_key(lambda element: element.decode())
    return {"topic": TOPIC, "destination_resolver": None, "serializer": serializer}


def to_topics_of_their_own() -> dict[str, Any]:
    resolver = lambda element, context: TopicDestination("p", element.decode())  # noqa: E731
    serializer = PubSubSerializationSchema.payload(lambda element: b"%d" % (1 // int(element[-1:])))
    return {"topic": None, "destination_resolver": resolver, "serializer": serializer}


@pytest.mark.feature("SNK-07")
@pytest.mark.feature("SNK-08")
@pytest.mark.parametrize("addressed", [keyed, to_topics_of_their_own])
def test_a_hundred_thousand_keys_or_topics_leave_nothing_behind_in_the_writer(
    listener: Listener, addressed: Callable[[], dict[str, Any]]
) -> None:
    options = PubSubPublisherOptions(enable_message_ordering=True)
    spec = SinkSpec(**addressed(), element_coding="bytes", options=options, failed_message_handler=Drop())
    writer = PubSubSinkWriter(spec, AnsweringChannel(), listener)  # type: ignore[arg-type]

    def write(flush: int) -> None:
        writer.write(write_batch([b"to-%d-%d" % (flush, number) for number in range(1000)]))
        writer.flush(flush, end_of_input=False)
        listener.wait_for_flush(flush)
        listener.events.clear()

    def held() -> tuple[int, Footprint]:
        gc.collect()
        return sys.getallocatedblocks(), footprint()

    for flush in range(10):
        write(flush)
    blocks, before = held()
    for flush in range(10, 100):
        write(flush)
    assert held()[0] - blocks < 2_000, "a key or a topic leaves something in memory"
    assert_settles_to(before, threads=GRPC_THREADS)
    assert listener.records == 100_000
    writer.close(10)


@pytest.mark.feature("SNK-08")
def test_a_checkpoint_lets_idle_topics_go_and_the_end_of_input_does_not(server: PublishServer, listener: Listener) -> None:
    writer = open_writer(server.endpoint, listener, destination_idle_timeout=timedelta(microseconds=1))
    for flush, left, end in ((1, 0, False), (2, 1, True)):
        writer.write(write_batch([b"a"]))
        writer.flush(flush, end_of_input=end)
        listener.wait_for_flush(flush)
        assert dict(writer.metrics().gauges)["activePublishers"] == left
    writer.close(10)


@pytest.mark.feature("SNK-17")
def test_failed_requests_are_counted_by_status_and_records_once_however_often_they_are_sent(
    server: PublishServer, listener: Listener
) -> None:
    answers = [(grpc.StatusCode.UNAVAILABLE, "later")] * 3 + [(grpc.StatusCode.ABORTED, "later")]
    server.verdict = lambda request: answers.pop() if answers else None
    writer = open_writer(server.endpoint, listener, ordering=True, retry_initial_delay=timedelta(0))
    writer.write(write_batch([b"a", b"b"]))
    writer.flush(1, end_of_input=False)
    listener.wait_for_flush(1)
    counters = writer.metrics().counters
    writer.close(10)
    assert counters["numRecordsSend"] == 2
    assert {name: value for name, value in counters.items() if name.startswith("errorClass")} == {
        "errorClass.UNAVAILABLE.errors": 3,
        "errorClass.ABORTED.errors": 1,
    }


@pytest.mark.feature("SNK-17")
def test_topics_are_counted_one_by_one_only_when_asked_for(server: PublishServer, listener: Listener) -> None:
    def resolve(element: Any, context: Any) -> TopicDestination:
        return TopicDestination("p", f"v1.{element[:1].decode()}")

    for asked in (True, False):
        writer = open_writer(server.endpoint, listener, resolve, per_destination_metrics=asked)
        writer.write(write_batch([b"a1", b"b1", b"a2"]))
        writer.close(10)
        counters = writer.metrics().counters
        expected = {"destination.p/v1%2Ea.recordsSend": 2, "destination.p/v1%2Eb.recordsSend": 1} if asked else {}
        assert {name: value for name, value in counters.items() if name.startswith("destination.")} == expected
