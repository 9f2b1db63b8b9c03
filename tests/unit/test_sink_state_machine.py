"""The writer's core under everything that can happen, in any order."""

from __future__ import annotations

import itertools
from collections import defaultdict
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from flink_pubsub.core.batching import Batch, Lane, Thresholds
from flink_pubsub.core.outbox import Outbox, Rejection
from flink_pubsub.core.publish_rules import PublishRules
from flink_pubsub.core.refusals import Refusal
from flink_pubsub.core.repairs import RecoveryPolicy
from flink_pubsub.core.retry import RetryPolicy
from flink_pubsub.wire.pubsub_pb2 import PubsubMessage
from tests.unit.outbox_support import DENIED, INVALID, MISSING, ONE, PASSING, THREE, TWO, texts
from tests.unit.sink_support import entries

TOPICS = [ONE, TWO, THREE]
MANY = 10**6


class Writer(RuleBasedStateMachine):
    """Model: a service with topics that come and go, and a handler that drops."""

    @initialize(
        messages=st.sampled_from([1, 2, 3, 3]),
        size=st.sampled_from([30, 10_000_000]),
        calls=st.integers(1, 4),
        most=st.sampled_from([4, 1000]),
        topics=st.integers(1, 3),
        existing=st.one_of(st.just(set(TOPICS)), st.sets(st.sampled_from(TOPICS))),
        fails=st.sampled_from([False, False, True]),
    )
    def start(self, messages: int, size: int, calls: int, most: int, topics: int, existing: set[str], fails: bool) -> None:
        rules = PublishRules(
            Thresholds(messages, size, 1.0),
            RetryPolicy(total_timeout=0, max_attempts=MANY),
            RecoveryPolicy(max_attempts=MANY),
            max_calls=calls,
            max_messages=most,
            max_topics=topics,
            max_consecutive_rejections=None,
        )
        self.limits = rules
        self.fails = fails
        self.outbox = Outbox(rules, jitter=lambda: 0.5)
        self.now = 0.0
        self.is_busy = False
        self.existing = set(existing)
        self.out: list[Batch] = []
        self.creating: list[str] = []
        self.missing: set[str] = set()
        """Of these, the topics of which no request has succeeded since."""
        self.rejected: list[Rejection] = []
        self.written: dict[Lane, list[str]] = defaultdict(list)
        self.settled: dict[Lane, list[str]] = defaultdict(list)
        self.published: set[str] = set()
        self.dropped: set[str] = set()
        self.number = self.told = self.flushes = 0
        self.covered: dict[int, int] = {}
        self.flushed: list[int] = []

    @rule(
        topic=st.sampled_from(TOPICS), key=st.sampled_from(["k", "", "l"]), bad=st.lists(st.booleans(), min_size=1, max_size=6)
    )
    def write(self, topic: str, key: str, bad: list[bool]) -> None:
        made = [f"{'bad' if is_bad else 'good'}-{self.number + index}" for index, is_bad in enumerate(bad)]
        self.number += len(made)
        self.written[topic, key] += made
        data = entries([PubsubMessage(data=text.encode(), ordering_key=key) for text in made])
        self.outbox.add((topic, key), b"".join(data), list(accumulate(map(len, data))), self.now)
        self.proceed()

    @rule()
    def flush(self) -> None:
        self.flushes += 1
        self.outbox.flush(self.flushes)
        self.covered[self.flushes] = self.number
        self.proceed()

    @rule(busy=st.booleans())
    def busy(self, busy: bool) -> None:
        self.is_busy = busy
        self.proceed()

    @rule()
    def send_now(self) -> None:
        self.outbox.send_now()
        self.proceed()

    @rule(seconds=st.sampled_from([0.1, 1.0, 20.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.proceed()

    @rule(topic=st.sampled_from(TOPICS))
    def topic_is_deleted(self, topic: str) -> None:
        self.existing.discard(topic)

    @rule(seconds=st.sampled_from([0.0, 5.0]))
    def release_idle(self, seconds: float) -> None:
        self.outbox.release_idle(self.now, seconds)

    @precondition(lambda self: self.out)
    @rule(
        choice=st.integers(0, 3),
        how=st.sampled_from(["honest", "honest", "fails", "answer lost", "unknown yet"]),
        overtaken=st.booleans(),
    )
    def answer(self, choice: int, how: str, overtaken: bool) -> None:
        batch = self.out.pop(choice % len(self.out))
        topic, made = batch.lane[0], texts(batch)[0]
        if how == "fails":
            self.refuse(batch, PASSING)
        elif how == "unknown yet" or topic not in self.existing:
            self.refuse(batch, MISSING)
        elif any(text.startswith("bad") for text in made):
            self.refuse(batch, INVALID)
        elif how == "answer lost":
            self.published.update(made)
            self.refuse(batch, PASSING)
        else:
            self.published.update(made)
            self.settled[batch.lane] += made
            self.missing.discard(topic)
            self.outbox.succeeded(batch, self.now)
        if not overtaken:  # by a write, before what this answer makes possible has been taken
            self.proceed()

    @precondition(lambda self: self.out)
    @rule(times=st.integers(2, 5))
    def answers(self, times: int) -> None:
        for _ in range(min(times, len(self.out))):
            self.answer(0, "honest", False)

    @precondition(lambda self: self.creating)
    @rule(choice=st.integers(0, 100), fails=st.booleans())
    def creation(self, choice: int, fails: bool) -> None:
        topic = self.creating.pop(choice % len(self.creating))
        self.missing.discard(topic)
        if fails:
            assert self.outbox.not_created(topic, PASSING, self.now) is None
        else:
            self.existing.add(topic)
            self.outbox.created(topic, self.now)
        self.proceed()

    @precondition(lambda self: self.rejected)
    @rule()
    def handler_returns(self) -> None:
        rejection = self.rejected.pop(0)
        [made] = texts(rejection.batch)
        assert len(made) == 1, "a verdict is on one message"
        assert made[0].startswith("bad"), "a neighbour pays"
        assert made[0] not in self.dropped, "handed over twice"
        self.dropped.update(made)
        self.settled[rejection.batch.lane] += made
        assert self.outbox.dropped(rejection) is None
        self.proceed()

    def refuse(self, batch: Batch, refusal: Refusal) -> None:
        assert self.outbox.failed(batch, refusal, self.now) is None

    def proceed(self) -> None:
        for batch, _ in self.outbox.take(self.now, self.is_busy):
            assert not batch.lane[1] or all(other.lane != batch.lane for other in self.out), "two batches of a key are out"
            assert batch.lane[0] not in self.missing, "sent to a topic that is known to be missing"
            assert batch.messages <= self.limits.thresholds.messages
            self.out.append(batch)
        creations = self.outbox.take_creations(self.now)
        self.creating += creations
        self.missing.update(creations)
        assert len(set(self.creating)) == len(self.creating), "a topic is being created twice"

    @invariant()
    def every_record_is_settled_exactly_once_and_keys_in_their_order(self) -> None:
        self.rejected += self.outbox.take_rejected()
        if (report := self.outbox.take_settled()) is not None:
            self.told += report.records
            self.flushed += report.flushes
        done = sum(map(len, self.settled.values()))
        assert self.told == done
        assert self.outbox.records == self.number - done
        for lane, made in self.settled.items():
            if lane[1]:
                assert made == self.written[lane][: len(made)]
            else:
                assert len(set(made)) == len(made)

    @invariant()
    def caps_hold(self) -> None:
        assert len(self.out) <= self.limits.max_calls
        assert self.outbox.topics <= self.limits.max_topics

    @invariant()
    def a_flush_covers_everything_written_before_it(self) -> None:
        assert self.flushed == list(range(1, len(self.flushed) + 1))
        settled = {text for made in self.settled.values() for text in made}
        for flush in self.flushed[-1:]:
            assert all(
                int(text.split("-")[1]) >= self.covered[flush] or text in settled
                for made in self.written.values()
                for text in made
            )

    def teardown(self) -> None:
        if not hasattr(self, "outbox"):
            return
        self.flush()
        if self.fails and self.out:
            self.the_job_fails()
        else:
            self.everything_comes_to_its_end()

    def the_job_fails(self) -> None:
        """One request fails for good, and nothing is settled by what follows."""
        settled = (self.outbox.records, self.outbox.size)
        failing, *others = self.out
        error = self.outbox.failed(failing, DENIED, self.now)
        assert error is not None
        assert (error.topic, error.status) == (failing.lane[0], "PERMISSION_DENIED")
        for batch in others:
            self.outbox.succeeded(batch, self.now)
        for topic in self.creating:
            self.outbox.created(topic, self.now)
        for rejection in self.rejected + self.outbox.take_rejected():
            assert self.outbox.dropped(rejection) is None
        assert (self.outbox.records, self.outbox.size) == settled
        assert self.outbox.take(self.now + MANY) == []
        assert self.outbox.take_creations(self.now + MANY) == []
        assert self.outbox.take_settled() is None, "a flush is told to be complete although the job fails"
        assert self.outbox.wake_at() is None
        assert self.outbox.check(self.now + MANY) is None

    def everything_comes_to_its_end(self) -> None:
        self.every_record_is_settled_exactly_once_and_keys_in_their_order()
        steps = itertools.count()
        while self.outbox.records:
            assert next(steps) < 10_000, "it goes round in circles"
            if self.out:
                self.answer(0, "honest", False)
            elif self.creating:
                self.creation(0, False)
            elif self.rejected:
                self.handler_returns()
            else:
                wake_at = self.outbox.wake_at(self.is_busy)
                assert wake_at is not None, "something is left that nothing would ever move"
                self.now = max(self.now, wake_at)
                self.proceed()
            self.every_record_is_settled_exactly_once_and_keys_in_their_order()
        while self.creating:
            self.creation(0, False)
        assert self.flushed == list(range(1, self.flushes + 1))
        assert (self.outbox.records, self.outbox.size) == (0, 0)
        assert self.outbox.wake_at() is None, "something is parked or paused after the last flush"
        assert self.outbox.check(self.now + 10**6) is None, "somebody waits for nothing"
        written: dict[str, Any] = {text: lane for lane, made in self.written.items() for text in made}
        assert {text for text in written if text.startswith("good")} <= self.published
        assert {text for text in written if text.startswith("bad")} == self.dropped
        self.outbox.release_idle(self.now + 1, 0)
        assert self.outbox.topics == 0


TestWriter = pytest.mark.feature("SNK-14")(
    pytest.mark.feature("SNK-12")(pytest.mark.feature("SNK-11")(pytest.mark.feature("SNK-08")(Writer.TestCase)))
)
TestWriter.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.mark.feature("SNK-11")
def test_a_topic_is_created_once_though_a_request_that_succeeds_ends_its_repair_meanwhile() -> None:
    topic, writer = TOPICS[0], Writer()
    writer.start(messages=1, size=10_000_000, calls=4, most=1000, topics=3, existing={topic}, fails=False)
    writer.write(topic, "", [False, False, False])
    for how in ("unknown yet", "honest", "unknown yet"):
        writer.answer(0, how, False)
    assert writer.creating == [topic]
    writer.everything_comes_to_its_end()
