"""One subscription's deliveries: what waits, who holds what until when, and what happens when a lease ends.

A message is in exactly one state at any time:

1. backlog: waiting to be delivered, for the first time or again;
2. outstanding: delivered, with a lease that ends by ack, nack or deadline;
3. acked: settled; an ordered message returns to 1 if an earlier one of its key fails before it is acked, and a seek returns
   what is still retained;
4. dropped: in 1 for longer than it is retained, or detached; forgotten.

So `received == backlog + outstanding + acked + dropped` always. Methods take the time and neither block nor know threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from flink_pubsub.emulator.backlog import Backlog, backoff, in_order
from flink_pubsub.emulator.errors import ServiceError, bad_ack_deadline
from flink_pubsub.emulator.inspection import Delivery, SubscriptionCounts
from flink_pubsub.emulator.leases import UNLIMITED, Batch, Consumer, DeliveryNumbers, Lease, OrderedLease
from flink_pubsub.emulator.messages import Message, ack_id, delivery_numbers
from flink_pubsub.emulator.ordering import KeyedBacklog
from flink_pubsub.emulator.retention import MessageLog, seconds_of
from flink_pubsub.emulator.timers import Alarm, Timers
from flink_pubsub.wire import pubsub_pb2 as wire

RESPONSE_MESSAGES = 1000
RESPONSE_BYTES = 1 << 20
"""A batch ends with the message that reaches one of these."""

DROP_SECONDS = 0.1
"""Messages are dropped at most this late, so that those published one after another go together."""


class Forwarding(Protocol):
    """Where messages go that could not be processed."""

    def accepts(self, settings: wire.Subscription) -> bool:
        """Whether dead letters of a subscription with these settings can be forwarded now."""

    def forward(self, settings: wire.Subscription, letters: Sequence[tuple[Message, int]], now: float) -> None:
        """Forward these messages, each with how often it was delivered."""


class Subscription:
    """The messages of one subscription.

    Args:
        settings: as the API shows them; whoever changes them calls `apply_settings`.
        timers: where its leases and other times are kept.
        numbers: the service's running number of deliveries.
        forwarding: takes its dead letters.
        topic_log: what its topic retains.
        first_message: the number that the next message published will have.
        batches_per_key: how many batches of an ordering key may be outstanding.
        log_limit: how many deliveries to remember.
    """

    def __init__(
        self,
        settings: wire.Subscription,
        timers: Timers,
        numbers: DeliveryNumbers,
        forwarding: Forwarding,
        *,
        topic_log: MessageLog,
        first_message: int,
        batches_per_key: int,
        log_limit: int,
    ) -> None:
        self.settings = settings
        self.topic_log = topic_log
        self.deliveries: deque[Delivery] | None = deque(maxlen=log_limit) if log_limit else None
        self.consumers: dict[Consumer, None] = {}
        self._timers = timers
        self._numbers = numbers
        self._forwarding = forwarding
        self._batches_per_key = batches_per_key
        self._first_message = first_message
        self._earlier: set[int] = set()
        self._log = MessageLog()
        self._backlog = self._empty_backlog()
        self._leases: dict[int, Lease] = {}
        self._idle: dict[Consumer, None] = {}
        self._failures: dict[int, int] = {}
        self._retention = 0.0
        self._held: Mapping[int, float] = {}
        self._drop_alarm = Alarm(timers, self._drop_lapsed)
        self._resume_alarm = Alarm(timers, self._resume)
        self._received = self._acked = self._dropped = self._delivered = self._dead_lettered = 0
        self._nacks = self._modacks = self._expiries = self._late_acks = 0

    def apply_settings(self, now: float) -> None:
        """The settings, or those of the topic, are new."""
        own = seconds_of(self.settings.message_retention_duration)
        self._retention = max(own, self.topic_log.seconds)
        if self.settings.retain_acked_messages and not self._log.seconds:
            self._log.keep_for(own, now)
            self._log.extend(in_order(self._unacked()), now)
        self._log.keep_for(own if self.settings.retain_acked_messages else 0.0, now)
        self._drop_lapsed(now)

    def add(self, messages: Sequence[Message], now: float) -> None:
        """Messages published to the topic."""
        self._received += len(messages)
        self._backlog.add(messages)
        self._log.extend(messages, now)
        if self._drop_alarm.at is None:
            self._drop_alarm.set(now + self._retention)
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
        if self._backlog.keyed is not None:
            self._backlog.keyed.release(consumer)
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
            if self._backlog.keyed is not None:
                self._take_keyed(self._backlog.keyed, consumer, deadline, taken, count, size)
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
            if isinstance(lease, OrderedLease) and self._backlog.keyed is not None:
                self._backlog.keyed.acked(lease)
        self._wake()

    def modify_ack_deadline(self, ack_ids: Sequence[str], seconds: int, now: float) -> None:
        """Have these deliveries end `seconds` from now; 0 gives the messages back at once."""
        if not 0 <= seconds <= 600:
            raise bad_ack_deadline(seconds)
        leases = [lease for number in delivery_numbers(ack_ids) if (lease := self._leases.get(number)) is not None]
        if seconds == 0:
            self._nacks += len(leases)
            self._give_back(leases, now)
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
        self._give_back(due, now)

    def unacked(self) -> list[Message]:
        """The messages not settled, in the order of publishing."""
        return in_order(self._unacked())

    def seek(self, unacked: Callable[[Message], bool], held: Sequence[Message], held_until: float, now: float) -> None:
        """Settle anew everything that is retained: `unacked` waits, the rest is acked; all deliveries are void.

        Args:
            unacked: tells which messages wait.
            held: messages that a snapshot retains.
            held_until: until when it does; they are not dropped before.
            now: the time.
        """
        self._drop_lapsed(now)
        known = {message.number: message for message in self._unacked()}
        for log in (self._log, self.topic_log):
            known.update((message.number, message) for message in log.messages(now))
        earlier = {number for number in known if number < self._first_message}
        brought = {message.number: message for message in held if message.number not in known}
        self._received += len(earlier - self._earlier) + len(brought)
        self._earlier |= earlier | {number for number in brought if number < self._first_message}
        self._held = {message.number: held_until for message in held}
        waiting = in_order(message for message in (*known.values(), *brought.values()) if unacked(message))
        self._acked = self._received - self._dropped - len(waiting)
        self._void_all()
        self._backlog.add(waiting)
        self._drop_lapsed(now)
        self._wake()

    def drop_all(self) -> None:
        """Forget every message."""
        unacked = len(self._backlog) + len(self._leases)
        self._void_all()
        self._dropped += unacked
        self._log = MessageLog()

    def counts(self) -> SubscriptionCounts:
        """The numbers now."""
        return SubscriptionCounts(
            received=self._received,
            backlog=len(self._backlog),
            outstanding=len(self._leases),
            acked=self._acked,
            dropped=self._dropped,
            delivered=self._delivered,
            nacks=self._nacks,
            modacks=self._modacks,
            expiries=self._expiries,
            late_acks=self._late_acks,
            dead_lettered=self._dead_lettered,
            open_streams=len(self.consumers),
        )

    def _empty_backlog(self) -> Backlog:
        return Backlog(ordered=self.settings.enable_message_ordering, batches_per_key=self._batches_per_key)

    def _unacked(self) -> Iterable[Message]:
        yield from self._backlog.messages()
        for lease in self._leases.values():
            yield lease.message

    def _share(self) -> int:
        sharing = sum([consumer.has_room for consumer in self.consumers])
        backlog = self._backlog
        return UNLIMITED if sharing < 2 else -(-(len(backlog.fresh) + len(backlog.returned)) // sharing)

    def _take_plain(self, consumer: Consumer, deadline: float, taken: list[Message], count: int, size: int) -> int:
        number, leases = self._numbers.next, self._leases
        for queue in (self._backlog.returned, self._backlog.fresh):
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

    def _give_back(self, leases: Sequence[Lease], now: float) -> None:
        """Deliveries failed: have their messages wait again, or forward them, or drop them if they are too old."""
        for lease in leases:
            self._failures[lease.message.number] = self._failures.get(lease.message.number, 0) + 1
        letters = self._dead_letters(leases)
        forwarded = {message.number for message, _ in letters}

        def keep(message: Message) -> bool:
            if message.number in forwarded:
                self._acked += 1
            elif self._lapses_at(message) <= now:
                self._dropped += 1
            else:
                return True
            self._failures.pop(message.number, None)
            return False

        for lease in leases:
            if self._leases.get(lease.number) is not lease:
                continue  # went back with an earlier message of its key
            resume_at = now if lease.message.number in forwarded else now + self._backoff(lease.message)
            if isinstance(lease, OrderedLease) and self._backlog.keyed is not None:
                for void in self._backlog.take_back(self._backlog.keyed, lease, keep, resume_at, now):
                    if void.acked:
                        self._acked -= 1
                    else:
                        self._void(void)
            else:
                self._void(lease)
                if keep(lease.message):
                    self._backlog.put_back(lease.message, resume_at, now)
        if letters:
            self._dead_lettered += len(letters)
            self._forwarding.forward(self.settings, letters, now)
        self._after_change(now)

    def _dead_letters(self, leases: Sequence[Lease]) -> list[tuple[Message, int]]:
        settings = self.settings
        if not settings.HasField("dead_letter_policy") or not self._forwarding.accepts(settings):
            return []
        most = settings.dead_letter_policy.max_delivery_attempts
        counted = ((lease.message, self._failures[lease.message.number]) for lease in leases)
        return [(message, failures) for message, failures in counted if failures >= most]

    def _backoff(self, message: Message) -> float:
        if not self.settings.HasField("retry_policy"):
            return 0.0
        policy, failures = self.settings.retry_policy, self._failures.get(message.number, 1)
        return backoff(failures, seconds_of(policy.minimum_backoff), seconds_of(policy.maximum_backoff))

    def _lapses_at(self, message: Message) -> float:
        return max(message.published_at + self._retention, self._held.get(message.number, 0.0))

    def _drop_lapsed(self, now: float) -> None:
        self._dropped += self._backlog.drop(lambda message: self._lapses_at(message) <= now)
        first = min((self._lapses_at(message) for message in self._backlog.oldest()), default=None)
        self._drop_alarm.set(None if first is None else max(first, now + DROP_SECONDS))

    def _resume(self, now: float) -> None:
        self._backlog.resume(now)
        self._after_change(now)

    def _after_change(self, now: float) -> None:
        self._resume_alarm.set(self._backlog.next_resume)
        if self._drop_alarm.at is None and len(self._backlog):
            self._drop_lapsed(now)
        self._wake()

    def _void(self, lease: Lease) -> None:
        del self._leases[lease.number]
        lease.consumer.outstanding_messages -= 1
        lease.consumer.outstanding_bytes -= lease.message.size

    def _void_all(self) -> None:
        for lease in list(self._leases.values()):
            self._void(lease)
        for consumer in self.consumers:
            consumer.ready_keys.clear()
        self._failures.clear()
        self._backlog = self._empty_backlog()
        self._resume_alarm.set(None)

    def _wake(self) -> None:
        """Wake idle consumers that may take something now, no more of them than there are messages or keys to take."""
        if not self._idle:
            return
        waiting = self._backlog.ready
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
