"""The sink's half that travels with the job.

It is made where the job is built, so it imports what a worker needs only when a worker asks for its writer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flink_pubsub.sink import SinkSpec

if TYPE_CHECKING:
    from flink_pubsub.bridge.connector import SinkWriter, WriterContext


@dataclass(frozen=True, slots=True)
class PubSubSinkConnector:
    """A `bridge.connector.SinkConnector` for one sink."""

    spec: SinkSpec

    def open_writer(self, context: WriterContext) -> SinkWriter:
        """A writer for one subtask, with a channel of its own.

        Raises:
            CredentialsError: there are no usable credentials.
            Exception: what opening the serializer or the failure handler raised.
        """
        from flink_pubsub.rpc.channel import open_channel
        from flink_pubsub.worker.writer import PubSubSinkWriter

        return PubSubSinkWriter(self.spec, open_channel(self.spec.connection), context)
