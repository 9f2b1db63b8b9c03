"""What a writer has taken over, until it is settled."""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flink_pubsub.core.batching import Batch, Thresholds
from flink_pubsub.core.outbox import Outbox, Settled
from flink_pubsub.core.publish_rules import PublishRules
from flink_pubsub.core.refusals import Refusal, Verdict
from flink_pubsub.core.retry import RetryPolicy
from flink_pubsub.wire.pubsub_pb2 import PublishRequest, PubsubMessage
from tests.unit.sink_support import entries

TOPIC = "projects/p/topics/t"
LATER = Refusal(Verdict.PASSING, "UNAVAILABLE", "later")


def make(
    messages: int = 1,
    delay: float = 1,
    max_calls: int = 100,
    policy: RetryPolicy | None = None,
    max_messages: int = 1000,
    max_topics: int = 100,
) -> Outbox:
    thresholds = Thresholds(messages, 10_000_000, delay)
    rules = PublishRules(
        thresholds, policy or RetryPolicy(), max_calls=max_calls, max_messages=max_messages, max_topics=max_topics
    )
    return Outbox(rules, jitter=lambda: 1)


def add(outbox: Outbox, texts: list[str], key: str = "", now: float = 0, topic: str = TOPIC) -> None:
    made = entries([PubsubMessage(data=text.encode(), ordering_key=key) for text in texts])
    outbox.add((topic, key), b"".join(made), list(accumulate(map(len, made))), now)


def take(outbox: Outbox, now: float = 0, busy: bool = False) -> list[Batch]:
    return [batch for batch, _ in outbox.take(now, busy)]


def texts(batch: Batch) -> list[str]:
    return [message.data.decode() for message in PublishRequest.FromString(batch.request).messages]


def test_records_and_bytes_are_in_flight_until_their_batch_is_answered() -> None:
    outbox = make()
    add(outbox, ["a", "b"])
    first, second = take(outbox)
    assert (outbox.records, outbox.size) == (2, first.size + second.size)
    outbox.succeeded(first, 0)
    assert outbox.take_settled() == Settled(1, first.size, [])
    assert (outbox.records, outbox.size) == (1, second.size)
    assert outbox.take_settled() is None


@pytest.mark.feature("SNK-03")
def test_a_flush_is_complete_when_everything_before_it_is_settled_and_not_what_came_after() -> None:
    outbox = make(messages=10)
    add(outbox, ["a"])
    outbox.flush(7)
    add(outbox, ["b"])
    (before,) = take(outbox)
    assert texts(before) == ["a"]
    outbox.send_now()
    (after,) = take(outbox)
    outbox.succeeded(after, 0)
    assert outbox.take_settled() == Settled(1, after.size, [])
    outbox.succeeded(before, 0)
    assert outbox.take_settled() == Settled(1, before.size, [7])


@pytest.mark.feature("SNK-03")
def test_flushes_complete_in_their_order() -> None:
    outbox = make()
    add(outbox, ["a"])
    outbox.flush(1)
    add(outbox, ["b"])
    outbox.flush(2)
    first, second = take(outbox)
    outbox.succeeded(second, 0)
    assert outbox.take_settled() == Settled(1, second.size, [])
    outbox.succeeded(first, 0)
    assert outbox.take_settled() == Settled(1, first.size, [1, 2])


@pytest.mark.feature("SNK-03")
def test_a_flush_with_nothing_in_flight_is_complete_at_once() -> None:
    outbox = make()
    outbox.flush(1)
    assert outbox.take_settled() == Settled(0, 0, [1])


@pytest.mark.feature("SNK-03")
def test_a_flush_sends_partial_batches_and_waits_for_what_queues_behind_a_key() -> None:
    outbox = make(messages=10)
    add(outbox, ["a"], key="k")
    outbox.send_now()
    (first,) = take(outbox)
    add(outbox, ["b"], key="k")
    outbox.flush(1)
    assert take(outbox) == []
    outbox.succeeded(first, 0)
    assert outbox.take_settled() == Settled(1, first.size, [])
    (second,) = take(outbox)
    outbox.succeeded(second, 0)
    assert outbox.take_settled() == Settled(1, second.size, [1])


def test_a_call_that_finds_no_room_waits_for_an_answer_and_wakes_nobody() -> None:
    outbox = make(max_calls=1)
    add(outbox, ["a", "b"])
    (first,) = take(outbox)
    assert take(outbox) == []
    assert outbox.wake_at() is None
    outbox.succeeded(first, 0)
    (second,) = take(outbox)
    assert texts(second) == ["b"]


@pytest.mark.feature("SNK-04")
def test_while_more_is_about_to_come_a_batch_that_is_due_waits_for_it_but_not_for_long() -> None:
    outbox = make(messages=10, delay=1)
    add(outbox, ["a"])
    outbox.send_now()
    assert take(outbox, 1.05, busy=True) == []
    assert outbox.wake_at(busy=True) == 1.1
    add(outbox, ["b"], now=1.05)
    assert [texts(batch) for batch in take(outbox, 1.1, busy=True)] == [["a", "b"]]


@pytest.mark.feature("SNK-04")
def test_a_full_batch_goes_whatever_is_about_to_come() -> None:
    outbox = make(messages=2)
    add(outbox, ["a", "b"])
    assert [texts(batch) for batch in take(outbox, busy=True)] == [["a", "b"]]


@pytest.mark.feature("SNK-04")
@pytest.mark.feature("SNK-06")
def test_with_most_of_the_credit_out_a_batch_that_is_due_waits_for_an_answer_but_not_for_long() -> None:
    outbox = make(messages=3, delay=1, max_messages=7)
    add(outbox, ["a", "b", "c"])
    (first,) = take(outbox)
    add(outbox, ["d"])
    outbox.send_now()
    assert take(outbox) == [], "three of four are out, and more than half of the credit is used"
    assert outbox.wake_at() == 1.1
    add(outbox, ["e"])
    assert [texts(batch) for batch in take(outbox)] == [["d", "e"]], "three of five are not most of it"
    add(outbox, ["f"])
    assert take(outbox, 1.05) == []
    assert [texts(batch) for batch in take(outbox, 1.1)] == [["f"]]
    outbox.succeeded(first, 1.1)


@pytest.mark.feature("SNK-04")
def test_with_half_of_the_credit_free_a_batch_never_waits_beyond_its_delay() -> None:
    outbox = make(messages=3, delay=1, max_messages=8)
    add(outbox, ["a", "b", "c"])
    take(outbox)
    add(outbox, ["d"])
    assert take(outbox, 0.9) == []
    assert [texts(batch) for batch in take(outbox, 1)] == [["d"]]


@pytest.mark.feature("SNK-10")
def test_nothing_waits_for_more_while_a_topic_waits_for_others_to_be_settled() -> None:
    outbox = make(messages=10, delay=1, max_topics=1)
    add(outbox, ["a"])
    add(outbox, ["b"], topic="projects/p/topics/other")
    assert [texts(batch) for batch in take(outbox, busy=True)] == [["a"]]


@pytest.mark.feature("SNK-05")
def test_a_retry_goes_at_its_time_before_what_has_not_been_tried() -> None:
    outbox = make(max_calls=1)
    add(outbox, ["a", "b"])
    (first,) = take(outbox)
    assert outbox.failed(first, LATER, 10) is None
    assert outbox.wake_at() == 10.1
    (second,) = take(outbox, 10)
    assert outbox.wake_at() is None, "the retry cannot go while no call is free"
    add(outbox, ["c"], now=10)
    outbox.succeeded(second, 0)
    assert take(outbox, 10.1) == [first]


@pytest.mark.feature("SNK-07")
def test_a_key_waits_for_the_retry_of_its_batch() -> None:
    outbox = make()
    add(outbox, ["a", "b"], key="k")
    (first,) = take(outbox)
    assert outbox.failed(first, LATER, 0) is None
    assert take(outbox, 0.05) == []
    assert take(outbox, 0.1) == [first]
    outbox.succeeded(first, 0)
    assert [texts(batch) for batch in take(outbox, 0.2)] == [["b"]]


@pytest.mark.feature("SNK-05")
def test_a_batch_whose_budget_is_spent_fails_the_job_saying_how_it_was_spent() -> None:
    outbox = make(policy=RetryPolicy(max_attempts=2))
    add(outbox, ["a"])
    (batch,) = take(outbox)
    assert outbox.failed(batch, LATER, 0) is None
    (batch,) = take(outbox, 3)
    error = outbox.failed(batch, LATER, 3.5)
    assert error is not None
    assert (error.topic, error.status) == (TOPIC, "UNAVAILABLE")
    assert error.problem.startswith("Pub/Sub did not take 1 messages within the retry budget: 2 attempts in 3.5 s")
    assert error.problem.endswith("the last one ended with UNAVAILABLE: later")
    assert outbox.take_settled() is None


@pytest.mark.feature("SNK-05")
def test_each_call_comes_with_its_rpc_timeout() -> None:
    outbox = make(policy=RetryPolicy(initial_rpc_timeout=2, rpc_timeout_multiplier=3))
    add(outbox, ["a"])
    ((batch, timeout),) = outbox.take(0)
    assert timeout == 2
    outbox.failed(batch, LATER, 0)
    ((batch, timeout),) = outbox.take(1)
    assert timeout == 6


@pytest.mark.feature("SNK-19")
def test_nothing_is_sent_or_settled_once_it_is_abandoned() -> None:
    outbox = make()
    add(outbox, ["a", "b"])
    first, second = take(outbox)
    outbox.succeeded(first, 0)
    outbox.flush(1)
    outbox.abandon()
    outbox.succeeded(second, 0)
    add(outbox, ["c"])
    assert outbox.take_settled() is None
    assert take(outbox, 100) == []
    assert outbox.wake_at() is None


@given(
    messages=st.integers(1, 4),
    max_calls=st.integers(1, 4),
    writes=st.lists(st.tuples(st.sampled_from(["", "k", "l"]), st.integers(0, 6)), max_size=15),
    choices=st.randoms(use_true_random=False),
)
def test_every_record_is_settled_once_in_the_order_of_its_key_whatever_fails(
    messages: int, max_calls: int, writes: list[tuple[str, int]], choices: random.Random
) -> None:
    outbox = make(messages, max_calls=max_calls, policy=RetryPolicy(total_timeout=0, max_attempts=10**6))
    out: list[Batch] = []
    published: dict[str, list[str]] = defaultdict(list)
    written: dict[str, list[str]] = defaultdict(list)
    flushed: list[int] = []
    asked: dict[int, int] = {}
    now = 0.0
    total = settled = 0

    def step(until_empty: bool = False) -> None:
        nonlocal now, settled
        while True:
            for batch in take(outbox, now):
                assert all(other.lane != batch.lane for other in out) or not batch.lane[1], "two batches of a key are out"
                out.append(batch)
            assert len(out) <= max_calls
            if out and (until_empty or choices.random() < 0.5):
                batch = out.pop(choices.randrange(len(out)))
                if choices.random() < 0.3:
                    assert outbox.failed(batch, LATER, now) is None
                else:
                    published[batch.lane[1]] += texts(batch)
                    outbox.succeeded(batch, 0)
            elif until_empty and (wake_at := outbox.wake_at()) is not None:
                now = max(now, wake_at)
                continue
            else:
                return
            report = outbox.take_settled()
            if report is not None:
                settled += report.records
                flushed.extend(report.flushes)
                assert all(asked[flush] <= settled for flush in report.flushes)

    for index, (key, count) in enumerate(writes):
        made = [f"{index}.{number}" for number in range(count)]
        written[key] += made
        total += count
        if made:
            add(outbox, made, key, now)
        if choices.random() < 0.2:
            outbox.flush(index)
            asked[index] = total
        now += choices.random()
        step()
    outbox.flush(len(writes))
    asked[len(writes)] = total
    step(until_empty=True)
    report = outbox.take_settled()
    flushed.extend(report.flushes if report else ())
    assert settled == total
    assert flushed == list(asked)
    assert (outbox.records, outbox.size) == (0, 0)
    for key in ("k", "l"):
        assert published[key] == written[key]
    assert sorted(published[""]) == sorted(written[""])
