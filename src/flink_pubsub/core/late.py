"""Messages that were acknowledged after their leases had ended: the service may deliver them again all the same."""

from __future__ import annotations

from collections import deque
from typing import Any

from flink_pubsub.core.known import KnownMessages

REMEMBERED = 100_000
"""Ids kept for each split; about 10 MB. A job held back for longer than its leases may last leaves at most what it had."""

SECONDS = 1200.0
"""How long an id is kept: the longest acknowledgement deadline and the longest retry backoff of the service, 600 s each. What
comes later, comes because somebody sought the subscription back, and is to be emitted."""


class LateAcks:
    """Keeps such messages known to their subscription, so that another delivery is acknowledged and not emitted.

    The latest ones only, and for a time: whether the service accepted an acknowledgement that was late it does not say.
    """

    def __init__(self, known: KnownMessages[Any]) -> None:
        self._known = known
        self._ids: deque[tuple[float, str]] = deque()

    def remember(self, message_id: str, now: float) -> None:
        """Enters a message that is not known."""
        self._known.remember(message_id)
        self._ids.append((now, message_id))
        self.expire(now)

    def expire(self, now: float) -> None:
        """Forgets what is too old or too much."""
        ids = self._ids
        while ids and (len(ids) > REMEMBERED or now - ids[0][0] >= SECONDS):
            self._known.forget((ids.popleft()[1],))
