"""The source as the bridge sees it: pickled with the job, it makes the planner's answer and the readers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flink_pubsub.source import SourceSpec

if TYPE_CHECKING:
    from flink_pubsub.bridge.connector import Context, Plan, ReaderContext, SourceReader


@dataclass(frozen=True)
class PubSubSourceConnector:
    """Implements `bridge.connector.SourceConnector`. gRPC is imported in workers only, not where a job is built."""

    spec: SourceSpec

    def plan(self, context: Context, state: Any) -> Plan:
        """See `SourceConnector`.

        Raises:
            PubSubConnectorError: the subscriptions cannot be read as configured.
        """
        from flink_pubsub.worker import planner

        return planner.plan(self.spec, context, state)

    def open_reader(self, context: ReaderContext) -> SourceReader:
        """See `SourceConnector`.

        Raises:
            CredentialsError: the credentials cannot be used.
        """
        from flink_pubsub.worker.reader import PubSubReader

        return PubSubReader(self.spec, context)
