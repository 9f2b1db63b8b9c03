"""One subscription's deliveries: what waits, who holds what until when, and what happens when a lease ends.

A message is in exactly one state at any time:

1. backlog: waiting to be delivered (`returned` when it has been before, and then served first);
2. outstanding: delivered, with a lease that ends by ack, nack or deadline;
3. acked: settled; an ordered message returns to 1 if an earlier one of its key fails before it is acked.

So `received == backlog + outstanding + acked` always. Methods take the time and neither block nor know threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flink_pubsub.emulator.errors import ServiceError, bad_ack_deadline
from flink_pubsub.emulator.leases import UNLIMITED, Batch, Consumer, DeliveryNumbers, Lease, OrderedLease
from flink_pubsub.emulator.messages import Message, ack_id, delivery_numbers
from flink_pubsub.emulator.ordering import KeyedBacklog
from flink_pubsub.emulator.timers import Timers
from flink_pubsub.wire import pubsub_pb2 as wire

RESPONSE_MESSAGES = 1000
RESPONSE_BYTES = 1 << 20
"""A batch ends with the message that reaches one of these."""


@dataclass(frozen=True)
class Delivery:
    """One delivery, as the log keeps it.

    Attributes:
        message_id: the message's id.
        ack_id: the ack id of this delivery.
        attempt: 1 for the first delivery, then one more for each nack or expiry.
        time: when, by the emulator's clock.
    """

    message_id: str
    ack_id: str
    attempt: int
    time: float


@dataclass(frozen=True)
class SubscriptionCounts:
    """A subscription's numbers at one moment.

    `backlog`, `outstanding` and `acked` are messages and add up to `received`; the others count events since the
    subscription was created (one per ack id), except `open_streams`.
    """

    received: int
    backlog: int
    outstanding: int
    acked: int
    delivered: int
    nacks: int
    modacks: int
    expiries: int
    late_acks: int
    open_streams: int


class Subscription:
    """The messages of one subscription."""

    def __init__(
        self, settings: wire.Subscription, timers: Timers, numbers: DeliveryNumbers, *, batches_per_key: int, log_limit: int
    ) -> None:
        self.settings = settings
        self.deliveries: deque[Delivery] | None = deque(maxlen=log_limit) if log_limit else None
        self.consumers: dict[Consumer, None] = {}
        self._timers = timers
        self._numbers = numbers
        self._fresh: deque[Message] = deque()
        self._returned: deque[Message] = deque()
        self._keyed = KeyedBacklog(batches_per_key) if settings.enable_message_ordering else None
        self._leases: dict[int, Lease] = {}
        self._idle: dict[Consumer, None] = {}
        self._failures: dict[int, int] = {}
        self._received = self._acked = self._delivered = 0
        self._nacks = self._modacks = self._expiries = self._late_acks = 0

    def add(self, messages: Iterable[Message]) -> None:
        """Messages published to the topic."""
        before = self._received
        if self._keyed is None:
            plain = len(self._fresh)
            self._fresh.extend(messages)
            self._received = before + len(self._fresh) - plain
        else:
            for message in messages:
                if message.ordering_key:
                    self._keyed.add(message)
                else:
                    self._fresh.append(message)
                self._received += 1
        self._wake()

    def open(self, consumer: Consumer) -> None:
        """A streaming pull or a pull call begins."""
        self.consumers[consumer] = None

    def close(self, consumer: Consumer) -> None:
        """It is over; what it holds stays leased until settled or expired."""
        if consumer.closed:
            return
        consumer.closed = True
        del self.consumers[consumer]
        self._idle.pop(consumer, None)
        if self._keyed is not None:
            self._keyed.release(consumer)
        self._wake()

    def end_consumers(self, error: ServiceError | None) -> int:
        """End all consumers with this status, None meaning OK; returns how many."""
        ended = list(self.consumers)
        for consumer in ended:
            self.close(consumer)
            consumer.end = error
            consumer.wake()
        return len(ended)

    def take(self, consumer: Consumer, now: float, limit: int = RESPONSE_MESSAGES) -> Batch | None:
        """What the consumer gets now; None if nothing, and then it is woken when that may have changed.

        Several consumers share: each takes at most its part of what waits.
        """
        if consumer.closed:
            return None
        count = min(limit, consumer.max_messages - consumer.outstanding_messages)
        size = min(RESPONSE_BYTES, consumer.max_bytes - consumer.outstanding_bytes)
        taken: list[Message] = []
        if count > 0 and size > 0:
            deadline = now + (consumer.ack_deadline or self.settings.ack_deadline_seconds)
            first = self._numbers.next
            size = self._take_plain(consumer, deadline, taken, min(count, self._share()), size)
            if self._keyed is not None:
                self._take_keyed(self._keyed, consumer, deadline, taken, count, size)
        if not taken:
            self._idle[consumer] = None
            return None
        self._examine_at(deadline, range(first, self._numbers.next))
        self._delivered += len(taken)
        consumer.outstanding_messages += len(taken)
        consumer.outstanding_bytes += sum([message.size for message in taken])
        return self._batch(first, taken, now)

    def acknowledge(self, ack_ids: Sequence[str]) -> None:
        """Settle these deliveries; an id whose delivery is over is accepted and does nothing."""
        leases, failures = self._leases, self._failures
        for number in delivery_numbers(ack_ids):
            lease = leases.pop(number, None)
            if lease is None:
                self._late_acks += 1
                continue
            message, consumer = lease.message, lease.consumer
            consumer.outstanding_messages -= 1
            consumer.outstanding_bytes -= message.size
            self._acked += 1
            if failures:
                failures.pop(message.number, None)
            if isinstance(lease, OrderedLease) and self._keyed is not None:
                self._keyed.acked(lease)
        self._wake()

    def modify_ack_deadline(self, ack_ids: Sequence[str], seconds: int, now: float) -> None:
        """Have these deliveries end `seconds` from now; 0 gives the messages back at once."""
        if not 0 <= seconds <= 600:
            raise bad_ack_deadline(seconds)
        leases = [lease for number in delivery_numbers(ack_ids) if (lease := self._leases.get(number)) is not None]
        if seconds == 0:
            self._nacks += len(leases)
            self._give_back(leases)
            return
        self._modacks += len(leases)
        deadline = now + seconds
        sooner = []
        for lease in leases:
            lease.deadline = deadline
            if deadline < lease.examined_at:
                lease.examined_at = deadline
                sooner.append(lease.number)
        if sooner:
            self._timers.schedule(deadline, self, sooner)

    def expire(self, numbers: Sequence[int], now: float) -> None:
        """Called by the timers: give back what is due, and look at the rest when that is."""
        due: list[Lease] = []
        later: dict[float, list[int]] = {}
        for number in numbers:
            lease = self._leases.get(number)
            if lease is None:
                continue
            if lease.deadline <= now:
                due.append(lease)
            else:
                lease.examined_at = lease.deadline
                later.setdefault(lease.deadline, []).append(number)
        for deadline, waiting in later.items():
            self._timers.schedule(deadline, self, waiting)
        self._expiries += len(due)
        self._give_back(due)

    def counts(self) -> SubscriptionCounts:
        """The numbers now."""
        backlog = len(self._fresh) + len(self._returned) + (len(self._keyed) if self._keyed is not None else 0)
        return SubscriptionCounts(
            received=self._received,
            backlog=backlog,
            outstanding=len(self._leases),
            acked=self._acked,
            delivered=self._delivered,
            nacks=self._nacks,
            modacks=self._modacks,
            expiries=self._expiries,
            late_acks=self._late_acks,
            open_streams=len(self.consumers),
        )

    def _share(self) -> int:
        sharing = sum([consumer.has_room for consumer in self.consumers])
        return UNLIMITED if sharing < 2 else -(-(len(self._fresh) + len(self._returned)) // sharing)

    def _take_plain(self, consumer: Consumer, deadline: float, taken: list[Message], count: int, size: int) -> int:
        number, leases = self._numbers.next, self._leases
        for queue in (self._returned, self._fresh):
            while queue and size > 0 and len(taken) < count:
                message = queue.popleft()
                leases[number] = Lease(number, message, consumer, deadline, deadline)
                number += 1
                taken.append(message)
                size -= message.size
        self._numbers.next = number
        return size

    def _take_keyed(
        self, keyed: KeyedBacklog, consumer: Consumer, deadline: float, taken: list[Message], count: int, size: int
    ) -> None:
        sharing = sum([consumer.has_room for consumer in self.consumers])
        keys = UNLIMITED if sharing < 2 else len(consumer.ready_keys) + -(-len(keyed.free_keys) // sharing)
        while size > 0 and len(taken) < count and keys > 0:
            keys -= 1
            following = keyed.next_key(consumer)
            if following is None:
                return
            key, available, batch = following
            leases: list[OrderedLease] = []
            while len(leases) < available and size > 0 and len(taken) < count:
                message = key.pending.popleft()
                lease = OrderedLease(self._numbers.next, message, consumer, deadline, deadline, key, batch)
                self._leases[lease.number] = lease
                self._numbers.next += 1
                leases.append(lease)
                taken.append(message)
                size -= message.size
            keyed.delivered(key, consumer, leases)

    def _batch(self, first: int, taken: list[Message], now: float) -> Batch:
        failures = self._failures
        if self.deliveries is not None:
            for number, message in enumerate(taken, first):
                attempt = failures.get(message.number, 0) + 1
                self.deliveries.append(Delivery(message.message_id, ack_id(number), attempt, now))
        if not self.settings.HasField("dead_letter_policy"):
            return Batch(first, taken, None)
        return Batch(first, taken, [failures.get(message.number, 0) + 1 for message in taken])

    def _examine_at(self, deadline: float, numbers: range) -> None:
        examined_at = self._timers.schedule(deadline, self, numbers)
        if examined_at < deadline:
            for number in numbers:
                self._leases[number].examined_at = examined_at

    def _give_back(self, leases: Iterable[Lease]) -> None:
        for lease in leases:
            if self._leases.get(lease.number) is not lease:
                continue  # went back with an earlier message of its key
            self._failures[lease.message.number] = self._failures.get(lease.message.number, 0) + 1
            if isinstance(lease, OrderedLease) and self._keyed is not None:
                for void in self._keyed.take_back(lease):
                    if void.acked:
                        self._acked -= 1
                    else:
                        self._void(void)
            else:
                self._void(lease)
                self._returned.append(lease.message)
        self._wake()

    def _void(self, lease: Lease) -> None:
        del self._leases[lease.number]
        lease.consumer.outstanding_messages -= 1
        lease.consumer.outstanding_bytes -= lease.message.size

    def _wake(self) -> None:
        """Wake idle consumers that may take something now, no more of them than there are messages or keys to take."""
        if not self._idle:
            return
        waiting = len(self._fresh) + len(self._returned) + (len(self._keyed.free_keys) if self._keyed is not None else 0)
        woken = []
        for consumer in self._idle:
            if not consumer.has_room:
                continue
            if waiting > 0:
                waiting -= 1
            elif not consumer.ready_keys:
                continue
            woken.append(consumer)
        for consumer in woken:
            del self._idle[consumer]
            consumer.wake()
