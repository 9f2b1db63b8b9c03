"""One subscription: its messages, its settings, and what becomes of messages that fail, grow old or are sought.

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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from flink_pubsub.emulator import filters
from flink_pubsub.emulator.backlog import Backlog, backoff, in_order
from flink_pubsub.emulator.deliveries import RESPONSE_MESSAGES, Deliveries
from flink_pubsub.emulator.errors import ServiceError, bad_ack_deadline, failed_precondition
from flink_pubsub.emulator.exactly_once import AckIds
from flink_pubsub.emulator.inspection import Delivery, SubscriptionCounts
from flink_pubsub.emulator.leases import Batch, Consumer, DeliveryNumbers, Lease, OrderedLease
from flink_pubsub.emulator.messages import Message, ack_id, delivery_numbers
from flink_pubsub.emulator.retention import MessageLog, seconds_of
from flink_pubsub.emulator.timers import Alarm, Timers
from flink_pubsub.wire import pubsub_pb2 as wire

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
        expired: called when it was inactive for longer than its expiration policy allows.
        topic_log: what its topic retains.
        first_message: the number that the next message published will have.
        batches_per_key: how many batches of an ordering key may be outstanding.
        log_limit: how many deliveries to remember.

    Attributes:
        matches: its filter; None when it takes every message.
        ack_ids: sorts ack ids under exactly-once delivery.
    """

    def __init__(
        self,
        settings: wire.Subscription,
        timers: Timers,
        numbers: DeliveryNumbers,
        forwarding: Forwarding,
        expired: Callable[[Subscription, float], None],
        *,
        topic_log: MessageLog,
        first_message: int,
        batches_per_key: int,
        log_limit: int,
    ) -> None:
        self.settings = settings
        self.topic_log = topic_log
        self.deliveries: deque[Delivery] | None = deque(maxlen=log_limit) if log_limit else None
        self.matches = filters.parse(settings.filter) if settings.filter else None
        self.ack_ids = AckIds()
        self._forwarding = forwarding
        self._on_expiry = expired
        self._batches_per_key = batches_per_key
        self._first_message = first_message
        self._earlier: set[int] = set()
        self._log = MessageLog()
        self._backlog = self._empty_backlog()
        self._held = Deliveries(timers, numbers, self._expired)
        self._failures: dict[int, int] = {}
        self._retention = 0.0
        self._snapshot: Collection[int] = ()
        self._snapshot_until = 0.0
        self._drop_alarm = Alarm(timers, self._drop_lapsed)
        self._resume_alarm = Alarm(timers, self._resume)
        self._inactive_alarm = Alarm(timers, self._inactive)
        self._received = self._acked = self._dropped = self._delivered = self._dead_lettered = 0
        self._nacks = self._modacks = self._expiries = self._late_acks = 0

    def apply_settings(self, now: float) -> None:
        """The settings, or those of the topic, are new."""
        own = seconds_of(self.settings.message_retention_duration)
        self._retention = max(own, self.topic_log.seconds)
        if self.settings.retain_acked_messages and not self._log.seconds:
            self._log.keep_for(own, now)
            self._log.extend(self.unacked(), now)
        self._log.keep_for(own if self.settings.retain_acked_messages else 0.0, now)
        self._drop_lapsed(now)
        self._active(now)
        if self.settings.push_config.push_endpoint:
            self.end_consumers(_pushes(), now)

    def check_attached(self) -> None:
        """Refuse what a detached subscription no longer does."""
        if self.settings.detached:
            raise _detached(self.settings.name)

    def add(self, messages: Sequence[Message], now: float) -> None:
        """Messages published to the topic."""
        self._received += len(messages)
        self._backlog.add(messages)
        self._log.extend(messages, now)
        self._drop_by(now + self._retention)
        self._held.wake(self._backlog.ready)

    def open(self, consumer: Consumer, now: float) -> None:
        """A streaming pull or a pull call begins."""
        self.check_attached()
        if self.settings.push_config.push_endpoint:
            raise _pushes()
        self._held.open(consumer)
        self._active(now)

    def close(self, consumer: Consumer, now: float) -> None:
        """It is over; what it holds stays leased until settled or expired."""
        if not consumer.closed:
            self._held.close(consumer, self._backlog)
            self._active(now)
            self._held.wake(self._backlog.ready)

    def end_consumers(self, error: ServiceError | None, now: float) -> None:
        """End all consumers with this status, None meaning OK."""
        self._held.end_all(error, self._backlog)
        self._active(now)

    def take(self, consumer: Consumer, now: float, limit: int = RESPONSE_MESSAGES) -> Batch | None:
        """What the consumer gets now; None if nothing, and then it is woken when that may have changed."""
        if consumer.closed:
            return None
        deadline = now + (consumer.ack_deadline or self.settings.ack_deadline_seconds)
        first, taken = self._held.take(self._backlog, consumer, deadline, limit)
        if not taken:
            return None
        self._delivered += len(taken)
        failures = self._failures
        if self.deliveries is not None:
            for number, message in enumerate(taken, first):
                attempt = failures.get(message.number, 0) + 1
                self.deliveries.append(Delivery(message.message_id, ack_id(number), attempt, now))
        if not self.settings.HasField("dead_letter_policy"):
            return Batch(first, taken, None)
        return Batch(first, taken, [failures.get(message.number, 0) + 1 for message in taken])

    def acknowledge(self, ack_ids: Sequence[str]) -> Mapping[str, str]:
        """Settle these deliveries; returns the ids that failed and why, with exactly-once delivery.

        Without it, an id whose delivery is over is accepted and does nothing.
        """
        numbers, failed = self._sorted(ack_ids)
        settled = self._held.settle(numbers)
        self._acked += len(settled)
        self._late_acks += len(ack_ids) - len(settled)
        if self._failures:
            for lease in settled:
                self._failures.pop(lease.message.number, None)
        if self._backlog.keyed is not None:
            for lease in settled:
                if isinstance(lease, OrderedLease):
                    self._backlog.keyed.acked(lease)
        self._held.wake(self._backlog.ready)
        return failed

    def modify_ack_deadline(self, ack_ids: Sequence[str], seconds: int, now: float) -> Mapping[str, str]:
        """Have these deliveries end `seconds` from now, 0 gives the messages back at once; returns as `acknowledge`."""
        if not 0 <= seconds <= 600:
            raise bad_ack_deadline(seconds)
        numbers, failed = self._sorted(ack_ids)
        leases = self._held.live(numbers)
        if seconds:
            self._modacks += len(leases)
            self._held.extend(leases, now + seconds)
        else:
            self._nacks += len(leases)
            self._give_back(list(dict.fromkeys(leases)), now)
        return failed

    def unacked(self) -> list[Message]:
        """The messages not settled, in the order of publishing."""
        return in_order((*self._backlog.messages(), *self._held.messages()))

    def seek(self, unacked: Callable[[Message], bool], snapshot: Sequence[Message], until: float, now: float) -> None:
        """Settle anew everything that is retained: `unacked` waits, the rest is acked; all deliveries are void.

        Args:
            unacked: tells which messages wait.
            snapshot: messages that a snapshot retains.
            until: until when it does; they are not dropped before.
            now: the time.
        """
        self.check_attached()
        self._drop_lapsed(now)
        known = {message.number: message for message in self.unacked()}
        known.update((message.number, message) for message in self._log.messages(now))
        known.update((message.number, message) for message in self._matching(self.topic_log.messages(now)))
        brought = {message.number: message for message in self._matching(snapshot) if message.number not in known}
        earlier = {number for number in known if number < self._first_message}
        self._received += len(earlier - self._earlier) + len(brought)
        self._earlier |= earlier | {number for number in brought if number < self._first_message}
        self._snapshot, self._snapshot_until = {message.number for message in snapshot}, until
        waiting = in_order(message for message in (*known.values(), *brought.values()) if unacked(message))
        self._acked = self._received - self._dropped - len(waiting)
        self._void_all()
        self._backlog.add(waiting)
        self._drop_lapsed(now)
        self._active(now)
        self._held.wake(self._backlog.ready)

    def detach(self, now: float) -> None:
        """Forget every message, get no more, and end the consumers."""
        self.settings.detached = True
        self._dropped += len(self._backlog) + len(self._held)
        self._void_all()
        self._log = MessageLog()
        self.end_consumers(_detached(self.settings.name), now)

    def delete(self, error: ServiceError, now: float) -> None:
        """End the consumers with this status, and whatever was to happen."""
        self.end_consumers(error, now)
        self._void_all()
        self._drop_alarm.set(None)
        self._inactive_alarm.set(None)

    def counts(self) -> SubscriptionCounts:
        """The numbers now."""
        return SubscriptionCounts(
            received=self._received,
            backlog=len(self._backlog),
            outstanding=len(self._held),
            acked=self._acked,
            dropped=self._dropped,
            delivered=self._delivered,
            nacks=self._nacks,
            modacks=self._modacks,
            expiries=self._expiries,
            late_acks=self._late_acks,
            dead_lettered=self._dead_lettered,
            open_streams=len(self._held.consumers),
        )

    def _empty_backlog(self) -> Backlog:
        return Backlog(ordered=self.settings.enable_message_ordering, batches_per_key=self._batches_per_key)

    def _sorted(self, ack_ids: Sequence[str]) -> tuple[Iterable[int], Mapping[str, str]]:
        if self.settings.enable_exactly_once_delivery:
            return self.ack_ids.sort(ack_ids, self._held.is_live)
        return delivery_numbers(ack_ids), {}

    def _matching(self, messages: Iterable[Message]) -> Iterator[Message]:
        matches = self.matches
        return (message for message in messages if matches is None or matches(message.decode().attributes))

    def _expired(self, leases: Sequence[Lease], now: float) -> None:
        self._expiries += len(leases)
        self._give_back(leases, now)

    def _give_back(self, leases: Sequence[Lease], now: float) -> None:
        """Deliveries failed: have their messages wait again, or forward them, or drop them if they are too old."""
        for lease in leases:
            self._failures[lease.message.number] = self._failures.get(lease.message.number, 0) + 1
        letters = self._dead_letters(leases)
        forwarded = {message.number for message, _ in letters}

        def keep(message: Message) -> bool:
            lapses_at = self._lapses_at(message)
            if message.number in forwarded:
                self._acked += 1
            elif lapses_at <= now:
                self._dropped += 1
            else:
                self._drop_by(lapses_at)
                return True
            self._failures.pop(message.number, None)
            return False

        for lease in leases:
            if not self._held.is_live(lease.number):
                continue  # went back with an earlier message of its key
            resume_at = now if lease.message.number in forwarded else now + self._backoff(lease.message)
            if isinstance(lease, OrderedLease) and self._backlog.keyed is not None:
                for void in self._backlog.take_back(self._backlog.keyed, lease, keep, resume_at, now):
                    if void.acked:
                        self._acked -= 1
                    else:
                        self._held.void(void)
            else:
                self._held.void(lease)
                if keep(lease.message):
                    self._backlog.put_back(lease.message, resume_at, now)
        if letters:
            self._dead_lettered += len(letters)
            self._forwarding.forward(self.settings, letters, now)
        self._after_change()

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
        at = message.published_at + self._retention
        return max(at, self._snapshot_until) if message.number in self._snapshot else at

    def _drop_lapsed(self, now: float) -> None:
        if self._snapshot and self._snapshot_until <= now:
            self._snapshot = ()
        oldest_first = not self._snapshot
        self._dropped += self._backlog.drop(lambda message: self._lapses_at(message) <= now, oldest_first=oldest_first)
        first = self._backlog.oldest() if oldest_first else self._backlog.messages()
        at = min((self._lapses_at(message) for message in first), default=None)
        self._drop_alarm.set(None if at is None else max(at, now + DROP_SECONDS))

    def _drop_by(self, at: float) -> None:
        if self._drop_alarm.at is None or at < self._drop_alarm.at:
            self._drop_alarm.set(at)

    def _resume(self, now: float) -> None:
        self._backlog.resume(now)
        self._after_change()

    def _after_change(self) -> None:
        self._resume_alarm.set(self._backlog.next_resume)
        self._held.wake(self._backlog.ready)

    def _active(self, now: float) -> None:
        policy = self.settings.expiration_policy
        self._inactive_alarm.set(now + seconds_of(policy.ttl) if policy.HasField("ttl") else None)

    def _inactive(self, now: float) -> None:
        if self._held.consumers:
            self._active(now)
        else:
            self._on_expiry(self, now)

    def _void_all(self) -> None:
        self._held.void_all()
        self._failures.clear()
        self._backlog = self._empty_backlog()
        self._resume_alarm.set(None)


def _detached(name: str) -> ServiceError:
    return failed_precondition(f"The subscription is detached from its topic (resource={name.rsplit('/', 1)[-1]}).")


def _pushes() -> ServiceError:
    return failed_precondition("This method is not supported for this subscription type.")
