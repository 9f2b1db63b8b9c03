"""Messages that were acknowledged after their leases had ended: the service may deliver them again all the same."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from flink_pubsub.core.chunks import Chunk, Delivery, Owner

P = TypeVar("P")

REMEMBERED = 100_000
"""Ids kept for each split; about 10 MB. A job held back for longer than its leases may last leaves at most what it had."""

SECONDS = 1200.0
"""How long an id is kept: the longest acknowledgement deadline and the longest retry backoff of the service, 600 s each. What
comes later, comes because somebody sought the subscription back, and is to be emitted."""


class LateAcks(Generic[P]):
    """Keeps such messages in the index of their subscription, so that another delivery is acknowledged and not emitted.

    The latest ones only, and for a time: whether the service accepted an acknowledgement that was late it does not say.
    """

    def __init__(self, index: dict[str, Chunk[P]], owner: Owner[P]) -> None:
        """`owner` is the tracker whose messages they were."""
        self._index = index
        self._settled: Chunk[P] = Chunk(0, Delivery([], [], [], []), 0, owner)
        """Stands for all of them in the index: a response of which nothing is held any more."""
        self._ids: deque[tuple[float, str]] = deque()

    def remember(self, message_id: str, now: float) -> None:
        """Enters a message that is not in the index."""
        self._index[message_id] = self._settled
        self._ids.append((now, message_id))
        self.expire(now)

    def expire(self, now: float) -> None:
        """Forgets what is too old or too much."""
        ids = self._ids
        while ids and (len(ids) > REMEMBERED or now - ids[0][0] >= SECONDS):
            del self._index[ids.popleft()[1]]
