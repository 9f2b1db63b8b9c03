"""What a reader wants of checkpoints: a first one, confirmed acknowledgements, and an interval well below the leases."""

from __future__ import annotations

import logging
import queue
from collections.abc import Iterator
from datetime import timedelta

import grpc
import pytest

from flink_pubsub.core.checkpoints import Confirmations, FirstCheckpoint
from flink_pubsub.emulator import Emulator, ManualClock
from flink_pubsub.errors import CheckpointError
from tests.unit.source_reading import ORDERS, TOPIC, Reading, publish
from tests.unit.source_support import eventually

PATH = ORDERS.resource_path


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator() as emulator:
        emulator.create_topic(TOPIC)
        emulator.create_subscription(PATH, TOPIC, ack_deadline_seconds=600)
        yield emulator


@pytest.mark.feature("SRC-16")
def test_time_counts_from_the_first_split_and_only_while_messages_wait() -> None:
    first = FirstCheckpoint(600)
    assert not first.missing(10_000, 5)
    first.assigned(10_000)
    first.assigned(10_300)
    assert not first.missing(10_599, 5)
    assert not first.missing(10_600, 0)
    assert first.missing(20_000, 1)
    assert not first.missing(20_001, 1)


@pytest.mark.feature("SRC-16")
def test_a_barrier_ends_it_for_good_and_0_never_begins_it() -> None:
    first, never = FirstCheckpoint(600), FirstCheckpoint(0)
    for each in (first, never):
        each.assigned(0)
    first.barrier()
    assert not first.missing(10_000, 5)
    assert not never.missing(10_000, 5)


@pytest.mark.feature("SRC-16")
def test_a_job_without_checkpoints_fails_naming_the_setting_though_no_record_flows(emulator: Emulator) -> None:
    clock = ManualClock()
    reading = Reading(emulator, clock=clock, flow_control_max_outstanding_element_count=10)
    reading.assign(ORDERS)
    publish(emulator, 50)
    reading.take(10)
    clock.advance(599)
    with pytest.raises(queue.Empty):
        reading.context.failures.get(timeout=0.3)
    clock.advance(1)
    error = reading.context.failure()
    assert isinstance(error, CheckpointError)
    assert error.option == "first_checkpoint_timeout"
    assert "execution.checkpointing.interval" in str(error)
    assert "600 s" in str(error)
    assert "10 messages" in str(error)
    reading.reader.close(5)


@pytest.mark.feature("SRC-16")
def test_a_barrier_without_positions_retires_the_detector(emulator: Emulator) -> None:
    clock = ManualClock()
    reading = Reading(emulator, clock=clock, first_checkpoint_timeout=timedelta(minutes=1))
    reading.assign(ORDERS)
    reading.reader.snapshot(1, {})
    publish(emulator, 5)
    reading.take(5)
    clock.advance(61)
    with pytest.raises(queue.Empty):
        reading.context.failures.get(timeout=0.3)
    reading.reader.close(5)


@pytest.mark.feature("SRC-17")
@pytest.mark.parametrize(("interval", "warns"), [(None, False), (1800.0, False), (1801.0, True)])
def test_an_interval_too_long_for_the_leases_is_warned_of_where_it_can_be_seen(
    emulator: Emulator, interval: float | None, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        Reading(emulator, checkpoint_interval=interval).reader.close(5)
    assert ("max_ack_extension_period is 3600 s" in caplog.text) is warns
    assert ("execution.checkpointing.interval, which is 1801 s" in caplog.text) is warns


@pytest.mark.feature("SRC-18")
def test_a_checkpoint_is_confirmed_with_the_last_of_its_acknowledgements() -> None:
    confirmations = Confirmations(10)
    assert confirmations.completed(1, 0, 0)
    assert not confirmations.completed(2, 5, 0)
    assert not confirmations.confirmed(2, 3)
    assert confirmations.confirmed(2, 2)
    assert not confirmations.confirmed(2, 1)
    assert not confirmations.completed(3, 5, 100)
    assert confirmations.overdue(109.9) is None
    assert not confirmations.confirmed(3, 2)
    assert confirmations.overdue(110) == (3, 3)
    assert confirmations.overdue(120) is None


@pytest.mark.feature("SRC-18")
def test_a_checkpoint_is_settled_once_the_service_has_confirmed_it(emulator: Emulator) -> None:
    reading = Reading(emulator, await_ack_confirmation=timedelta(seconds=30))
    assert reading.reader.settings.await_checkpoint_seconds == 30
    reading.assign(ORDERS)
    reading.checkpoint(1)
    assert reading.context.settled.get(timeout=10) == 1
    publish(emulator, 20)
    reading.take(20)
    emulator.stop_answering("Acknowledge")
    reading.checkpoint(2)
    with pytest.raises(queue.Empty):
        reading.context.settled.get(timeout=0.3)
    emulator.resume("Acknowledge")
    assert reading.context.settled.get(timeout=10) == 2
    assert emulator.counts(PATH).acked == 20
    reading.reader.close(5)


@pytest.mark.feature("SRC-18")
def test_a_service_that_stays_silent_fails_the_job_naming_the_option(emulator: Emulator) -> None:
    clock = ManualClock()
    reading = Reading(emulator, clock=clock, await_ack_confirmation=timedelta(seconds=30))
    reading.assign(ORDERS)
    publish(emulator, 20)
    reading.take(20)
    emulator.stop_answering("Acknowledge")
    reading.checkpoint(1)
    clock.advance(30)
    error = reading.context.failure()
    assert isinstance(error, CheckpointError)
    assert error.option == "await_ack_confirmation"
    assert "20 acknowledgements of checkpoint 1 within 30 s" in str(error)
    assert reading.context.settled.empty()
    emulator.resume("Acknowledge")
    reading.reader.close(5)


@pytest.mark.feature("SRC-18")
def test_acknowledgements_that_are_refused_confirm_nothing(emulator: Emulator) -> None:
    clock = ManualClock()
    reading = Reading(emulator, clock=clock, await_ack_confirmation=timedelta(seconds=30))
    reading.assign(ORDERS)
    publish(emulator, 20)
    reading.take(20)
    emulator.fail_next("Acknowledge", grpc.StatusCode.INVALID_ARGUMENT, "no")
    reading.checkpoint(1)
    emulator.wait_until(lambda: emulator.calls("Acknowledge") == 1)
    eventually(lambda: reading.reader._keeper._sender.idle)
    clock.advance(30)
    assert "20 acknowledgements of checkpoint 1" in str(reading.context.failure())
    assert reading.context.settled.empty()
    assert reading.counter("messagesAcked") == 0
    reading.reader.close(5)


@pytest.mark.feature("SRC-15")
def test_acknowledgements_that_are_under_way_delay_no_later_checkpoint(emulator: Emulator) -> None:
    reading = Reading(emulator)
    reading.assign(ORDERS)
    emulator.stop_answering("Acknowledge")
    for checkpoint in (1, 2, 3):
        publish(emulator, 10)
        reading.take(10)
        reading.checkpoint(checkpoint)
    assert (reading.gauge("pendingAcks"), reading.gauge("pendingCheckpoints")) == (0, 0)
    emulator.resume("Acknowledge")
    eventually(lambda: reading.counter("messagesAcked") == 30)
    reading.reader.close(5)
