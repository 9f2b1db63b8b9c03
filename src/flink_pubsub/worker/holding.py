"""What the threads of a reader share: one lock, what it guards, and the two things that are waited for under it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from flink_pubsub.core.acks import Chunk
from flink_pubsub.core.deadlines import DeadlineEstimator
from flink_pubsub.core.leases import LeaseBook
from flink_pubsub.destinations import SubscriptionDestination
from flink_pubsub.worker.decoding import Payload

_READ_AHEAD = 32 * 1024 * 1024
_LEAST_READ_AHEAD = 1024 * 1024


class Shared:
    """The lock of a reader. Trackers and lease books are touched only under it, and nothing that waits is done under it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.records = threading.Condition(self.lock)
        """Something may be there to be drained. The fetch thread waits for it."""
        self.room = threading.Condition(self.lock)
        """A split may have room for another response. Connections wait for it."""
        self.closing = False
        self.read_ahead = _READ_AHEAD
        """Bytes that one split may hold undrained before its connections stop reading."""

    def share_read_ahead(self, splits: int) -> None:
        """Divides the reader's 32 MiB: each split has its own part, so that a paused one cannot starve the others."""
        self.read_ahead = max(_READ_AHEAD // splits, _LEAST_READ_AHEAD)

    def close(self) -> None:
        """Ends all waits."""
        with self.lock:
            self.closing = True
            self.records.notify_all()
            self.room.notify_all()


@dataclass(slots=True)
class Holding:
    """What a reader holds of one subscription, over all splits that read it."""

    subscription: SubscriptionDestination
    leases: LeaseBook
    deadlines: DeadlineEstimator
    index: dict[str, Chunk[Payload]] = field(default_factory=dict)
    """By message id: where each message is that is held, or whose acknowledgement is under way."""
