"""Messages as the emulator keeps them: bytes, made once when published and spliced into every response.

A stored message is the entry it will be in a `ReceivedMessage`: the field's tag, the length and the serialized
`PubsubMessage`. A response is then those entries with a fresh ack id before each, joined; no object is built or serialized
per delivery.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache

from flink_pubsub.emulator.errors import invalid
from flink_pubsub.wire.pubsub_pb2 import PubsubMessage

FIRST_MESSAGE_NUMBER = 10**16
"""Message ids are 17 digits, as the service's are today."""

ACK_ID_LENGTH = 190
_DIGITS = 19
_PADDING = base64.urlsafe_b64encode(b"".join(hashlib.sha512(bytes([i])).digest() for i in range(2)))[:-2].decode()
_ACK_PREFIX = (_PADDING + "-" * ACK_ID_LENGTH)[: ACK_ID_LENGTH - _DIGITS]
_ACK_FORMAT = _ACK_PREFIX.encode() + b"%019d"


def varint(value: int) -> bytes:
    """`value` in protobuf's base-128 encoding."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


class Message:
    """A published message; shared by all subscriptions of the topic and never changed."""

    __slots__ = ("entry", "number", "ordering_key", "published_at", "size")

    def __init__(self, number: int, entry: bytes, size: int, ordering_key: str, published_at: float) -> None:
        self.number = number
        self.entry = entry
        self.size = size
        self.ordering_key = ordering_key
        self.published_at = published_at

    @property
    def message_id(self) -> str:
        """The id the service gave it."""
        return str(self.number)

    def decode(self) -> PubsubMessage:
        """The message as a protobuf object."""
        return PubsubMessage.FromString(self.entry[len(self.entry) - self.size :])


def publish_milliseconds(epoch: float, published_at: float) -> int:
    """The publish time that messages show, in milliseconds since 1970; `epoch` is the clock's zero."""
    return int((epoch + published_at) * 1000)


def store(messages: Iterable[PubsubMessage], first_number: int, epoch: float, now: float) -> list[Message]:
    """Give checked messages their ids and publish time, and serialize them.

    The two fields are appended to what the publisher sent; where it had set them itself, the later ones win, which is
    why zero nanoseconds are written out.
    """
    milliseconds = publish_milliseconds(epoch, now)
    seconds_and_nanos = b"\x08" + varint(milliseconds // 1000) + b"\x10" + varint(milliseconds % 1000 * 1_000_000)
    publish_time = b"\x22" + varint(len(seconds_and_nanos)) + seconds_and_nanos
    stored = []
    number = first_number
    for message in messages:
        body = message.SerializeToString() + b"\x1a\x11%d" % number + publish_time
        size = len(body)
        stored.append(Message(number, _entry_head(size) + body, size, message.ordering_key, now))
        number += 1
    return stored


@lru_cache(maxsize=4096)
def _entry_head(size: int) -> bytes:
    return b"\x12" + varint(size)


@lru_cache(maxsize=4096)
def _received_head(size: int) -> bytes:
    """What stands before an ack id in `received_messages`, when `size` bytes follow the ack id."""
    ack_head = b"\x0a" + varint(ACK_ID_LENGTH)
    return b"\x0a" + varint(len(ack_head) + ACK_ID_LENGTH + size) + ack_head


def ack_id(number: int) -> str:
    """The ack id of a delivery."""
    return (_ACK_FORMAT % number).decode()


def delivery_numbers(ack_ids: Sequence[str]) -> list[int]:
    """The deliveries that these ack ids stand for.

    Raises:
        ServiceError: INVALID_ARGUMENT, when one of them was never given out in this form.
    """
    if not ack_ids:
        raise invalid("You have not specified an ack ID in the request.")
    prefix, start = _ACK_PREFIX, len(_ACK_PREFIX)
    try:
        numbers = [int(ack_id[start:]) for ack_id in ack_ids if ack_id.startswith(prefix)]
    except ValueError:
        numbers = []
    if len(numbers) != len(ack_ids):
        culprit = next((ack_id for ack_id in ack_ids if delivery_number(ack_id) is None), ack_ids[0])
        raise invalid(f"You have passed an invalid ack ID to the service (ack_id={culprit}).")
    return numbers


def delivery_number(ack_id: str) -> int | None:
    """The delivery that the ack id stands for; None when it has not the form of one."""
    digits = ack_id[len(_ACK_PREFIX) :]
    return int(digits) if ack_id.startswith(_ACK_PREFIX) and digits.isdecimal() else None


def encode_received(first_number: int, messages: Sequence[Message], attempts: Sequence[int] | None, tail: bytes = b"") -> bytes:
    """A PullResponse or StreamingPullResponse of deliveries numbered from `first_number`, followed by `tail`."""
    parts: list[bytes] = []
    append = parts.append
    number = first_number
    if attempts is None:
        for message in messages:
            entry = message.entry
            append(_received_head(len(entry)))
            append(_ACK_FORMAT % number)
            append(entry)
            number += 1
    else:
        for message, attempt in zip(messages, attempts, strict=True):
            field = b"\x18" + varint(attempt)
            append(_received_head(len(message.entry) + len(field)))
            append(_ACK_FORMAT % number)
            append(message.entry)
            append(field)
            number += 1
    append(tail)
    return b"".join(parts)
