"""Which flushes are complete: a count of what is outstanding between one flush and the next.

An epoch is what is written between two flushes. A flush is complete once its epoch and all earlier ones are settled.
"""

from __future__ import annotations

from collections import deque


class Flushes:
    """Counts records by epoch."""

    def __init__(self) -> None:
        self._outstanding: dict[int, int] = {}
        self._asked: deque[tuple[int, int]] = deque()
        self.epoch = 0
        """What is written now belongs to this epoch."""

    @property
    def pending(self) -> bool:
        """Whether a flush has been asked for and not been reported."""
        return bool(self._asked)

    def added(self, records: int) -> None:
        """So many records are written."""
        self._outstanding[self.epoch] = self._outstanding.get(self.epoch, 0) + records

    def settled(self, epoch: int, records: int) -> None:
        """So many records of an epoch have come to their end."""
        left = self._outstanding[epoch] - records
        if left < 0:
            raise AssertionError(f"{-left} more records of epoch {epoch} were settled than added")
        if left:
            self._outstanding[epoch] = left
        else:
            del self._outstanding[epoch]

    def ask(self, flush: int) -> None:
        """Ends the epoch with a flush."""
        self._asked.append((self.epoch, flush))
        self.epoch += 1

    def complete(self) -> list[int]:
        """The flushes that have become complete, in order."""
        done: list[int] = []
        oldest = min(self._outstanding, default=None) if self._asked else None
        while self._asked and (oldest is None or self._asked[0][0] < oldest):
            done.append(self._asked.popleft()[1])
        return done
