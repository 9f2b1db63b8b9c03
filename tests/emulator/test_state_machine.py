"""Random acks, nacks, extensions, expiries and stream ends: nothing is lost, nothing is settled twice, order holds."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from flink_pubsub.emulator.leases import Consumer
from tests.emulator.subscriptions import Bench


class SubscriptionMachine(RuleBasedStateMachine):
    """One subscription against a model: what each key has published, and what the live ack ids stand for.

    The model knows of a message `key:n` whether an ack of its live delivery was the last that happened to it.
    """

    streams = Bundle("streams")

    def __init__(self) -> None:
        super().__init__()
        self.published: dict[str, int] = {}
        self.live: dict[str, str] = {}
        self.acked: set[str] = set()
        self.delivered_last: dict[str, int] = {}

    @initialize(ordered=st.booleans(), batches_per_key=st.integers(1, 3))
    def begin(self, ordered: bool, batches_per_key: int) -> None:
        self.ordered = ordered
        self.bench = Bench(ordered=ordered, batches_per_key=batches_per_key)
        self.open_streams: list[Consumer] = []

    @rule(key=st.sampled_from(["", "a", "b", "c"]), count=st.integers(1, 5))
    def publish(self, key: str, count: int) -> None:
        start = self.published.get(key, 0)
        self.published[key] = start + count
        self.bench.publish(*(f"{key}:{n}" for n in range(start, start + count)), key=key)

    @rule(target=streams, max_messages=st.integers(0, 4), ack_deadline=st.sampled_from([None, 10, 60]))
    def open(self, max_messages: int, ack_deadline: int | None) -> Consumer:
        consumer = self.bench.consumer(max_messages=max_messages, ack_deadline=ack_deadline)
        self.open_streams.append(consumer)
        return consumer

    @rule(stream=consumes(streams))
    def close(self, stream: Consumer) -> None:
        self.bench.subscription.close(stream)
        self.open_streams.remove(stream)

    @rule(stream=streams, limit=st.integers(1, 6))
    def take(self, stream: Consumer, limit: int) -> None:
        taken = self.bench.take(stream, limit)
        assert len(taken) <= limit
        for message, ack_id in taken.items():
            assert message not in self.live, "delivered while leased"
            self.live[message] = ack_id
            self._check_order(message)

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
            self._resync()

    @rule(data=st.data(), seconds=st.integers(1, 600))
    def extend(self, data: st.DataObject, seconds: int) -> None:
        for message in self._some(data, 1):
            self.bench.extend(seconds, self.live[message])

    @rule(seconds=st.sampled_from([0.01, 1.0, 9.0, 10.0, 61.0]))
    def pass_time(self, seconds: float) -> None:
        self.bench.pass_time(seconds)
        self._resync()

    @invariant()
    def everything_is_in_exactly_one_state(self) -> None:
        if not hasattr(self, "bench"):
            return
        counts = self.bench.subscription.counts()
        assert counts.received == sum(self.published.values()) == counts.backlog + counts.outstanding + counts.acked
        assert counts.outstanding == len(self.live)
        assert counts.acked == len(self.acked)

    @invariant()
    def flow_control_holds(self) -> None:
        for stream in getattr(self, "open_streams", []):
            assert 0 <= stream.outstanding_messages <= stream.max_messages
            assert stream.outstanding_bytes >= 0

    def teardown(self) -> None:
        """Whatever happened, one patient stream gets all that is not acked, in order, and then there is nothing."""
        if not hasattr(self, "bench"):
            return
        for stream in self.open_streams:
            self.bench.subscription.close(stream)
        self.bench.pass_time(601)
        self._resync()
        consumer = self.bench.consumer()
        while taken := self.bench.take(consumer):
            for message, ack_id in taken.items():
                self.live[message] = ack_id
                self._check_order(message)
            self.bench.ack(*taken.values())
            for message in taken:
                del self.live[message]
                self.acked.add(message)
        assert self.acked == {f"{key}:{n}" for key, count in self.published.items() for n in range(count)}

    def _check_order(self, message: str) -> None:
        """A delivery of a key's message has all earlier ones acked or held."""
        key, _, number = message.partition(":")
        if self.ordered and key:
            for earlier in range(int(number)):
                assert f"{key}:{earlier}" in self.acked or f"{key}:{earlier}" in self.live

    def _some(self, data: st.DataObject, count: int) -> list[str]:
        if not self.live:
            return []
        return data.draw(st.lists(st.sampled_from(sorted(self.live)), min_size=1, max_size=count, unique=True))

    def _resync(self) -> None:
        """Forget what went back: the leases that are gone, and with them acks of later messages of an ordered key."""
        leases = {lease.message.decode().data.decode() for lease in self.bench.subscription._leases.values()}
        gone = set(self.live) - leases
        for message in gone:
            del self.live[message]
        if not self.ordered:
            return
        for message in gone:
            key, _, number = message.partition(":")
            if key:
                self.acked -= {f"{key}:{n}" for n in range(int(number), self.published[key])}


SubscriptionMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestSubscriptionMachine = SubscriptionMachine.TestCase
