"""The reader-wide budget: exact over splits and connections, kept without failing a job that is merely held back."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flink_pubsub.core.budget import Budget, Tally
from flink_pubsub.emulator import Emulator, ManualClock
from flink_pubsub.emulator.messages import ack_id
from flink_pubsub.errors import SubscriberBufferError
from flink_pubsub.wire import pubsub_pb2 as wire
from flink_pubsub.worker import intake
from tests.unit.source_reading import ORDERS, RETURNS, TOPIC, Reading, publish
from tests.unit.source_support import ScriptedServer, ServerStream, accept, eventually, nacked, received_message


@dataclass
class Buffer:
    buffered_messages: int = 0
    buffered_bytes: int = 0


@pytest.mark.feature("SRC-10")
@given(
    messages=st.integers(1, 40),
    size=st.integers(1, 400),
    steps=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(1, 60), st.booleans()), max_size=60),
)
@settings(max_examples=200)
def test_no_history_exceeds_the_budget_or_takes_a_splits_share(
    messages: int, size: int, steps: list[tuple[int, int, int, bool]]
) -> None:
    budget = Budget(messages, size)
    buffers = [Buffer() for _ in range(4)]
    budget.divide(4)
    for split, count, each, drains in steps:
        mine = buffers[split]
        if drains:
            budget.used.add(-mine.buffered_messages, -mine.buffered_bytes)
            mine.buffered_messages = mine.buffered_bytes = 0
            continue
        room = budget.room(mine, buffers)
        assert room.messages >= min(budget.share.messages - mine.buffered_messages, messages)
        assert room.size >= min(budget.share.size - mine.buffered_bytes, size)
        if budget.holds(count, count * each):
            assert (count, count * each) <= (room.messages, room.size)
        taken = max(0, min(count, room.messages, room.size // each))
        mine.buffered_messages += taken
        mine.buffered_bytes += taken * each
        budget.used.add(taken, taken * each)
        assert budget.used.messages == sum(buffer.buffered_messages for buffer in buffers) <= messages
        assert budget.used.size == sum(buffer.buffered_bytes for buffer in buffers) <= size


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        server.answers = {"Acknowledge": accept, "ModifyAckDeadline": accept}
        yield server


def response(first: int, count: int, size: int = 4) -> bytes:
    messages = [received_message(f"m{n}", b"x" * size) for n in range(first, first + count)]
    return wire.StreamingPullResponse(received_messages=messages).SerializeToString()


@pytest.mark.feature("SRC-10")
@pytest.mark.feature("BEY-02")
def test_the_budget_is_exact_over_splits_and_connections_and_what_does_not_fit_waits(server: ScriptedServer) -> None:
    reading = Reading(server.endpoint, subscriber_buffer_max_messages=100, parallel_pull_count=2)
    reading.assign(ORDERS, RETURNS)
    streams = [server.stream() for _ in range(4)]
    for i, stream in enumerate(streams):
        stream.send(response(i * 1000, 60))
    eventually(lambda: reading.gauge("bufferedMessages") == 100)
    assert reading.gauge("pendingAcks") == 100
    seen = 0
    while seen < 240:
        assert reading.gauge("bufferedMessages") <= 100
        seen += len(reading.take(1))
    assert (seen, reading.counter("messagesReceived")) == (240, 240)
    eventually(lambda: reading.gauge("bufferedMessages") == 0)
    assert reading.context.failures.empty()
    reading.reader.close(5)


class Watched(Tally):
    """Remembers the most it ever counted."""

    most = Tally()

    def add(self, messages: int, size: int) -> None:
        super().add(messages, size)
        self.most = Tally(max(self.most.messages, self.messages), max(self.most.size, self.size))


@pytest.mark.feature("SRC-10")
@pytest.mark.feature("BEY-02")
@pytest.mark.parametrize("unit", ["messages", "bytes"])
def test_a_reader_that_nobody_polls_and_whose_checkpoints_do_not_come_fills_its_budget_to_the_last_and_no_more(
    unit: str,
) -> None:
    """The fetch loop and the mailbox are both blocked: only connections and the keeper do anything."""
    with Emulator() as emulator:
        emulator.create_topic(TOPIC)
        for subscription in (ORDERS, RETURNS):
            emulator.create_subscription(subscription.resource_path, TOPIC)
        publish(emulator, 1200, size=100)
        one = max(wire.ReceivedMessage(ack_id=ack_id(9999), message=each).ByteSize() for each in emulator.published(TOPIC))
        limit: dict[str, Any] = {f"subscriber_buffer_max_{unit}": 777 * (1 if unit == "messages" else one)}
        reading = Reading(emulator, parallel_pull_count=3, flow_control_max_outstanding_element_count=100_000, **limit)
        watched = Watched()
        reading.reader._shared.budget.used = watched
        reading.assign(ORDERS, RETURNS, ORDERS)
        eventually(lambda: watched.messages == 777 if unit == "messages" else watched.size > 775 * one)
        found: list[bytes] = []
        while len(found) < 2400:
            found += reading.take(1)
        assert {found.count(payload) for payload in set(found)} == {2}
        assert watched.most.messages == 777 if unit == "messages" else 775 * one < watched.most.size <= 777 * one
        assert (watched.messages, watched.size) == (0, 0)
        reading.reader.close(5)


@pytest.mark.feature("SRC-10")
def test_the_bytes_of_the_budget_count_like_its_messages(server: ScriptedServer) -> None:
    one = received_message("m1000", b"x" * 1000).ByteSize()
    reading = Reading(server.endpoint, subscriber_buffer_max_bytes=10 * one)
    reading.assign(ORDERS)
    server.stream().send(response(1000, 25, 1000))
    eventually(lambda: reading.gauge("bufferedBytes") == 10 * one)
    assert len(reading.take(25)) == 25
    reading.reader.close(5)


@pytest.mark.feature("SRC-10")
def test_where_a_job_goes_on_a_response_waits_for_room_for_all_of_it(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "_WHOLE_SECONDS", 10)
    reading = Reading(server.endpoint, subscriber_buffer_max_messages=30)
    reading.assign(ORDERS)
    server.stream().send(response(1000, 20), response(1020, 20))
    eventually(lambda: reading.gauge("bufferedMessages") == 20)
    assert [block.messages for _ in range(2) for block in reading.reader.poll(10)] == [20, 20]
    reading.reader.close(5)


@pytest.mark.feature("SRC-10")
def test_a_budget_smaller_than_every_response_delays_but_fails_nothing(server: ScriptedServer) -> None:
    reading = Reading(server.endpoint, subscriber_buffer_max_messages=1)
    reading.assign(ORDERS, RETURNS)
    for i in range(2):
        server.stream().send(response(i * 1000, 20))
    assert len(set(reading.take(40))) == 1
    assert reading.counter("messagesReceived") == 40
    assert reading.context.failures.empty()
    reading.reader.close(5)


class Blocked:
    """A reader that nobody polls, on a clock that the test moves."""

    def __init__(self, server: ScriptedServer, **options: Any) -> None:
        self.clock = ManualClock()
        self.server = server
        self.reading = Reading(server.endpoint, clock=self.clock, **options)

    def given_back_by(self, stream: ServerStream, count: int) -> set[str]:
        """What goes back once the connection has ended its half of the stream, and the server the rest."""
        end(stream, self.clock)
        return nacked(self.server, count)


def end(stream: ServerStream, clock: ManualClock) -> None:
    """Lets time pass, however far the connection is, until it has ended its half of the stream; then ends the other."""

    def ended() -> bool:
        clock.advance(1)
        return not stream.requests.empty() and stream.requests.get() is None

    eventually(ended)
    stream.end()


@pytest.mark.feature("BEY-02")
@pytest.mark.feature("SRC-10")
def test_a_stream_that_is_ahead_of_a_blocked_job_ends_and_opens_again_when_there_is_room(server: ScriptedServer) -> None:
    blocked = Blocked(server, subscriber_buffer_max_messages=100)
    reading = blocked.reading
    reading.assign(ORDERS)
    stream = server.stream()
    for i in range(8):
        stream.send(response(i * 10, 10))
    eventually(lambda: reading.gauge("bufferedMessages") == 50)
    assert blocked.given_back_by(stream, 30) == {f"ack-m{n}" for n in range(50, 80)}
    assert server.streams.empty()
    assert len(reading.take(50)) == 50
    again = server.stream()
    again.send(response(50, 30))
    assert len(reading.take(30)) == 30
    assert reading.context.failures.empty()
    reading.reader.close(5)


@pytest.mark.feature("BEY-02")
def test_what_a_response_brings_beyond_the_budget_goes_back_after_half_a_deadline(server: ScriptedServer) -> None:
    blocked = Blocked(server, subscriber_buffer_max_messages=100)
    blocked.reading.assign(ORDERS)
    stream = server.stream()
    stream.send(response(0, 130))
    eventually(lambda: blocked.reading.gauge("bufferedMessages") == 100)
    assert blocked.given_back_by(stream, 30) == {f"ack-m{n}" for n in range(100, 130)}
    assert blocked.reading.context.failures.empty()
    blocked.reading.reader.close(5)


@pytest.mark.feature("BEY-02")
@pytest.mark.feature("SRC-27")
def test_at_the_limit_the_server_was_told_a_stream_stays_open_and_is_read(server: ScriptedServer) -> None:
    blocked = Blocked(server, flow_control_max_outstanding_element_count=20)
    reading = blocked.reading
    reading.assign(ORDERS)
    stream = server.stream()
    stream.send(response(0, 20))
    eventually(lambda: reading.gauge("pendingAcks") == 20)
    blocked.clock.advance(60)
    again = received_message("m7", b"xxxx", "ack-m7-again")
    stream.send(wire.StreamingPullResponse(received_messages=[again]).SerializeToString())
    tracker = reading.reader._subscribers[0].tracker
    eventually(lambda: "ack-m7-again" in tracker._held[0].ack_ids)
    assert (reading.gauge("pendingAcks"), server.streams.empty()) == (20, True)
    reading.reader.close(5)


@pytest.mark.feature("BEY-02")
@pytest.mark.feature("SRC-09")
@pytest.mark.parametrize("unit", ["messages", "bytes"])
def test_a_stream_opened_anew_does_not_double_what_is_held(server: ScriptedServer, unit: str) -> None:
    size = received_message("m100", b"xxxx").ByteSize()
    limit: dict[str, Any] = {"flow_control_max_outstanding_element_count": 20}
    if unit == "bytes":
        limit = {"flow_control_max_outstanding_request_bytes": 19 * size}  # the first fifteen have shorter ids
    blocked = Blocked(server, **limit)
    reading = blocked.reading
    reading.assign(ORDERS)
    stream = server.stream()
    stream.send(response(0, 15))
    eventually(lambda: reading.gauge("pendingAcks") == 15)
    stream.end()
    second = server.stream()
    for i in range(4):
        second.send(response(100 + i * 5, 5))
    eventually(lambda: reading.gauge("pendingAcks") == 20)
    assert blocked.given_back_by(second, 15) == {f"ack-m{n}" for n in range(105, 120)}
    assert server.streams.empty()
    assert reading.gauge("pendingAcks") == 20
    reading.take(20)
    reading.checkpoint(1)
    assert server.stream().first.max_outstanding_messages in (20, 1000)
    reading.reader.close(5)


@pytest.mark.feature("SRC-10")
def test_a_message_larger_than_the_budget_is_given_back_and_fails_the_job_naming_the_option(server: ScriptedServer) -> None:
    reading = Reading(server.endpoint, subscriber_buffer_max_bytes=500)
    reading.assign(ORDERS, RETURNS)
    reading.reader.pause_or_resume(["split-1"], [])
    stream = server.stream()
    stream.send(response(0, 1, 1000))
    error = reading.context.failure()
    assert isinstance(error, SubscriberBufferError)
    assert error.subscription in (ORDERS.resource_path, RETURNS.resource_path)
    assert "subscriber_buffer_max_bytes" in str(error)
    assert reading.gauge("bufferedMessages") == 0
    assert stream.request() is None
    stream.end()
    assert nacked(server, 1) == {"ack-m0"}
    reading.reader.close(5)


@pytest.mark.feature("SRC-10")
@pytest.mark.feature("SRC-23")
def test_while_all_splits_are_paused_such_a_message_parks_them_all_and_fails_the_job_only_after(server: ScriptedServer) -> None:
    reading = Reading(server.endpoint, subscriber_buffer_max_bytes=500)
    reading.assign(ORDERS, RETURNS)
    streams = [server.stream() for _ in range(2)]
    streams[0].send(response(0, 1))
    streams[1].send(response(10, 1))
    eventually(lambda: reading.gauge("bufferedMessages") == 2)
    reading.reader.pause_or_resume(["split-0", "split-1"], [])
    streams[0].send(response(20, 1, 1000))
    for stream in streams:
        while stream.request() is not None:
            continue
        stream.end()
    assert nacked(server, 3) == {"ack-m0", "ack-m10", "ack-m20"}
    eventually(lambda: reading.gauge("parkedSplits") == 2)
    assert reading.counter("splitsParked") == 2
    with pytest.raises(queue.Empty):
        reading.context.failures.get_nowait()
    reading.reader.pause_or_resume([], ["split-0", "split-1"])
    server.stream().send(response(20, 1, 1000))
    assert isinstance(reading.context.failure(), SubscriberBufferError)
    reading.reader.close(5)


@pytest.mark.feature("SRC-10")
@pytest.mark.feature("SRC-23")
def test_a_split_that_finds_no_room_makes_paused_ones_give_way(server: ScriptedServer) -> None:
    """A message larger than a share, while paused splits use the common half: without this, alignment would never end."""
    clock = ManualClock()
    reading = Reading(server.endpoint, clock=clock, subscriber_buffer_max_bytes=4000)
    reading.assign(ORDERS, RETURNS)
    streams = {stream.first.subscription: stream for stream in (server.stream(), server.stream())}
    ahead, behind = streams[ORDERS.resource_path], streams[RETURNS.resource_path]
    ahead.send(response(0, 30, 75))
    eventually(lambda: reading.gauge("bufferedBytes") > 2700)
    reading.reader.pause_or_resume(["split-0"], [])
    behind.send(response(100, 1, 1500))
    end(behind, clock)
    ahead.end()
    eventually(lambda: reading.gauge("parkedSplits") == 1)
    server.stream().send(response(100, 1, 1500))
    assert len(reading.take(1)) == 1
    assert set(reading.last) == {1}
    assert reading.context.failures.empty()
    reading.reader.close(5)
