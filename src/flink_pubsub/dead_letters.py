"""A dead-letter queue that is a Pub/Sub topic.

Whatever failed becomes one message, the *envelope*: the payload as its data, and in its attributes what failed, where it was
bound for, why, when and in which subtask. The queue makes them in a sink's writer; `dead_letter_serializer` makes them of the
elements of a stream, such as the side output of a process function.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, ClassVar

from flink_pubsub import _checks
from flink_pubsub.destinations import TopicDestination
from flink_pubsub.errors import PubSubConnectorError, SerializationError
from flink_pubsub.failures import DeadLetterQueue, FailedElement, FailureHandlerContext
from flink_pubsub.messages import PubsubMessage
from flink_pubsub.options import Connection, Option
from flink_pubsub.schemas import PubSubSerializationSchema

if TYPE_CHECKING:
    from flink_pubsub.worker.dead_letters import DeadLetterPublisher

MAX_VALUE_BYTES = 1024
"""Longest attribute value in UTF-8 (Pub/Sub quotas and limits)."""

_log = logging.getLogger(__name__)


def envelope(element: FailedElement, subtask: int | None, at: datetime) -> PubsubMessage:
    """The message that keeps a failed element.

    Args:
        element: what failed.
        subtask: where; None leaves the attribute out, unless the element knows.
        at: when, in any time zone.
    """
    where = subtask if element.subtask is None else element.subtask
    attributes = {
        "dlq-connector": _cut(element.connector),
        "dlq-destination": _cut(element.destination),
        "dlq-error": _cut(_reason(element)),
        "dlq-timestamp": at.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }
    if where is not None:
        attributes["dlq-subtask"] = str(where)
    return PubsubMessage(element.payload or b"", attributes)


def _reason(element: FailedElement) -> str:
    """The error, with the text of what user code raised: unlike a log, the topic is a place for data."""
    raised = None if element.cause is None else element.cause.__cause__
    return f"{element.error}: {raised}" if raised is not None and str(raised) else element.error


def _cut(text: str) -> str:
    """As much of the text as fits into an attribute, in whole characters."""
    encoded = text.encode("utf-8", "replace")  # an error's text may hold lone surrogates, which UTF-8 does not
    return encoded[:MAX_VALUE_BYTES].decode("utf-8", "ignore")


@dataclass(frozen=True, kw_only=True)
class PubSubDeadLetterQueue(DeadLetterQueue):
    """Publishes failed elements to a topic, for `FailureHandler.send_to_dead_letter_queue`. Serves every sink.

    It has a publisher and credentials of its own: nothing is taken over from the sink it serves. At-least-once: on return of
    `flush`, and so at each checkpoint, everything offered is stored; what cannot be stored fails the job, and nothing is
    dropped.

    Raises:
        ConfigurationError: a value has the wrong type or is out of range, or two contradict each other.
    """

    WRITE_THROUGH: ClassVar[int] = 0
    """For `max_in_flight_messages`: each element is published and confirmed before `offer` returns."""
    UNBOUNDED: ClassVar[int] = -1
    """For `max_in_flight_messages`: `offer` never waits; memory is bounded by what fails between two checkpoints."""

    topic: TopicDestination
    """Where failed elements go. It must exist: a topic created on the fly is one that nobody reads. Required."""

    service_account_key_file: str | None = field(default=None, repr=False)
    """Path of a service account's key, read where a writer opens the queue. Default: application default credentials, whatever
    the sink uses."""

    emulator_endpoint: str | None = None
    """`host:port` of an emulator, reached in plain text and without credentials."""

    max_in_flight_messages: Option[int] = Option(1000, _checks.whole(-1), "")
    """Unconfirmed messages at which `offer` waits until all of them are confirmed; it also waits at 64 MiB of them. See
    `WRITE_THROUGH` and `UNBOUNDED`. Default 1000."""

    flush_timeout: Option[timedelta] = Option(timedelta(seconds=60), _checks.duration(), "")
    """How long one wait for confirmations may take, in `flush` or in `offer`, however many messages it is for. Running out
    fails the job. Default 60 s, a tenth of Flink's checkpoint timeout."""

    shutdown_timeout: Option[timedelta] = Option(timedelta(seconds=30), _checks.duration(), "")
    """How long closing may wait for confirmations. It comes on top of the sink's own `shutdown_timeout`: keep the sum below
    Flink's `task.cancellation.timeout`, 180 s. Default 30 s."""

    def __post_init__(self) -> None:
        _checks.instance("topic", self.topic, TopicDestination, 'TopicDestination("my-project", "dead-letters")')
        self.connection()

    def connection(self) -> Connection:
        """How the publisher reaches the service."""
        return Connection(service_account_key_file=self.service_account_key_file, emulator_endpoint=self.emulator_endpoint)

    def open(self, context: FailureHandlerContext) -> None:
        """Makes the publisher and registers the metrics. Does not ask the service for anything.

        Raises:
            CredentialsError: there are no usable credentials.
        """
        from flink_pubsub.worker.dead_letters import open_publisher

        publisher = open_publisher(self, context.metrics)
        self.__dict__["_opened"] = (publisher, context.subtask)

    def offer(self, element: FailedElement) -> None:
        """Publishes an element; waits when `max_in_flight_messages` are unconfirmed.

        Raises:
            PublishError: an earlier or this element could not be published, or the wait took longer than `flush_timeout`.
        """
        publisher, subtask = self._running()
        _log.debug("dead letter for %s: %s", element.destination, element.error, exc_info=element.cause)
        publisher.offer(envelope(element, subtask, datetime.now(timezone.utc)))

    def flush(self) -> None:
        """Returns when everything offered is stored.

        Raises:
            PublishError: an element could not be published, or the wait took longer than `flush_timeout`.
        """
        self._running()[0].flush()

    def interrupt(self) -> None:
        """Has the wait in `offer` or `flush` raise, as the job is ending. Any thread."""
        if "_opened" in self.__dict__:
            self._running()[0].interrupt()

    def close(self) -> None:
        """Waits for what is unconfirmed, at most `shutdown_timeout`, and ends the publisher."""
        if "_opened" in self.__dict__:
            self._running()[0].close()

    def _running(self) -> tuple[DeadLetterPublisher, int]:
        try:
            opened: tuple[DeadLetterPublisher, int] = self.__dict__["_opened"]
        except KeyError:
            raise PubSubConnectorError("open the PubSubDeadLetterQueue before anything is offered to it") from None
        return opened

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_opened"}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)


def dead_letter_serializer() -> PubSubSerializationSchema:
    """A serializer for streams of `FailedElement`: a `PubSubSink` with it writes the messages that the queue would write.

    For what fails outside of sinks: a process function sends a `FailedElement` to a side output, and that goes to the sink.
    The message has `dlq-subtask` if the element has `subtask`.
    """
    return DeadLetterSerializer()


class DeadLetterSerializer(PubSubSerializationSchema):
    """`dead_letter_serializer()`."""

    def serialize(self, element: FailedElement) -> PubsubMessage:
        """The envelope of an element that failed now.

        Raises:
            SerializationError: it is no `FailedElement`.
        """
        if not isinstance(element, FailedElement):
            raise SerializationError(f"dead_letter_serializer takes FailedElement, not {type(element).__name__}")
        return envelope(element, None, datetime.now(timezone.utc))
