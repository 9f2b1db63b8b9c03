"""From responses to record blocks when a function makes one record of each message's data: the usual Python schema.

No message object outlives its response: what waits is the data, the publish time and the id, so no more is kept in memory than
the function needs, and nothing is looked up in a message twice.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp

from flink_pubsub.bridge.frames import NO_TIMESTAMP, RecordBlock
from flink_pubsub.core.chunks import Bundle, Delivery, Run
from flink_pubsub.destinations import SubscriptionDestination
from flink_pubsub.errors import DeserializationError
from flink_pubsub.schemas import PayloadFunction, PubSubDeserializationSchema
from flink_pubsub.wire import views_pb2 as views
from flink_pubsub.worker.collecting import publish_millis
from flink_pubsub.worker.decoding import MAX_RECORDS_OF_A_MESSAGE, Payload, SchemaDecoding, keys_of, too_large
from flink_pubsub.worker.recording import Encode
from flink_pubsub.worker.undecodable import Undecodable

_WHO = "the function given to payload, or pickling what it returned,"

_Received: TypeAlias = views.ResponseView.Received | views.TextResponseView.Received
_Message: TypeAlias = views.ResponseView.Message | views.TextResponseView.Message


class PayloadDecoding:
    """Applies a function. Implements `Decoding`."""

    whole_runs = False
    skipped = 0
    """A function makes one record of each message."""

    def __init__(
        self, function: Callable[[bytes], object], encode: Encode, undecodable: Undecodable, *, ordered: bool = False
    ) -> None:
        """`undecodable` decides about messages the function fails on; `ordered` takes ordering keys along."""
        self._function = function
        self._encode = encode
        self._undecodable = undecodable
        self._ordered = ordered
        self._takes_text = function is json.loads

    def take(self, response: bytes) -> Delivery[Payload]:
        """What is needed of the messages."""
        received = self._received(response)
        messages: list[_Message] = [each.message for each in received]
        ids = [message.message_id for message in messages]
        data: list[Any] = [message.data for message in messages]
        parts = _Parts(data, _millis(messages), ids)
        return Delivery([each.ack_id for each in received], ids, [], parts, keys_of(messages, self._ordered))

    def _received(self, response: bytes) -> Sequence[_Received]:
        if self._takes_text:
            with suppress(DecodeError):  # some data is no text
                return list(views.TextResponseView.FromString(response).received_messages)
        return list(views.ResponseView.FromString(response).received_messages)

    def decode(self, ordinal: int, subscription: SubscriptionDestination, run: Run[Payload], room: int) -> RecordBlock:
        """The record of each message, with its publish time."""
        records: list[bytes] = []
        failed: list[int] = []
        """Positions of messages without a record."""
        parts = _Parts.of(run.payloads)
        function: Callable[[Any], object] = plain_json if parts.text else self._function
        encode = self._encode
        for data in parts.data:
            try:
                record = function(data)
                if record is None:
                    raise DeserializationError(
                        subscription.resource_path, _id(parts, records, failed), PayloadFunction.NO_RECORD
                    )
                encoded = encode(record)
                room -= len(encoded)
                if room <= 0 and len(encoded) > MAX_RECORDS_OF_A_MESSAGE:
                    room += len(encoded)
                    raise too_large(subscription.resource_path, _id(parts, records, failed), len(encoded))
            except Exception as error:
                message_id = _id(parts, records, failed)
                failed.append(len(records) + len(failed))
                if self._undecodable.gives_back(subscription.resource_path, message_id, _WHO, error):
                    self._undecodable.note(run.first + failed[-1])
                    break
                continue
            records.append(encoded)
            if room <= 0:
                break
        done = len(records) + len(failed)
        times = parts.times if done == len(parts.times) else parts.times[:done]
        if not failed:
            return RecordBlock(ordinal, run.first, records, None, times)
        counts = [1] * done
        for position in failed:
            counts[position] = 0
        return RecordBlock(ordinal, run.first, records, counts, [t for t, count in zip(times, counts, strict=True) if count])


class _Parts(Bundle[Payload]):
    """What is kept of messages, as parallel lists."""

    __slots__ = ("data", "ids", "times")

    def __init__(self, data: list[Any], times: list[int], ids: list[str], share: int | None = None) -> None:
        """`data` is either all bytes or all text."""
        super().__init__(len(data), sum(map(sys.getsizeof, data)) if share is None else share * len(data))
        self.data, self.times, self.ids = data, times, ids

    @classmethod
    def of(cls, payloads: list[Payload] | Bundle[Payload]) -> _Parts:
        """Payloads that were divided, together again."""
        if isinstance(payloads, cls):
            return payloads
        made: list[Any] = payloads  # type: ignore[assignment]  # `divided` made tuples
        data, times, ids = ([*column] for column in zip(*made, strict=True))
        if len(set(map(type, data))) > 1:  # of several responses, not all of which were text
            data = [each.encode() if isinstance(each, str) else each for each in data]
        return cls(data, times, ids)

    @property
    def text(self) -> bool:
        """Whether the data is text."""
        return isinstance(self.data[0], str)

    def divided(self) -> tuple[list[Payload], list[int]]:
        """See `Bundle`."""
        return [*zip(self.data, self.times, self.ids, strict=True)], list(map(sys.getsizeof, self.data))

    def part(self, low: int, high: int) -> _Parts:
        """See `Bundle`."""
        return _Parts(self.data[low:high], self.times[low:high], self.ids[low:high], self.share)


def _millis(messages: Sequence[_Message]) -> list[int]:
    """Publish times as event times, `NO_TIMESTAMP` for none."""
    times = [message.publish_time for message in messages]
    columns = views.TimeColumns.FromString(b"".join(times))
    seconds, nanos = list(columns.seconds), list(columns.nanos)
    if len(seconds) == len(nanos) == len(times) and all(times):
        return [second * 1000 + nano // 1_000_000 for second, nano in zip(seconds, nanos, strict=True)]
    # One has no time, or is on the second, so that its nanoseconds are not written.
    return [
        publish_millis(Timestamp.FromString(message.publish_time)) if message.HasField("publish_time") else NO_TIMESTAMP
        for message in messages
    ]


def _id(parts: _Parts, records: list[bytes], failed: list[int]) -> str:
    """Id of the message after those that became records or failed."""
    return parts.ids[len(records) + len(failed)]


_OPENINGS = ('{"', '["', "[{", "{\n", "[\n", "{ ", "[ ", "[[")
_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # it has been there since json is


def plain_json(text: str) -> object:
    """What `json.loads` returns or raises for the text in UTF-8, in half the time for an ordinary document.

    Most of what `json.loads` itself costs is decoding, after finding out the encoding, and looking for space around the
    document. A document that begins with two of these characters, of one byte each, is in UTF-8 by the same rules.
    """
    if text.startswith(_OPENINGS):
        try:
            record, end = _scan(text, 0)
            if end == len(text) or not text[end:].strip(" \t\n\r"):
                return record
        except (ValueError, StopIteration):
            pass  # for json.loads to raise
    loaded: object = json.loads(text.encode())
    return loaded


def python_decoding(
    schema: PubSubDeserializationSchema, encode: Encode, undecodable: Undecodable, *, ordered: bool = False
) -> SchemaDecoding | PayloadDecoding:
    """How to decode with a schema, which must be open."""
    if type(schema) is PayloadFunction:
        return PayloadDecoding(schema.function, encode, undecodable, ordered=ordered)
    return SchemaDecoding(schema, encode, undecodable, ordered=ordered)
