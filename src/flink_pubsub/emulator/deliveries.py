"""A subscription's deliveries: who receives what waits, and until when it is theirs.

Consumers take from the backlog within their flow control and share what waits. Each delivery has a lease; one that ends by
an ack is settled here, one that fails by a nack or its deadline goes to whoever decides what becomes of the message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from flink_pubsub.emulator.backlog import Backlog
from flink_pubsub.emulator.errors import ServiceError
from flink_pubsub.emulator.leases import UNLIMITED, Consumer, DeliveryNumbers, Lease, OrderedLease
from flink_pubsub.emulator.messages import Message
from flink_pubsub.emulator.ordering import KeyedBacklog
from flink_pubsub.emulator.timers import Timers

RESPONSE_MESSAGES = 1000
RESPONSE_BYTES = 1 << 20
"""A batch ends with the message that reaches one of these."""


class Deliveries:
    """The consumers of one subscription and the leases they hold, by delivery number.

    Args:
        timers: where deadlines are kept.
        numbers: the service's running number of deliveries.
        expired: called with leases whose deadline has passed and the time.
    """

    def __init__(self, timers: Timers, numbers: DeliveryNumbers, expired: Callable[[Sequence[Lease], float], None]) -> None:
        self.consumers: dict[Consumer, None] = {}
        self._timers = timers
        self._numbers = numbers
        self._expired = expired
        self._leases: dict[int, Lease] = {}
        self._idle: dict[Consumer, None] = {}

    def __len__(self) -> int:
        return len(self._leases)

    def messages(self) -> Iterator[Message]:
        """What is held."""
        return (lease.message for lease in self._leases.values())

    def open(self, consumer: Consumer) -> None:
        """A streaming pull or a pull call begins."""
        self.consumers[consumer] = None

    def close(self, consumer: Consumer, backlog: Backlog) -> None:
        """It is over; what it holds stays leased until settled or expired."""
        consumer.closed = True
        del self.consumers[consumer]
        self._idle.pop(consumer, None)
        if backlog.keyed is not None:
            backlog.keyed.release(consumer)

    def end_all(self, error: ServiceError | None, backlog: Backlog) -> int:
        """End all consumers with this status, None meaning OK; returns how many."""
        ended = list(self.consumers)
        for consumer in ended:
            self.close(consumer, backlog)
            consumer.end = error
            consumer.wake()
        return len(ended)

    def take(self, backlog: Backlog, consumer: Consumer, deadline: float, limit: int) -> tuple[int, list[Message]]:
        """Messages for the consumer, and the number of the first delivery; if there are none, the consumer is idle."""
        taken: list[Message] = []
        count = min(limit, consumer.max_messages - consumer.outstanding_messages)
        size = min(RESPONSE_BYTES, consumer.max_bytes - consumer.outstanding_bytes)
        first = self._numbers.next
        if count > 0 and size > 0:
            size = self._take_plain(backlog, consumer, deadline, taken, count, size)
            if backlog.keyed is not None:
                self._take_keyed(backlog.keyed, consumer, deadline, taken, count, size)
        if taken:
            consumer.outstanding_messages += len(taken)
            consumer.outstanding_bytes += sum([message.size for message in taken])
            self._examine_at(deadline, range(first, self._numbers.next))
        else:
            self._idle[consumer] = None
        return first, taken

    def settle(self, numbers: Iterable[int]) -> list[Lease]:
        """End these leases for good; those that are over already are not among the result."""
        leases = self._leases
        settled = [lease for number in numbers if (lease := leases.pop(number, None)) is not None]
        for lease in settled:
            consumer = lease.consumer
            consumer.outstanding_messages -= 1
            consumer.outstanding_bytes -= lease.message.size
        return settled

    def live(self, numbers: Iterable[int]) -> list[Lease]:
        """Those of the leases that are not over."""
        leases = self._leases
        return [lease for number in numbers if (lease := leases.get(number)) is not None]

    def is_live(self, number: int) -> bool:
        """Whether the lease is not over."""
        return number in self._leases

    def extend(self, leases: Iterable[Lease], deadline: float) -> None:
        """Have them end then, be it later or sooner."""
        sooner = []
        for lease in leases:
            lease.deadline = deadline
            if deadline < lease.examined_at:
                lease.examined_at = deadline
                sooner.append(lease.number)
        if sooner:
            self._timers.schedule(deadline, self, sooner)

    def expire(self, numbers: Sequence[int], now: float) -> None:
        """Called by the timers: report what is due, and look at the rest when that is."""
        due: list[Lease] = []
        later: dict[float, list[int]] = {}
        for lease in self.live(numbers):
            if lease.deadline <= now:
                due.append(lease)
            else:
                lease.examined_at = lease.deadline
                later.setdefault(lease.deadline, []).append(lease.number)
        for deadline, waiting in later.items():
            self._timers.schedule(deadline, self, waiting)
        if due:
            self._expired(due, now)

    def void(self, lease: Lease) -> None:
        """The lease ends; what becomes of the message is not decided here."""
        del self._leases[lease.number]
        lease.consumer.outstanding_messages -= 1
        lease.consumer.outstanding_bytes -= lease.message.size

    def void_all(self) -> None:
        """All leases end."""
        for lease in list(self._leases.values()):
            self.void(lease)
        for consumer in self.consumers:
            consumer.ready_keys.clear()

    def wake(self, waiting: int) -> None:
        """Wake idle consumers that may take something now, no more than there are messages or keys `waiting` for anyone."""
        if not self._idle:
            return
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

    def _sharing(self) -> int:
        return sum([consumer.has_room for consumer in self.consumers])

    def _take_plain(
        self, backlog: Backlog, consumer: Consumer, deadline: float, taken: list[Message], count: int, size: int
    ) -> int:
        number, leases, sharing = self._numbers.next, self._leases, self._sharing()
        if sharing > 1:
            count = min(count, -(-(len(backlog.fresh) + len(backlog.returned)) // sharing))
        for queue in (backlog.returned, backlog.fresh):
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
        sharing = self._sharing()
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

    def _examine_at(self, deadline: float, numbers: range) -> None:
        examined_at = self._timers.schedule(deadline, self, numbers)
        if examined_at < deadline:
            for number in numbers:
                self._leases[number].examined_at = examined_at
