"""The reader-wide budget: how much all splits of a reader may buffer, and how much more one of them may now.

What counts is what was received and has not been handed to the JVM. The sum over all splits never exceeds the budget: a
split asks for room before it keeps anything. Half of the budget is divided evenly, so that each split has a share that no
other can take, whatever is paused or blocked; the other half is for whoever needs it first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


class Buffering(Protocol):
    """A split's buffer."""

    @property
    def buffered_messages(self) -> int: ...
    @property
    def buffered_bytes(self) -> int: ...


@dataclass(slots=True)
class Tally:
    """So many messages, and their bytes."""

    messages: int = 0
    size: int = 0

    def add(self, messages: int, size: int) -> None:
        """Counts more, or with negative numbers fewer."""
        self.messages += messages
        self.size += size


class Budget:
    """What a reader's splits share. Plain data; the callers serialise."""

    def __init__(self, messages: int, size: int) -> None:
        """Opens a budget of so many messages and bytes."""
        self.limit = Tally(messages, size)
        self.used = Tally()
        self.share = Tally()
        """What each split is sure of."""
        self.common = Tally()
        """What is left of the budget."""
        self.divide(1)

    def divide(self, splits: int) -> None:
        """Divides half of it among so many splits."""
        limit = self.limit
        self.share = Tally(limit.messages // (2 * splits), limit.size // (2 * splits))
        self.common = Tally(limit.messages - splits * self.share.messages, limit.size - splits * self.share.size)

    @property
    def full(self) -> bool:
        """Whether nothing more fits."""
        return self.used.messages >= self.limit.messages or self.used.size >= self.limit.size

    def holds(self, messages: int, size: int) -> bool:
        """Whether so much more fits without touching anybody's share."""
        return self.used.messages + messages <= self.common.messages and self.used.size + size <= self.common.size

    def room(self, mine: Buffering, everyone: Iterable[Buffering]) -> Tally:
        """How much more a split may buffer; `everyone` are all splits, itself included."""
        share, messages, size = self.share, self.common.messages, self.common.size
        for each in everyone:
            messages -= max(0, each.buffered_messages - share.messages)
            size -= max(0, each.buffered_bytes - share.size)
        return Tally(
            min(
                max(0, share.messages - mine.buffered_messages) + max(0, messages),
                self.limit.messages - self.used.messages,
            ),
            min(max(0, share.size - mine.buffered_bytes) + max(0, size), self.limit.size - self.used.size),
        )
