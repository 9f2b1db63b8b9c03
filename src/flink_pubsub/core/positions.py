"""The positions of a split: up to which message each checkpoint covers it."""

from __future__ import annotations

from collections import deque

from flink_pubsub.errors import PubSubConnectorError


class TrackerError(PubSubConnectorError):
    """A call that the life cycle of messages does not allow. A defect of the caller; there is nothing to mend outside."""


class Positions:
    """The checkpoints taken and not known to be complete, in order; each covers at least what the one before it does.

    1. *Taken*: it covers every message up to a sequence number.
    2. *Over*: it or a later one was completed. One that was aborted, or whose completion was never heard of, waits for that.
    """

    def __init__(self) -> None:
        self._taken: deque[tuple[int, int]] = deque()
        self._last = 0

    def __len__(self) -> int:
        return len(self._taken)

    def take(self, checkpoint: int, position: int, drained: int) -> None:
        """Notes a checkpoint that covers everything up to a position.

        Raises:
            TrackerError: the checkpoint is not newer than the last, or the position goes back or beyond what was drained.
        """
        if self._taken and checkpoint <= self._taken[-1][0]:
            raise TrackerError(f"checkpoint {checkpoint} was taken after checkpoint {self._taken[-1][0]}")
        if not self._last <= position <= drained:
            raise TrackerError(
                f"checkpoint {checkpoint} covers messages up to {position}, but {self._last} were covered before and"
                f" {drained} handed out"
            )
        self._last = position
        self._taken.append((checkpoint, position))

    def complete(self, checkpoint: int) -> int:
        """Up to where this checkpoint and the earlier ones cover; 0 when there is none of them."""
        position = 0
        while self._taken and self._taken[0][0] <= checkpoint:
            position = self._taken.popleft()[1]
        return position

    def clear(self) -> None:
        """Nothing will be completed any more."""
        self._taken.clear()
