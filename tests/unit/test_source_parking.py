"""A split paused by watermark alignment: held within its bounds, parked beyond them, watched as long as it is not parked."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import grpc
import pytest

from flink_pubsub.core.chunks import Delivery
from flink_pubsub.emulator import Emulator, ManualClock
from flink_pubsub.errors import SubscriptionError
from flink_pubsub.options import OrderingMode
from flink_pubsub.wire import pubsub_pb2 as wire
from flink_pubsub.worker.decoding import Payload
from flink_pubsub.worker.intake import Intake
from tests.unit.source_reading import ORDERS, RETURNS, TOPIC, Reading, publish
from tests.unit.source_support import ScriptedServer, accept, eventually, nacked, response

pytestmark = pytest.mark.feature("SRC-23")
PATH = ORDERS.resource_path


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator() as emulator:
        emulator.create_topic(TOPIC)
        emulator.create_subscription(PATH, TOPIC, ack_deadline_seconds=600)
        yield emulator


def parked(reading: Reading) -> None:
    """Waits until the paused split is parked."""
    eventually(lambda: (reading.gauge("parkedSplits"), reading.counter("splitsParked")) == (1, 1))


def test_a_paused_split_that_buffers_more_than_it_may_gives_everything_back_and_ends_its_streams(emulator: Emulator) -> None:
    reading = Reading(emulator, paused_split_buffer_max_messages=5, max_records_per_fetch=4)
    reading.assign(ORDERS)
    publish(emulator, 20)
    assert len(reading.take(4)) == 4
    reading.checkpoint(1, complete=False)
    assert len(reading.take(4)) == 4
    reading.reader.pause_or_resume(["split-0"], [])
    parked(reading)
    emulator.wait_until(lambda: emulator.counts(PATH).backlog == 20 and emulator.open_streams() == 0)
    assert (reading.gauge("pendingAcks"), reading.gauge("bufferedMessages"), reading.gauge("bufferedBytes")) == (0, 0, 0)
    eventually(lambda: (reading.counter("splitsParked"), reading.counter("messagesNacked")) == (1, 20))
    assert reading.reader.poll(0.05) == []
    reading.reader.close(5)


def test_a_resumed_split_opens_a_fresh_stream_and_goes_on_counting_and_old_positions_do_no_harm(emulator: Emulator) -> None:
    reading = Reading(emulator, paused_split_buffer_max_messages=5, max_records_per_fetch=8)
    reading.assign(ORDERS)
    published = publish(emulator, 20)
    reading.take(8)
    reading.checkpoint(1, complete=False)
    reading.reader.pause_or_resume(["split-0"], [])
    parked(reading)
    reading.checkpoint(2)
    emulator.wait_until(lambda: emulator.counts(PATH).backlog == 20)
    assert emulator.counts(PATH).acked == 0
    reading.reader.pause_or_resume([], ["split-0"])
    assert sorted(reading.take(20)) == sorted(published)
    assert reading.last == {0: 40}
    assert reading.gauge("parkedSplits") == 0
    reading.checkpoint(3)
    emulator.wait_until(lambda: emulator.counts(PATH).acked == 20)
    reading.reader.close(5)


def test_bytes_park_a_split_like_messages(emulator: Emulator) -> None:
    reading = Reading(emulator, paused_split_buffer_max_bytes=1000)
    reading.assign(ORDERS)
    reading.reader.pause_or_resume(["split-0"], [])
    publish(emulator, 1, size=700)
    eventually(lambda: reading.gauge("bufferedMessages") == 1)
    assert reading.gauge("parkedSplits") == 0
    publish(emulator, 1, size=700)
    parked(reading)
    reading.reader.close(5)


def test_a_split_within_its_bounds_is_not_parked_however_long_it_is_paused(emulator: Emulator) -> None:
    reading = Reading(emulator, flow_control_max_outstanding_element_count=50)
    reading.assign(ORDERS)
    reading.reader.pause_or_resume(["split-0"], [])
    published = publish(emulator, 200)
    eventually(lambda: reading.gauge("bufferedMessages") == 50)
    assert (emulator.counts(PATH).outstanding, emulator.open_streams()) == (50, 1)
    reading.reader.pause_or_resume([], ["split-0"])
    found = []
    for checkpoint in range(1, 5):
        found += reading.take(50)
        reading.checkpoint(checkpoint)
    assert sorted(found) == sorted(published)
    assert reading.counter("splitsParked") == 0
    reading.reader.close(5)


def test_a_fetch_that_waits_while_its_split_is_paused_ends_when_it_is_resumed_at_once(emulator: Emulator) -> None:
    reading = Reading(emulator)
    reading.assign(ORDERS)
    reading.reader.pause_or_resume(["split-0"], [])
    publish(emulator, 200)
    eventually(lambda: reading.gauge("bufferedMessages") == 200)
    for _ in range(50):
        began = time.monotonic()
        flips = threading.Thread(target=flip, args=(reading, 3))
        flips.start()
        assert reading.reader.poll(30)
        assert time.monotonic() - began < 15
        flips.join()
        publish(emulator, 1)
    reading.reader.close(5)


def test_quick_pauses_and_resumes_lose_no_wake_up(emulator: Emulator) -> None:
    reading = Reading(emulator, paused_split_buffer_max_messages=1)
    reading.assign(ORDERS)
    flips = threading.Thread(target=flip, args=(reading, 200))
    flips.start()
    publish(emulator, 300)
    flips.join()
    seen: set[bytes] = set()
    while len(seen) < 300:
        seen.update(reading.take(1))
    reading.checkpoint(1)
    emulator.wait_until(lambda: emulator.counts(PATH).outstanding == 0)
    reading.reader.close(5)


def flip(reading: Reading, times: int) -> None:
    pause = threading.Event()
    for _ in range(times):
        reading.reader.pause_or_resume(["split-0"], [])
        pause.wait(0.001)
        reading.reader.pause_or_resume([], ["split-0"])


@pytest.mark.feature("SRC-22")
def test_a_parked_split_starts_each_key_over_in_order(emulator: Emulator) -> None:
    emulator.create_subscription(RETURNS.resource_path, TOPIC, ack_deadline_seconds=600, enable_message_ordering=True)
    reading = Reading(emulator, mode=OrderingMode.PER_KEY, paused_split_buffer_max_messages=5, max_records_per_fetch=30)
    reading.assign(RETURNS)
    for n in range(60):
        emulator.publish_all(TOPIC, [wire.PubsubMessage(data=str(n).encode(), ordering_key=f"k{n % 3}")])
    before = reading.take(30)
    reading.reader.pause_or_resume(["split-0"], [])
    parked(reading)
    emulator.publish_all(TOPIC, [wire.PubsubMessage(data=b"60", ordering_key="k0")])
    reading.reader.pause_or_resume([], ["split-0"])
    after = reading.take(61)
    for key in range(3):
        for emitted in (before, after):
            numbers = [int(data) for data in emitted if int(data) % 3 == key]
            assert numbers == list(range(key, key + 3 * len(numbers), 3))
    reading.reader.close(5)


def test_a_parked_split_notices_only_when_it_is_resumed_that_its_subscription_is_gone(emulator: Emulator) -> None:
    reading = Reading(emulator, paused_split_buffer_max_messages=1)
    reading.assign(ORDERS)
    publish(emulator, 5)
    eventually(lambda: reading.gauge("bufferedMessages") == 5)
    reading.reader.pause_or_resume(["split-0"], [])
    parked(reading)
    eventually(lambda: reading.counter("messagesNacked") == 5)
    emulator.delete_subscription(PATH)
    assert reading.context.failures.empty()
    reading.reader.pause_or_resume([], ["split-0"])
    assert isinstance(reading.context.failure(), SubscriptionError)
    reading.reader.close(5)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        server.answers = {"Acknowledge": accept, "ModifyAckDeadline": accept}
        yield server


@pytest.mark.feature("SRC-28")
def test_a_failure_on_the_way_into_the_park_fails_no_job_and_is_counted(server: ScriptedServer) -> None:
    reading = Reading(server.endpoint, paused_split_buffer_max_messages=1)
    reading.assign(ORDERS)
    stream = server.stream()
    stream.send(response("a", "b"))
    eventually(lambda: reading.gauge("bufferedMessages") == 2)
    reading.reader.pause_or_resume(["split-0"], [])
    assert stream.request() is None
    stream.end(grpc.StatusCode.NOT_FOUND, "gone")
    eventually(lambda: reading.reader.metrics().lasting["subscriberFailuresUnreported"] == 1)
    assert reading.context.failures.empty()
    reading.reader.close(5)


@pytest.mark.feature("SRC-28")
def test_a_park_whose_connections_do_not_end_in_time_is_counted_and_the_split_goes_on(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    reading = Reading(server.endpoint, clock=clock, paused_split_buffer_max_messages=1)
    reading.assign(ORDERS)
    stream = server.stream()
    stream.send(response("a", "b"))
    eventually(lambda: reading.gauge("bufferedMessages") == 2)
    received, released, entered = Intake.received, threading.Event(), threading.Event()

    def stuck(intake: Intake, delivery: Delivery[Payload], deadline: int, waited: float) -> bool:
        entered.set()
        released.wait(10)
        return received(intake, delivery, deadline, waited)

    monkeypatch.setattr(Intake, "received", stuck)
    stream.send(response("c"))
    assert entered.wait(10)
    reading.reader.pause_or_resume(["split-0"], [])
    clock.advance(1)
    parked(reading)
    assert reading.reader.metrics().lasting["subscriberShutdownsAbandoned"] == 0
    clock.advance(6)
    eventually(lambda: reading.reader.metrics().lasting["subscriberShutdownsAbandoned"] == 1)
    monkeypatch.setattr(Intake, "received", received)
    reading.reader.pause_or_resume([], ["split-0"])
    server.stream().send(response("d"))
    assert reading.take(1) == [b"data"]
    released.set()
    assert nacked(server, 3) == {"ack-a", "ack-b", "ack-c"}
    reading.reader.close(5)


@pytest.mark.feature("SRC-28")
def test_connections_that_do_not_end_in_time_are_counted(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(server.endpoint)
    released, entered = threading.Event(), threading.Event()

    def stuck(intake: Intake, delivery: Delivery[Payload], deadline: int, waited: float) -> None:
        entered.set()
        released.wait(10)
        raise ValueError("late")

    monkeypatch.setattr(Intake, "received", stuck)
    reading.assign(ORDERS)
    server.stream().send(response("a"))
    assert entered.wait(10)
    reading.reader.close(0.2)
    assert reading.reader.metrics().lasting["subscriberShutdownsAbandoned"] == 1
    released.set()
    assert all(subscriber.join(reading.reader._clock() + 10) for subscriber in reading.reader._subscribers)
