"""Keeping a repeated warning from filling the log."""

from __future__ import annotations


class Seldom:
    """Lets one event through per interval, and counts the others. The interval may grow while events keep coming."""

    def __init__(self, seconds: float, longest: float | None = None) -> None:
        """Starts with an interval of so many seconds; each event that passes doubles it, up to `longest` if that is given."""
        self._seconds = seconds
        self._longest = seconds if longest is None else longest
        self._next: float | None = None
        self._withheld = 0

    def passes(self, now: float) -> int | None:
        """None to withhold this event, else how many were withheld since the last that passed."""
        if self._next is not None and now < self._next:
            self._withheld += 1
            return None
        self._next = now + self._seconds
        self._seconds = min(2 * self._seconds, self._longest)
        withheld, self._withheld = self._withheld, 0
        return withheld
