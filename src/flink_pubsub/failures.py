"""What becomes of an element that a sink cannot write, however often it tries.

`FailedElement` is the contract between sinks and handlers: any sink can make one, and a handler that looks at nothing else
serves every sink. Only failures of one element's own get here: the serializer raised, or the service refused that message
by itself. An outage, missing permissions or a wrong setting fail the job, or a dropping handler would empty the stream.

A handler travels pickled with the job and lives in each of the sink's writers:

1. `open`, once, before any other call;
2. `handle`, once per failed element, and `flush` after them, any number of times;
3. `close`, once, also when something before it raised, `open` included.

All of these calls come from one thread of the writer, one at a time, so a handler needs no locks for its own sake. It may wait
there, within a bound of its own: it is the thread that takes over records, so a slow handler holds the job back at the writer's
caps, and no checkpoint completes meanwhile. `PubSubSink` fails the job when a call exceeds `publish_progress_timeout`.
When the job ends, `interrupt` is called on another thread, so that a wait ends too; what still waits is killed with the process
after the `shutdown_timeout` of the sink and that of the handler.
"""

from __future__ import annotations

import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Generic, TypeVar

from flink_pubsub import _checks
from flink_pubsub.errors import RecordError
from flink_pubsub.messages import PubsubMessage

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class FailedElement:
    """An element that cannot be written, whichever sink it was meant for.

    A copy that was pickled has no `cause`: an exception may hold anything, and not everything can travel.
    """

    connector: str
    """Name of the connector that gave up, such as `pubsub`."""
    destination: str
    """Where the element was bound for, such as a topic's resource path; `unresolved` where that is not known."""
    payload: bytes | None = field(repr=False)
    """What was to be written; None when the element never became bytes. It may be empty, and then is not None."""
    error: str
    """Why it cannot be written, for people to read. Holds no payload."""
    cause: BaseException | None = field(default=None, compare=False)
    """The exception behind `error`; what user code raised is its `__cause__`."""
    subtask: int | None = None
    """Index of the subtask where it failed. A sink leaves it out, for its handler knows the subtask that it serves."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "cause": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


@dataclass(frozen=True, kw_only=True)
class FailedMessage(FailedElement):
    """A record that `PubSubSink` cannot publish.

    `connector` is `pubsub`, `destination` the topic's resource path, and `payload` the whole serialized message, so that its
    attributes and its ordering key can be read back from it; None when there is no message.
    """

    message: PubsubMessage | None = field(repr=False)
    """What the serializer made of the record; None when it was the serializer that failed."""


class HandlerMetrics:
    """Where a handler registers what it counts: the values appear among the metrics of the sink's writer.

    Register in `open`. The functions are called on another thread, every second, also while a call of the handler waits: they
    must return at once.
    """

    _NAME = re.compile(r"[^\s.]+(\.[^\s.]+)*")

    def __init__(self) -> None:
        self._counters: dict[str, Callable[[], int]] = {}
        self._gauges: dict[str, Callable[[], int]] = {}
        self._lasting: dict[str, Callable[[], int]] = {}

    def counter(self, name: str, value: Callable[[], int]) -> None:
        """Shows a total that only ever grows. A dot in the name opens a metric group.

        Raises:
            ConfigurationError: the name is malformed or registered already.
        """
        self._register(self._counters, name, value)

    def gauge(self, name: str, value: Callable[[], int]) -> None:
        """Shows a current value. A dot in the name opens a metric group.

        Raises:
            ConfigurationError: the name is malformed or registered already.
        """
        self._register(self._gauges, name, value)

    def lasting(self, name: str, value: Callable[[], int]) -> None:
        """Shows a total that matters most when a writer ends, as its metrics do then: each writer of the job on a TaskManager
        shows the sum over all of them, those that have ended included. A dot in the name opens a metric group.

        Raises:
            ConfigurationError: the name is malformed or registered already.
        """
        self._register(self._lasting, name, value)

    def read(self) -> tuple[Mapping[str, int], Mapping[str, int], Mapping[str, int]]:
        """Counters, gauges and lasting totals as they are now; for the sink's `metrics`, whose own names win."""
        counters, gauges, lasting = (
            {name: value() for name, value in registered.items()}
            for registered in (self._counters, self._gauges, self._lasting)
        )
        return counters, gauges, lasting

    def _register(self, metrics: dict[str, Callable[[], int]], name: str, value: Callable[[], int]) -> None:
        if not isinstance(name, str) or not self._NAME.fullmatch(name):
            _checks.refuse("a metric's name", "must be text without spaces, such as 'deadLettersPublished'", name)
        if name in self._counters or name in self._gauges or name in self._lasting:
            _checks.refuse("a metric's name", "must be registered once only", name)
        metrics[name] = _checks.function(f"metric {name}", value, "() -> int")


@dataclass(frozen=True, kw_only=True)
class FailureHandlerContext:
    """What a handler learns of the writer it serves."""

    subtask: int
    """Index of the sink's subtask."""
    metrics: HandlerMetrics = field(default_factory=HandlerMetrics)
    """Takes the handler's metrics, during `open`."""


Failed = TypeVar("Failed", bound=FailedElement, contravariant=True)


class FailureHandler(ABC, Generic[Failed]):
    """Decides what becomes of failed elements: fail the job, drop them, or keep them elsewhere. See `failures` for its life.

    A subclass of `FailureHandler[FailedElement]` serves every sink, one of `FailureHandler[FailedMessage]` a `PubSubSink`.
    """

    shutdown_timeout: timedelta = timedelta(seconds=5)
    """How long `close` may take; it is added to what the sink's own closing may take. Read once, before `open`."""

    def open(self, context: FailureHandlerContext) -> None:
        """Called once in each writer, before its first element. Raising fails the job."""

    @abstractmethod
    def handle(self, element: Failed) -> None:
        """Called once per failed element. Returning drops the element; raising fails the job with what was raised.

        The sink has counted the element in `numRecordsSendErrors` before. What is kept for `flush` must be bounded.
        """

    def flush(self) -> None:
        """Makes everything handled before durable. Raising fails the job.

        Called at every checkpoint and at the end of input, once the sink has published or handed over everything before it;
        the checkpoint completes after it has returned.
        """

    def interrupt(self) -> None:
        """Ends what `handle` or `flush` waits for, by having it raise: the job is ending and nobody needs the result.

        Called at most once, on another thread, perhaps while nothing waits; `close` follows.
        """

    def close(self) -> None:
        """Called once when the writer closes, after its publishers. Not what makes anything durable: that is `flush`.

        What it raises is logged. Where the whole process has to go it may not be called, or not to its end.
        """

    @staticmethod
    def fail_job() -> FailureHandler[FailedElement]:
        """A handler that fails the job at the first failed element. What sinks do when nothing else is said."""
        return FailJob()

    @staticmethod
    def log_and_drop() -> FailureHandler[FailedElement]:
        """A handler that writes a warning for each failed element, without its payload, and drops it."""
        return LogAndDrop()

    @staticmethod
    def send_to_dead_letter_queue(queue: DeadLetterQueue) -> FailureHandler[FailedElement]:
        """A handler that offers each failed element to a queue.

        Raises:
            ConfigurationError: `queue` is no `DeadLetterQueue`.
        """
        example = 'PubSubDeadLetterQueue(topic=TopicDestination("my-project", "dead-letters"))'
        return SendToDeadLetterQueue(_checks.instance("queue", queue, DeadLetterQueue, example))


class DeadLetterQueue(ABC):
    """Keeps failed elements for somebody to look at, through `FailureHandler.send_to_dead_letter_queue`.

    It travels pickled with the job, and its life, thread and errors are those of a handler, with `offer` for `handle`. At least
    once: elements are offered before the checkpoint that covers them completes, so after a failure of the job those that fail
    again are offered again; one that does not fail again is kept only if a completed checkpoint flushed it.
    """

    shutdown_timeout: timedelta = timedelta(seconds=5)
    """How long `close` may take; it is added to what the sink's own closing may take. Read once, before `open`."""

    def open(self, context: FailureHandlerContext) -> None:  # noqa: B027 - not every queue has something to open
        """Called once in each writer, before its first element. Raising fails the job."""

    @abstractmethod
    def offer(self, element: FailedElement) -> None:
        """Takes an element. It may be kept in memory until `flush`, within a bound. Raising fails the job."""

    @abstractmethod
    def flush(self) -> None:
        """Returns when everything offered is durable. Raising fails the job."""

    def interrupt(self) -> None:  # noqa: B027 - not every queue waits
        """Ends what `offer` or `flush` waits for; see `FailureHandler.interrupt`."""

    def close(self) -> None:  # noqa: B027 - not every queue has something to close
        """Ends the queue; called once. Nothing may rely on it to make elements durable."""


class FailJob(FailureHandler[FailedElement]):
    """`FailureHandler.fail_job()`."""

    def handle(self, element: FailedElement) -> None:
        """Raises the element's cause, or an error with its text where there is none."""
        if element.cause is not None:
            raise element.cause
        raise RecordError(f"{element.connector} cannot write an element for {element.destination}: {element.error}")


class LogAndDrop(FailureHandler[FailedElement]):
    """`FailureHandler.log_and_drop()`."""

    def handle(self, element: FailedElement) -> None:
        """Warns. Every element is worth a line, as no other trace of it is left."""
        _log.warning("dropped an element of %s for %s: %s", element.connector, element.destination, element.error)


class SendToDeadLetterQueue(FailureHandler[FailedElement]):
    """`FailureHandler.send_to_dead_letter_queue(queue)`."""

    def __init__(self, queue: DeadLetterQueue) -> None:
        self._queue = queue
        self.shutdown_timeout = queue.shutdown_timeout

    def open(self, context: FailureHandlerContext) -> None:
        self._queue.open(context)

    def handle(self, element: FailedElement) -> None:
        self._queue.offer(element)

    def flush(self) -> None:
        self._queue.flush()

    def interrupt(self) -> None:
        self._queue.interrupt()

    def close(self) -> None:
        self._queue.close()
