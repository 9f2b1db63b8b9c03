"""The lease book: until when the service leaves each held message to us, and what to extend when.

A lease is the acknowledgement deadline of one delivery. It begins at the stream's deadline and is extended for as long as the
message is held, wherever it waits, but not beyond `max_extension` after its receipt. Leases are kept for cohorts, never for
single messages: everything that arrived within `COHORT_SECONDS` shares one, and its members are asked for the ack ids they
still hold only when an extension is due.

The life of a cohort:

1. *Granted*: its messages arrived; the service gave them the stream's deadline, at least 10 s.
2. *Receipted*: `RECEIPT_SECONDS` after arrival what is still held gets its first extension. Google's clients send this one at
   once; waiting is safe because the deadline runs from the delivery and is five times longer, and it spares a busy job one
   call's worth of ids for every message that a checkpoint acknowledges by then. Messages that may have waited unread before
   they arrived have used part of their deadline: theirs goes out when half of it is over.
3. *Extended*: again and again, each time well before the end: a quarter of the length, at least 5 s (half of the shortest
   deadline), which leaves time for several attempts when the service is briefly unavailable.
4. *Lapsing*: its messages were extended as far as they may be. `LAPSE_SECONDS` before that ends they are told, so that what
   can be given back goes back before the service takes it back.
5. *Let go*: after 4, or when nothing of it is held.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

COHORT_SECONDS = 0.1
RECEIPT_SECONDS = 2.0
LAPSE_SECONDS = 1.0
_SHORTEST_MARGIN = 5.0


class Leased(Protocol):
    """Messages that arrived together."""

    def leased(self) -> list[str]:
        """Ack ids of those still held whose leases run from that arrival."""

    def lapse(self, now: float) -> list[str]:
        """The leases of those end shortly and for good. Returns the ack ids to be nacked before that."""


@dataclass(frozen=True, slots=True)
class Extension:
    """Deadlines to set: so many seconds from now."""

    seconds: int
    ack_ids: list[str]


@dataclass(slots=True)
class Due:
    """What is to be done now."""

    extensions: list[Extension] = field(default_factory=list)
    lapsing: list[Leased] = field(default_factory=list)
    """Messages to call `lapse` of."""


@dataclass(slots=True)
class _Cohort:
    received: float
    ends: float
    stops: float
    members: list[Leased] = field(default_factory=list)
    lapsing: bool = False


class LeaseBook:
    """The leases of one subscription. Plain data; the caller brings the time and sends what is due."""

    def __init__(self, max_extension: float) -> None:
        """Opens a book that extends nothing beyond so many seconds after its receipt; 0 extends nothing at all."""
        self._max_extension = max_extension
        self._due: list[tuple[float, int, _Cohort]] = []
        self._order = count()
        self._newest: _Cohort | None = None

    def grant(self, members: Leased, now: float, deadline: float, waited: float = 0.0) -> None:
        """Notes an arrival.

        Args:
            members: what arrived.
            now: when.
            deadline: the stream's acknowledgement deadline in seconds.
            waited: for how long it may have waited unread before, in seconds.
        """
        newest, ends = self._newest, now - waited + deadline
        if newest is not None and now - newest.received < COHORT_SECONDS and ends >= newest.ends:
            newest.members.append(members)
            return
        cohort = self._newest = _Cohort(now, ends, now + self._max_extension, [members])
        if self._may_be_extended(cohort):
            self._push(cohort, max(now, min(now + RECEIPT_SECONDS, ends - deadline / 2)))
        else:
            self._push_last(cohort)

    def due(self, now: float, length: int) -> Due:
        """What is to be done now.

        Args:
            now: the time.
            length: seconds an extension should last, unless that is longer than a message may be held.
        """
        due = Due()
        extensions: dict[int, list[str]] = {}
        while self._due and self._due[0][0] <= now:
            cohort = heapq.heappop(self._due)[2]
            if cohort is self._newest:
                self._newest = None
            if cohort.lapsing:
                due.lapsing += cohort.members
            else:
                self._extend(cohort, now, length, extensions)
        due.extensions = [Extension(seconds, ack_ids) for seconds, ack_ids in extensions.items()]
        return due

    def _extend(self, cohort: _Cohort, now: float, length: int, extensions: dict[int, list[str]]) -> None:
        held = [(members, ids) for members in cohort.members if (ids := members.leased())]
        cohort.members = [members for members, _ in held]
        if not held:
            return
        seconds = int(min(length, cohort.stops - now))
        if seconds > 0 and now + seconds > cohort.ends:
            cohort.ends = now + seconds
            ack_ids = extensions.setdefault(seconds, [])
            for _, ids in held:
                ack_ids += ids
        if self._may_be_extended(cohort):
            self._push(cohort, max(cohort.ends - max(_SHORTEST_MARGIN, length / 4), now + 1))
        else:
            self._push_last(cohort)

    @staticmethod
    def _may_be_extended(cohort: _Cohort) -> bool:
        """The service counts in whole seconds: what is left below one cannot be asked for."""
        return cohort.ends <= cohort.stops - 1

    def _push_last(self, cohort: _Cohort) -> None:
        cohort.lapsing = True
        self._push(cohort, cohort.ends - LAPSE_SECONDS)

    def _push(self, cohort: _Cohort, due: float) -> None:
        heapq.heappush(self._due, (due, next(self._order), cohort))
