"""The reader: the splits of one subtask, drained in turn into batches for the JVM.

Threads: connections take messages in (`subscriber`), the fetch thread drains and decodes them (`poll`), the command thread
handles checkpoints, and the keeper talks back about leases. The JVM asks for one batch at a time, so a job that is held back
leaves messages here, within their bounds and with their leases kept.
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import grpc

from flink_pubsub.bridge.connector import Metrics, ReaderContext, ReaderSettings, Split
from flink_pubsub.bridge.frames import RecordBlock
from flink_pubsub.core.acks import Run, TrackerError
from flink_pubsub.core.deadlines import DeadlineEstimator
from flink_pubsub.core.leases import LeaseBook
from flink_pubsub.destinations import SubscriptionDestination
from flink_pubsub.errors import DeserializationError
from flink_pubsub.rpc.channel import channel_opener
from flink_pubsub.source import SourceSpec
from flink_pubsub.worker.decoding import Decoding, Payload, RawDecoding, SchemaDecoding
from flink_pubsub.worker.holding import Holding, Shared
from flink_pubsub.worker.keeper import Keeper
from flink_pubsub.worker.recording import encoder
from flink_pubsub.worker.subscriber import Subscriber

MAX_BATCH_BYTES = 8 * 1024 * 1024
"""About what one batch may hold; one message is always taken."""

_PIECE = 250
"""Messages decoded between two looks at the size and the time of a batch."""

_LONGEST_DECODE = 0.1
"""Seconds after which a batch leaves with what is decoded, so that a slow schema delays no record by a whole batch."""

_STREAMS_PER_CHANNEL = 50
"""Half of what a server usually allows on a connection; beyond that gRPC would let streams wait without a word."""

_LINGER_SECONDS = 0.5

_log = logging.getLogger(__name__)


class PubSubReader:
    """Reads subscriptions for one subtask. Implements `bridge.connector.SourceReader`."""

    def __init__(self, spec: SourceSpec, context: ReaderContext, clock: Callable[[], float] = time.monotonic) -> None:
        """Reads the credentials and opens the schema.

        Raises:
            CredentialsError: the credentials cannot be used.
        """
        self._spec = spec
        self._context = context
        self._clock = clock
        self._open_channel = channel_opener(spec.connection)
        self._schema: SchemaDecoding | None = None
        if spec.deserializer is not None:
            spec.deserializer.open()
            self._schema = SchemaDecoding(spec.deserializer, encoder(spec.type_info_proto))
        self._decoding: Decoding = self._schema or RawDecoding()
        self._shared = Shared()
        self._channels = [self._open_channel()]
        self._streams = 0
        self._keeper = Keeper(self._channels[0], self._shared, context.fail, clock)
        self._holdings: dict[str, Holding] = {}
        self._splits: dict[str, Subscriber] = {}
        self._subscribers: tuple[Subscriber, ...] = ()
        """The values of `_splits`, for threads that may not see it change."""
        self._turn = 0
        self._drained: deque[tuple[Subscriber, Run[Payload]]] = deque()
        """Drained, not yet decoded. Fetch thread only."""

    @property
    def settings(self) -> ReaderSettings:
        """See `SourceReader`."""
        return ReaderSettings(close_seconds=self._spec.options.shutdown_timeout.total_seconds())

    def assign(self, splits: Sequence[tuple[int, Split]]) -> None:
        """See `SourceReader`."""
        options = self._spec.options
        self._shared.share_read_ahead(len(self._splits) + len(splits))
        for ordinal, split in splits:
            holding = self._holding(json.loads(split.data)["subscription"])
            subscriber = Subscriber(
                split.id, ordinal, holding, self._shared, self._keeper, self._decoding, options, self._context.fail, self._clock
            )
            self._splits[split.id] = subscriber
            self._subscribers += (subscriber,)
            subscriber.connect(self._channel_for_stream, options.parallel_pull_count)

    def _holding(self, path: str) -> Holding:
        holding = self._holdings.get(path)
        if holding is None:
            options = self._spec.options
            _, project, _, subscription = path.split("/")
            shortest, longest = (
                None if bound is None else bound.total_seconds()
                for bound in (options.min_duration_per_ack_extension, options.max_duration_per_ack_extension)
            )
            holding = Holding(
                SubscriptionDestination(project, subscription),
                LeaseBook(options.max_ack_extension_period.total_seconds()),
                DeadlineEstimator(shortest, longest),
            )
            self._holdings[path] = holding
            self._keeper.keep(holding)
        return holding

    def _channel_for_stream(self) -> grpc.Channel:
        if self._streams and self._streams % _STREAMS_PER_CHANNEL == 0:
            self._channels.append(self._open_channel())
        self._streams += 1
        return self._channels[-1]

    def poll(self, seconds: float) -> Sequence[RecordBlock]:
        """See `SourceReader`.

        Raises:
            DeserializationError: the schema failed on a message.
        """
        if not self._drained:
            self._drain(seconds)
        batch: list[RecordBlock] = []
        room, stop = MAX_BATCH_BYTES, self._clock() + _LONGEST_DECODE
        while self._drained and room > 0 and not (batch and self._clock() >= stop):
            batch.append(self._decode_some(room))
            room -= sum(map(len, batch[-1].records))
        return batch

    def _drain(self, seconds: float) -> None:
        """Waits for messages and takes them from every split in turn, beginning with another one each time."""
        shared, until = self._shared, self._clock() + seconds
        with shared.lock:
            while not shared.closing:
                subscribers = self._subscribers
                budget = MAX_BATCH_BYTES
                for i in range(len(subscribers)):
                    subscriber = subscribers[(self._turn + i) % len(subscribers)]
                    if subscriber.paused or not subscriber.tracker.buffered_messages:
                        continue
                    before = subscriber.tracker.buffered_bytes
                    runs = subscriber.tracker.drain(self._spec.options.max_records_per_fetch, budget)
                    self._drained.extend((subscriber, run) for run in runs)
                    budget -= before - subscriber.tracker.buffered_bytes
                    if budget <= 0:
                        self._turn += i
                        break
                self._turn = (self._turn + 1) % max(1, len(subscribers))
                remaining = until - self._clock()
                if self._drained or remaining <= 0:
                    break
                shared.records.wait(remaining)
            shared.room.notify_all()

    def _decode_some(self, room: int) -> RecordBlock:
        subscriber, run = self._drained.popleft()
        whole = len(run.payloads)
        part = run if self._schema is None or whole <= _PIECE else Run(run.first, run.payloads[:_PIECE])
        block = self._decoding.decode(subscriber.ordinal, subscriber.holding.subscription, part, room)
        done = len(block.records if block.counts is None else block.counts)
        if done < whole:
            self._drained.appendleft((subscriber, Run(run.first + done, run.payloads[done:])))
        return block

    def pause_or_resume(self, pause: Sequence[str], resume: Sequence[str]) -> None:
        """See `SourceReader`. A paused split goes on holding what it has, within its bounds and with its leases kept."""
        with self._shared.lock:
            for split in pause:
                self._splits[split].paused = True
            for split in resume:
                self._splits[split].paused = False
            self._shared.records.notify()

    def snapshot(self, checkpoint: int, positions: Mapping[str, int]) -> None:
        """See `SourceReader`."""
        with self._shared.lock:
            for split, position in positions.items():
                self._tracked(split).tracker.snapshot(checkpoint, position)

    def checkpoint_complete(self, checkpoint: int) -> None:
        """See `SourceReader`."""
        settled = sum(subscriber.settle(checkpoint) for subscriber in self._subscribers)
        _log.debug("checkpoint %d lets %d messages be acknowledged", checkpoint, settled)

    def record_failed(self, split: str, sequence: int, error: str, emitting: bool) -> None:
        """See `SourceReader`.

        When the job failed on the records, the message goes back at once, so that nobody waits for its lease to end. When
        the JVM's decoder refused it, the job fails.
        """
        subscriber = self._tracked(split)
        if emitting:
            subscriber.nack(sequence)
        else:
            path = subscriber.holding.subscription.resource_path
            self._context.fail(DeserializationError(path, f"with sequence number {sequence}", error))

    def _tracked(self, split: str) -> Subscriber:
        try:
            return self._splits[split]
        except KeyError:
            raise TrackerError(f"split {split} was never assigned to this reader") from None

    def metrics(self) -> Metrics:
        """See `SourceReader`. Takes no lock: a figure may be a moment old, or a moment apart from its neighbour."""
        subscribers = self._subscribers
        trackers = [subscriber.tracker for subscriber in subscribers]
        schema = self._schema
        return Metrics(
            counters={
                "messagesReceived": sum(subscriber.received_messages for subscriber in subscribers),
                "messagesAcked": self._keeper.acked,
                "messagesNacked": self._keeper.nacked,
                "recordsSkipped": schema.skipped if schema else 0,
                "numRecordsInErrors": schema.failed if schema else 0,
            },
            gauges={
                "pendingAcks": sum(tracker.held_messages for tracker in trackers),
                "pendingCheckpoints": max((tracker.pending_checkpoints for tracker in trackers), default=0),
                "bufferedMessages": sum(tracker.buffered_messages for tracker in trackers),
                "bufferedBytes": sum(tracker.buffered_bytes for tracker in trackers),
            },
        )

    def close(self, seconds: float) -> None:
        """See `SourceReader`. Asks all connections to end before it waits for any, then gives everything back at once.

        Streams end first: a server that still sees one open would hand the messages that are given back to it again.
        """
        began = self._clock()
        until = began + seconds
        subscribers = self._subscribers
        self._shared.close()
        for subscriber in subscribers:
            subscriber.finish()
        finished = began + min(_LINGER_SECONDS, seconds / 4)
        if not all(subscriber.join(finished) for subscriber in subscribers):
            for subscriber in subscribers:
                subscriber.stop()
        for subscriber in subscribers:
            subscriber.release()
        self._keeper.close(began + seconds * 0.9)
        for channel in self._channels:
            channel.close()
        for subscriber in subscribers:
            if not subscriber.join(until):
                _log.warning("a connection of %s did not end within %.1f s", subscriber.split, seconds)
