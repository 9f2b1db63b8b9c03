"""The split plan: which subtask reads which subscription.

A pure function of the subscriptions, the ordering mode and the parallelism. It is computed anew at every start, so nothing of
it is checkpointed and a job may be rescaled or given other subscriptions at will.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flink_pubsub.destinations import SubscriptionDestination
from flink_pubsub.options import OrderingMode


@dataclass(frozen=True, slots=True)
class SplitAssignment:
    """One subscriber: split `index` reads the subscription in the subtask `owner`."""

    index: int
    subscription: SubscriptionDestination
    owner: int

    @property
    def id(self) -> str:
        """Unique within a plan, and telling in logs: the resource path, `#`, the index."""
        return f"{self.subscription.resource_path}#{self.index}"


def plan_splits(
    subscriptions: Sequence[SubscriptionDestination], mode: OrderingMode, parallelism: int
) -> list[SplitAssignment]:
    """The splits for a parallelism.

    With `PER_KEY` each subscription is one split, since two subscribers of one subscription would break a key's order when the
    service moves the key from one to the other. Without, every subtask gets work: there are as many splits as subtasks, or as
    subscriptions if those are more, and the subscriptions take turns.
    """
    known = len(subscriptions)
    splits = known if mode is OrderingMode.PER_KEY else max(known, parallelism)
    return [SplitAssignment(i, subscriptions[i % known], i % parallelism) for i in range(splits)]
