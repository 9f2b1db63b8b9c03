"""Messages that were acknowledged after their leases had ended: the service may deliver them again all the same."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from flink_pubsub.core.chunks import Chunk, Delivery, Owner

P = TypeVar("P")

REMEMBERED = 100_000
"""Ids kept for each split; about 10 MB. A job held back for longer than its leases may last leaves at most what it had."""


class LateAcks(Generic[P]):
    """Keeps such messages in the index of their subscription, so that another delivery is acknowledged and not emitted.

    The latest ones only: whether the service accepted an acknowledgement that was late it does not say.
    """

    def __init__(self, index: dict[str, Chunk[P]], owner: Owner[P]) -> None:
        """`owner` is the tracker whose messages they were."""
        self._index = index
        self._settled: Chunk[P] = Chunk(0, Delivery([], [], [], []), 0, owner)
        """Stands for all of them in the index: a response of which nothing is held any more."""
        self._ids: deque[str] = deque()

    def remember(self, message_id: str) -> None:
        """Enters a message that is not in the index."""
        self._index[message_id] = self._settled
        self._ids.append(message_id)
        if len(self._ids) > REMEMBERED:
            del self._index[self._ids.popleft()]
