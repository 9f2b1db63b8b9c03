"""What the threads of a reader share: one lock, what it guards, and the two things that are waited for under it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from flink_pubsub.core.acks import AckTracker
from flink_pubsub.core.budget import Budget
from flink_pubsub.core.deadlines import DeadlineEstimator
from flink_pubsub.core.known import KnownMessages
from flink_pubsub.core.leases import LeaseBook
from flink_pubsub.destinations import SubscriptionDestination
from flink_pubsub.options import PubSubSubscriberOptions
from flink_pubsub.worker.decoding import Payload


class Shared:
    """The lock of a reader. Trackers, lease books and the budget are touched only under it, and nothing that waits is done
    under it."""

    def __init__(self, budget: Budget) -> None:
        self.lock = threading.Lock()
        self.records = threading.Condition(self.lock)
        """Something may be there to be drained. The fetch thread waits for it."""
        self.room = threading.Condition(self.lock)
        """A split may have room for another response. Connections wait for it."""
        self.closing = False
        self.budget = budget
        self.splits: tuple[SplitState, ...] = ()
        """All splits of the reader. Replaced, never changed, so that metrics may look without the lock."""

    def add(self, splits: list[SplitState]) -> None:
        """Takes more splits in, and divides the budget anew."""
        with self.lock:
            self.splits += tuple(splits)
            self.budget.divide(len(self.splits))

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
    known: KnownMessages[Payload] = field(default_factory=KnownMessages)
    trackers: list[AckTracker[Payload]] = field(default_factory=list)


class SplitState:
    """What a split's connections, its subscriber and the fetch thread share. Touched under the reader's lock, save as said."""

    def __init__(
        self, split: str, ordinal: int, holding: Holding, shared: Shared, options: PubSubSubscriberOptions, *, ordered: bool
    ) -> None:
        self.split = split
        self.ordinal = ordinal
        self.holding = holding
        self.tracker: AckTracker[Payload] = AckTracker(holding.known, shared.budget.used, ordered=ordered)
        holding.trackers.append(self.tracker)
        self.paused = False
        self.parking = False
        """Everything buffered is about to go back, so nothing is drained, paused or not."""
        self.received_messages = 0
        """Messages taken in; deliveries of what was held already do not count."""
        self.opened_at = 1
        """Sequence number at which the newest stream was opened. What is older may have come by a stream that is gone."""
        self.withheld: set[int] = set()
        """Drained messages that were given back and must not be decoded. The fetch thread's own."""
        self.max_messages = options.flow_control_max_outstanding_element_count
        self.max_bytes = options.flow_control_max_outstanding_request_bytes
        self._paused_messages, self._paused_bytes = options.paused_split_buffer

    @property
    def overfull(self) -> bool:
        """Whether it is paused and buffers more than a paused split may."""
        tracker = self.tracker
        return self.paused and (
            tracker.buffered_messages > self._paused_messages or tracker.buffered_bytes > self._paused_bytes
        )
