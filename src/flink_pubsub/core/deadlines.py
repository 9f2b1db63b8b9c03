"""How long a lease should be: as long as messages are usually held, so that most are acknowledged within their first one."""

from __future__ import annotations

from math import ceil

SHORTEST = 10
LONGEST = 600
"""Acknowledgement deadlines the service accepts, in seconds."""

_BUCKET_SECONDS = 5
_LATE = 0.001
_REMEMBERED = 1_000_000


class DeadlineEstimator:
    """Follows the 99.9th percentile of hold times, in buckets of 5 s, and forgets old ones by halving every million."""

    def __init__(self, shortest: float | None = None, longest: float | None = None) -> None:
        """Starts at the shortest deadline: a lost machine's messages come back soonest then, and extensions cover the rest.

        Args:
            shortest: lower bound in seconds, if not the service's.
            longest: upper bound in seconds, if not the service's.
        """
        self._longest = int(LONGEST if longest is None else longest)
        self._shortest = min(ceil(SHORTEST if shortest is None else shortest), self._longest)
        self._buckets = [0] * (LONGEST // _BUCKET_SECONDS + 1)
        self._total = 0
        self._seconds = self._shortest

    @property
    def seconds(self) -> int:
        """The length to ask for now."""
        return self._seconds

    def held(self, seconds: float, messages: int) -> None:
        """Learns that so many messages were held for so long."""
        self._buckets[min(ceil(seconds / _BUCKET_SECONDS), len(self._buckets) - 1)] += messages
        self._total += messages
        if self._total > _REMEMBERED:
            self._buckets = [count // 2 for count in self._buckets]
            self._total = sum(self._buckets)

    def adapt(self) -> int:
        """Computes the length anew from what was learnt, and returns it."""
        late, allowed, bucket = 0, self._total * _LATE, len(self._buckets) - 1
        while bucket and late + self._buckets[bucket] <= allowed:
            late += self._buckets[bucket]
            bucket -= 1
        self._seconds = max(self._shortest, min(self._longest, bucket * _BUCKET_SECONDS))
        return self._seconds
