"""When something must be looked at: one heap for the whole service, with one entry per delivered batch, not per message.

An entry names delivery numbers, and only says "look at these at that time". Whoever looks finds that most are acked by
then, expires those that are due and asks for another look at the rest. So extending a lease touches no heap, and an entry
costs the same whether it stands for one message or for a thousand, however long its messages have been gone.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from typing import Protocol

MERGE_SECONDS = 0.05
"""Batches of one subscription that fall due within this time share an entry (looked at early, never late)."""


class Expiring(Protocol):
    """An owner of leases."""

    def expire(self, numbers: Sequence[int], now: float) -> None:
        """Expire those of `numbers` that are due and schedule the others again."""


class _Entry:
    __slots__ = ("at", "numbers", "order", "owner")

    def __init__(self, at: float, order: int, owner: Expiring, numbers: Sequence[int]) -> None:
        self.at = at
        self.order = order
        self.owner = owner
        self.numbers = numbers

    def __lt__(self, other: _Entry) -> bool:
        return (self.at, self.order) < (other.at, other.order)


class Timers:
    """The heap of due times."""

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._order = itertools.count()
        self._open: dict[Expiring, _Entry] = {}

    @property
    def next_due(self) -> float | None:
        """The earliest time at which `run` has something to do."""
        return self._heap[0].at if self._heap else None

    def schedule(self, at: float, owner: Expiring, numbers: Sequence[int]) -> float:
        """Have `owner` look at `numbers` no later than `at`; returns when it will, which may be a little earlier."""
        entry = self._open.get(owner)
        if entry is not None and isinstance(numbers, range) and isinstance(entry.numbers, range):
            adjacent = entry.numbers.stop == numbers.start and 0 <= at - entry.at <= MERGE_SECONDS
            if adjacent:
                entry.numbers = range(entry.numbers.start, numbers.stop)
                return entry.at
        entry = _Entry(at, next(self._order), owner, numbers)
        heapq.heappush(self._heap, entry)
        if isinstance(numbers, range):
            self._open[owner] = entry
        return at

    def run(self, now: float) -> None:
        """Have everything looked at that is due."""
        while self._heap and self._heap[0].at <= now:
            entry = heapq.heappop(self._heap)
            if self._open.get(entry.owner) is entry:
                del self._open[entry.owner]
            entry.owner.expire(entry.numbers, now)


class Alarm:
    """Calls back once, at a time that may be moved any number of times.

    Moving it later or taking it back leaves its entry in the heap, which then finds that there is nothing to do yet.
    """

    def __init__(self, timers: Timers, ring: Callable[[float], None]) -> None:
        self.at: float | None = None
        self._timers = timers
        self._ring = ring
        self._entries: list[float] = []

    def set(self, at: float | None) -> None:
        """Ring at that time, and no other; None: not at all."""
        self.at = at
        if at is not None and (not self._entries or at < self._entries[0]):
            heapq.heappush(self._entries, at)
            self._timers.schedule(at, self, ())

    def expire(self, numbers: Sequence[int], now: float) -> None:
        """Called by the timers."""
        heapq.heappop(self._entries)
        if self.at is None:
            return
        if self.at > now:
            self.set(self.at)
            return
        self.at = None
        self._ring(now)
