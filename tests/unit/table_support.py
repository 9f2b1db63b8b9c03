"""What a table's options become, for tests."""

from __future__ import annotations

import pickle
from typing import Any

from flink_pubsub import SubscriptionDestination
from flink_pubsub.sink import SinkSpec
from flink_pubsub.source import SourceSpec
from flink_pubsub.worker.sink import PubSubSinkConnector
from flink_pubsub.worker.source import PubSubSourceConnector
from flink_pubsub.worker.tables import build

SECOND = 1_000_000
DAY = 86_400 * SECOND
ORDERS = SubscriptionDestination("p", "orders-sub")
CREATED = {"scan.auto-create.topics": {"orders-sub": "orders"}}


def source(options: dict[str, Any]) -> SourceSpec:
    """The spec of a table that reads orders-sub, with these options besides."""
    given = {"project": "p", "subscription": ["orders-sub"], **options}
    built = build({"direction": "source", "options": given, "metadata": [], "python_executable": None})
    connector = pickle.loads(pickle.dumps(built.connector))
    assert isinstance(connector, PubSubSourceConnector)
    return connector.spec


def sink(options: dict[str, Any]) -> SinkSpec:
    """The spec of a table that writes orders, with these options besides."""
    given = {"project": "p", "topic": "orders", **options}
    built = build({"direction": "sink", "options": given, "metadata": [], "python_executable": None})
    connector = pickle.loads(pickle.dumps(built.connector))
    assert isinstance(connector, PubSubSinkConnector)
    return connector.spec
