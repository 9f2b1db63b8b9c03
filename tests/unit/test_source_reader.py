"""The reader against the emulator: receive, hand out, acknowledge by checkpoint, give back."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import grpc
import pytest

from flink_pubsub.bridge.connector import Split
from flink_pubsub.emulator import Emulator, ManualClock
from flink_pubsub.errors import DeserializationError
from flink_pubsub.options import Connection, OrderingMode
from flink_pubsub.schemas import PubSubDeserializationSchema
from flink_pubsub.source import SourceSpec
from flink_pubsub.wire import pubsub_pb2 as wire
from flink_pubsub.worker.reader import PubSubReader
from tests.unit.source_reading import ORDERS, RETURNS, TOPIC, Reading, publish
from tests.unit.source_support import FakeContext, ScriptedServer, accept, eventually, nacked, response


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator(log_deliveries=1000) as emulator:
        emulator.create_topic(TOPIC)
        emulator.create_subscription(ORDERS.resource_path, TOPIC, ack_deadline_seconds=10)
        yield emulator


@pytest.fixture
def reading(emulator: Emulator) -> Iterator[Reading]:
    reading = Reading(emulator)
    reading.assign(ORDERS)
    yield reading
    reading.reader.close(5)
    assert reading.context.failures.empty()


@pytest.mark.feature("SRC-15")
def test_messages_are_acknowledged_once_their_checkpoint_completes_and_not_before(emulator: Emulator, reading: Reading) -> None:
    published = publish(emulator, 100)
    assert sorted(reading.take(100)) == sorted(published)
    reading.checkpoint(1, complete=False)
    assert (reading.gauge("pendingAcks"), reading.gauge("pendingCheckpoints")) == (100, 1)
    assert emulator.counts(ORDERS.resource_path).acked == 0
    reading.reader.checkpoint_complete(1)
    emulator.wait_until(lambda: emulator.counts(ORDERS.resource_path).acked == 100)
    eventually(lambda: reading.counter("messagesAcked") == 100)
    assert (reading.gauge("pendingAcks"), reading.counter("messagesReceived")) == (0, 100)


@pytest.mark.feature("SRC-15")
def test_a_lost_notification_is_healed_by_the_next_checkpoint(emulator: Emulator, reading: Reading) -> None:
    publish(emulator, 10)
    reading.take(10)
    reading.checkpoint(1, complete=False)
    publish(emulator, 10)
    reading.take(10)
    reading.checkpoint(2)
    emulator.wait_until(lambda: emulator.counts(ORDERS.resource_path).acked == 20)


@pytest.mark.feature("SRC-15")
def test_100000_acknowledgements_of_a_checkpoint_go_out_in_chunks_and_hold_up_no_later_one(emulator: Emulator) -> None:
    reading = Reading(emulator, flow_control_max_outstanding_element_count=200_000, max_records_per_fetch=20_000)
    reading.assign(ORDERS)
    publish(emulator, 100_000)
    reading.take(100_000)
    emulator.stop_answering("Acknowledge")
    reading.checkpoint(1)
    publish(emulator, 10)
    reading.take(10)
    reading.checkpoint(2)
    assert (reading.gauge("pendingAcks"), reading.gauge("pendingCheckpoints")) == (0, 0)
    emulator.resume("Acknowledge")
    emulator.wait_until(lambda: emulator.counts(ORDERS.resource_path).acked == 100_010)
    assert emulator.calls("Acknowledge") == 41
    eventually(lambda: reading.counter("messagesAcked") == 100_010)
    reading.reader.close(5)


@pytest.mark.feature("SRC-15")
def test_a_failed_acknowledgement_is_sent_again(emulator: Emulator, reading: Reading) -> None:
    emulator.fail_next("Acknowledge", grpc.StatusCode.UNAVAILABLE, times=2)
    publish(emulator, 5)
    reading.take(5)
    reading.checkpoint(1)
    emulator.wait_until(lambda: emulator.counts(ORDERS.resource_path).acked == 5)


def test_acknowledgements_have_a_connection_of_their_own_lest_their_answers_queue_behind_what_streams_bring() -> None:
    peers: list[str] = []

    def acknowledge(request: bytes, context: grpc.ServicerContext) -> bytes:
        peers.append(context.peer())
        return b""

    with ScriptedServer() as server:
        server.answers["Acknowledge"] = acknowledge
        reading = Reading(server.endpoint)
        reading.assign(ORDERS, RETURNS)
        streams = server.stream(), server.stream()
        for stream in streams:
            stream.send(response("1"))
        reading.take(2)
        reading.checkpoint(1)
        eventually(lambda: reading.counter("messagesAcked") == 2)
        reading.reader.close(5)
    assert len(set(peers)) == 1
    assert not {stream.peer for stream in streams} & set(peers)


@pytest.mark.feature("SRC-14")
def test_closing_gives_back_what_is_buffered_emitted_or_bound_at_once(emulator: Emulator) -> None:
    reading = Reading(emulator, max_records_per_fetch=4)
    reading.assign(ORDERS)
    publish(emulator, 12)
    reading.take(4)
    reading.checkpoint(1, complete=False)
    reading.take(4)
    eventually(lambda: reading.counter("messagesReceived") == 12)
    reading.reader.close(5)
    counts = emulator.counts(ORDERS.resource_path)
    assert (counts.nacks, counts.outstanding, counts.backlog, counts.acked) == (12, 0, 12, 0)
    assert emulator.open_streams() == 0
    assert reading.counter("messagesNacked") == 12


@pytest.mark.feature("SRC-14")
def test_what_was_acknowledged_before_closing_still_goes_out(emulator: Emulator) -> None:
    reading = Reading(emulator)
    reading.assign(ORDERS)
    publish(emulator, 10)
    reading.take(10)
    emulator.fail_next("Acknowledge", grpc.StatusCode.UNAVAILABLE)
    reading.checkpoint(1)
    reading.reader.close(5)
    counts = emulator.counts(ORDERS.resource_path)
    assert (counts.acked, counts.nacks) == (10, 0)


@pytest.mark.feature("SRC-14")
def test_closing_gives_back_what_was_still_on_its_way_too() -> None:
    with ScriptedServer() as server:
        server.answers["ModifyAckDeadline"] = accept
        reading = Reading(server.endpoint)
        reading.assign(ORDERS, ORDERS)
        streams = [server.stream() for _ in range(2)]
        streams[0].send(response("early"))
        eventually(lambda: reading.gauge("bufferedMessages") == 1)
        closing = threading.Thread(target=reading.reader.close, args=(20,))
        closing.start()
        for i, stream in enumerate(streams):
            assert stream.request() is None
            stream.send(response(f"late-{i}"))
            stream.end()
        closing.join(10)
        assert nacked(server, 3) == {"ack-early", "ack-late-0", "ack-late-1"}


@pytest.mark.feature("SRC-14")
def test_closing_many_splits_takes_one_budget_when_the_service_does_not_answer(emulator: Emulator) -> None:
    reading = Reading(emulator)
    reading.assign(*[ORDERS] * 12)
    publish(emulator, 10)
    reading.take(10)
    emulator.wait_until(lambda: emulator.open_streams() == 12)
    emulator.stop_answering("ModifyAckDeadline")
    emulator.stop_answering("StreamingPull")
    began = time.monotonic()
    reading.reader.close(1)
    assert time.monotonic() - began < 2
    assert reading.context.failures.empty()


@pytest.mark.feature("SRC-25")
def test_a_message_the_job_failed_on_goes_back_at_once(emulator: Emulator, reading: Reading) -> None:
    publish(emulator, 3)
    reading.take(3)
    reading.reader.record_failed("split-0", 2, "boom", emitting=True)
    emulator.wait_until(lambda: emulator.counts(ORDERS.resource_path).nacks == 1)


@pytest.mark.feature("BEY-01")
@pytest.mark.feature("SRC-26")
def test_a_redelivery_of_a_held_message_is_neither_emitted_nor_acknowledged_by_its_old_id() -> None:
    clock = ManualClock()
    with Emulator(clock=clock) as emulator:
        emulator.create_topic(TOPIC)
        emulator.create_subscription(ORDERS.resource_path, TOPIC, ack_deadline_seconds=10)
        reading = Reading(emulator)
        reading.assign(ORDERS, ORDERS)
        publish(emulator, 5)
        reading.take(5)
        clock.advance(11)
        emulator.wait_until(lambda: emulator.counts(ORDERS.resource_path).delivered == 10)
        publish(emulator, 1)
        assert len(reading.take(1)) == 1
        assert (reading.gauge("pendingAcks"), reading.counter("messagesReceived")) == (6, 6)
        chunks = [chunk for split in reading.reader._shared.splits for chunk in split.tracker._held]
        eventually(lambda: sum(len(chunk.moved or ()) for chunk in chunks) == 5)  # either stream may bring them
        reading.checkpoint(1)
        emulator.wait_until(lambda: emulator.counts(ORDERS.resource_path).acked == 6)
        assert emulator.counts(ORDERS.resource_path).late_acks == 0
        reading.reader.close(5)


@pytest.mark.feature("SRC-09")
@pytest.mark.parametrize(
    "bound",
    [{"flow_control_max_outstanding_element_count": 10}, {"flow_control_max_outstanding_request_bytes": 9_600}],
    ids=["messages", "bytes"],
)
def test_no_more_is_held_than_allowed_until_something_leaves(emulator: Emulator, bound: dict[str, Any]) -> None:
    reading = Reading(emulator, **bound)
    reading.assign(ORDERS)
    publish(emulator, 25, size=1000)
    for checkpoint, count in ((1, 10), (2, 10), (3, 5)):
        reading.take(count)
        assert reading.reader.poll(0.05) == []
        assert reading.gauge("pendingAcks") == count
        reading.checkpoint(checkpoint)
    emulator.wait_until(lambda: emulator.counts(ORDERS.resource_path).acked == 25)
    reading.reader.close(5)


@pytest.mark.feature("SRC-22")
def test_all_that_the_service_hands_over_of_a_key_flows_without_a_checkpoint_in_between(emulator: Emulator) -> None:
    emulator.create_subscription(RETURNS.resource_path, TOPIC, enable_message_ordering=True)
    reading = Reading(emulator, mode=OrderingMode.PER_KEY, max_records_per_fetch=7)
    reading.assign(RETURNS)
    numbers = [str(n).encode() for n in range(100)]
    emulator.publish_all(TOPIC, [wire.PubsubMessage(data=data, ordering_key="k") for data in numbers])
    assert reading.take(100) == numbers
    assert emulator.open_streams(RETURNS.resource_path) == 1
    assert emulator.counts(RETURNS.resource_path).acked == 0
    reading.reader.close(5)


@pytest.mark.feature("SRC-11")
def test_a_fetch_takes_from_every_split_in_turn_and_no_more_than_allowed_from_one(emulator: Emulator) -> None:
    emulator.create_subscription(RETURNS.resource_path, TOPIC)
    reading = Reading(emulator, max_records_per_fetch=3)
    reading.assign(ORDERS, RETURNS)
    publish(emulator, 6)
    eventually(lambda: reading.gauge("bufferedMessages") == 12)
    batches = [[(block.ordinal, block.messages) for block in reading.reader.poll(1)] for _ in range(2)]
    assert [sorted(batch) for batch in batches] == [[(0, 3), (1, 3)]] * 2
    reading.reader.close(5)


def test_a_batch_is_bounded_in_bytes(emulator: Emulator, reading: Reading) -> None:
    for _ in range(5):
        publish(emulator, 1, size=3_000_000)
    eventually(lambda: reading.gauge("bufferedMessages") == 5)
    sizes = [sum(block.messages for block in reading.reader.poll(1)) for _ in range(3)]
    assert sizes == [2, 2, 1]


def test_records_that_outgrow_a_batch_leave_in_the_next_ones_in_order(emulator: Emulator) -> None:
    reading = Reading(emulator, PubSubDeserializationSchema.payload(lambda data: data * 3_000_000))
    reading.assign(ORDERS)
    publish(emulator, 8)
    eventually(lambda: reading.gauge("bufferedMessages") == 8)
    batches = [reading.reader.poll(1) for _ in range(3)]
    assert [[block.first for block in batch] for batch in batches] == [[1], [4], [7]]
    assert [sum(block.messages for block in batch) for batch in batches] == [3, 3, 2]
    reading.reader.close(5)


@pytest.mark.feature("SRC-12")
def test_parallel_pulls_share_the_split_and_its_limits(emulator: Emulator) -> None:
    reading = Reading(emulator, parallel_pull_count=3)
    reading.assign(ORDERS)
    emulator.wait_until(lambda: emulator.open_streams(ORDERS.resource_path) == 3)
    publish(emulator, 50)
    assert len(set(reading.take(50))) == 50
    assert [connection._limits.messages for connection in reading.reader._subscribers[0]._connections] == [333] * 3
    reading.reader.close(5)
    assert emulator.open_streams() == 0


def test_a_paused_split_is_not_drained_and_another_one_is(emulator: Emulator) -> None:
    emulator.create_subscription(RETURNS.resource_path, TOPIC)
    reading = Reading(emulator)
    reading.assign(ORDERS, RETURNS)
    reading.reader.pause_or_resume(["split-0"], [])
    publish(emulator, 4)
    reading.take(4)
    assert set(reading.last) == {1}
    assert reading.reader.poll(0.05) == []
    reading.reader.pause_or_resume([], ["split-0"])
    reading.take(4)
    assert reading.last == {0: 4, 1: 4}
    reading.reader.close(5)


@pytest.mark.feature("SRC-27")
@pytest.mark.parametrize("normally", [True, False])
def test_streams_that_end_cost_no_message_and_no_duplicate(emulator: Emulator, reading: Reading, normally: bool) -> None:
    published = []
    found = []
    for _ in range(5):
        emulator.wait_until(lambda: emulator.open_streams() == 1)
        published += publish(emulator, 20)
        found += reading.take(20)
        assert (emulator.close_streams() if normally else emulator.drop_streams()) == 1
    assert sorted(found) == sorted(published)


@pytest.mark.feature("BEY-04")
def test_a_failing_schema_raises_from_poll(emulator: Emulator) -> None:
    reading = Reading(emulator, PubSubDeserializationSchema.payload(lambda data: 1 // 0))
    reading.assign(ORDERS)
    publish(emulator, 1)
    with pytest.raises(DeserializationError, match="ZeroDivisionError"):
        reading.reader.poll(10)
    assert reading.counter("numRecordsInErrors") == 1
    reading.reader.close(5)


@pytest.mark.feature("SRC-13")
def test_streams_and_extensions_keep_to_the_users_bounds() -> None:
    with ScriptedServer() as server:
        server.answers["ModifyAckDeadline"] = accept
        clock = ManualClock()
        reading = Reading(
            server.endpoint,
            clock=clock,
            min_duration_per_ack_extension=timedelta(seconds=30),
            max_duration_per_ack_extension=timedelta(seconds=40),
        )
        reading.assign(ORDERS)
        stream = server.stream()
        assert stream.first.stream_ack_deadline_seconds == 30
        stream.send(response("a"))
        eventually(lambda: reading.gauge("bufferedMessages") == 1)
        reading.reader._holdings[ORDERS.resource_path].deadlines.held(500, 1000)
        reading.reader._holdings[ORDERS.resource_path].deadlines.adapt()
        clock.advance(25)
        request = wire.ModifyAckDeadlineRequest.FromString(server.calls.get(timeout=10)[1])
        assert (request.ack_deadline_seconds, list(request.ack_ids)) == (40, ["ack-a"])
        reading.reader.close(1)


@pytest.mark.feature("SRC-13")
def test_leases_are_kept_while_nobody_polls_and_checkpoints_are_silent() -> None:
    clock = ManualClock()
    with Emulator(clock=clock) as emulator:
        emulator.create_topic(TOPIC)
        emulator.create_subscription(ORDERS.resource_path, TOPIC, ack_deadline_seconds=10)
        reader_clock = ManualClock()
        context = FakeContext()
        spec = SourceSpec(
            subscriptions=(ORDERS,), deserializer=None, connection=Connection(emulator_endpoint=emulator.endpoint)
        )
        reader = PubSubReader(spec, context, reader_clock)
        reader.assign([(0, Split("split-0", f'{{"subscription": "{ORDERS.resource_path}"}}'))])
        publish(emulator, 30)
        eventually(lambda: reader.metrics().gauges["bufferedMessages"] == 30)
        for step in range(1, 40):
            before = emulator.counts(ORDERS.resource_path).modacks
            reader_clock.advance(5)
            if step > 1:
                emulator.wait_until(lambda before=before: emulator.counts(ORDERS.resource_path).modacks >= before + 30)  # type: ignore[misc]
            else:
                eventually(lambda: emulator.counts(ORDERS.resource_path).modacks == 30)
            clock.advance(5)
        assert emulator.counts(ORDERS.resource_path).expiries == 0
        reader.close(5)


def test_opening_and_closing_leaves_no_thread_and_no_descriptor(emulator: Emulator) -> None:
    publish(emulator, 200)

    def cycle() -> None:
        reading = Reading(emulator)
        reading.assign(ORDERS, ORDERS)
        reading.take(50)
        reading.reader.close(5)

    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    def threads() -> int:
        return sum("emulator" not in thread.name for thread in threading.enumerate())

    cycle()
    eventually(lambda: emulator.open_streams() == 0)
    before = threads(), descriptors()
    for _ in range(30):
        cycle()
    eventually(lambda: threads() <= before[0] and descriptors() <= before[1])
    assert emulator.counts(ORDERS.resource_path).outstanding == 0
