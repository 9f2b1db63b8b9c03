"""Writes one subtask's elements to Pub/Sub.

Stateless: what is not published is held in memory only, and a flush is answered once there is nothing of the kind, so a
completed checkpoint means that everything before it is stored, or was handed to the failure handler and is kept by it. Memory
is bounded by credit: the JVM counts records and bytes until they are settled. It can only count the bytes it sends, so the
difference to what the messages take in a publish request is charged, or given back, before they are published; from then on the
bytes in flight are those of messages.

All user code runs on the command thread: resolver, serializer, extractors and failure handler need no locks among themselves.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta

import grpc

from flink_pubsub.bridge.connector import Metrics, WriterContext, WriterSettings
from flink_pubsub.bridge.frames import WriteBatch
from flink_pubsub.core.batching import Thresholds
from flink_pubsub.core.outbox import Outbox, Rejection
from flink_pubsub.core.publish_rules import PublishRules
from flink_pubsub.core.repairs import RecoveryPolicy
from flink_pubsub.core.retry import RetryPolicy
from flink_pubsub.errors import PublishError
from flink_pubsub.failures import FailJob
from flink_pubsub.options import PubSubPublisherOptions
from flink_pubsub.rpc.publisher import Publisher
from flink_pubsub.rpc.topics import TopicCreator
from flink_pubsub.sink import SinkSpec
from flink_pubsub.topic_options import CreateDisposition, TopicCreateOptions
from flink_pubsub.worker.encoding import Encoder
from flink_pubsub.worker.failing import Failing

NEVER_CREATE = ". The sink does not create it, as CreateDisposition.CREATE_NEVER says"


class PubSubSinkWriter:
    """A `bridge.connector.SinkWriter`. Owns the channel and the failure handler, and opens the handler."""

    def __init__(self, spec: SinkSpec, channel: grpc.Channel, context: WriterContext) -> None:
        options, handler = spec.options, spec.failed_message_handler
        self._publisher_seconds = options.shutdown_timeout.total_seconds()
        self.settings = WriterSettings(
            close_seconds=self._publisher_seconds + handler.shutdown_timeout.total_seconds(),
            max_in_flight_records=options.max_in_flight_messages,
            max_in_flight_bytes=options.max_in_flight_bytes,
            timestamps=spec.destination_resolver is not None,
            takes_failures=not isinstance(handler, FailJob),  # what fails the job does so best where it happens
        )
        self._context = context
        self._idle_seconds = options.destination_idle_timeout.total_seconds()
        self._records = self._bytes = self._skipped = 0
        self._by_topic: Counter[str] | None = Counter() if options.per_destination_metrics else None
        self._endings: set[int] = set()
        creator = TopicCreator(channel, spec.topic_create_options or TopicCreateOptions())
        outbox = Outbox(rules_of(spec), random.random)
        self._writing = False
        self._publisher = Publisher(channel, outbox, self, creator=creator, busy=lambda: self._writing or context.backlog)
        try:
            self._failing = Failing(handler, context.subtask, self._publisher.watched, options.per_destination_metrics)
        except BaseException:
            self._publisher.close(self._publisher_seconds)
            raise
        try:
            self._encoder = Encoder(spec, self._failing.not_serialized)
        except BaseException:
            self.close(self.settings.close_seconds)
            raise

    def write(self, batch: WriteBatch) -> None:
        """Publishes the batch's messages; skipped and failed records are settled at once."""
        self._writing = True
        encoded = self._encoder.encode(batch)
        done = batch.size - encoded.messages
        charged = sum(len(column.data) for column in (batch.elements, batch.payloads) if column is not None)
        if done or charged != encoded.size:
            self._context.settled(done, charged - encoded.size)
        self._records += encoded.messages
        self._bytes += encoded.size
        self._skipped += done - encoded.refused
        if self._by_topic is not None:
            for lane, _, ends in encoded.entries:
                self._by_topic[lane[0]] += len(ends)
        self._writing = False
        if encoded.entries:
            self._publisher.add(encoded.entries)

    def flush(self, flush: int, end_of_input: bool) -> None:
        """Sends everything; the context hears of it once all is settled and the handler has flushed."""
        if end_of_input:
            self._endings.add(flush)
        self._publisher.flush(flush)

    def send_now(self) -> None:
        """Sends partial batches."""
        self._publisher.send_now()

    def interrupt(self) -> None:
        """Ends what the handler waits for."""
        self._failing.interrupt()

    def metrics(self) -> Metrics:
        """Counts of records, not of attempts; those of `errorClass` are of requests."""
        records, size = self._publisher.in_flight
        active, parked, created = self._publisher.topics
        counters, gauges, lasting = self._failing.metrics()
        return Metrics(
            counters={
                **counters,
                "numRecordsSend": self._records,
                "numBytesSend": self._bytes,
                "numRecordsSendErrors": self._failing.failed,
                "recordsSkipped": self._skipped,
                "topicsCreated": created,
                **{f"errorClass.{code}.errors": count for code, count in self._publisher.failures.items()},
                **dict(self._destinations()),
            },
            gauges={
                **gauges,
                "inFlightMessages": records,
                "inFlightBytes": size,
                "parkedMessages": parked,
                "activePublishers": active,
            },
            lasting={**lasting, "publisherShutdownsAbandoned": self._publisher.shutdowns_abandoned},
        )

    def close(self, seconds: float) -> None:
        """Cancels what is in flight, as what matters has been flushed, and then closes the handler."""
        try:
            self._publisher.close(min(seconds, self._publisher_seconds))
        finally:
            self._failing.close()

    # What the publisher reports, on any thread.

    def settled(self, records: int, size: int) -> None:
        """So many records are published or dropped."""
        self._context.settled(records, size)

    def rejected(self, rejections: Sequence[Rejection]) -> None:
        """The service refuses these messages for themselves."""
        self._context.submit(lambda: self._hand_over(rejections))

    def flushed(self, flush: int) -> None:
        """Everything before the flush is settled."""
        self._context.submit(lambda: self._end_flush(flush))

    def fail(self, error: BaseException) -> None:
        """Publishing has ended."""
        self._context.fail(error)

    def _hand_over(self, rejections: Sequence[Rejection]) -> None:
        for rejection in rejections:
            if self._publisher.ended:
                return
            topic, refusal = rejection.batch.lane[0], rejection.refusal
            error = PublishError(topic, refusal.code, f"Pub/Sub refuses this very message: {refusal.reason}")
            self._failing.not_published(topic, rejection.batch.message(), error)
            self._publisher.dropped(rejection)

    def _end_flush(self, flush: int) -> None:
        if self._publisher.ended:
            return
        self._failing.flush()
        if flush in self._endings:
            self._endings.remove(flush)
        else:
            self._publisher.release_idle(self._idle_seconds)
        self._context.flushed(flush)

    def _destinations(self) -> Iterator[tuple[str, int]]:
        if self._by_topic is None or self._failing.by_topic is None:
            return
        for name, counts in (("recordsSend", self._by_topic), ("sendErrors", self._failing.by_topic)):
            for path, count in counts.copy().items():
                yield f"destination.{metric_group(path)}.{name}", count


def metric_group(path: str) -> str:
    """A topic as the name of one metric group: `project/topic`, dots escaped, since they separate groups."""
    _, project, _, topic = path.split("/")
    return f"{project}/{topic}".replace("%", "%25").replace(".", "%2E")


def rules_of(spec: SinkSpec) -> PublishRules:
    """What a sink's options come to."""
    options, seconds = spec.options, timedelta.total_seconds
    rejections = options.max_consecutive_rejections
    return PublishRules(
        thresholds=Thresholds(
            messages=options.batch_element_count_threshold,
            size=options.batch_request_byte_threshold,
            delay=seconds(options.batch_delay_threshold),
        ),
        retry=_retry_policy(options),
        recovery=RecoveryPolicy(
            seconds(options.recovery_initial_backoff), seconds(options.recovery_max_backoff), options.recovery_max_attempts
        ),
        never_create=NEVER_CREATE if spec.create_disposition is CreateDisposition.CREATE_NEVER else None,
        max_messages=options.max_in_flight_messages,
        max_size=options.max_in_flight_bytes,
        max_topics=options.max_active_publishers,
        max_consecutive_rejections=None if rejections == -1 else rejections,
        progress_timeout=seconds(options.publish_progress_timeout),
    )


def _retry_policy(options: PubSubPublisherOptions) -> RetryPolicy:
    seconds = timedelta.total_seconds
    return RetryPolicy(
        total_timeout=seconds(options.retry_total_timeout),
        initial_delay=seconds(options.retry_initial_delay),
        delay_multiplier=options.retry_delay_multiplier,
        max_delay=seconds(options.retry_max_delay),
        initial_rpc_timeout=seconds(options.retry_initial_rpc_timeout),
        rpc_timeout_multiplier=options.retry_rpc_timeout_multiplier,
        max_rpc_timeout=seconds(options.retry_max_rpc_timeout),
        max_attempts=options.retry_max_attempts,
    )
