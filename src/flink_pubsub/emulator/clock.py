"""The emulator's idea of time: seconds that only go forward, from the machine or moved by hand."""

from __future__ import annotations

from collections.abc import Callable

Clock = Callable[[], float]
"""Seconds since an arbitrary start; never goes back. `time.monotonic` is one."""


class ManualClock:
    """A clock that stands still until a test moves it.

    `advance` tells every listener before it returns, so what falls due in the time passed (lease expiries, say) has
    happened by then.
    """

    def __init__(self, start: float = 0.0) -> None:
        self._now = start
        self._listeners: list[Callable[[], None]] = []

    def __call__(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Move the clock forward by `seconds`, which must not be negative."""
        if seconds < 0:
            raise ValueError(f"a clock cannot go back, but was asked to advance by {seconds} s")
        self._now += seconds
        for listener in list(self._listeners):
            listener()

    def on_advance(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every advance, on the thread that advances."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        """Stop calling `listener`."""
        self._listeners.remove(listener)
