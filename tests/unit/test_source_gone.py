"""A subscription that is deleted, denied or detached under a running reader fails the job, whatever the reader is doing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest

from flink_pubsub.emulator import Emulator, ManualClock
from flink_pubsub.errors import SubscriptionError
from tests.unit.source_reading import ORDERS, RETURNS, TOPIC, Reading, publish
from tests.unit.source_support import eventually

pytestmark = pytest.mark.feature("SRC-27")
PATH = ORDERS.resource_path

Cause: TypeAlias = Callable[[Emulator], None]


def delete(emulator: Emulator) -> None:
    emulator.delete_subscription(PATH)


def deny(emulator: Emulator) -> None:
    for method in ("StreamingPull", "Acknowledge", "ModifyAckDeadline"):
        emulator.deny(method, PATH)


def detach(emulator: Emulator) -> None:
    emulator.detach_subscription(PATH)


CAUSES = [(delete, "NOT_FOUND"), (deny, "PERMISSION_DENIED"), (detach, "FAILED_PRECONDITION")]


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator() as emulator:
        emulator.create_topic(TOPIC)
        for subscription in (ORDERS, RETURNS):
            emulator.create_subscription(subscription.resource_path, TOPIC, ack_deadline_seconds=600)
        yield emulator


def assert_fails_the_job(reading: Reading, status: str) -> None:
    error = reading.context.failure()
    assert isinstance(error, SubscriptionError)
    assert (error.subscription, error.status) == (PATH, status)
    reading.reader.close(5)


@pytest.mark.parametrize(("cause", "status"), CAUSES)
def test_while_it_is_read(emulator: Emulator, cause: Cause, status: str) -> None:
    reading = Reading(emulator)
    reading.assign(ORDERS, RETURNS)
    emulator.wait_until(lambda: emulator.open_streams() == 2)
    cause(emulator)
    assert_fails_the_job(reading, status)


@pytest.mark.feature("SRC-23")
@pytest.mark.parametrize(("cause", "status"), CAUSES)
def test_while_its_split_is_paused_and_holds_all_it_may(emulator: Emulator, cause: Cause, status: str) -> None:
    reading = Reading(emulator, flow_control_max_outstanding_element_count=10)
    reading.assign(ORDERS, RETURNS)
    reading.reader.pause_or_resume(["split-0"], [])
    publish(emulator, 50)
    eventually(lambda: reading.gauge("bufferedMessages") == 20)
    cause(emulator)
    assert_fails_the_job(reading, status)


@pytest.mark.parametrize(("cause", "status"), CAUSES[:2])
def test_while_nobody_polls_and_no_stream_is_open_for_want_of_room(emulator: Emulator, cause: Cause, status: str) -> None:
    """What is held tells of it then, once its leases are to be extended. The service takes no notice of a detached
    subscription's leases: that is seen when a stream opens again."""
    clock = ManualClock()
    reading = Reading(emulator, clock=clock, flow_control_max_outstanding_element_count=10)
    reading.assign(ORDERS)
    publish(emulator, 50)
    eventually(lambda: reading.gauge("bufferedMessages") == 10)
    assert emulator.close_streams() == 1  # the service's routine; without room none is opened in its place
    cause(emulator)
    clock.advance(5)
    assert_fails_the_job(reading, status)
    assert emulator.open_streams() == 0


@pytest.mark.parametrize(("cause", "status"), CAUSES)
def test_after_a_stream_ended_for_want_of_room_it_is_seen_when_there_is_some(
    emulator: Emulator, cause: Cause, status: str
) -> None:
    reading = Reading(emulator, flow_control_max_outstanding_element_count=10)
    reading.assign(ORDERS)
    publish(emulator, 50)
    taken = reading.take(10)
    assert emulator.close_streams() == 1
    cause(emulator)
    assert len(taken) == 10
    reading.checkpoint(1)
    assert_fails_the_job(reading, status)
