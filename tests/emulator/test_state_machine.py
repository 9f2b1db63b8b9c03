"""Random deliveries, settlements, failures, seeks and times: nothing is lost, nothing is settled twice, order holds."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule

from flink_pubsub.emulator.leases import Consumer
from flink_pubsub.emulator.subscription import DROP_SECONDS
from tests.emulator.subscriptions import DEAD_LETTER_TOPIC, Bench

RETENTION = 600
BACKOFF = {"minimum_backoff": {"seconds": 3}, "maximum_backoff": {"seconds": 20}}


class SubscriptionMachine(RuleBasedStateMachine):
    """One subscription against a model: what each key has published and when, what is settled, and what live ack ids stand for.

    A message is `key:n`. The model follows what the rules do; what time does (expiries, dropping, forwarding) it reads off the
    subscription, and checks that there was reason for it.
    """

    streams = Bundle("streams")
    snapshots = Bundle("snapshots")

    def __init__(self) -> None:
        super().__init__()
        self.published: dict[str, float] = {}
        self.next_of: dict[str, int] = {}
        self.live: dict[str, str] = {}
        self.acked: set[str] = set()
        self.acked_before_seek: set[str] = set()
        self.dropped: set[str] = set()
        self.forwarded: set[str] = set()
        self.snapshot_contents: list[set[str]] = []
        self.kept: set[str] = set()
        self.open_streams: list[Consumer] = []
        self.bench: Bench

    @initialize(
        ordered=st.booleans(),
        batches_per_key=st.integers(1, 3),
        dead_letter=st.booleans(),
        retains=st.booleans(),
        backs_off=st.booleans(),
        filtered=st.booleans(),
    )
    def begin(
        self, ordered: bool, batches_per_key: int, dead_letter: bool, retains: bool, backs_off: bool, filtered: bool
    ) -> None:
        settings: dict[str, Any] = {"message_retention_duration": {"seconds": RETENTION}, "retain_acked_messages": retains}
        if backs_off:
            settings["retry_policy"] = BACKOFF
        if filtered:
            settings["filter"] = "NOT attributes:skip"
        self.ordered, self.dead_letter, self.retains, self.filtered = ordered, dead_letter, retains, filtered
        self.bench = Bench(ordered=ordered, batches_per_key=batches_per_key, dead_letter=dead_letter, **settings)

    @rule(key=st.sampled_from(["", "a", "b", "c"]), count=st.integers(1, 5))
    def publish(self, key: str, count: int) -> None:
        start = self.next_of.get(key, 0)
        self.next_of[key] = start + count
        messages = [f"{key}:{n}" for n in range(start, start + count)]
        self.bench.publish(*messages, key=key)
        self.published.update((message, self.bench.now) for message in messages)
        for contents in self.snapshot_contents:
            contents.update(messages)

    @precondition(lambda self: self.filtered)
    @rule(key=st.sampled_from(["", "a"]))
    def publish_what_the_filter_skips(self, key: str) -> None:
        self.bench.publish("skipped", key=key, skip="yes")

    @rule(target=streams, max_messages=st.integers(0, 4), ack_deadline=st.sampled_from([None, 10, 60]))
    def open(self, max_messages: int, ack_deadline: int | None) -> Consumer:
        consumer = self.bench.consumer(max_messages=max_messages, ack_deadline=ack_deadline)
        self.open_streams.append(consumer)
        return consumer

    @rule(stream=consumes(streams))
    def close(self, stream: Consumer) -> None:
        self.bench.subscription.close(stream, self.bench.now)
        self.open_streams.remove(stream)

    @rule(stream=streams, limit=st.integers(1, 6))
    def take(self, stream: Consumer, limit: int) -> None:
        taken = self.bench.take(stream, limit)
        assert len(taken) <= limit
        self._took(taken)

    @rule(data=st.data(), count=st.integers(1, 4))
    def ack(self, data: st.DataObject, count: int) -> None:
        for message in self._some(data, count):
            self.bench.ack(self.live.pop(message))
            self.acked.add(message)

    @rule(data=st.data(), count=st.integers(1, 3))
    def nack(self, data: st.DataObject, count: int) -> None:
        chosen = self._some(data, count)
        if chosen:
            self.bench.nack(*(self.live[message] for message in chosen))
            self._follow()

    @rule(data=st.data(), seconds=st.integers(1, 600))
    def extend(self, data: st.DataObject, seconds: int) -> None:
        for message in self._some(data, 1):
            self.bench.extend(seconds, self.live[message])

    @rule(seconds=st.sampled_from([0.01, 1.0, 9.0, 10.0, 61.0, 301.0]))
    def pass_time(self, seconds: float) -> None:
        self.bench.pass_time(seconds)
        self._follow()

    @precondition(lambda self: self.published)
    @rule(data=st.data())
    def seek(self, data: st.DataObject) -> None:
        first = data.draw(st.sampled_from(sorted(self.published)))
        time = self.published[first]
        self.bench.seek(int(time * 1000) / 1000)
        within = {message for message, at in self.published.items() if self.bench.now - at < RETENTION}
        retained = within if self.retains else within & self._unacked()
        self._sought({message for message in retained if int(self.published[message] * 1000) >= int(time * 1000)}, set())

    @rule()
    def purge(self) -> None:
        self.bench.seek(self.bench.now + 1)
        self._sought(set(), set())

    @precondition(lambda self: len(self.snapshot_contents) < 3)
    @rule(target=snapshots)
    def snapshot(self) -> int:
        number = len(self.snapshot_contents)
        self.bench.snapshot(f"snapshot-{number}")
        self.snapshot_contents.append(self._unacked())
        return number

    @rule(number=snapshots)
    def seek_to_snapshot(self, number: int) -> None:
        self.bench.seek_to(f"snapshot-{number}")
        self._sought(set(self.snapshot_contents[number]), set(self.snapshot_contents[number]))

    @invariant()
    def everything_is_in_exactly_one_state(self) -> None:
        if not hasattr(self, "bench"):
            return
        counts = self.bench.subscription.counts()
        assert counts.received == counts.backlog + counts.outstanding + counts.acked + counts.dropped
        assert min(counts.backlog, counts.acked, counts.dropped) >= 0
        assert counts.outstanding == len(self.live)
        assert counts.backlog == len(self._unacked()) - len(self.live)
        assert len(self.bench.waiting()) == counts.backlog + counts.outstanding
        if not self.snapshot_contents:
            assert counts.received == len(self.published)
            assert counts.dropped == len(self.dropped)

    @invariant()
    def flow_control_holds(self) -> None:
        for stream in self.open_streams:
            assert 0 <= stream.outstanding_messages <= stream.max_messages
            assert stream.outstanding_bytes >= 0

    def teardown(self) -> None:
        """Whatever happened, one patient stream gets all that is not settled, in order, and then there is nothing."""
        if not hasattr(self, "bench"):
            return
        for stream in self.open_streams:
            self.bench.subscription.close(stream, self.bench.now)
        if self.live:
            self.bench.nack(*self.live.values())
        self.bench.pass_time(BACKOFF["maximum_backoff"]["seconds"])
        self._follow()
        consumer = self.bench.consumer()
        while taken := self.bench.take(consumer):
            self._took(taken)
            self.bench.ack(*taken.values())
            for message in taken:
                del self.live[message]
                self.acked.add(message)
        assert self._unacked() == set(self.bench.waiting()) == set()

    def _unacked(self) -> set[str]:
        return set(self.published) - self.acked - self.dropped - self.forwarded

    def _took(self, taken: dict[str, str]) -> None:
        for message, ack_id in taken.items():
            assert message in self._unacked(), "delivered though settled"
            assert message not in self.live, "delivered while leased"
            self.live[message] = ack_id
            key, _, number = message.partition(":")
            if self.ordered and key:
                waiting = self._unacked() - set(self.live)
                assert not any(f"{key}:{earlier}" in waiting for earlier in range(int(number))), (
                    "delivered before an earlier one"
                )

    def _some(self, data: st.DataObject, count: int) -> list[str]:
        if not self.live:
            return []
        return data.draw(st.lists(st.sampled_from(sorted(self.live)), min_size=1, max_size=count, unique=True))

    def _sought(self, unacked: set[str], kept: set[str]) -> None:
        assert set(self.bench.waiting()) == unacked
        self.live.clear()
        self.kept = kept
        self.dropped = {message for message in self._unacked() | self.dropped if self._lapsed(message, 0.0)} - unacked
        self.forwarded -= unacked
        self.acked = set(self.published) - unacked - self.dropped - self.forwarded
        self.acked_before_seek = set(self.acked)

    def _lapsed(self, message: str, late: float) -> bool:
        return message not in self.kept and self.bench.now - self.published[message] >= RETENTION + late

    def _follow(self) -> None:
        """Take over what went back, was dropped or forwarded, if there was reason for it."""
        held = {message.decode().data.decode() for message in self.bench.subscription._held.messages()}
        gone = set(self.live) - held
        for message in gone:
            del self.live[message]
        if self.ordered:
            for message in gone:
                key, _, number = message.partition(":")
                if key:
                    again = {f"{key}:{n}" for n in range(int(number), self.next_of[key])}
                    self.acked -= again - self.acked_before_seek
        waiting = set(self.bench.waiting())
        assert waiting <= self._unacked()
        forwarded = (
            {m.decode().data.decode() for m in self.bench.service.topic(DEAD_LETTER_TOPIC).published}
            if self.dead_letter
            else set()
        )
        for message in self._unacked() - waiting:
            if self._lapsed(message, 0.0):
                self.dropped.add(message)
            else:
                assert message in forwarded
                self.forwarded.add(message)
        assert not any(self._lapsed(message, DROP_SECONDS) for message in waiting - held)


SubscriptionMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestSubscriptionMachine = SubscriptionMachine.TestCase
