"""From responses of the service to record blocks, for two of the three ways to decode; the third is in `payloads`.

When the JVM decodes, a record is a received message's own protobuf bytes, and those of a response go there as they came. When a
Python schema decodes, the message object waits as it is and the schema runs on the fetch thread, so that user code is never
called by two threads and holds up no connection.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeAlias

from flink_pubsub.bridge.frames import NO_TIMESTAMP, Block, RecordBlock, SerializedBlock
from flink_pubsub.core.chunks import Bundle, Delivery, Run
from flink_pubsub.destinations import SubscriptionDestination
from flink_pubsub.errors import DeserializationError
from flink_pubsub.schemas import PubSubDeserializationSchema
from flink_pubsub.wire import pubsub_pb2 as wire
from flink_pubsub.wire import views_pb2 as views
from flink_pubsub.worker.collecting import MessageCollector, message_of, publish_millis
from flink_pubsub.worker.recording import Encode
from flink_pubsub.worker.undecodable import Undecodable

MAX_RECORDS_OF_A_MESSAGE = 48 * 1024 * 1024
"""Bytes of the records of one message; with the rest of a batch it fits a frame."""

Payload: TypeAlias = "bytes | wire.ReceivedMessage | tuple[bytes | str, int, str]"
"""What is kept of a message until it is drained: its protobuf bytes, the object the schema will see, or its data, its publish
time as an event time and its id."""


class Decoding(Protocol):
    """How one reader decodes."""

    @property
    def whole_runs(self) -> bool:
        """Whether decoding is so cheap that a run need not be divided to look at the size and the time in between."""

    def take(self, response: bytes) -> Delivery[Payload]:
        """The messages of a response, ready to be kept. Threads of gRPC, several at once."""

    def decode(self, ordinal: int, subscription: SubscriptionDestination, run: Run[Payload], room: int) -> Block:
        """The records of messages, from the first up to the one that makes them `room` bytes or more, or that is to go back to
        the service. Fetch thread.

        Raises:
            DeserializationError: a schema failed on a message, and such messages fail the job.
        """


class RawDecoding:
    """Leaves decoding to the JVM."""

    whole_runs = True

    def __init__(self, *, ordered: bool = False) -> None:
        """`ordered` takes ordering keys along."""
        self._ordered = ordered

    def take(self, response: bytes) -> Delivery[Payload]:
        """The messages, serialized as they came."""
        received = list(views.ResponseView.FromString(response).received_messages)
        messages = [each.message for each in received]  # each loop over the field itself would make its objects again
        ids = [message.message_id for message in messages]
        payloads = SerializedResponse(len(ids), response)
        return Delivery([each.ack_id for each in received], ids, [], payloads, keys_of(messages, self._ordered))

    def decode(self, ordinal: int, subscription: SubscriptionDestination, run: Run[Payload], room: int) -> Block:
        """All messages as they are: draining has bounded them. Without timestamps, which the JVM takes from the messages."""
        payloads = run.payloads
        if isinstance(payloads, SerializedResponse):
            return SerializedBlock(ordinal, run.first, len(payloads), payloads.serialized)
        return RecordBlock(ordinal, run.first, run.divided())  # type: ignore[arg-type]  # which are bytes


class SerializedResponse(Bundle[Payload]):
    """A response whose messages the JVM will find."""

    __slots__ = ("serialized",)

    def __init__(self, messages: int, serialized: bytes) -> None:
        super().__init__(messages, len(serialized))
        self.serialized = serialized

    def divided(self) -> tuple[list[Payload], list[int]]:
        """See `Bundle`."""
        response = wire.StreamingPullResponse.FromString(self.serialized)
        payloads = [received.SerializeToString() for received in response.received_messages]
        return [*payloads], list(map(len, payloads))


def keys_of(messages: Iterable[Keyed], ordered: bool) -> list[str] | None:
    """Their ordering keys, where order is to be kept."""
    return [message.ordering_key for message in messages] if ordered else None


class Keyed(Protocol):
    """A message, or a view of one."""

    ordering_key: str


class SchemaDecoding:
    """Runs a Python schema. The schema must be open."""

    whole_runs = False

    def __init__(
        self, schema: PubSubDeserializationSchema, encode: Encode, undecodable: Undecodable, *, ordered: bool = False
    ) -> None:
        """`undecodable` decides about messages the schema fails on; `ordered` takes ordering keys along."""
        self._schema = schema
        self._encode = encode
        self._undecodable = undecodable
        self._ordered = ordered
        self.skipped = 0
        """Messages that decoded to no record."""

    def take(self, response: bytes) -> Delivery[Payload]:
        """The messages as objects; that is one decode for all of a response."""
        received = list(wire.StreamingPullResponse.FromString(response).received_messages)
        messages = [each.message for each in received]
        ids = [message.message_id for message in messages]
        sizes = [message.ByteSize() for message in messages]
        return Delivery([each.ack_id for each in received], ids, sizes, [*received], keys_of(messages, self._ordered))

    def decode(self, ordinal: int, subscription: SubscriptionDestination, run: Run[Payload], room: int) -> RecordBlock:
        """The records the schema makes, each with its own time or its message's publish time.

        What the schema collected before it failed on a message stays, whatever becomes of the message.
        """
        records: list[bytes] = []
        timestamps: list[int] = []
        counts: list[int] = []
        for received in run.divided():
            before = len(records)
            message = received.message  # type: ignore[union-attr]  # `take` kept objects
            path = subscription.resource_path
            failure = self._run_schema(received, subscription, records, timestamps)  # type: ignore[arg-type]
            size = sum(map(len, records[before:]))
            if size > MAX_RECORDS_OF_A_MESSAGE:
                del records[before:], timestamps[before:]
                failure, size = too_large(path, message.message_id, size), 0
            counts.append(len(records) - before)
            if failure is not None and self._undecodable.gives_back(path, message.message_id, "the deserializer", failure):
                self._undecodable.note(run.first + len(counts) - 1)
                break
            self.skipped += failure is None and not counts[-1]
            room -= size
            if room <= 0:
                break
        return RecordBlock(ordinal, run.first, records, counts, timestamps)

    def _run_schema(
        self,
        received: wire.ReceivedMessage,
        subscription: SubscriptionDestination,
        records: list[bytes],
        timestamps: list[int],
    ) -> Exception | None:
        """Decodes one message, and returns what the schema failed with."""
        message = received.message
        published = publish_millis(message.publish_time) if message.HasField("publish_time") else NO_TIMESTAMP
        collector = MessageCollector(records, timestamps, published, self._encode, subscription, message.message_id)
        try:
            try:
                self._schema.deserialize(message_of(received), subscription, collector)
            finally:
                collector.close()
        except Exception as error:
            return error
        return None


def too_large(path: str, message_id: str, size: int) -> DeserializationError:
    """What a message fails with whose records take that many bytes."""
    problem = f"its records take {size} bytes, and no more than {MAX_RECORDS_OF_A_MESSAGE} can be handed to Flink at once"
    return DeserializationError(path, message_id, problem)
