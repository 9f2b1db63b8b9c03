"""Publishes dead letters, and waits for the service to confirm them.

The life of a message:

1. offered: it counts as in flight, and a publisher of the queue's own batches and retries it;
2. published: confirmed by the service; or
3. failed, for good: from then on every call raises, and nothing else is confirmed.

A wait is for everything in flight and has one deadline. When it passes, the wait raises, which fails the job; publishes are
not cancelled by that, so the service may still store what the job will offer again. A job that is ending interrupts the wait,
and closing then waits once more, within its own time.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from flink_pubsub.core.batching import MAX_REQUEST_MESSAGES, Thresholds
from flink_pubsub.core.outbox import Outbox, Rejection
from flink_pubsub.core.publish_rules import PublishRules
from flink_pubsub.core.retry import RetryPolicy
from flink_pubsub.dead_letters import PubSubDeadLetterQueue
from flink_pubsub.errors import PublishError
from flink_pubsub.failures import HandlerMetrics
from flink_pubsub.messages import PubsubMessage
from flink_pubsub.rpc.channel import open_channel
from flink_pubsub.rpc.publisher import Entries, Publisher, PublishListener
from flink_pubsub.wire import pubsub_pb2 as wire

MAX_IN_FLIGHT_BYTES = 64 * 1024 * 1024
"""In flight at most, unless that is unbounded: a thousand messages of 10 MB each would not fit into a worker."""

_THRESHOLDS = Thresholds(messages=MAX_REQUEST_MESSAGES, size=1_000_000, delay=0.01)
# Nobody waits for a dead letter before the next checkpoint, so its batch may; a wait sends partial batches at once.

_MENDS = {
    "NOT_FOUND": "create the topic, which a dead-letter queue never does by itself",
    "PERMISSION_DENIED": "the queue's own credentials, not the sink's, need to be allowed to publish to it",
    "INVALID_ARGUMENT": "a message has to stay below 10 MB with the attributes that tell of the failure",
}

_log = logging.getLogger(__name__)


class Publishing(Protocol):
    """What is needed of a publisher."""

    @property
    def failures(self) -> Mapping[str, int]: ...

    def add(self, entries: Iterable[Entries]) -> None: ...

    def send_now(self) -> None: ...

    def close(self, seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a queue, as its options of these names say; times in seconds."""

    max_in_flight_messages: int
    flush_timeout: float
    shutdown_timeout: float


def open_publisher(queue: PubSubDeadLetterQueue, metrics: HandlerMetrics) -> DeadLetterPublisher:
    """The publisher of a queue, with a channel of its own and its metrics registered.

    Raises:
        CredentialsError: there are no usable credentials.
    """
    limits = Limits(queue.max_in_flight_messages, queue.flush_timeout.total_seconds(), queue.shutdown_timeout.total_seconds())
    channel = open_channel(queue.connection())

    def make(listener: PublishListener) -> Publisher:
        return Publisher(channel, Outbox(rules_of(limits), random.random), listener)

    publisher = DeadLetterPublisher(queue.topic.resource_path, limits, make)
    publisher.register(metrics)
    return publisher


def rules_of(limits: Limits) -> PublishRules:
    """How dead letters are published. Retries never end before a wait does, so that a long flush_timeout outlasts an outage."""
    seconds = max(RetryPolicy().total_timeout, limits.flush_timeout)
    return PublishRules(_THRESHOLDS, RetryPolicy(total_timeout=seconds), never_create="", progress_timeout=seconds)


class DeadLetterPublisher:
    """One writer's dead letters, used on the handler's thread. It listens to the publisher that it makes."""

    def __init__(
        self,
        topic: str,
        limits: Limits,
        make_publisher: Callable[[PublishListener], Publishing],
        clock: Callable[[], float] = time.monotonic,
        changed: threading.Condition | None = None,
    ) -> None:
        self._topic = topic
        self._limits = limits
        self._clock = clock
        self._changed = changed or threading.Condition()
        self._offered = self._offered_bytes = 0
        self._published = self._published_bytes = 0
        self._abandoned = self._last_wait = self._longest_wait = 0
        self._error: BaseException | None = None
        self._interrupted = False
        self._publisher = make_publisher(self)

    def register(self, metrics: HandlerMetrics) -> None:
        """Shows what the queue does."""
        metrics.counter("deadLettersPublished", lambda: self._published)
        metrics.lasting("deadLetterPublisherShutdownsAbandoned", lambda: self._abandoned)
        metrics.gauge("inFlightDeadLetters", lambda: self._in_flight)
        metrics.gauge("deadLetterFlushMillis", lambda: self._last_wait)
        metrics.gauge("longestDeadLetterFlushMillis", lambda: self._longest_wait)

    def offer(self, message: PubsubMessage) -> None:
        """Publishes a message, once there is room for it.

        Raises:
            PublishError: see `flush`.
        """
        bound = self._limits.max_in_flight_messages
        if bound > 0 and (self._in_flight >= bound or self._offered_bytes - self._published_bytes >= MAX_IN_FLIGHT_BYTES):
            self.flush()
        self._raise_failure()
        entry = _entry(message)
        self._offered += 1
        self._offered_bytes += len(entry)
        self._publisher.add([((self._topic, ""), entry, [len(entry)])])
        if bound == PubSubDeadLetterQueue.WRITE_THROUGH:
            self.flush()

    def flush(self) -> None:
        """Waits until everything offered is published.

        Raises:
            PublishError: a message could not be published, or the deadline of this wait passed.
        """
        if not self._in_flight:
            return
        started = self._clock()
        waited = self._wait(started + self._limits.flush_timeout, lambda: self._interrupted)
        self._last_wait = round((self._clock() - started) * 1000)
        self._longest_wait = max(self._longest_wait, self._last_wait)
        self._raise_failure()
        if not waited and self._interrupted:
            raise PublishError(self._topic, "CANCELLED", f"the job ends while {self._in_flight} dead letters are unconfirmed")
        if not waited:
            failed = ", ".join(f"{count} {status}" for status, count in sorted(self._publisher.failures.items()))
            problem = (
                f"{self._in_flight} dead letters were not confirmed within flush_timeout, {self._limits.flush_timeout:g} s, "
                f"{f'with failed requests: {failed}' if failed else 'without a single failed request'}; "
                "a job that is to outlast such a disturbance needs a longer one"
            )
            raise PublishError(self._topic, "DEADLINE_EXCEEDED", problem)

    def interrupt(self) -> None:
        """Ends a wait in `offer` or `flush`, and every later one. Any thread."""
        with self._changed:
            self._interrupted = True
            self._changed.notify_all()

    def close(self) -> None:
        """Waits for what is in flight, then ends the publisher, both within `shutdown_timeout`."""
        deadline = self._clock() + self._limits.shutdown_timeout
        if not self._wait(deadline) and self._error is None:
            self._abandoned += 1
            _log.warning(
                "the dead-letter queue for %s closes with %d messages unconfirmed after shutdown_timeout, %g s",
                self._topic,
                self._in_flight,
                self._limits.shutdown_timeout,
            )
        self._publisher.close(max(0.0, deadline - self._clock()))

    def settled(self, records: int, size: int) -> None:
        """So many messages are published. Any thread."""
        with self._changed:
            self._published += records
            self._published_bytes += size
            self._changed.notify_all()

    def flushed(self, flush: int) -> None:
        """Never called: a wait counts messages itself."""

    def rejected(self, rejections: Sequence[Rejection]) -> None:
        """The service refuses a message for its content. Any thread."""
        self.fail(PublishError(self._topic, rejections[0].refusal.code, rejections[0].refusal.reason))

    def fail(self, error: BaseException) -> None:
        """Publishing has ended. Any thread."""
        with self._changed:
            self._error = error
            self._changed.notify_all()

    @property
    def _in_flight(self) -> int:
        return self._offered - self._published

    def _wait(self, deadline: float, interrupted: Callable[[], bool] = lambda: False) -> bool:
        """Whether everything is published before the deadline; a failure or an interruption ends the wait too."""
        if self._in_flight and self._error is None:
            self._publisher.send_now()
        with self._changed:
            while self._in_flight and self._error is None and not interrupted() and (left := deadline - self._clock()) > 0:
                self._changed.wait(left)
        return not self._in_flight

    def _raise_failure(self) -> None:
        error = self._error
        if error is None:
            return
        if not isinstance(error, PublishError):
            raise error
        mend = _MENDS.get(error.status)
        problem = f"a dead letter was not stored: {error.problem}{f'; {mend}' if mend else ''}"
        raise PublishError(error.topic, error.status, problem) from error


def _entry(message: PubsubMessage) -> bytes:
    made = wire.PubsubMessage(data=message.data, attributes=message.attributes)
    return wire.PublishRequest(messages=[made]).SerializeToString()
