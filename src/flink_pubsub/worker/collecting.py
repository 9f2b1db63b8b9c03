"""What a Python deserializer gets: the message as an object, and a collector that holds it to its contract."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta, timezone

from google.protobuf.timestamp_pb2 import Timestamp

from flink_pubsub.destinations import SubscriptionDestination
from flink_pubsub.errors import DeserializationError
from flink_pubsub.messages import PubsubMessage
from flink_pubsub.wire import pubsub_pb2 as wire
from flink_pubsub.worker.recording import Encode

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND = timedelta(milliseconds=1)
_WIDEST = 2**63 - 1


def message_of(received: wire.ReceivedMessage) -> PubsubMessage:
    """The message as users see it."""
    message = received.message
    time = message.publish_time
    published = None
    if message.HasField("publish_time"):
        published = datetime.fromtimestamp(time.seconds, timezone.utc).replace(microsecond=time.nanos // 1000)
    return PubsubMessage(
        message.data,
        dict(message.attributes),
        message.ordering_key,
        message.message_id,
        published,
        received.delivery_attempt,
    )


def publish_millis(time: Timestamp) -> int:
    """A publish time as an event time."""
    return time.seconds * 1000 + time.nanos // 1_000_000


class MessageCollector:
    """Takes the records of one message. Open during one call of `deserialize`, and for its thread.

    A broken contract is not forgotten when the deserializer swallows the error: `close` raises it again.
    """

    __slots__ = ("_default", "_encode", "_failure", "_message_id", "_open", "_records", "_subscription", "_thread", "_times")

    def __init__(
        self,
        records: list[bytes],
        times: list[int],
        default: int,
        encode: Encode,
        subscription: SubscriptionDestination,
        message_id: str,
    ) -> None:
        """Makes a collector that appends to `records` and `times`; `default` is the time of records without their own."""
        self._records = records
        self._times = times
        self._default = default
        self._encode = encode
        self._subscription = subscription
        self._message_id = message_id
        self._thread = threading.get_ident()
        self._open = True
        self._failure: DeserializationError | None = None

    def collect(self, record: object, timestamp: int | datetime | None = None) -> None:
        """See `flink_pubsub.schemas.Collector`."""
        if not self._open:
            raise self._error("a collector was used after the call of deserialize it was given to had returned")
        if self._thread != threading.get_ident():
            self._failure = self._error("a collector was used on another thread than the call of deserialize")
            raise self._failure
        if record is None:
            self._failure = self._error("the record is None; to drop a message, collect nothing")
            raise self._failure
        time = self._default if timestamp is None else self._millis(timestamp)
        try:
            encoded = self._encode(record)
        except Exception as error:
            self._failure = self._error(f"a record of type {type(record).__name__} cannot be encoded for Flink")
            raise self._failure from error
        self._records.append(encoded)
        self._times.append(time)

    def close(self) -> None:
        """Ends the call.

        Raises:
            DeserializationError: the contract was broken during it.
        """
        self._open = False
        if self._failure is not None:
            raise self._failure

    def _millis(self, timestamp: object) -> int:
        if type(timestamp) is int and -_WIDEST <= timestamp <= _WIDEST:
            return timestamp
        if isinstance(timestamp, datetime) and timestamp.utcoffset() is not None:
            return (timestamp - _EPOCH) // _MILLISECOND
        problem = f"a timestamp must be milliseconds since the epoch as int or an aware datetime, not {_described(timestamp)}"
        self._failure = self._error(problem)
        raise self._failure

    def _error(self, problem: str) -> DeserializationError:
        return DeserializationError(self._subscription.resource_path, self._message_id, problem)


def _described(timestamp: object) -> str:
    if isinstance(timestamp, datetime):
        return "a datetime without a time zone"
    if type(timestamp) is int:
        return "an int beyond 64 bits"
    return f"an object of type {type(timestamp).__name__}"
