"""Writes one subtask's elements to Pub/Sub.

Stateless: what is not published is held in memory only, and a flush is answered once there is nothing of the kind, so a
completed checkpoint means that everything before it is stored. Memory is bounded by credit: the JVM counts records and
bytes until they are settled. It can only count the bytes it sends, so the difference to what the messages take in a publish
request is charged, or given back, before they are published; from then on the bytes in flight are those of messages.
"""

from __future__ import annotations

import random
from datetime import timedelta

import grpc

from flink_pubsub.bridge.connector import Metrics, WriterContext, WriterSettings
from flink_pubsub.bridge.frames import WriteBatch
from flink_pubsub.core.batching import Thresholds
from flink_pubsub.core.outbox import Outbox
from flink_pubsub.core.retry import RetryPolicy
from flink_pubsub.options import PubSubPublisherOptions
from flink_pubsub.rpc.publisher import MAX_CALLS, Publisher
from flink_pubsub.sink import SinkSpec
from flink_pubsub.worker.encoding import Encoder


class PubSubSinkWriter:
    """A `bridge.connector.SinkWriter`. Owns the channel."""

    def __init__(self, spec: SinkSpec, encoder: Encoder, channel: grpc.Channel, context: WriterContext) -> None:
        options = spec.options
        self.settings = WriterSettings(
            close_seconds=options.shutdown_timeout.total_seconds(),
            max_in_flight_records=options.max_in_flight_messages,
            max_in_flight_bytes=options.max_in_flight_bytes,
            timestamps=spec.destination_resolver is not None,
        )
        self._encoder = encoder
        self._context = context
        outbox = Outbox(thresholds_of(options), retry_policy_of(options), MAX_CALLS, random.random)
        self._publisher = Publisher(channel, outbox, context)
        self._records = self._bytes = self._skipped = 0

    def write(self, batch: WriteBatch) -> None:
        """Publishes the batch's messages; skipped records are settled at once."""
        encoded = self._encoder.encode(batch)
        skipped = batch.size - encoded.messages
        charged = sum(len(column.data) for column in (batch.elements, batch.payloads) if column is not None)
        if skipped or charged != encoded.size:
            self._context.settled(skipped, charged - encoded.size)
        self._records += encoded.messages
        self._bytes += encoded.size
        self._skipped += skipped
        if encoded.entries:
            self._publisher.add(encoded.entries)

    def flush(self, flush: int, end_of_input: bool) -> None:
        """Sends everything; the context hears of it once all is published."""
        self._publisher.flush(flush)

    def send_now(self) -> None:
        """Sends partial batches."""
        self._publisher.send_now()

    def metrics(self) -> Metrics:
        """Counts of records, not of attempts."""
        records, size = self._publisher.in_flight
        return Metrics(
            counters={"numRecordsSend": self._records, "numBytesSend": self._bytes, "recordsSkipped": self._skipped},
            gauges={"inFlightMessages": records, "inFlightBytes": size},
        )

    def close(self, seconds: float) -> None:
        """Cancels what is in flight: what matters has been flushed."""
        self._publisher.close(seconds)


def thresholds_of(options: PubSubPublisherOptions) -> Thresholds:
    """When batches go."""
    return Thresholds(
        messages=options.batch_element_count_threshold,
        size=options.batch_request_byte_threshold,
        delay=options.batch_delay_threshold.total_seconds(),
    )


def retry_policy_of(options: PubSubPublisherOptions) -> RetryPolicy:
    """How long and how often a publish is tried."""
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
