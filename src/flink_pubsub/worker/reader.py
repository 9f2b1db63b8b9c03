"""The reader: the splits of one subtask, drained in turn into batches for the JVM.

Threads: connections take messages in (`intake`), the fetch thread drains and decodes them (`fetching`), the command thread
handles checkpoints and pauses, and the keeper talks back about leases and looks after everything that time decides. The JVM
asks for one batch at a time, so a job that is held back leaves messages here, within their bounds and with their leases kept.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence

import grpc

from flink_pubsub.bridge.connector import Metrics, ReaderContext, ReaderSettings, Split
from flink_pubsub.bridge.frames import Block
from flink_pubsub.core.budget import Budget
from flink_pubsub.core.checkpoints import Confirmations, FirstCheckpoint
from flink_pubsub.core.chunks import Acks
from flink_pubsub.core.deadlines import DeadlineEstimator
from flink_pubsub.core.leases import LeaseBook
from flink_pubsub.core.positions import TrackerError
from flink_pubsub.destinations import SubscriptionDestination
from flink_pubsub.errors import CheckpointError, SubscriberBufferError
from flink_pubsub.options import DeserializationFailurePolicy, OrderingMode
from flink_pubsub.rpc.channel import channel_opener
from flink_pubsub.source import SourceSpec
from flink_pubsub.worker.decoding import Decoding, RawDecoding, SchemaDecoding
from flink_pubsub.worker.fetching import Fetching
from flink_pubsub.worker.holding import Holding, Shared, SplitState
from flink_pubsub.worker.keeper import Keeper
from flink_pubsub.worker.payloads import PayloadDecoding, python_decoding
from flink_pubsub.worker.recording import encoder
from flink_pubsub.worker.subscriber import Subscriber, Teardowns
from flink_pubsub.worker.undecodable import Undecodable

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
        options = spec.options
        self._spec = spec
        self._context = context
        self._clock = clock
        self._ordered = spec.ordering_mode is OrderingMode.PER_KEY
        self._open_channel = channel_opener(spec.connection)
        self._undecodable = Undecodable(spec.deserialization_failure_policy, clock)
        self._schema: SchemaDecoding | PayloadDecoding | None = None
        if spec.deserializer is not None:
            spec.deserializer.open()
            encode = encoder(spec.type_info_proto)
            self._schema = python_decoding(spec.deserializer, encode, self._undecodable, ordered=self._ordered)
        self._decoding: Decoding = self._schema or RawDecoding(ordered=self._ordered)
        self._shared = Shared(Budget(options.subscriber_buffer_max_messages, options.subscriber_buffer_max_bytes))
        # The first is for acknowledgements, whose answers must not queue behind what streams bring.
        self._channels = [self._open_channel()]
        self._streams = 0
        self._holdings: dict[str, Holding] = {}
        self._splits: dict[str, Subscriber] = {}
        self._subscribers: tuple[Subscriber, ...] = ()
        """The values of `_splits`, for threads that may not see it change."""
        self._fetching = Fetching(
            self._shared,
            self._decoding,
            self._undecodable,
            lambda split, sequence: self._splits[split.split].nack(sequence),
            options.max_records_per_fetch,
            clock,
        )
        self._first_checkpoint = FirstCheckpoint(options.first_checkpoint_timeout.total_seconds())
        self._confirmations = (
            None if options.await_ack_confirmation is None else Confirmations(options.await_ack_confirmation.total_seconds())
        )
        self._teardowns = Teardowns()
        self._keeper = Keeper(self._channels[0], self._shared, context.fail, clock, self._tick)
        self._compare_checkpoint_interval()

    @property
    def settings(self) -> ReaderSettings:
        """See `SourceReader`."""
        options = self._spec.options
        tolerant = self._spec.deserialization_failure_policy is not DeserializationFailurePolicy.FAIL
        gives_back = self._spec.deserialization_failure_policy is DeserializationFailurePolicy.NACK
        awaited = options.await_ack_confirmation
        return ReaderSettings(
            close_seconds=options.shutdown_timeout.total_seconds(),
            fail_on_record_failure=not tolerant,
            await_record_failure=gives_back and self._ordered and self._schema is None,
            await_checkpoint_seconds=0 if awaited is None else awaited.total_seconds(),
        )

    def _compare_checkpoint_interval(self) -> None:
        interval, period = self._context.checkpoint_interval, self._spec.options.max_ack_extension_period.total_seconds()
        if interval and 2 * interval > period:
            _log.warning(
                "max_ack_extension_period is %g s, less than twice execution.checkpointing.interval, which is %g s here: leases"
                " may end before their messages are acknowledged, and such messages are delivered again",
                period,
                interval,
            )

    def assign(self, splits: Sequence[tuple[int, Split]]) -> None:
        """See `SourceReader`."""
        options, added = self._spec.options, []
        for ordinal, split in splits:
            holding = self._holding(json.loads(split.data)["subscription"])
            state = SplitState(split.id, ordinal, holding, self._shared, options, ordered=self._ordered)
            self._splits[split.id] = Subscriber(
                state,
                self._shared,
                self._keeper,
                self._decoding,
                self._channel_for_stream,
                options.parallel_pull_count,
                self,
                self._teardowns,
                options.shutdown_timeout.total_seconds(),
                self._clock,
            )
            added.append(self._splits[split.id])
        self._shared.add([subscriber.state for subscriber in added])
        with self._shared.lock:
            self._first_checkpoint.assigned(self._clock())
            for subscriber in added:
                subscriber.connect()
        self._subscribers += tuple(added)

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
        if self._streams % _STREAMS_PER_CHANNEL == 0:
            self._channels.append(self._open_channel())
        self._streams += 1
        return self._channels[-1]

    def poll(self, seconds: float) -> Sequence[Block]:
        """See `SourceReader`.

        Raises:
            DeserializationError: the schema failed on a message, and such messages fail the job.
        """
        return self._fetching.poll(seconds)

    def pause_or_resume(self, pause: Sequence[str], resume: Sequence[str]) -> None:
        """See `SourceReader`. A paused split goes on holding what it has, within its bounds and with its leases kept."""
        with self._shared.lock:
            overfull = [split for split in pause if self._splits[split].pause(True)]
            for split in resume:
                self._splits[split].pause(False)
            self._shared.records.notify()
        for split in overfull:
            self._splits[split].park()
        self._keeper.wake()

    # What subscribers tell.

    def fail(self, error: BaseException) -> None:
        """See `Reports`."""
        self._context.fail(error)

    def starved(self) -> None:
        """See `Reports`: paused splits that use more than their share of the budget make room."""
        share = self._shared.budget.share
        for subscriber in self._subscribers:
            tracker = subscriber.tracker
            if tracker.buffered_messages > share.messages or tracker.buffered_bytes > share.size:
                subscriber.park()

    def too_large(self, subscription: str, size: int) -> None:
        """See `Reports`: when every split is paused all are parked, and what comes after that decides; else the job fails."""
        subscribers = self._subscribers
        if all(subscriber.state.paused for subscriber in subscribers):
            for subscriber in subscribers:
                subscriber.park()
            return
        limit = self._shared.budget.limit.size
        problem = f"all buffers of a reader together may hold {limit} bytes: raise subscriber_buffer_max_bytes"
        self._context.fail(SubscriberBufferError(subscription, size, problem))

    # Checkpoints.

    def snapshot(self, checkpoint: int, positions: Mapping[str, int]) -> None:
        """See `SourceReader`."""
        self._first_checkpoint.barrier()
        with self._shared.lock:
            for split, position in positions.items():
                self._tracked(split).tracker.snapshot(checkpoint, position)

    def checkpoint_complete(self, checkpoint: int) -> None:
        """See `SourceReader`."""
        settled = [(subscriber, subscriber.complete(checkpoint)) for subscriber in self._subscribers]
        count = sum(len(acks.ack_ids) for _, acks in settled)
        confirmations = self._confirmations
        if confirmations is not None:
            with self._shared.lock:
                confirmed = confirmations.completed(checkpoint, count, self._clock())
            if confirmed:
                self._context.checkpoint_settled(checkpoint)
        for subscriber, acks in settled:
            self._acknowledge(subscriber, acks, checkpoint)
        _log.debug("checkpoint %d lets %d messages be acknowledged", checkpoint, count)

    def _acknowledge(self, subscriber: Subscriber, acks: Acks, checkpoint: int) -> None:
        holding, confirmations = subscriber.state.holding, self._confirmations
        if confirmations is None:
            self._keeper.acknowledge(holding, subscriber.tracker, acks)
            return

        def settled(messages: int, confirmed: bool) -> None:
            if not confirmed:
                return  # it is not counted, so the checkpoint will be overdue
            with self._shared.lock:
                last = confirmations.confirmed(checkpoint, messages)
            if last:
                self._context.checkpoint_settled(checkpoint)

        self._keeper.acknowledge(holding, subscriber.tracker, acks, settled)

    def _tick(self, now: float) -> None:
        """What time decides. The keeper's thread, every 0.1 s at least."""
        for subscriber in self._subscribers:
            subscriber.tick(now)
        held = sum(subscriber.tracker.held_messages for subscriber in self._subscribers)
        if self._first_checkpoint.missing(now, held):
            seconds = self._spec.options.first_checkpoint_timeout.total_seconds()
            self._context.fail(
                CheckpointError(
                    "first_checkpoint_timeout",
                    f"the job took no checkpoint within {seconds:g} s of reading, so none of {held} messages could be"
                    " acknowledged: set execution.checkpointing.interval, or allow more time for a job that takes checkpoints"
                    " less often",
                )
            )
        if self._confirmations is not None:
            with self._shared.lock:
                overdue = self._confirmations.overdue(now)
            if overdue is not None:
                seconds = self._confirmations.seconds
                self._context.fail(
                    CheckpointError(
                        "await_ack_confirmation",
                        f"the service did not confirm {overdue[1]} acknowledgements of checkpoint {overdue[0]} within"
                        f" {seconds:g} s: allow more time, or do not wait for confirmation",
                    )
                )

    # Failures of records in the JVM.

    def record_failed(self, split: str, sequence: int, error: str, emitting: bool) -> None:
        """See `SourceReader`.

        When the job failed on the records, the message goes back at once, so that nobody waits for its lease to end. When
        the JVM's decoder refused it, the failure policy decides; what may not overtake it is withdrawn from the JVM.
        """
        subscriber = self._tracked(split)
        if emitting:
            subscriber.nack(sequence)
            return
        with self._shared.lock:
            message_id = subscriber.tracker.message_id(sequence) or f"number {sequence}"
        withdrawn: list[int] = []
        if self._undecodable.refused_in_jvm(subscriber.path, message_id, error):
            withdrawn = [later for later in subscriber.nack(sequence).sequences if later > sequence]
        if self.settings.await_record_failure:
            self._context.records_withdrawn(split, sequence, withdrawn)

    def _tracked(self, split: str) -> Subscriber:
        try:
            return self._splits[split]
        except KeyError:
            raise TrackerError(f"split {split} was never assigned to this reader") from None

    def metrics(self) -> Metrics:
        """See `SourceReader`. Takes no lock: a figure may be a moment old, or a moment apart from its neighbour."""
        subscribers = self._subscribers
        trackers = [subscriber.tracker for subscriber in subscribers]
        counters = {
            "messagesReceived": sum(subscriber.state.received_messages for subscriber in subscribers),
            "messagesAcked": self._keeper.acked,
            "messagesNacked": self._keeper.nacked,
            "messagesDropped": self._undecodable.dropped,
            "numRecordsInErrors": self._undecodable.failed,
            "splitsParked": sum(subscriber.parked for subscriber in subscribers),
        }
        if self._schema is not None:  # else the JVM counts them, which decodes
            counters["recordsSkipped"] = self._schema.skipped
        return Metrics(
            counters=counters,
            gauges={
                "pendingAcks": sum(tracker.held_messages for tracker in trackers),
                "pendingCheckpoints": max((tracker.pending_checkpoints for tracker in trackers), default=0),
                "bufferedMessages": self._shared.budget.used.messages,
                "bufferedBytes": self._shared.budget.used.size,
                "parkedSplits": sum(subscriber.is_parked for subscriber in subscribers),
            },
            lasting={
                "subscriberShutdownsAbandoned": self._teardowns.abandoned,
                "subscriberFailuresUnreported": self._teardowns.unreported,
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
                subscriber.abandon()
