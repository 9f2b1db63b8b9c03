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
        timestamps: list[int] = []
        counts: list[int] | None = None
        """Only from the first failure on: until then every message has one record."""
        function, encode = self._function, self._encode
        payloads: list[tuple[bytes, int, str]] = run.payloads  # type: ignore[assignment]  # `take` made these
        for data, time, message_id in payloads:
            failure: Exception | None = None
            encoded = None
            try:
                record = function(data)
                encoded = None if record is None else encode(record)
            except Exception as error:
                failure = error
            if encoded is None or len(encoded) > MAX_RECORDS_OF_A_MESSAGE:
                path = subscription.resource_path
                if encoded is not None:
                    failure = too_large(path, message_id, len(encoded))
                failure = failure or DeserializationError(path, message_id, PayloadFunction.NO_RECORD)
                counts = [1] * len(records) if counts is None else counts
                counts.append(0)
                if self._undecodable.gives_back(path, message_id, _WHO, failure):
                    self._undecodable.note(run.first + len(counts) - 1)
                    break
                continue
            records.append(encoded)
            timestamps.append(time)
            if counts is not None:
                counts.append(1)
            room -= len(encoded)
            if room <= 0:
                break
        return RecordBlock(ordinal, run.first, records, counts, timestamps)


_OPENINGS = frozenset(b"{[")
_decode_text = json.JSONDecoder().raw_decode


def plain_json(data: bytes) -> object:
    """What `json.loads` returns or raises, in two thirds of the time for a JSON object or array in UTF-8.

    Most of what `json.loads` itself costs is finding out the encoding, and looking for space around the document. A document
    whose first byte opens an object or array, and whose second is not 0, is in UTF-8 by the same rules.
    """
    if len(data) > 3 and data[0] in _OPENINGS and data[1]:
        try:
            text = str(data, "utf-8", "surrogatepass")
            record, end = _decode_text(text)
        except ValueError:
            pass  # for json.loads to raise
        else:
            if end == len(text) or not text[end:].strip(" \t\n\r"):
                return record
    loaded: object = json.loads(data)
    return loaded


def python_decoding(
    schema: PubSubDeserializationSchema, encode: Encode, undecodable: Undecodable, *, ordered: bool = False
) -> SchemaDecoding | PayloadDecoding:
    """How to decode with a schema, which must be open."""
    if type(schema) is PayloadFunction:
        return PayloadDecoding(schema.function, encode, undecodable, ordered=ordered)
    return SchemaDecoding(schema, encode, undecodable, ordered=ordered)
