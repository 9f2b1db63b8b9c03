"""The ack tracker between a service that keeps order and a JVM, over random histories."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from flink_pubsub.core.acks import AckTracker
from flink_pubsub.core.chunks import Delivery
from flink_pubsub.core.known import KnownMessages
from flink_pubsub.core.leases import Leased
from tests.unit.source_support import Whole


class Service:
    """One ordered subscription with a single stream, as harsh as the documentation allows.

    Of a key, what is out comes before what waits. Whatever goes back takes all later ones of its key with it, acknowledged
    ones too. Any number of batches of a key may be out, and what was sent stays in the pipe whatever happens. Only while
    something of a key is out that nobody can have read does the service send no more of it.
    """

    def __init__(self) -> None:
        self.keys: dict[str, list[int]] = {}
        """What is not settled yet, in order."""
        self.out: dict[int, str] = {}
        """Ack ids of the deliveries that are out."""
        self.acked: set[int] = set()
        self.pipe: list[tuple[str, int, str]] = []
        self.unread: set[str] = set()
        """Ack ids that were in the pipe of a stream that ended."""
        self.deliveries = 0

    def send(self, key: str, count: int) -> None:
        if any(self.out.get(n) in self.unread for n in self.keys.get(key, [])):
            return
        for n in [n for n in self.keys.get(key, []) if n not in self.out][:count]:
            self.deliveries += 1
            self.out[n] = f"ack{self.deliveries}"
            self.pipe.append((key, n, self.out[n]))

    def _whose(self, ack_id: str) -> tuple[str, int] | None:
        return next(((key, n) for key, order in self.keys.items() for n in order if self.out.get(n) == ack_id), None)

    def take_back(self, ack_id: str) -> None:
        """A nack, or the end of a lease."""
        found = self._whose(ack_id)
        if found is not None:
            order = self.keys[found[0]]
            for n in order[order.index(found[1]) :]:
                self.out.pop(n, None)
                self.acked.discard(n)

    def acknowledge(self, ack_id: str) -> None:
        found = self._whose(ack_id)
        if found is not None:
            self.acked.add(found[1])
            order = self.keys[found[0]]
            while order and order[0] in self.acked:
                self.out.pop(order.pop(0))

    def dead_letter(self, key: str) -> int | None:
        """Takes away the first message that waits, as if it had failed too often."""
        waiting = [n for n in self.keys.get(key, []) if n not in self.out]
        if not waiting:
            return None
        self.keys[key].remove(waiting[0])
        return waiting[0]


KEYS = st.sampled_from(["a", "b"])


class Ordered(RuleBasedStateMachine):
    """A split that keeps order, between such a service and a JVM: nothing of a key is emitted before an earlier one."""

    @initialize()
    def open(self) -> None:
        self.service = Service()
        self.tracker: AckTracker[tuple[str, int]] = AckTracker(KnownMessages(), ordered=True)
        self.leases: list[Leased] = []
        self.to_service: list[tuple[str, str]] = []
        self.answers: list[str] = []
        self.jvm: list[tuple[int, str, int]] = []
        self.withdrawn: set[int] = set()
        self.position = self.checkpoint = self.completed = self.published = 0
        self.emitted: dict[str, set[int]] = {"a": set(), "b": set()}
        self.gone: set[int] = set()
        """Dead-lettered: nobody waits for these."""
        self.key_of: dict[int, str] = {}

    @rule(key=KEYS, count=st.integers(1, 3))
    def publish(self, key: str, count: int) -> None:
        for _ in range(count):
            self.published += 1
            self.key_of[self.published] = key
            self.service.keys.setdefault(key, []).append(self.published)

    @rule(key=KEYS, count=st.integers(1, 4))
    def send(self, key: str, count: int) -> None:
        self.service.send(key, count)

    @rule(count=st.integers(1, 6), refuse=st.booleans(), whole=st.booleans())
    def read(self, count: int, refuse: bool, whole: bool) -> None:
        """A response is taken in or, because its stream was ended for want of room, refused together with all that follows."""
        count = len(self.service.pipe) if refuse else count
        read, self.service.pipe = self.service.pipe[:count], self.service.pipe[count:]
        payloads = [(key, n) for key, n, _ in read]
        delivery = Delivery(
            [ack_id for _, _, ack_id in read],
            [f"m{n}" for _, n, _ in read],
            [1] * len(read),
            Whole(payloads, 1) if whole and read else payloads,
            [key for key, _, _ in read],
        )
        receipt = self.tracker.refuse(delivery, 0) if refuse else self.tracker.receive(delivery, 0)
        self.leases += [members for members in (receipt.chunk, receipt.redelivered) if members is not None]
        self.nack(receipt.give_back)
        self.to_service += [("ack", ack_id) for ack_id in receipt.acknowledge]

    def nack(self, ack_ids: list[str]) -> None:
        self.to_service += [("nack", ack_id) for ack_id in ack_ids]

    @rule(count=st.integers(1, 5))
    def hear(self, count: int) -> None:
        """The service gets what was sent to it."""
        heard, self.to_service = self.to_service[:count], self.to_service[count:]
        for what, ack_id in heard:
            (self.service.acknowledge if what == "ack" else self.service.take_back)(ack_id)
        self.answers += [ack_id for what, ack_id in heard if what == "nack"]

    @rule(count=st.integers(1, 5))
    def answer(self, count: int) -> None:
        """The service's answers to nacks arrive."""
        answers, self.answers = self.answers[:count], self.answers[count:]
        self.tracker.heard(answers)

    @rule(count=st.integers(1, 5))
    def drain(self, count: int) -> None:
        for run in self.tracker.drain(count, 100):
            self.jvm += [(run.first + i, key, n) for i, (key, n) in enumerate(run.divided())]

    @rule(count=st.integers(1, 4))
    def emit(self, count: int) -> None:
        for _ in range(min(count, len(self.jvm))):
            sequence, key, n = self.jvm.pop(0)
            self.position = sequence
            if sequence in self.withdrawn:
                continue
            missing = {m for m in self.key_of if self.key_of[m] == key and m < n} - self.emitted[key] - self.gone
            assert not missing, f"{n} of key {key} overtook {missing}"
            self.emitted[key].add(n)

    @rule()
    def fail(self) -> None:
        """The next message cannot be decoded, and goes back."""
        while self.jvm and self.jvm[0][0] in self.withdrawn:
            self.position = self.jvm.pop(0)[0]
        if self.jvm:
            sequence = self.position = self.jvm.pop(0)[0]
            given_back = self.tracker.nack(sequence, 0)
            self.withdrawn.update(later for later in given_back.sequences if later > sequence)
            self.nack(given_back.ack_ids)

    @rule(key=KEYS)
    def dead_letter(self, key: str) -> None:
        n = self.service.dead_letter(key)
        if n is not None:
            self.gone.add(n)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def lapse(self, data: st.DataObject) -> None:
        """Leases end: what can be given back is, the service takes the rest back by itself."""
        members = data.draw(st.sampled_from(self.leases))
        self.leases.remove(members)
        leased = list(members.leased())
        self.nack(members.lapse(0))
        self.to_service += [("end of the lease", ack_id) for ack_id in leased]

    @rule()
    def expire(self) -> None:
        """The leases of what nobody extends any more end."""
        kept = {ack_id for chunk in self.tracker._held for ack_id in chunk.ack_ids}
        kept |= {ack_id for _, _, ack_id in self.service.pipe} | {ack_id for _, ack_id in self.to_service}
        for ack_id in [ack_id for ack_id in self.service.out.values() if ack_id not in kept]:
            self.service.take_back(ack_id)

    @rule()
    def park(self) -> None:
        """The stream ends with what is in its pipe, and everything goes back; a fresh one is opened."""
        lost, self.service.pipe = self.service.pipe, []
        self.service.unread.update(ack_id for _, _, ack_id in lost)
        self.nack(self.tracker.park(0))
        self.to_service += [("end of the lease", ack_id) for _, _, ack_id in lost]

    @rule(complete=st.booleans())
    def take_checkpoint(self, complete: bool) -> None:
        self.checkpoint += 1
        self.tracker.snapshot(self.checkpoint, self.position)
        if complete:
            acks = self.tracker.complete(self.checkpoint, 0)
            self.to_service += [("ack", ack_id) for ack_id in acks.ack_ids + acks.late]
            self.tracker.forget(acks.message_ids)

    def teardown(self) -> None:
        """Whatever happened, everything comes in the end."""
        if not hasattr(self, "service"):
            return
        for _ in range(4 * self.published + 4):
            self.hear(1000)
            self.answer(1000)
            self.expire()
            for key in ("a", "b"):
                self.send(key, 1000)
            self.read(1000, refuse=False, whole=False)
            self.drain(1000)
            self.emit(1000)
            self.take_checkpoint(complete=True)
        everything = {n for n in self.key_of if n not in self.gone}
        assert everything <= self.emitted["a"] | self.emitted["b"]
        assert not self.tracker.held_messages
        assert not any(self.service.keys.values())


TestOrdered = pytest.mark.feature("SRC-22")(pytest.mark.feature("SRC-24")(Ordered.TestCase))
TestOrdered.settings = settings(max_examples=1000, stateful_step_count=50, deadline=None)
