"""Which resources a source or sink touches, as Flink's lineage shows them to listeners.

This is data made from the configuration: nothing is looked up, and no user function is asked. Names follow OpenLineage's
convention for Pub/Sub (openlineage.io/docs/spec/naming). What the Java side makes of it is said at its `Lineage.parse`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from flink_pubsub.destinations import SubscriptionDestination, TopicDestination

Destination: TypeAlias = SubscriptionDestination | TopicDestination

_NAMESPACE = "pubsub"
_FACET = "gcp"


def stream_lineage(destinations: Iterable[Destination]) -> dict[str, object]:
    """The lineage of a DataStream source or sink: a dataset per resource, and none when only the records name topics."""
    names = [_physical_name(destination) for destination in destinations]
    return _lineage([(name, [name]) for name in names], dynamic=False)


def table_lineage(destinations: Iterable[Destination], *, dynamic: bool = False) -> dict[str, object]:
    """The lineage of a table: one dataset for all resources, since the planner keeps only one. It is named by the Java side.

    `dynamic` says that rows may name further topics.
    """
    return _lineage([("table", [_physical_name(destination) for destination in destinations])], dynamic=dynamic)


def _lineage(datasets: Sequence[tuple[str, Sequence[str]]], *, dynamic: bool) -> dict[str, object]:
    return {
        "namespace": _NAMESPACE,
        "facet": _FACET,
        "dynamic": dynamic,
        "datasets": [{"name": name, "resources": resources} for name, resources in datasets],
    }


def _physical_name(destination: Destination) -> str:
    if isinstance(destination, SubscriptionDestination):
        return f"subscription:{destination.project}:{destination.subscription}"
    return f"topic:{destination.project}:{destination.topic}"
