"""The ack tracker over random histories: a model of each message's state."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from flink_pubsub.core.acks import AckTracker
from flink_pubsub.core.budget import Tally
from flink_pubsub.core.chunks import Acks, Delivery, Run
from flink_pubsub.core.known import KnownMessages
from flink_pubsub.core.leases import Leased
from tests.unit.source_support import Whole


@dataclass
class Model:
    split: int
    sequence: int
    message_id: str
    ack_id: str
    size: int
    state: str = "received"
    checkpoint: int = 0
    lapsed: bool = False


HELD = ("received", "staged", "bound")


class Trackers(RuleBasedStateMachine):
    """Two splits of one subscription against a model that knows the state of every message."""

    @initialize()
    def open(self) -> None:
        self.known_messages: KnownMessages[str] = KnownMessages()
        self.buffered = Tally()
        self.trackers: list[AckTracker[str]] = [AckTracker(self.known_messages, self.buffered) for _ in range(2)]
        self.messages: list[Model] = []
        self.sequences = [0, 0]
        self.emitted = [0, 0]
        self.checkpoint = 0
        self.completed = 0
        self.unanswered: list[tuple[AckTracker[str], Acks]] = []
        self.leases: list[tuple[Leased, set[str]]] = []
        """What arrived together, and under which ack ids."""
        self.deliveries = 0

    def known(self, *states: str) -> list[Model]:
        return [message for message in self.messages if message.state in states]

    @rule(
        split=st.integers(0, 1),
        new=st.integers(0, 4),
        again=st.lists(st.integers(0, 60), max_size=3),
        size=st.integers(1, 50),
        whole=st.booleans(),
    )
    def receive(self, split: int, new: int, again: list[int], size: int, whole: bool) -> None:
        ids = [f"m{len(self.messages) + i}" for i in range(new)]
        ids += [self.messages[i].message_id for i in again if i < len(self.messages)]
        ack_ids = [f"ack{self.deliveries + i}" for i in range(len(ids))]
        self.deliveries += len(ids)
        payloads = Whole(ids, size) if whole and ids else ids
        receipt = self.trackers[split].receive(Delivery([*ack_ids], [*ids], [size] * len(ids), payloads), 0)
        acknowledge = []
        for message_id, ack_id in zip(ids, ack_ids, strict=True):
            current = [m for m in self.known(*HELD, "acknowledging", "late") if m.message_id == message_id]
            if not current:
                self.sequences[split] += 1
                self.messages.append(Model(split, self.sequences[split], message_id, ack_id, size))
            elif current[0].state not in HELD:
                acknowledge.append(ack_id)
            else:
                current[0].ack_id, current[0].lapsed = ack_id, False
        self.leases += [(members, set(ack_ids)) for members in (receipt.chunk, receipt.redelivered) if members is not None]
        assert receipt.acknowledge == acknowledge
        assert receipt.give_back == []

    @rule(split=st.integers(0, 1), count=st.integers(1, 6), size=st.integers(1, 200))
    def drain(self, split: int, count: int, size: int) -> None:
        waiting = [m for m in self.known("received") if m.split == split]
        runs: list[Run[str]] = self.trackers[split].drain(count, size)
        found = [(run.first + i, payload) for run in runs for i, payload in enumerate(run.divided())]
        assert found == [(m.sequence, m.message_id) for m in waiting[: len(found)]]
        assert bool(waiting) <= len(found) <= count
        for message in waiting[: len(found)]:
            message.state = "staged"
            self.buffered.add(-1, -message.size)

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
            acks = tracker.complete(self.completed, 0)
            covered = [m for m in self.known("bound") if m.split == split and m.checkpoint <= self.completed]
            assert acks.ack_ids == [m.ack_id for m in covered if not m.lapsed]
            assert acks.message_ids == [m.message_id for m in covered if not m.lapsed]
            assert acks.late == [m.ack_id for m in covered if m.lapsed]
            for message in covered:
                message.state = "late" if message.lapsed else "acknowledging"
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
        drained = [m.sequence for m in held if m.state != "received"]
        given_back = self.trackers[split].nack(sequence, 0)
        assert (given_back.ack_ids, given_back.sequences) == ([m.ack_id for m in held], drained)
        for message in held:
            message.state = "gone"

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def lapse(self, data: st.DataObject) -> None:
        members, ack_ids = data.draw(st.sampled_from(self.leases))
        self.leases.remove((members, ack_ids))
        mine = {ack_id for ack_id in ack_ids if ack_id in members.leased()}
        given_back = members.lapse(0)
        ended = [m for m in self.known(*HELD) if m.ack_id in mine]
        assert sorted(given_back) == sorted(m.ack_id for m in ended if m.state == "received")
        for message in ended:
            if message.state == "received":
                message.state = "gone"
            else:
                message.lapsed = True

    @rule(split=st.integers(0, 1))
    def park(self, split: int) -> None:
        held = [m for m in self.known(*HELD) if m.split == split]
        assert self.trackers[split].park(0) == [m.ack_id for m in held]
        for message in held:
            message.state = "gone"

    @invariant()
    def permits_are_those_of_what_is_held(self) -> None:
        for split, tracker in enumerate(self.trackers):
            held = [m for m in self.known(*HELD) if m.split == split]
            waiting = [m for m in held if m.state == "received"]
            assert (tracker.held_messages, tracker.held_bytes) == (len(held), sum(m.size for m in held))
            leased = [m for m in held if not m.lapsed]
            assert tracker.permits == (len(leased), sum(m.size for m in leased))
            assert (tracker.buffered_messages, tracker.buffered_bytes) == (len(waiting), sum(m.size for m in waiting))

    @invariant()
    def what_is_buffered_is_counted_for_the_reader_too(self) -> None:
        waiting = self.known("received")
        assert self.buffered == Tally(len(waiting), sum(m.size for m in waiting))

    @invariant()
    def nothing_is_kept_of_chunks_that_went_back_whole(self) -> None:
        assert all(chunk.held for tracker in self.trackers for chunk in tracker._held)

    @invariant()
    def what_is_known_is_what_is_held_or_being_acknowledged(self) -> None:
        assert self.known_messages._ids == {m.message_id for m in self.known(*HELD, "acknowledging", "late")}

    def teardown(self) -> None:
        if not hasattr(self, "trackers"):
            return
        for split, tracker in enumerate(self.trackers):
            assert tracker.close(0) == [m.ack_id for m in self.known(*HELD) if m.split == split]
            assert (tracker.held_messages, tracker.held_bytes, tracker.buffered_messages) == (0, 0, 0)
        for tracker, acks in self.unanswered:
            tracker.forget(acks.message_ids)
        assert self.known_messages._ids == {message.message_id for message in self.known("late")}


TestTrackers = pytest.mark.feature("SRC-15")(Trackers.TestCase)
TestTrackers.settings = settings(max_examples=150, stateful_step_count=40)
