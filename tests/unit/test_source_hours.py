"""Hours of a job that is paused or blocked, on clocks that the test moves: leases, what lapses, and what is held meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import pytest

from flink_pubsub.core.chunks import Delivery
from flink_pubsub.emulator import Emulator, ManualClock
from flink_pubsub.options import OrderingMode
from flink_pubsub.wire import pubsub_pb2 as wire
from flink_pubsub.worker.decoding import Payload
from flink_pubsub.worker.intake import Intake
from tests.unit.source_reading import ORDERS, TOPIC, Reading
from tests.unit.source_support import WAIT, eventually

PATH = ORDERS.resource_path
STEP = 1
MESSAGES = 600
LIMIT = 200


class Hours:
    """A reader whose job does not take everything, and a service, each on a clock; the reader's is ahead by a step."""

    def __init__(self, emulator: Emulator, clock: ManualClock, period: timedelta, mode: OrderingMode) -> None:
        self.emulator = emulator
        self.service_clock = clock
        self.reader_clock = ManualClock()
        self.reading = Reading(
            emulator,
            clock=self.reader_clock,
            mode=mode,
            flow_control_max_outstanding_element_count=LIMIT,
            max_records_per_fetch=50,
            max_ack_extension_period=period,
            first_checkpoint_timeout=timedelta(0),
        )
        self.looks = threading.Semaphore(0)
        look = self.reading.reader._keeper._tick

        def counted(now: float) -> None:
            look(now)
            self.looks.release()

        self.reading.reader._keeper._tick = counted
        self.read = 0
        """Deliveries that were taken in, or refused."""
        self.most_buffered = self.most_held = 0

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        """Counts what is read."""
        receive, refuse = Intake.received, Intake.refused

        def received(intake: Intake, delivery: Delivery[Payload], deadline: int, waited: float) -> bool:
            taken = receive(intake, delivery, deadline, waited)
            self.read += len(delivery.ack_ids)
            return taken

        def refused(intake: Intake, deliveries: Sequence[Delivery[Payload]]) -> None:
            refuse(intake, deliveries)
            self.read += sum(len(delivery.ack_ids) for delivery in deliveries)

        patch.setattr(Intake, "received", received)
        patch.setattr(Intake, "refused", refused)

    def step(self) -> None:
        """Lets a second pass, the keeper do what is due, and the service hear of it before its own time passes."""
        self.reader_clock.advance(STEP)
        keeper = self.reading.reader._keeper
        while self.looks.acquire(blocking=False):
            continue
        looks = 0
        while looks < 2 or not keeper._sender.idle:
            keeper.wake()
            assert self.looks.acquire(timeout=WAIT)
            looks += 1
        self.service_clock.advance(STEP)
        # Real time does not pass as fast as these clocks: what was delivered is read within this second.
        eventually(lambda: self.emulator.counts(PATH).delivered == self.read)
        self.most_buffered = max(self.most_buffered, self.reading.gauge("bufferedMessages"))
        self.most_held = max(self.most_held, self.reading.gauge("pendingAcks"))

    def pass_time(self, hours: float) -> None:
        for _ in range(int(hours * 3600 / STEP)):
            self.step()

    def drain(self) -> list[str]:
        """Goes on with the job until everything is acknowledged; returns what it emitted."""
        found: list[bytes] = []
        checkpoint = 1000
        while self.emulator.counts(PATH).acked < MESSAGES:
            for block in self.reading.reader.poll(0.05):
                found += self.reading.emit(block)
            checkpoint += 1
            self.reading.checkpoint(checkpoint)
            self.step()
        return [data.decode() for data in found]


@contextmanager
def hours(period: timedelta, *, ordered: bool = False) -> Iterator[Hours]:
    clock = ManualClock()
    with Emulator(clock=clock) as emulator, pytest.MonkeyPatch.context() as patch:
        emulator.create_topic(TOPIC)
        emulator.create_subscription(PATH, TOPIC, ack_deadline_seconds=10, enable_message_ordering=ordered)
        for n in range(MESSAGES):
            key = f"k{n % 7}" if ordered else ""
            emulator.publish_all(TOPIC, [wire.PubsubMessage(data=str(n).encode(), ordering_key=key)])
        within = Hours(emulator, clock, period, OrderingMode.PER_KEY if ordered else OrderingMode.NONE)
        within.watch(patch)
        within.reading.assign(ORDERS)
        for connection in within.reading.reader._subscribers[0]._connections:
            connection._keepalive._liveness = float("inf")  # pings are answered in real time, which passes more slowly
        eventually(lambda: within.reading.gauge("pendingAcks") >= (7 if ordered else LIMIT))
        yield within
        assert within.reading.context.failures.empty()
        within.reading.reader.close(5)


def assert_order_per_key(found: list[str]) -> None:
    for key in range(7):
        assert [n for n in map(int, found) if n % 7 == key] == list(range(key, MESSAGES, 7))


@pytest.mark.feature("SRC-13")
def test_a_checkpoint_of_many_minutes_costs_no_lease_of_ten_seconds() -> None:
    with hours(timedelta(hours=1)) as it:
        taken = it.reading.take(100)
        it.pass_time(0.9)
        counts = it.emulator.counts(PATH)
        assert (counts.expiries, counts.nacks, counts.delivered) == (0, 0, LIMIT)
        it.reading.checkpoint(1)
        found = [data.decode() for data in taken] + it.drain()
        assert sorted(map(int, found)) == list(range(MESSAGES))
        assert it.emulator.counts(PATH).late_acks == 0


@pytest.mark.feature("SRC-13")
@pytest.mark.feature("SRC-22")
@pytest.mark.feature("BEY-01")
@pytest.mark.feature("BEY-02")
@pytest.mark.parametrize("ordered", [False, True])
def test_what_a_paused_split_buffers_goes_back_when_its_leases_end_and_nothing_is_emitted_twice(ordered: bool) -> None:
    with hours(timedelta(minutes=20), ordered=ordered) as it:
        it.reading.reader.pause_or_resume(["split-0"], [])
        it.pass_time(4.9)
        counts = it.emulator.counts(PATH)
        assert counts.expiries == 0, "everything went back before its lease ended"
        assert counts.delivered > 10 * it.most_buffered, "and was delivered anew each time"
        assert it.most_held <= LIMIT
        assert it.reading.counter("splitsParked") == 0
        it.reading.reader.pause_or_resume([], ["split-0"])
        found = it.drain()
        assert sorted(map(int, found)) == list(range(MESSAGES))
        if ordered:
            assert_order_per_key(found)


@pytest.mark.feature("SRC-13")
@pytest.mark.feature("SRC-22")
@pytest.mark.feature("BEY-01")
@pytest.mark.feature("BEY-02")
@pytest.mark.parametrize("ordered", [False, True])
def test_what_flink_has_already_stays_under_the_ids_of_its_redeliveries_when_the_job_is_blocked(ordered: bool) -> None:
    with hours(timedelta(minutes=20), ordered=ordered) as it:
        taken = it.reading.take(7 if ordered else 50)
        it.pass_time(4.9)
        counts = it.emulator.counts(PATH)
        assert counts.delivered == 15 * LIMIT, "everything once in each period"
        if ordered:
            assert counts.expiries == 0, "what comes first of a key goes back before the service takes back all of it"
        else:
            assert 0 < counts.expiries <= 15 * len(taken), "what Flink has cannot be given back"
        assert it.most_buffered <= LIMIT
        assert it.most_held <= LIMIT + len(taken)
        it.reading.checkpoint(1)
        found = [data.decode() for data in taken] + it.drain()
        assert sorted(map(int, found)) == list(range(MESSAGES))
        assert it.emulator.counts(PATH).late_acks == 0
        if ordered:
            assert_order_per_key(found)


@pytest.mark.feature("SRC-13")
def test_without_extensions_messages_go_back_when_the_streams_own_deadline_ends() -> None:
    with hours(timedelta(0)) as it:
        it.pass_time(0.05)
        assert it.emulator.counts(PATH).modacks == 0
        assert it.emulator.counts(PATH).nacks >= LIMIT
        assert it.most_held <= LIMIT
        assert sorted(map(int, it.drain())) == list(range(MESSAGES))
