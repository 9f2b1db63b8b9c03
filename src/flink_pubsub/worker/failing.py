"""Runs a sink's failure handler: on the command thread, counted, and watched.

The life of a failed record: counted as an error, then handed to the handler; when that returns, the record is dropped. What
the handler raises fails the job.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from flink_pubsub.errors import PublishError, SerializationError
from flink_pubsub.failures import FailedMessage, FailureHandler, FailureHandlerContext, HandlerMetrics
from flink_pubsub.messages import PubsubMessage
from flink_pubsub.wire import pubsub_pb2 as wire

_log = logging.getLogger(__name__)


class Failing:
    """One writer's failed records. Called on the command thread, but for what says otherwise."""

    def __init__(
        self,
        handler: FailureHandler[Any],
        subtask: int,
        watched: Callable[[str], AbstractContextManager[None]],
        per_topic: bool,
    ) -> None:
        """Opens the handler. `watched` fails the job when what is named and run in it takes too long, and
        `per_topic` has failed records counted by topic as well.

        Raises:
            Exception: what opening the handler raised, which then is closed already.
        """
        self._handler = handler
        self._watched = watched
        self._metrics = HandlerMetrics()
        self.failed = 0
        """Failed records."""
        self.by_topic: Counter[str] | None = Counter() if per_topic else None
        """Failed records by topic. It grows with the topics, so it is kept on demand only."""
        try:
            handler.open(FailureHandlerContext(subtask=subtask, metrics=self._metrics))
        except BaseException:
            self.close()
            raise

    def not_serialized(self, topic: str, error: SerializationError) -> None:
        """The serializer made no message of a record."""
        self._handle(
            topic,
            FailedMessage(connector="pubsub", destination=topic, payload=None, error=str(error), cause=error, message=None),
        )

    def not_published(self, topic: str, payload: bytes, error: PublishError) -> None:
        """The service refuses a message for itself. `payload` is the serialized message."""
        parsed = wire.PubsubMessage.FromString(payload)
        message = PubsubMessage(parsed.data, dict(parsed.attributes), parsed.ordering_key)
        self._handle(
            topic,
            FailedMessage(
                connector="pubsub", destination=topic, payload=payload, error=str(error), cause=error, message=message
            ),
        )

    def flush(self) -> None:
        """Makes durable what was handed over."""
        with self._watched("failed_message_handler.flush"):
            self._handler.flush()

    def metrics(self) -> tuple[Mapping[str, int], Mapping[str, int], Mapping[str, int]]:
        """What the handler registered: counters, gauges and lasting totals. Any thread."""
        return self._metrics.read()

    def interrupt(self) -> None:
        """Ends what the handler waits for. What that raises is logged. Any thread."""
        try:
            self._handler.interrupt()
        except Exception:
            _log.warning("interrupting the failure handler failed", exc_info=True)

    def close(self) -> None:
        """Closes the handler. What that raises is logged."""
        try:
            self._handler.close()
        except Exception:
            _log.warning("closing the failure handler failed", exc_info=True)

    def _handle(self, topic: str, failed: FailedMessage) -> None:
        self.failed += 1
        if self.by_topic is not None:
            self.by_topic[topic] += 1
        with self._watched("failed_message_handler.handle"):
            self._handler.handle(failed)
