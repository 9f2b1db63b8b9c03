"""Bounding how long something may stand still.

A watch runs while there is something to wait for, and starts over at every step forward, so it bounds a stall and not the
whole of a slow piece of work. A tenth of its budget without progress is worth a warning, once per tenth.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Standstill:
    """A wait that is long enough to be told."""

    seconds: float
    expired: bool
    """Whether the budget is spent."""


class Watch:
    """A budget of `timeout` seconds without progress."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._tenth = timeout / 10
        self._since: float | None = None
        self._warn_at = 0.0

    @property
    def timeout(self) -> float:
        """The budget in seconds."""
        return self._timeout

    def progress(self, now: float) -> None:
        """Starts the watch, or starts it over."""
        self._since = now
        self._warn_at = now + self._tenth

    def stop(self) -> None:
        """There is nothing to wait for."""
        self._since = None

    @property
    def running(self) -> bool:
        """Whether there is something to wait for."""
        return self._since is not None

    def check(self, now: float) -> Standstill | None:
        """What there is to tell now."""
        if self._since is None or now < self._warn_at:
            return None
        self._warn_at = now + self._tenth
        waited = now - self._since
        return Standstill(waited, waited >= self._timeout)

    def check_at(self, now: float) -> float:
        """When to call `check` next, whatever happens until then: a watch that starts later has nothing to tell before."""
        if self._since is None:
            return now + self._tenth
        return min(self._warn_at, self._since + self._timeout)
