"""Endless streaming-pull responses at the price of a memory copy.

Every message of a response has the same size, so a response is a table of bytes with one row per message. Ids must differ,
or a client would rightly take messages for redeliveries; but the ids of one response share the response's number and end in
the row's, so that number is the only thing that changes from one response to the next. It is counted up like an odometer:
one strided assignment for each digit that turns, 1.1 of them per response on average.
"""

from __future__ import annotations

import json

from flink_pubsub.wire import pubsub_pb2 as wire

ACK_ID_CHARACTERS = 190
"""As long as the service's are today."""

_NUMBER = 11
_ROW = 3
_STREAM = 2
_ID = "1" + "0" * (_STREAM + _NUMBER + _ROW)
"""A message id: 17 digits, as the service's are today: a one, the stream, the response's number, the row."""


def event(size: int) -> bytes:
    """A JSON object of exactly that many bytes, as an order system might send it."""
    order = {
        "order": 4711081512,
        "customer": "c-0093412",
        "placed": "2026-03-14T15:09:26.535Z",
        "currency": "EUR",
        "total": 149.95,
        "express": False,
        "note": "",
    }
    order["note"] = "x" * (size - len(json.dumps(order)))
    return json.dumps(order).encode()


class Responses:
    """Responses of a fixed number of messages for one stream; `next` makes each with ids never used before."""

    def __init__(self, messages: int, data: bytes, stream: int) -> None:
        if not 1 <= messages <= 10**_ROW or not 0 <= stream < 10**_STREAM:
            raise ValueError(f"{messages} messages for stream {stream} do not fit the layout of the ids")
        prefix = f"1{stream:0{_STREAM}}" + "0" * _NUMBER
        rows = [self._row(prefix + f"{row:0{_ROW}}", data) for row in range(messages)]
        self.messages = messages
        self._stride = len(rows[0])
        self._table = bytearray(b"".join(rows))
        first = f"{prefix}{0:0{_ROW}}".encode()
        ack_id = rows[0].index(first)
        message_id = rows[0].index(first, ack_id + 1)
        self._columns = tuple(start + 1 + _STREAM for start in (ack_id, message_id))
        self._digits = [0] * _NUMBER
        self._figures = [bytes([ord("0") + digit]) * messages for digit in range(10)]

    @staticmethod
    def _row(identity: str, data: bytes) -> bytes:
        message = wire.PubsubMessage(data=data, message_id=identity)
        message.publish_time.seconds, message.publish_time.nanos = 1_767_225_600, 123_000_000
        received = wire.ReceivedMessage(ack_id=identity.ljust(ACK_ID_CHARACTERS, "A"), message=message)
        return wire.StreamingPullResponse(received_messages=[received]).SerializeToString()

    def next(self) -> bytes:
        """A serialized StreamingPullResponse."""
        self._count_up()
        return bytes(self._table)

    def _count_up(self) -> None:
        position = _NUMBER - 1
        while True:
            digit = self._digits[position] = (self._digits[position] + 1) % 10
            for column in self._columns:
                self._table[column + position :: self._stride] = self._figures[digit]
            if digit:
                return
            position -= 1


def entries(body: bytes, tag: int, skip: int) -> tuple[int, int]:
    """How many length-prefixed fields `tag` follow the first `skip` bytes of a serialized request, and their bytes.

    Fields of equal size, the rule here, are counted by one strided comparison; others one by one.
    """
    total = len(body) - skip
    if not total:
        return 0, 0
    size = _field(body, tag, skip)
    count, rest = divmod(total, size)
    if not rest and body[skip::size] == bytes([tag]) * count:
        return count, total
    count, position = 0, skip
    while position < len(body):
        position += _field(body, tag, position)
        count += 1
    return count, total


def _field(body: bytes, tag: int, position: int) -> int:
    """Bytes of the field at that position: tag, length and content."""
    if body[position] != tag:
        raise ValueError(f"field tag {body[position]:#x} where {tag:#x} was expected")
    length = shift = 0
    at = position + 1
    while True:
        byte = body[at]
        length |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            return at - position + length
