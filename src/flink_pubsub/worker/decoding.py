"""From responses of the service to record blocks, for each of the two ways to decode.

When the JVM decodes, a record is a message's own protobuf bytes, made on the thread that received it. When a Python schema
decodes, the message object waits as it is and the schema runs on the fetch thread, so that user code is never called by two
threads and holds up no connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, Protocol, TypeAlias

from flink_pubsub.bridge.frames import RecordBlock
from flink_pubsub.core.acks import Delivery, Run
from flink_pubsub.destinations import SubscriptionDestination
from flink_pubsub.errors import DeserializationError
from flink_pubsub.schemas import PayloadFunction, PubSubDeserializationSchema
from flink_pubsub.wire import pubsub_pb2 as wire
from flink_pubsub.worker.collecting import MessageCollector, message_of, publish_millis
from flink_pubsub.worker.recording import Encode

MAX_RECORDS_OF_A_MESSAGE = 48 * 1024 * 1024
"""Bytes of the records of one message; with the rest of a batch it fits a frame."""

Payload: TypeAlias = "bytes | wire.ReceivedMessage"
"""What is kept of a message until it is drained: its protobuf bytes, or the object the schema will see."""


class Decoding(Protocol):
    """How one reader decodes."""

    def take(self, response: wire.StreamingPullResponse) -> Delivery[Payload]:
        """The messages of a response, ready to be kept. The threads of connections, several at once."""

    def decode(self, ordinal: int, subscription: SubscriptionDestination, run: Run[Payload], room: int) -> RecordBlock:
        """The records of messages, from the first up to the one that makes them `room` bytes or more. Fetch thread.

        Raises:
            DeserializationError: a schema failed on a message.
        """


class RawDecoding:
    """Leaves decoding to the JVM."""

    def take(self, response: wire.StreamingPullResponse) -> Delivery[Payload]:
        """The messages, serialized; a delivery attempt, which is not part of a message, is appended to it as field 15."""
        received = response.received_messages
        messages = [each.message for each in received]
        payloads: list[Payload] = [message.SerializeToString() for message in messages]
        attempts = [each.delivery_attempt for each in received]
        if any(attempts):
            payloads = [_with_attempt(payload, n) for payload, n in zip(payloads, attempts, strict=True)]
        ids = [message.message_id for message in messages]
        return Delivery([each.ack_id for each in received], ids, list(map(len, payloads)), payloads)  # type: ignore[arg-type]

    def decode(self, ordinal: int, subscription: SubscriptionDestination, run: Run[Payload], room: int) -> RecordBlock:
        """All messages as they are: draining has bounded them. Without timestamps, which the JVM takes from the messages."""
        return RecordBlock(ordinal, run.first, run.payloads)  # type: ignore[arg-type]  # `take` made bytes


def _with_attempt(payload: Payload, attempt: int) -> Payload:
    assert isinstance(payload, bytes)
    if attempt <= 0:
        return payload
    suffix = bytearray(b"\x78")  # field 15, varint
    while attempt > 0x7F:
        suffix.append(attempt & 0x7F | 0x80)
        attempt >>= 7
    suffix.append(attempt)
    return payload + bytes(suffix)


class SchemaDecoding:
    """Runs a Python schema. The schema must be open."""

    def __init__(self, schema: PubSubDeserializationSchema, encode: Encode) -> None:
        self._schema = schema
        self._encode = encode
        self._function = schema.function if type(schema) is PayloadFunction else None
        self.skipped = 0
        """Messages that decoded to no record."""
        self.failed = 0
        """Messages the schema failed on."""

    def take(self, response: wire.StreamingPullResponse) -> Delivery[Payload]:
        """The messages as they were parsed; that costs no second serialization, and one decode for all of a response."""
        received = list(response.received_messages)
        messages = [each.message for each in received]
        ids = [message.message_id for message in messages]
        return Delivery([each.ack_id for each in received], ids, [message.ByteSize() for message in messages], received)

    def decode(self, ordinal: int, subscription: SubscriptionDestination, run: Run[Payload], room: int) -> RecordBlock:
        """The records the schema makes, each with its own time or its message's publish time."""
        if self._function is not None:
            return self._apply(self._function, ordinal, subscription, run, room)
        records: list[bytes] = []
        timestamps: list[int] = []
        counts: list[int] = []
        for received in run.payloads:
            before = len(records)
            message = received.message  # type: ignore[union-attr]  # `take` kept objects
            collector = MessageCollector(
                records, timestamps, publish_millis(message), self._encode, subscription, message.message_id
            )
            try:
                try:
                    self._schema.deserialize(message_of(received), subscription, collector)  # type: ignore[arg-type]
                finally:
                    collector.close()
            except Exception as error:
                self._fail(subscription, message, "the deserializer", error)
            counts.append(len(records) - before)
            size = sum(map(len, records[before:]))
            self._check_size(subscription, message, size)
            room -= size
            if room <= 0:
                break
        self.skipped += counts.count(0)
        return RecordBlock(ordinal, run.first, records, counts, timestamps)

    def _apply(
        self,
        function: Callable[[bytes], object],
        ordinal: int,
        subscription: SubscriptionDestination,
        run: Run[Payload],
        room: int,
    ) -> RecordBlock:
        """As `decode`, for a function that makes one record of a payload: no message, no collector."""
        records: list[bytes] = []
        timestamps: list[int] = []
        encode = self._encode
        for received in run.payloads:
            message = received.message  # type: ignore[union-attr]  # `take` kept objects
            try:
                record = function(message.data)
                encoded = None if record is None else encode(record)
            except Exception as error:
                self._fail(subscription, message, "the function given to payload, or pickling what it returned,", error)
            if encoded is None:
                path = subscription.resource_path
                self._fail(subscription, message, "", DeserializationError(path, message.message_id, PayloadFunction.NO_RECORD))
            records.append(encoded)
            timestamps.append(publish_millis(message))
            room -= len(encoded)
            if room <= 0:
                self._check_size(subscription, message, len(encoded))
                break
        return RecordBlock(ordinal, run.first, records, None, timestamps)

    def _check_size(self, subscription: SubscriptionDestination, message: wire.PubsubMessage, size: int) -> None:
        if size > MAX_RECORDS_OF_A_MESSAGE:
            problem = (
                f"its records take {size} bytes, and no more than {MAX_RECORDS_OF_A_MESSAGE} can be handed to Flink at once"
            )
            self._fail(subscription, message, "", DeserializationError(subscription.resource_path, message.message_id, problem))

    def _fail(self, subscription: SubscriptionDestination, message: wire.PubsubMessage, who: str, error: Exception) -> NoReturn:
        """What a message that cannot be decoded leads to: the job fails. The one place where that is decided."""
        self.failed += 1
        if isinstance(error, DeserializationError):
            raise error
        problem = f"{who} raised {type(error).__name__}"
        raise DeserializationError(subscription.resource_path, message.message_id, problem) from error
