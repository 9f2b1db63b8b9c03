"""Missing topics: what the writer's core does until they are back."""

from __future__ import annotations

import pytest

from flink_pubsub.core.outbox import Settled
from flink_pubsub.core.repairs import RecoveryPolicy
from flink_pubsub.core.retry import RetryPolicy
from tests.unit.outbox_support import (
    DENIED,
    INVALID,
    MISSING,
    ONE,
    PASSING,
    TWO,
    add,
    make,
    missing,
    take,
    texts,
)


@pytest.mark.feature("SNK-11")
def test_nothing_is_created_as_long_as_no_topic_is_missing() -> None:
    outbox = make()
    add(outbox, ["a"])
    (batch,) = take(outbox)
    outbox.failed(batch, PASSING, 0)
    assert outbox.take_creations(0) == []
    assert outbox.topics_created == 0


@pytest.mark.feature("SNK-11")
@pytest.mark.parametrize(("jitter", "backoff"), [(0, 0.375), (0.5, 0.5), (1, 0.625)])
def test_after_the_creation_the_first_attempt_waits_half_a_second_or_up_to_a_quarter_more_or_less(
    jitter: float, backoff: float
) -> None:
    outbox = make(jitter=jitter)
    missing(outbox)
    assert outbox.wake_at() is None, "it waits for the creation"
    outbox.created(ONE, 10)
    assert outbox.wake_at() == 10 + backoff
    assert take(outbox, 10 + backoff - 0.001) == []
    (probe,) = take(outbox, 10 + backoff)
    outbox.succeeded(probe, 11)
    assert outbox.take_settled() == Settled(1, probe.size, [])
    assert outbox.topics_created == 1


@pytest.mark.feature("SNK-11")
def test_one_parked_batch_goes_first_and_the_others_follow_in_the_order_of_writing_once_it_is_published() -> None:
    outbox = make()
    add(outbox, ["a", "b", "c"])
    first, second, third = take(outbox)
    for batch in (third, first):
        outbox.failed(batch, MISSING, 0)
    outbox.take_creations(0)
    outbox.created(ONE, 0)
    assert take(outbox, 1) == [], "a request that was out before is still to be answered"
    outbox.failed(second, MISSING, 1)
    assert texts(*take(outbox, 1)) == [["a"]]
    add(outbox, ["d"], now=1)
    assert take(outbox, 1) == []
    outbox.succeeded(first, 2)
    assert texts(*take(outbox, 2)) == [["b"], ["c"], ["d"]]


@pytest.mark.feature("SNK-11")
def test_other_topics_go_on_while_one_is_missing() -> None:
    outbox = make()
    missing(outbox)
    add(outbox, ["x"], TWO)
    assert texts(*take(outbox)) == [["x"]]


@pytest.mark.feature("SNK-11")
@pytest.mark.feature("SNK-12")
def test_a_key_keeps_its_order_through_a_missing_topic_and_a_refused_batch() -> None:
    outbox = make(messages=2)
    add(outbox, ["1", "bad", "3", "4", "5", "6"], key="k")
    (batch,) = take(outbox)
    outbox.failed(batch, MISSING, 0)
    outbox.take_creations(0)
    outbox.created(ONE, 0)
    published: list[str] = []
    now = 1.0
    for _ in range(6):
        for batch in take(outbox, now):
            (made,) = texts(batch)
            if "bad" not in made:
                published += made
                outbox.succeeded(batch, now)
            else:
                outbox.failed(batch, INVALID, now)
                for rejection in outbox.take_rejected():
                    outbox.dropped(rejection)
        now += 1
    assert published == ["1", "3", "4", "5", "6"]
    assert outbox.records == 0


@pytest.mark.feature("SNK-11")
def test_a_topic_that_appears_by_itself_ends_its_repair() -> None:
    outbox = make()
    add(outbox, ["a", "b"])
    first, second = take(outbox)
    outbox.failed(first, MISSING, 0)
    outbox.succeeded(second, 0)
    assert take(outbox) == [first]


@pytest.mark.feature("SNK-11")
def test_the_backoff_doubles_to_its_longest_and_each_attempt_creates_the_topic_in_case_it_was_deleted_again() -> None:
    outbox = make(recovery=RecoveryPolicy(max_attempts=8))
    missing(outbox)
    now, waited = 0.0, []
    while True:
        outbox.created(ONE, now)
        wake_at = outbox.wake_at()
        assert wake_at is not None
        waited.append(wake_at - now)
        now = wake_at
        (probe,) = take(outbox, now)
        if (error := outbox.failed(probe, MISSING, now)) is not None:
            break
        assert outbox.take_creations(now) == [ONE]
    assert waited == [0.5, 1, 2, 4, 8, 10, 10, 10]
    assert outbox.topics_created == 1
    assert (error.topic, error.status) == (ONE, "NOT_FOUND")
    assert error.problem == (
        "republishing kept failing; the sink has created the topic. All 8 attempts of recovery_max_attempts are spent, "
        "1 messages wait, and the last one ended with NOT_FOUND: no such topic"
    )


@pytest.mark.feature("SNK-16")
def test_a_topic_that_cannot_be_created_for_a_passing_reason_spends_the_same_attempts() -> None:
    outbox = make(recovery=RecoveryPolicy(max_attempts=2))
    missing(outbox)
    assert outbox.not_created(ONE, PASSING, 0) is None
    assert outbox.take_creations(0.4) == []
    assert outbox.take_creations(0.5) == [ONE]
    assert outbox.not_created(ONE, PASSING, 1) is None
    assert outbox.take_creations(2) == [ONE]
    error = outbox.not_created(ONE, PASSING, 3)
    assert error is not None
    assert error.problem.startswith("republishing kept failing; the topic could not be created")
    assert error.problem.endswith("the last one ended with UNAVAILABLE: later")


@pytest.mark.feature("SNK-16")
def test_an_exhausted_recovery_says_how_many_messages_the_handler_got_meanwhile() -> None:
    outbox = make(recovery=RecoveryPolicy(max_attempts=1))
    add(outbox, ["bad", "good"])
    first, second = take(outbox)
    outbox.failed(first, MISSING, 0)
    outbox.failed(second, MISSING, 0)
    outbox.take_creations(0)
    outbox.created(ONE, 0)
    assert take(outbox, 1) == [first]
    outbox.failed(first, INVALID, 1)
    assert take(outbox, 1) == [second], "a refusal of content spends no attempt"
    error = outbox.failed(second, MISSING, 1)
    assert error is not None
    assert "could not drain its parked messages within the recovery budget" in error.problem
    assert "1 of them were handed to failed_message_handler; the sink has created the topic" in error.problem


@pytest.mark.feature("SNK-11")
def test_a_topic_that_may_not_be_created_fails_at_once() -> None:
    outbox = make(never_create=", for this reason")
    add(outbox, ["a"])
    (batch,) = take(outbox)
    error = outbox.failed(batch, MISSING, 0)
    assert str(error) == f"publishing to {ONE} failed: NOT_FOUND: no such topic (after 1 attempt), for this reason"
    assert outbox.take_creations(0) == []


@pytest.mark.feature("SNK-11")
def test_a_creation_that_is_refused_fails_at_once_naming_the_permission() -> None:
    outbox = make()
    missing(outbox)
    error = outbox.not_created(ONE, DENIED, 0)
    assert error is not None
    assert error.status == "PERMISSION_DENIED"
    assert "pubsub.topics.create" in error.problem


@pytest.mark.feature("SNK-05")
@pytest.mark.feature("SNK-11")
def test_a_parked_batch_starts_with_a_retry_budget_of_its_own() -> None:
    outbox = make(retry=RetryPolicy(total_timeout=5, initial_delay=0))
    missing(outbox)
    outbox.created(ONE, 100)
    (probe,) = take(outbox, 101)
    assert outbox.failed(probe, PASSING, 101) is None
    assert take(outbox, 101) == [probe]
