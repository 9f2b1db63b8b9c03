"""Missing topics, refused messages, standstills and many topics: the decisions of a writer's core, one at a time."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from itertools import accumulate

import grpc
import pytest

from flink_pubsub.core.batching import Batch, Thresholds
from flink_pubsub.core.outbox import Outbox, Rejection, Settled
from flink_pubsub.core.publish_rules import PublishRules
from flink_pubsub.core.refusals import Refusal, Verdict
from flink_pubsub.core.repairs import RecoveryPolicy
from flink_pubsub.core.retry import RetryPolicy
from flink_pubsub.rpc.status import RETRYABLE, Purpose, Status
from flink_pubsub.wire.pubsub_pb2 import PublishRequest, PubsubMessage
from tests.unit.sink_support import entries

ONE, TWO, THREE = (f"projects/p/topics/{name}" for name in ("one", "two", "three"))
PASSING = Refusal(Verdict.PASSING, "UNAVAILABLE", "later")
MISSING = Refusal(Verdict.MISSING_TOPIC, "NOT_FOUND", "no such topic")
INVALID = Refusal(Verdict.INVALID, "INVALID_ARGUMENT", "not like this")
DENIED = Refusal(Verdict.FATAL, "PERMISSION_DENIED", "no")


def make(messages: int = 1, jitter: float = 0.5, **rules: object) -> Outbox:
    return Outbox(PublishRules(Thresholds(messages, 10_000_000, 3600), **rules), jitter=lambda: jitter)  # type: ignore[arg-type]


def add(outbox: Outbox, texts: list[str], topic: str = ONE, key: str = "", now: float = 0) -> None:
    made = entries([PubsubMessage(data=text.encode(), ordering_key=key) for text in texts])
    outbox.add((topic, key), b"".join(made), list(accumulate(map(len, made))), now)


def take(outbox: Outbox, now: float = 0) -> list[Batch]:
    return [batch for batch, _ in outbox.take(now)]


def texts(*batches: Batch) -> list[list[str]]:
    return [[message.data.decode() for message in PublishRequest.FromString(batch.request).messages] for batch in batches]


def held() -> int:
    """Bytes of Python objects."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def missing(outbox: Outbox, now: float = 0, topic: str = ONE) -> None:
    """Writes a message and finds its topic missing; the creation has been asked for."""
    add(outbox, ["first"], topic, now=now)
    (batch,) = take(outbox, now)
    assert outbox.failed(batch, MISSING, now) is None
    assert outbox.take_creations(now) == [topic]


def reject(outbox: Outbox, text: str, topic: str = ONE) -> Rejection:
    """Writes a message that the service refuses by itself."""
    add(outbox, [text], topic)
    (batch,) = take(outbox)
    assert outbox.failed(batch, INVALID, 0) is None
    (rejection,) = outbox.take_rejected()
    return rejection


@pytest.mark.feature("SNK-20")
@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK])
def test_every_status_has_one_class(code: grpc.StatusCode) -> None:
    expected = {
        grpc.StatusCode.NOT_FOUND: Verdict.MISSING_TOPIC,
        grpc.StatusCode.INVALID_ARGUMENT: Verdict.INVALID,
        **dict.fromkeys(RETRYABLE[Purpose.PUBLISH], Verdict.PASSING),
    }.get(code, Verdict.FATAL)
    assert Status(code, "said").refusal() == Refusal(expected, code.name, "said")


@pytest.mark.feature("SNK-20")
@pytest.mark.parametrize("refusal", [MISSING, PASSING, INVALID])
def test_what_queues_behind_a_failure_of_its_key_is_no_failure_of_its_own(refusal: Refusal) -> None:
    outbox = make()
    add(outbox, ["a", "b", "c"], key="k")
    (first,) = take(outbox)
    assert outbox.failed(first, refusal, 0) is None
    assert take(outbox) == []
    assert outbox.failures == {refusal.code: 1}
    assert outbox.records == 3


@pytest.mark.feature("SNK-20")
def test_a_fatal_failure_names_topic_and_status_and_ends_everything() -> None:
    outbox = make()
    add(outbox, ["a"])
    add(outbox, ["b"], TWO)
    first, second = take(outbox)
    error = outbox.failed(first, DENIED, 0)
    assert str(error) == f"publishing to {ONE} failed: PERMISSION_DENIED: no (after 1 attempt)"
    outbox.succeeded(second, 0)
    assert outbox.take_settled() is None


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


@pytest.mark.feature("SNK-12")
def test_a_refused_batch_is_sent_again_message_by_message_and_only_a_message_alone_is_judged() -> None:
    outbox = make(messages=3)
    add(outbox, ["a", "bad", "c"])
    add(outbox, ["d"], key="k")
    outbox.send_now()
    refused, other = take(outbox)
    assert outbox.failed(refused, INVALID, 0) is None
    assert outbox.take_rejected() == []
    assert outbox.failures == {}
    singles = take(outbox)
    assert texts(*singles) == [["a"], ["bad"], ["c"]]
    outbox.succeeded(singles[0], 0)
    outbox.failed(singles[1], INVALID, 0)
    outbox.succeeded(singles[2], 0)
    outbox.succeeded(other, 0)
    assert outbox.failures == {"INVALID_ARGUMENT": 1}
    (rejection,) = outbox.take_rejected()
    assert PubsubMessage.FromString(rejection.batch.message()).data == b"bad"
    settled = outbox.take_settled()
    assert settled is not None
    assert settled.records == 3
    outbox.flush(1)
    assert outbox.take_settled() is None, "the handler has not returned"
    assert outbox.dropped(rejection) is None
    assert outbox.take_settled() == Settled(1, rejection.batch.size, [1])


@pytest.mark.feature("SNK-14")
def test_a_key_waits_for_the_handler_and_goes_on_after_a_drop() -> None:
    outbox = make()
    add(outbox, ["bad", "b", "c"], key="k")
    (bad,) = take(outbox)
    outbox.failed(bad, INVALID, 0)
    (rejection,) = outbox.take_rejected()
    assert take(outbox) == []
    outbox.dropped(rejection)
    (following,) = take(outbox)
    assert texts(following) == [["b"]]


@pytest.mark.feature("SNK-15")
def test_rejections_in_a_row_fail_the_job_across_topics_after_the_last_one_was_handed_over() -> None:
    outbox = make(max_consecutive_rejections=3)
    assert outbox.dropped(reject(outbox, "a", ONE)) is None
    assert outbox.dropped(reject(outbox, "b", TWO)) is None
    third = reject(outbox, "c", THREE)
    error = outbox.dropped(third)
    assert error is not None
    assert (error.topic, error.status) == (THREE, "INVALID_ARGUMENT")
    assert error.problem == (
        "3 messages in a row were refused for themselves, none published in between, and max_consecutive_rejections allows "
        "no more; the last one with INVALID_ARGUMENT: not like this"
    )


@pytest.mark.feature("SNK-15")
@pytest.mark.parametrize("most", [2, None])
def test_any_success_starts_the_count_of_rejections_over_and_none_is_without_end(most: int | None) -> None:
    outbox = make(max_consecutive_rejections=most)
    for number in range(1000):
        assert outbox.dropped(reject(outbox, "bad")) is None
        if most is not None:
            add(outbox, [str(number)], TWO)
            (batch,) = take(outbox)
            outbox.succeeded(batch, 0)


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


@pytest.mark.feature("SNK-08")
def test_one_topic_too_many_takes_the_place_of_the_settled_one_that_was_unused_for_longest() -> None:
    outbox = make(max_topics=2)
    for topic in (ONE, TWO, ONE):
        add(outbox, ["a"], topic)
    one, two, again = take(outbox)
    for batch in (two, one, again):
        outbox.succeeded(batch, 0)
    add(outbox, ["a"], THREE)
    assert outbox.topics == 2
    (three,) = take(outbox)
    add(outbox, ["b"], ONE)
    assert [batch.lane[0] for batch in take(outbox)] == [ONE], "it was still there, so TWO has gone"
    assert three.lane[0] == THREE


@pytest.mark.feature("SNK-08")
def test_with_no_settled_topic_everything_new_waits_partial_batches_go_and_nothing_is_dropped() -> None:
    outbox = make(messages=10, max_topics=1)
    add(outbox, ["a"], ONE)
    assert take(outbox) == []
    add(outbox, ["b"], TWO)
    add(outbox, ["c"], ONE)
    (first,) = take(outbox)
    assert texts(first) == [["a"]]
    outbox.flush(1)
    assert outbox.records == 3
    outbox.succeeded(first, 0)
    (second,) = take(outbox)
    assert (second.lane[0], texts(second)) == (TWO, [["b"]])
    assert outbox.topics == 1
    outbox.succeeded(second, 0)
    (third,) = take(outbox)
    assert texts(third) == [["c"]]
    outbox.succeeded(third, 0)
    assert outbox.take_settled() == Settled(3, first.size + second.size + third.size, [1])


@pytest.mark.feature("SNK-08")
def test_a_missing_topic_is_repaired_before_it_makes_room() -> None:
    outbox = make(max_topics=1)
    missing(outbox)
    add(outbox, ["b"], TWO)
    assert take(outbox, 1) == []
    outbox.created(ONE, 1)
    (probe,) = take(outbox, 2)
    assert probe.lane[0] == ONE
    outbox.succeeded(probe, 2)
    assert [batch.lane[0] for batch in take(outbox, 2)] == [TWO]


@pytest.mark.feature("SNK-08")
def test_settled_topics_are_let_go_once_they_have_been_unused_for_longer_than_that() -> None:
    outbox = make()
    for now, topic in enumerate((ONE, TWO, THREE)):
        add(outbox, ["a"], topic, now=now)
    one, _, three = take(outbox, 3)
    outbox.succeeded(one, 3)
    outbox.succeeded(three, 3)
    outbox.release_idle(now=12, seconds=12)
    assert outbox.topics == 3, "not longer, and not settled"
    outbox.release_idle(now=12, seconds=11)
    assert outbox.topics == 2
    outbox.release_idle(now=100, seconds=10)
    assert outbox.topics == 1


@pytest.mark.feature("SNK-08")
@pytest.mark.usefixtures("traced")
def test_ten_thousand_topics_in_turn_keep_to_the_bound() -> None:
    outbox = make(max_topics=100)

    def write(topics: range) -> None:
        for number in topics:
            add(outbox, ["a", "b"], f"projects/p/topics/t{number}")
            for batch in take(outbox):
                outbox.succeeded(batch, 0)
            assert outbox.topics <= 100
        outbox.take_settled()

    write(range(1_000))
    before = held()
    write(range(1_000, 10_000))
    assert held() - before < 20_000


@pytest.mark.feature("SNK-07")
@pytest.mark.usefixtures("traced")
def test_a_hundred_thousand_keys_leave_nothing_behind_once_settled() -> None:
    outbox = make(max_calls=1000)

    def write(keys: range) -> None:
        for number in keys:
            add(outbox, ["a"], key=f"key-{number}")
            if number % 1000 == 999:
                for batch in take(outbox):
                    outbox.succeeded(batch, 0)
        outbox.take_settled()

    write(range(2_000))
    before = held()
    write(range(2_000, 100_000))
    assert held() - before < 20_000
    assert outbox.records == 0
    assert outbox._batcher.idle
    assert outbox.wake_at() is None
