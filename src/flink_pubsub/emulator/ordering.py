"""Ordered delivery: the messages of a key go out in the order of publishing, and start over where one failed.

A key's life:

1. Its messages wait in `pending`.
2. A batch of them is delivered to one consumer, which holds the key from then on: `outstanding`, in order.
3. An acked message stays in `outstanding` until all earlier ones are acked too.
4. When one is nacked or expires, it and all later ones, acked or not, go back to the front of `pending`. A retry policy may
   have the key wait then.
5. When nothing is outstanding, any consumer may take the next batch; a key with nothing pending either is forgotten.

How many batches may be outstanding at once is not specified by the service; `batches_per_key` decides. What went back in
step 4 may go out again at once, to the same consumer, for it is part of a batch already begun.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice

from flink_pubsub.emulator.leases import Consumer, OrderedLease
from flink_pubsub.emulator.messages import Message


class KeyQueue:
    """The messages of one ordering key."""

    __slots__ = ("blocked_until", "holder", "name", "outstanding", "pending", "queued", "returned")

    def __init__(self, name: str) -> None:
        self.name = name
        self.pending: deque[Message] = deque()
        self.outstanding: deque[OrderedLease] = deque()
        self.returned = 0
        self.blocked_until: float | None = None
        self.holder: Consumer | None = None
        self.queued = False


class KeyedBacklog:
    """All keys of a subscription, and which of them have something to deliver, to whom."""

    def __init__(self, batches_per_key: int) -> None:
        self._batches_per_key = batches_per_key
        self._keys: dict[str, KeyQueue] = {}
        self.free_keys: deque[KeyQueue] = deque()

    def __len__(self) -> int:
        """Messages waiting."""
        return sum(len(key.pending) for key in self._keys.values())

    def add(self, message: Message) -> None:
        """A published message with a key."""
        key = self._keys.get(message.ordering_key)
        if key is None:
            key = self._keys[message.ordering_key] = KeyQueue(message.ordering_key)
        key.pending.append(message)
        if not key.queued:
            self._offer(key)

    def messages(self) -> Iterator[Message]:
        """All that wait."""
        for key in self._keys.values():
            yield from key.pending

    def firsts(self) -> Iterator[Message]:
        """The first that waits of each key."""
        return (key.pending[0] for key in self._keys.values() if key.pending)

    def next_key(self, consumer: Consumer) -> tuple[KeyQueue, int, int] | None:
        """A key the consumer may have messages of now, how many of them at most, and the number of their batch."""
        for queue in (consumer.ready_keys, self.free_keys):
            while queue:
                key = queue.popleft()
                key.queued = False
                count = self._deliverable(key)
                if count:
                    return key, count, self._batch_number(key)
        return None

    def delivered(self, key: KeyQueue, consumer: Consumer, leases: list[OrderedLease]) -> None:
        """The leases, taken from the front of the key's pending messages, went to the consumer."""
        key.holder = consumer
        key.outstanding.extend(leases)
        key.returned = max(0, key.returned - len(leases))
        self._offer(key)

    def acked(self, lease: OrderedLease) -> None:
        """The message was acknowledged."""
        lease.acked = True
        key = lease.key
        outstanding = key.outstanding
        while outstanding and outstanding[0].acked:
            outstanding.popleft()
        self._offer_or_forget(key)

    def take_back(self, lease: OrderedLease, keep: Callable[[Message], bool]) -> list[OrderedLease]:
        """The message failed: put it and all later ones of its key back, those that `keep`; returns their leases, now void."""
        key = lease.key
        void = []
        while True:
            last = key.outstanding.pop()
            if keep(last.message):
                key.pending.appendleft(last.message)
                key.returned += 1
            void.append(last)
            if last is lease:
                break
        self._offer_or_forget(key)
        return void

    def block(self, key: KeyQueue, until: float) -> None:
        """Have the key wait."""
        key.blocked_until = until if key.blocked_until is None else max(until, key.blocked_until)

    def unblock(self, key: KeyQueue, now: float) -> None:
        """Let the key go on, if it has waited until then."""
        if key.blocked_until is not None and key.blocked_until <= now:
            key.blocked_until = None
            if self._keys.get(key.name) is key:
                self._offer(key)

    def drop(self, lapsed: Callable[[Message], bool], *, oldest_first: bool) -> None:
        """Drop the waiting messages that are too old, which are the oldest or any."""
        for key in list(self._keys.values()):
            if oldest_first and not (key.pending and lapsed(key.pending[0])):
                continue
            key.returned = sum(not lapsed(message) for message in islice(key.pending, key.returned))
            key.pending = deque(message for message in key.pending if not lapsed(message))
            self._offer_or_forget(key)

    def release(self, consumer: Consumer) -> None:
        """The consumer is gone: what waited for it alone waits for any, once nothing of the key is outstanding."""
        keys, consumer.ready_keys = consumer.ready_keys, deque()
        for key in keys:
            key.queued = False
            self._offer(key)

    def _deliverable(self, key: KeyQueue) -> int:
        outstanding = key.outstanding
        if key.blocked_until is not None:
            return 0
        if not outstanding or outstanding[-1].batch - outstanding[0].batch + 1 < self._batches_per_key:
            return len(key.pending)
        return key.returned

    def _batch_number(self, key: KeyQueue) -> int:
        if not key.outstanding:
            return 0
        return key.outstanding[-1].batch + (0 if key.returned else 1)

    def _offer_or_forget(self, key: KeyQueue) -> None:
        if not key.outstanding:
            key.holder = None
            if not key.pending:
                del self._keys[key.name]
                return
        self._offer(key)

    def _offer(self, key: KeyQueue) -> None:
        if key.queued or not self._deliverable(key):
            return
        if not key.outstanding:
            self.free_keys.append(key)
        elif key.holder is not None and not key.holder.closed:
            key.holder.ready_keys.append(key)
        else:
            return
        key.queued = True
