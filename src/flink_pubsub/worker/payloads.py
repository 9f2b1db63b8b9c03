"""From responses to record blocks when a function makes one record of each message's data: the usual Python schema.

No message object outlives its response: what waits is the data, the publish time and the id, so no more is kept in memory than
the function needs, and nothing is looked up in a message twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from flink_pubsub.bridge.frames import RecordBlock
from flink_pubsub.core.chunks import Delivery, Run
from flink_pubsub.destinations import SubscriptionDestination
from flink_pubsub.errors import DeserializationError
from flink_pubsub.schemas import PayloadFunction, PubSubDeserializationSchema
from flink_pubsub.wire import pubsub_pb2 as wire
from flink_pubsub.worker.collecting import publish_millis
from flink_pubsub.worker.decoding import MAX_RECORDS_OF_A_MESSAGE, Payload, SchemaDecoding, keys_of, too_large
from flink_pubsub.worker.recording import Encode
from flink_pubsub.worker.undecodable import Undecodable

_WHO = "the function given to payload, or pickling what it returned,"
_BESIDES_DATA = 64
"""About what a serialized message without attributes takes besides its data: its id, its time and their tags."""


class PayloadDecoding:
    """Applies a function. Implements `Decoding`."""

    whole_runs = False
    skipped = 0
    """A function makes one record of each message."""

    def __init__(
        self, function: Callable[[bytes], object], encode: Encode, undecodable: Undecodable, *, ordered: bool = False
    ) -> None:
        """`undecodable` decides about messages the function fails on; `ordered` takes ordering keys along."""
        self._function = plain_json if function is json.loads else function
        self._encode = encode
        self._undecodable = undecodable
        self._ordered = ordered

    def take(self, response: wire.StreamingPullResponse) -> Delivery[Payload]:
        """What is needed of the messages. Sizes are exact where there are attributes, else a few bytes beside it."""
        received = list(response.received_messages)
        messages = [each.message for each in received]
        ids = [message.message_id for message in messages]
        data = [message.data for message in messages]
        times = [time.seconds * 1000 + time.nanos // 1_000_000 for time in [message.publish_time for message in messages]]
        if not all(times):
            times = [publish_millis(message) for message in messages]
        sizes = [
            message.ByteSize() if message.attributes else len(each) + _BESIDES_DATA
            for message, each in zip(messages, data, strict=True)
        ]
        payloads: list[Payload] = list(zip(data, times, ids, strict=True))
        return Delivery([each.ack_id for each in received], ids, sizes, payloads, keys_of(messages, self._ordered))

    def decode(self, ordinal: int, subscription: SubscriptionDestination, run: Run[Payload], room: int) -> RecordBlock:
        """The record of each message, with its publish time."""
        records: list[bytes] = []
        failed: list[int] = []
        """Positions of messages without a record."""
        function, encode = self._function, self._encode
        payloads: list[tuple[bytes, int, str]] = run.payloads  # type: ignore[assignment]  # `take` made these
        for data, _, message_id in payloads:
            try:
                record = function(data)
                if record is None:
                    raise DeserializationError(subscription.resource_path, message_id, PayloadFunction.NO_RECORD)
                encoded = encode(record)
                if len(encoded) > MAX_RECORDS_OF_A_MESSAGE:
                    raise too_large(subscription.resource_path, message_id, len(encoded))
            except Exception as error:
                failed.append(len(records) + len(failed))
                if self._undecodable.gives_back(subscription.resource_path, message_id, _WHO, error):
                    self._undecodable.note(run.first + failed[-1])
                    break
                continue
            records.append(encoded)
            room -= len(encoded)
            if room <= 0:
                break
        counts = [1] * (len(records) + len(failed))
        for position in failed:
            counts[position] = 0
        timestamps = [time for (_, time, _), count in zip(payloads, counts, strict=False) if count]
        return RecordBlock(ordinal, run.first, records, counts if failed else None, timestamps)


_OPENINGS = (b'{"', b'["', b"[{", b"{\n", b"[\n", b"{ ", b"[ ", b"[[")
_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # it has been there since json is


def plain_json(data: bytes) -> object:
    """What `json.loads` returns or raises, in two thirds of the time for an ordinary document in UTF-8.

    Most of what `json.loads` itself costs is finding out the encoding, and looking for space around the document. A document
    that begins with two of these characters, of one byte each, is in UTF-8 by the same rules.
    """
    if data.startswith(_OPENINGS):
        try:
            text = str(data, "utf-8", "surrogatepass")
            record, end = _scan(text, 0)
            if end == len(text) or not text[end:].strip(" \t\n\r"):
                return record
        except (ValueError, StopIteration):
            pass  # for json.loads to raise
    loaded: object = json.loads(data)
    return loaded


def python_decoding(
    schema: PubSubDeserializationSchema, encode: Encode, undecodable: Undecodable, *, ordered: bool = False
) -> SchemaDecoding | PayloadDecoding:
    """How to decode with a schema, which must be open."""
    if type(schema) is PayloadFunction:
        return PayloadDecoding(schema.function, encode, undecodable, ordered=ordered)
    return SchemaDecoding(schema, encode, undecodable, ordered=ordered)
