"""The ack tracker: every message is in exactly one state, and is acknowledged only when a completed checkpoint covers it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from flink_pubsub.core.acks import Acks, AckTracker, Chunk, Delivery, Run, TrackerError


def delivery(*ids: str, size: int = 10, suffix: str = "") -> Delivery[str]:
    return Delivery([f"ack-{i}{suffix}" for i in ids], list(ids), [size] * len(ids), [f"payload-{i}" for i in ids])


def tracker() -> AckTracker[str]:
    return AckTracker({})


def drained(tracker: AckTracker[str], count: int = 1000, size: int = 1 << 20) -> list[tuple[int, list[str]]]:
    return [(run.first, run.payloads) for run in tracker.drain(count, size)]


@pytest.mark.feature("SRC-15")
def test_a_message_is_acknowledged_by_the_checkpoint_that_covers_it_and_not_before() -> None:
    one = tracker()
    one.receive(delivery("a", "b", "c"), 0)
    assert drained(one) == [(1, ["payload-a", "payload-b", "payload-c"])]
    one.snapshot(7, 2)
    assert one.complete(6).ack_ids == []
    assert one.complete(7).ack_ids == ["ack-a", "ack-b"]
    assert one.held_messages == 1


@pytest.mark.feature("SRC-15")
def test_an_aborted_checkpoint_and_a_lost_notification_are_healed_by_the_next_completed_one() -> None:
    one = tracker()
    one.receive(delivery("a", "b", "c"), 0)
    one.drain(3, 1000)
    one.snapshot(1, 1)
    one.snapshot(2, 2)
    one.snapshot(3, 3)
    assert one.complete(2).message_ids == ["a", "b"]
    assert one.complete(1).message_ids == []
    assert one.complete(9).message_ids == ["c"]


@pytest.mark.feature("SRC-26")
@pytest.mark.feature("BEY-01")
def test_a_redelivery_of_a_held_message_replaces_its_ack_id_and_is_not_emitted_again() -> None:
    one = tracker()
    one.receive(delivery("a", "b"), 0)
    one.drain(1, 1000)
    receipt = one.receive(delivery("b", "a", "c", suffix="-2"), 5)
    assert receipt.redelivered is not None
    assert receipt.redelivered.leased() == ["ack-b-2", "ack-a-2"]
    assert one.held_messages == 3
    assert drained(one) == [(2, ["payload-b", "payload-c"])]
    one.snapshot(1, 3)
    assert one.complete(1).ack_ids == ["ack-a-2", "ack-b-2", "ack-c-2"]


@pytest.mark.feature("BEY-01")
def test_a_redelivery_to_another_split_of_the_subscription_is_recognised() -> None:
    index: dict[str, Chunk[str]] = {}
    one, two = AckTracker(index), AckTracker(index)
    one.receive(delivery("a"), 0)
    receipt = two.receive(delivery("a", suffix="-2"), 1)
    assert receipt.chunk is None
    assert (one.held_messages, two.held_messages) == (1, 0)
    assert one.close() == ["ack-a-2"]


@pytest.mark.feature("BEY-01")
def test_a_delivery_that_crosses_the_acknowledgement_is_acknowledged_too() -> None:
    one = tracker()
    one.receive(delivery("a"), 0)
    one.drain(1, 1000)
    one.snapshot(1, 1)
    acks = one.complete(1)
    receipt = one.receive(delivery("a", suffix="-2"), 1)
    assert (receipt.acknowledge, receipt.chunk) == (["ack-a-2"], None)
    one.forget(acks.message_ids)
    assert one.receive(delivery("a", suffix="-3"), 2).chunk is not None


def test_a_message_twice_in_one_response_counts_once_under_its_last_ack_id() -> None:
    one = tracker()
    twice = Delivery(["first", "second"], ["a", "a"], [5, 5], ["p", "p"])
    assert one.receive(twice, 0).chunk is not None
    assert (one.held_messages, one.close()) == (1, ["second"])


def test_a_message_given_back_splits_what_is_drained_and_frees_its_permit() -> None:
    one = tracker()
    one.receive(delivery("a", "b", "c"), 0)
    assert one.nack(2) == "ack-b"
    assert one.nack(2) is None
    assert (one.held_messages, one.held_bytes, one.buffered_messages) == (2, 20, 2)
    assert drained(one) == [(1, ["payload-a"]), (3, ["payload-c"])]
    one.snapshot(1, 3)
    assert one.complete(1).ack_ids == ["ack-a", "ack-c"]
    assert (one.held_messages, one.held_bytes) == (0, 0)


@pytest.mark.feature("SRC-11")
def test_draining_is_bounded_by_count_and_bytes_but_takes_one_message_at_least() -> None:
    one = tracker()
    one.receive(delivery("a", "b", "c", "d", size=100), 0)
    assert drained(one, 2, 10_000) == [(1, ["payload-a", "payload-b"])]
    assert drained(one, 2, 10) == [(3, ["payload-c"])]
    assert drained(one, 2, 10) == [(4, ["payload-d"])]
    assert drained(one, 2, 10) == []


def test_small_responses_are_drained_as_one_run() -> None:
    one = tracker()
    one.receive(delivery("a"), 0)
    one.receive(delivery("b"), 0)
    assert drained(one) == [(1, ["payload-a", "payload-b"])]


@pytest.mark.feature("SRC-14")
def test_closing_gives_everything_back_and_whatever_arrives_later() -> None:
    one = tracker()
    one.receive(delivery("a", "b", "c"), 0)
    one.drain(2, 1000)
    one.snapshot(1, 1)
    assert one.close() == ["ack-a", "ack-b", "ack-c"]
    assert one.receive(delivery("d"), 1).give_back == ["ack-d"]
    assert one.complete(1).ack_ids == []


@pytest.mark.parametrize("position", [0, 3])
def test_a_position_that_goes_back_or_beyond_what_was_handed_out_is_a_defect(position: int) -> None:
    one = tracker()
    one.receive(delivery("a", "b", "c"), 0)
    one.drain(2, 1000)
    one.snapshot(1, 1)
    with pytest.raises(TrackerError, match="checkpoint 2"):
        one.snapshot(2, position)


def test_a_message_without_an_id_is_refused_since_it_could_not_be_told_from_another() -> None:
    with pytest.raises(TrackerError, match="without a message id"):
        tracker().receive(delivery(""), 0)


@dataclass
class Model:
    split: int
    sequence: int
    message_id: str
    ack_id: str
    size: int
    state: str = "received"
    checkpoint: int = 0


HELD = ("received", "staged", "bound")


class Trackers(RuleBasedStateMachine):
    """Two splits of one subscription against a model that knows the state of every message."""

    @initialize()
    def open(self) -> None:
        self.index: dict[str, Chunk[str]] = {}
        self.trackers: list[AckTracker[str]] = [AckTracker(self.index), AckTracker(self.index)]
        self.messages: list[Model] = []
        self.sequences = [0, 0]
        self.emitted = [0, 0]
        self.checkpoint = 0
        self.completed = 0
        self.unanswered: list[tuple[AckTracker[str], Acks]] = []
        self.deliveries = 0

    def known(self, *states: str) -> list[Model]:
        return [message for message in self.messages if message.state in states]

    @rule(
        split=st.integers(0, 1),
        new=st.integers(0, 4),
        again=st.lists(st.integers(0, 60), max_size=3),
        size=st.integers(1, 50),
    )
    def receive(self, split: int, new: int, again: list[int], size: int) -> None:
        ids = [f"m{len(self.messages) + i}" for i in range(new)]
        ids += [self.messages[i].message_id for i in again if i < len(self.messages)]
        ack_ids = [f"ack{self.deliveries + i}" for i in range(len(ids))]
        self.deliveries += len(ids)
        receipt = self.trackers[split].receive(Delivery(ack_ids, ids, [size] * len(ids), ids), 0)
        acknowledge = []
        for message_id, ack_id in zip(ids, ack_ids, strict=True):
            current = [m for m in self.known(*HELD, "acknowledging") if m.message_id == message_id]
            if not current:
                self.sequences[split] += 1
                self.messages.append(Model(split, self.sequences[split], message_id, ack_id, size))
            elif current[0].state == "acknowledging":
                acknowledge.append(ack_id)
            else:
                current[0].ack_id = ack_id
        assert receipt.acknowledge == acknowledge
        assert receipt.give_back == []

    @rule(split=st.integers(0, 1), count=st.integers(1, 6), size=st.integers(1, 200))
    def drain(self, split: int, count: int, size: int) -> None:
        waiting = [m for m in self.known("received") if m.split == split]
        runs: list[Run[str]] = self.trackers[split].drain(count, size)
        found = [(run.first + i, payload) for run in runs for i, payload in enumerate(run.payloads)]
        assert found == [(m.sequence, m.message_id) for m in waiting[: len(found)]]
        assert len(found) <= count
        for message in waiting[: len(found)]:
            message.state = "staged"

    @rule(split=st.integers(0, 1), count=st.integers(1, 6))
    def emit(self, split: int, count: int) -> None:
        staged = [m.sequence for m in self.messages if m.split == split and m.state == "staged"]
        self.emitted[split] = max([self.emitted[split], *[s for s in staged if s > self.emitted[split]][:count]])

    @rule()
    def snapshot(self) -> None:
        self.checkpoint += 1
        for split, tracker in enumerate(self.trackers):
            tracker.snapshot(self.checkpoint, self.emitted[split])
        for message in self.known("staged"):
            if message.sequence <= self.emitted[message.split]:
                message.state, message.checkpoint = "bound", self.checkpoint

    @precondition(lambda self: self.checkpoint > self.completed)
    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        self.completed = data.draw(st.integers(self.completed + 1, self.checkpoint))
        for split, tracker in enumerate(self.trackers):
            acks = tracker.complete(self.completed)
            covered = [m for m in self.known("bound") if m.split == split and m.checkpoint <= self.completed]
            assert acks.ack_ids == [m.ack_id for m in covered]
            assert acks.message_ids == [m.message_id for m in covered]
            for message in covered:
                message.state = "acknowledging"
            self.unanswered.append((tracker, acks))

    @precondition(lambda self: self.unanswered)
    @rule()
    def answer(self) -> None:
        tracker, acks = self.unanswered.pop(0)
        tracker.forget(acks.message_ids)
        for message in self.known("acknowledging"):
            if message.message_id in acks.message_ids:
                message.state = "gone"

    @rule(split=st.integers(0, 1), sequence=st.integers(1, 40))
    def nack(self, split: int, sequence: int) -> None:
        held = [m for m in self.known(*HELD) if m.split == split and m.sequence == sequence]
        assert self.trackers[split].nack(sequence) == (held[0].ack_id if held else None)
        for message in held:
            message.state = "gone"

    @invariant()
    def permits_are_those_of_what_is_held(self) -> None:
        for split, tracker in enumerate(self.trackers):
            held = [m for m in self.known(*HELD) if m.split == split]
            waiting = [m for m in held if m.state == "received"]
            assert (tracker.held_messages, tracker.held_bytes) == (len(held), sum(m.size for m in held))
            assert (tracker.buffered_messages, tracker.buffered_bytes) == (len(waiting), sum(m.size for m in waiting))

    @invariant()
    def what_is_known_is_what_is_held_or_being_acknowledged(self) -> None:
        assert set(self.index) == {m.message_id for m in self.known(*HELD, "acknowledging")}

    def teardown(self) -> None:
        if not hasattr(self, "trackers"):
            return
        for split, tracker in enumerate(self.trackers):
            assert tracker.close() == [m.ack_id for m in self.known(*HELD) if m.split == split]
            assert (tracker.held_messages, tracker.held_bytes, tracker.buffered_messages) == (0, 0, 0)
        for tracker, acks in self.unanswered:
            tracker.forget(acks.message_ids)
        assert self.index == {}


TestTrackers = pytest.mark.feature("SRC-15")(Trackers.TestCase)
TestTrackers.settings = settings(max_examples=150, stateful_step_count=40)
