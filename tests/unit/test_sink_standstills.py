"""Publishes that stand still: when the writer's core says so, and when it gives up."""

from __future__ import annotations

import pytest

from flink_pubsub.core.retry import RetryPolicy
from tests.unit.outbox_support import (
    MISSING,
    ONE,
    PASSING,
    TWO,
    add,
    make,
    missing,
    take,
)


@pytest.mark.feature("SNK-10")
def test_a_standstill_is_told_after_each_tenth_and_fails_when_the_time_is_up() -> None:
    outbox = make(progress_timeout=100)
    add(outbox, ["a"], now=1000)
    take(outbox, 1000)
    told = []
    now = 1000.0
    while True:
        now = outbox.check_at(now)
        if (standstill := outbox.check(now)) is not None:
            told.append((now, standstill.expired))
            if standstill.expired:
                break
    assert told == [(1000 + 10 * tenth, tenth == 10) for tenth in range(1, 11)]


@pytest.mark.feature("SNK-10")
def test_every_completion_starts_the_standstill_over_and_attempts_do_not() -> None:
    outbox = make(progress_timeout=100, retry=RetryPolicy(initial_delay=0))
    add(outbox, ["a", "b"])
    first, second = take(outbox)
    outbox.succeeded(first, 95)
    assert outbox.check(104) is None
    outbox.failed(second, PASSING, 120)
    take(outbox, 120)
    standstill = outbox.check(130)
    assert standstill is not None
    assert (standstill.seconds, standstill.expired) == (35, False)
    assert outbox.check_at(130) == 140
    assert outbox.check(195) is not None


@pytest.mark.feature("SNK-10")
def test_nothing_stands_still_while_nothing_is_out() -> None:
    outbox = make(messages=10, progress_timeout=1)
    add(outbox, ["batched, for an hour if it must be"])
    take(outbox)
    assert outbox.check(1000) is None
    outbox.send_now()
    (batch,) = take(outbox, 1000)
    outbox.failed(batch, MISSING, 1000)
    outbox.take_creations(1000)
    outbox.created(ONE, 1000.5)
    assert outbox.check(1002) is None, "a backoff is no standstill"


@pytest.mark.feature("SNK-10")
def test_a_creation_that_is_not_answered_stands_still_as_well() -> None:
    outbox = make(progress_timeout=1)
    missing(outbox)
    standstill = outbox.check(1)
    assert standstill is not None
    assert standstill.expired
    assert outbox.standstill(1, None).topic == ONE


@pytest.mark.feature("SNK-10")
def test_a_standstill_names_pubsub_the_wait_the_count_and_the_last_status() -> None:
    outbox = make(max_topics=1, retry=RetryPolicy(initial_delay=0))
    add(outbox, ["a", "b"])
    first, _ = take(outbox)
    error = outbox.standstill(60, first)
    assert (error.topic, error.status) == (ONE, "DEADLINE_EXCEEDED")
    assert error.problem == (
        "Pub/Sub has completed no publish for 60.0 s while the sink waits for answers: "
        "2 messages are outstanding, and no call has been answered"
    )
    outbox.failed(first, PASSING, 1)
    assert outbox.standstill(60, None).status == "UNAVAILABLE"
    assert outbox.standstill(60, None).problem.endswith(
        "2 messages are outstanding, and the last answer was UNAVAILABLE: later"
    )
    outbox.send_now()
    assert "waits for room for more messages in flight" in outbox.standstill(60, first).problem
    add(outbox, ["c"], TWO)
    assert "one of 1 topics in use to be settled" in outbox.standstill(60, first).problem
    outbox.flush(1)
    assert "waits for a flush" in outbox.standstill(60, first).problem
