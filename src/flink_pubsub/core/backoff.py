"""Growing delays between attempts."""

from __future__ import annotations


class Backoff:
    """Delays of `initial` seconds, `factor` times longer at each failure in a row, up to `longest`."""

    def __init__(self, initial: float, factor: float, longest: float) -> None:
        self._initial = initial
        self._factor = factor
        self._longest = longest
        self._next = initial
        self.failures = 0
        """Failures in a row."""

    def failed(self) -> float:
        """Seconds to wait before the next attempt."""
        delay = self._next
        self._next = min(delay * self._factor, self._longest)
        self.failures += 1
        return delay

    def succeeded(self) -> None:
        """Starts over."""
        self._next = self._initial
        self.failures = 0
