"""Connectors of tables: those of DataStream jobs, whose failures are told to somebody who wrote SQL.

Kept apart from what makes them, which workers of a running job have no need to import.
"""

from __future__ import annotations

from dataclasses import dataclass

from flink_pubsub.worker.sink import PubSubSinkConnector
from flink_pubsub.worker.source import PubSubSourceConnector


@dataclass(frozen=True)
class TableSource(PubSubSourceConnector):
    """A table that is read."""

    def reworded(self, text: str) -> str:
        """See `bridge.connector.Rewording`."""
        from flink_pubsub.table_options import in_sql_words

        return in_sql_words(text, "source")


@dataclass(frozen=True)
class TableSink(PubSubSinkConnector):
    """A table that is written."""

    def reworded(self, text: str) -> str:
        """See `bridge.connector.Rewording`."""
        from flink_pubsub.table_options import in_sql_words

        return in_sql_words(text, "sink")
