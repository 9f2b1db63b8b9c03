"""What waits to be delivered: messages never delivered, those that failed, those that back off, and ordered ones by key.

A failed message waits in `returned`, which is served before `fresh`; if its retry policy has it wait, it first spends that
time aside. An ordered message stays with its key: there the whole key waits, so that its order holds.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from flink_pubsub.emulator.leases import OrderedLease
from flink_pubsub.emulator.messages import Message
from flink_pubsub.emulator.ordering import KeyedBacklog, KeyQueue


class Backlog:
    """The waiting messages of one subscription.

    Attributes:
        fresh: messages never delivered, in the order of publishing.
        returned: messages to deliver again.
        keyed: the ordered ones; None when the subscription does not order.
    """

    def __init__(self, *, ordered: bool, batches_per_key: int) -> None:
        self.fresh: deque[Message] = deque()
        self.returned: deque[Message] = deque()
        self.keyed = KeyedBacklog(batches_per_key) if ordered else None
        self._aside: list[tuple[float, int, Message | KeyQueue]] = []
        self._aside_order = itertools.count()

    def __len__(self) -> int:
        aside = sum(isinstance(item, Message) for _, _, item in self._aside)
        return len(self.fresh) + len(self.returned) + aside + (len(self.keyed) if self.keyed is not None else 0)

    @property
    def ready(self) -> int:
        """How many messages and keys any consumer may take now."""
        return len(self.fresh) + len(self.returned) + (len(self.keyed.free_keys) if self.keyed is not None else 0)

    def add(self, messages: Iterable[Message]) -> None:
        """Messages in the order of publishing, later than all that were added before."""
        if self.keyed is None:
            self.fresh.extend(messages)
            return
        for message in messages:
            if message.ordering_key:
                self.keyed.add(message)
            else:
                self.fresh.append(message)

    def put_back(self, message: Message, resume_at: float, now: float) -> None:
        """A message without order failed; it is to wait until `resume_at`."""
        if resume_at > now:
            heapq.heappush(self._aside, (resume_at, next(self._aside_order), message))
        else:
            self.returned.append(message)

    def take_back(
        self, keyed: KeyedBacklog, lease: OrderedLease, keep: Callable[[Message], bool], resume_at: float, now: float
    ) -> list[OrderedLease]:
        """An ordered message failed: it and all later ones of its key, those that `keep`, wait; returns the void leases."""
        if resume_at > now:
            keyed.block(lease.key, resume_at)
            heapq.heappush(self._aside, (resume_at, next(self._aside_order), lease.key))
        return keyed.take_back(lease, keep)

    @property
    def next_resume(self) -> float | None:
        """When the first of those that wait aside may go on."""
        return self._aside[0][0] if self._aside else None

    def resume(self, now: float) -> None:
        """Let go on what has waited long enough."""
        while self._aside and self._aside[0][0] <= now:
            item = heapq.heappop(self._aside)[2]
            if isinstance(item, Message):
                self.returned.append(item)
            elif self.keyed is not None:
                self.keyed.unblock(item, now)

    def messages(self) -> Iterator[Message]:
        """All that wait, in no particular order."""
        yield from self.fresh
        yield from self.returned
        yield from (item for _, _, item in self._aside if isinstance(item, Message))
        if self.keyed is not None:
            yield from self.keyed.messages()

    def oldest(self) -> Iterator[Message]:
        """Among these is the one published first."""
        if self.fresh:
            yield self.fresh[0]
        yield from self.returned
        yield from (item for _, _, item in self._aside if isinstance(item, Message))
        if self.keyed is not None:
            yield from self.keyed.firsts()

    def drop(self, lapsed: Callable[[Message], bool], *, oldest_first: bool) -> int:
        """Drop the messages that are too old, which are the oldest or any; returns how many."""
        before = len(self)
        if oldest_first:
            while self.fresh and lapsed(self.fresh[0]):
                self.fresh.popleft()
        else:
            self.fresh = _without(self.fresh, lapsed)
        if self.returned:
            self.returned = _without(self.returned, lapsed)
        if self._aside:
            self._aside = [entry for entry in self._aside if isinstance(entry[2], KeyQueue) or not lapsed(entry[2])]
            heapq.heapify(self._aside)
        if self.keyed is not None:
            self.keyed.drop(lapsed, oldest_first=oldest_first)
        return before - len(self)


def _without(messages: Iterable[Message], lapsed: Callable[[Message], bool]) -> deque[Message]:
    return deque(message for message in messages if not lapsed(message))


def backoff(failures: int, minimum: float, maximum: float) -> float:
    """How long a message waits after its so many-th failure: doubling from the minimum up to the maximum."""
    return min(maximum, minimum * 2.0 ** min(failures - 1, 64))


def in_order(messages: Iterable[Message]) -> list[Message]:
    """The messages in the order of publishing."""
    return sorted(messages, key=lambda message: message.number)
