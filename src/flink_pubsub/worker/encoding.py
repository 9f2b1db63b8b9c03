"""Turns the elements of a WRITE batch into entries of publish requests, and runs the user's code on the way.

An entry is what a message takes in a PublishRequest: the tag of `messages`, a length, the serialized PubsubMessage. Where
the JVM makes whole entries, its column is passed on as it is and no message is touched here. Everywhere else the order is:
the element is decoded, its topic resolved, its message made, its entry appended to those of the same topic and ordering key.

An exception of user code becomes an error of ours that names what raised, and the topic where it is known; it keeps the
exception as its cause, and never shows the payload. A record that the serializer, here or in the JVM, makes no message of goes
to `refused`, whose raising ends the batch; anything else that fails does so by itself.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, repeat
from typing import Any, TypeAlias

from flink_pubsub.bridge.frames import NO_TIMESTAMP, WriteBatch
from flink_pubsub.core.batching import Lane, varint
from flink_pubsub.destinations import TopicDestination
from flink_pubsub.errors import ConfigurationError, DestinationError, SerializationError
from flink_pubsub.messages import PubsubMessage
from flink_pubsub.rpc.publisher import Entries
from flink_pubsub.schemas import PayloadEncoding, PubSubSerializationSchema
from flink_pubsub.sink import DestinationResolver, ElementCoding, SinkContext, SinkSpec
from flink_pubsub.wire import pubsub_pb2 as wire
from flink_pubsub.worker.routing import Router

Refused: TypeAlias = Callable[[str, SerializationError], None]
"""Takes the topic and the error of a record that cannot be serialized; returning drops the record."""

Serialize: TypeAlias = Callable[[Any, "bytes | None"], "tuple[bytes, str] | None"]
"""From an element and the payload the JVM made of it to entry and ordering key; None skips the record."""


def fail(topic: str, error: SerializationError) -> None:
    """A `Refused` that drops nothing."""
    raise error


@dataclass(frozen=True, slots=True)
class Encoded:
    """The messages of one WRITE batch."""

    entries: Sequence[Entries]
    messages: int
    size: int
    """Bytes of all entries."""
    refused: int = 0
    """Records that could not be serialized."""


class Encoder:
    """Makes entries as one sink specifies. Used on one thread."""

    def __init__(self, spec: SinkSpec, refused: Refused = fail) -> None:
        spec.serializer.open()
        self._refused = refused
        self._refusals = 0
        self._spec = spec
        self._topic = None if spec.topic is None else spec.topic.resource_path
        self._serialize = _flat(spec.serializer) or _whole(spec.serializer)
        self._ordering = spec.options.enable_message_ordering
        self._router = Router(spec) if spec.element_coding == "route" else None
        self._decode = _decoder(spec.element_coding, spec.type_info_proto)

    def encode(self, batch: WriteBatch) -> Encoded:
        """The messages of a batch.

        Raises:
            RecordError: user code raised, or broke its contract.
            ConfigurationError: a message has an ordering key and the sink no message ordering.
            Exception: `refused` raised.
        """
        payloads = batch.payloads
        if self._spec.payload_coding == "message" and not batch.failures:
            assert payloads is not None
            if self._router is not None:
                return Encoded(self._router.sort(batch), batch.size, len(payloads.data))
            assert self._topic is not None
            return Encoded([((self._topic, ""), payloads.data, payloads.ends)], batch.size, len(payloads.data))
        lanes: dict[Lane, list[bytes]] = {}
        self._refusals = 0
        for lane, entry in self._messages(batch):
            entries = lanes.get(lane)
            if entries is None:
                lanes[lane] = [entry]
            else:
                entries.append(entry)
        joined = [(lane, b"".join(entries), list(accumulate(map(len, entries)))) for lane, entries in lanes.items()]
        return Encoded(joined, sum(map(len, lanes.values())), sum(len(data) for _, data, _ in joined), self._refusals)

    def _messages(self, batch: WriteBatch) -> Iterator[tuple[Lane, bytes]]:
        spec = self._spec
        elements: Iterable[Any] = repeat(None, batch.size)
        if batch.elements is not None and self._decode is not None:
            elements = map(self._decode, batch.elements.values())
        payloads: Iterable[bytes | None] = repeat(None, batch.size) if batch.payloads is None else batch.payloads.values()
        contexts = None if spec.destination_resolver is None else _contexts(batch)
        serialize, topic = _failed_in_jvm if batch.failures else self._serialize, self._topic
        for element, payload in _guarded(elements, payloads):
            if contexts is not None:
                assert spec.destination_resolver is not None
                topic = _resolve(spec.destination_resolver, element, next(contexts))
            elif self._router is not None:
                topic, _ = self._router.lane(element)
            assert topic is not None
            try:
                made = serialize(element, payload)
            except SerializationError as error:
                self._refusals += 1
                refusal = SerializationError(f"{error.problem} (topic {topic})")
                refusal.__cause__ = error.__cause__
                self._refused(topic, refusal)
                continue
            if made is None:
                continue
            entry, key = made
            if key and not self._ordering:
                problem = f"must be True for messages with an ordering key, and one for {topic} has one"
                raise ConfigurationError("enable_message_ordering", problem)
            yield (topic, key), entry


class JavaError(Exception):
    """What Java code raised, in place of an exception of its own here: the stack trace as text."""

    def __init__(self, trace: str) -> None:
        """Makes the error from a stack trace, which begins with the exception's class."""
        super().__init__(trace)
        self.exception = re.split("[:\\s]", trace, maxsplit=1)[0]
        """Name of the exception's class."""


def _failed_in_jvm(element: Any, trace: bytes | None) -> tuple[bytes, str] | None:
    """Stands for the serializer in a batch of what the JVM's schema failed on."""
    cause = JavaError((trace or b"").decode(errors="replace"))
    raise SerializationError(f"making its payload in the JVM raised {cause.exception}") from cause


def _flat(serializer: PubSubSerializationSchema) -> Serialize | None:
    """For a payload that a function or the JVM makes: no message object is made on the way."""
    make, attributes_of, key_of = serializer.payload_function, serializer.attributes_function, serializer.ordering_key_function
    if make is None and not serializer.payload_in_jvm:
        return None

    def serialize(element: Any, payload: bytes | None) -> tuple[bytes, str]:
        role = "the function given to payload"
        try:
            data: object = payload if make is None else make(element)
            role = "the function given to with_attributes"
            attributes = attributes_of and attributes_of(element)
            role = "the function given to with_ordering_key"
            key = (key_of and key_of(element)) or ""
        except Exception as error:
            raise _raised(role, error) from error
        if type(data) is not bytes:
            if data is None:
                raise SerializationError(PayloadEncoding.NO_PAYLOAD)
            raise SerializationError(f"a payload must be bytes, not {type(data).__name__}")
        return entry_of(data, attributes, key), key

    return serialize


def _whole(serializer: PubSubSerializationSchema) -> Serialize:
    """For a serializer that makes messages, or None."""

    def serialize(element: Any, payload: bytes | None) -> tuple[bytes, str] | None:
        try:
            message: object = serializer.serialize(element)
        except SerializationError:
            raise
        except Exception as error:
            raise _raised("the serializer, or a function added to it,", error) from error
        if message is None:
            return None
        if not isinstance(message, PubsubMessage):
            raise SerializationError(f"the serializer must return a PubsubMessage or None, not {type(message).__name__}")
        return entry_of(message.data, message.attributes, message.ordering_key), message.ordering_key

    return serialize


def entry_of(data: bytes, attributes: Mapping[str, str] | None, key: str) -> bytes:
    """A message as an entry of a publish request.

    Raises:
        SerializationError: attributes or key are not text.
    """
    if attributes or key:
        try:
            message = wire.PubsubMessage(data=data, ordering_key=key)
            if attributes:
                message.attributes.update(attributes)
            body = message.SerializeToString()
        except (TypeError, ValueError, AttributeError) as error:
            problem = "attributes must map str to str and an ordering key must be str, all of it encodable as UTF-8"
            raise SerializationError(problem) from error
        return b"\x12" + varint(len(body)) + body
    if not data:
        return b"\x12\x00"
    head = b"\x0a" + varint(len(data))
    return b"".join((b"\x12", varint(len(head) + len(data)), head, data))


def _resolve(resolver: DestinationResolver, element: Any, context: SinkContext) -> str:
    try:
        destination: object = resolver(element, context)
    except Exception as error:
        raise DestinationError(f"it raised {type(error).__name__}") from error
    if not isinstance(destination, TopicDestination):
        given = "None" if destination is None else f"an object of type {type(destination).__name__}"
        raise DestinationError(f"it returned {given}, but it has to return a TopicDestination")
    return destination.resource_path


def _contexts(batch: WriteBatch) -> Iterator[SinkContext]:
    watermark = None if batch.watermark == NO_TIMESTAMP else batch.watermark
    timestamps = repeat(NO_TIMESTAMP, batch.size) if batch.timestamps is None else batch.timestamps
    for timestamp in timestamps:
        yield SinkContext(None if timestamp == NO_TIMESTAMP else timestamp, watermark)


def _guarded(elements: Iterable[Any], payloads: Iterable[bytes | None]) -> Iterator[tuple[Any, bytes | None]]:
    """Pairs of both; what fails here is the decoding of an element."""
    pairs = zip(elements, payloads, strict=True)
    while True:
        try:
            pair = next(pairs)
        except StopIteration:
            return
        except Exception as error:
            raise _raised("decoding a record of the stream", error) from error
        yield pair


def _raised(role: str, error: Exception) -> SerializationError:
    return SerializationError(f"{role} raised {type(error).__name__}")


def _decoder(coding: ElementCoding, type_info_proto: bytes | None) -> Callable[[bytes], Any] | None:
    if coding == "none":
        return None
    if coding == "pickle":
        return pickle.loads
    if coding in ("bytes", "route"):
        return bytes
    # PyFlink costs seconds and 180 MB, so only workers whose stream has an explicit type import it.
    from pyflink.fn_execution import flink_fn_execution_pb2
    from pyflink.fn_execution.coders import from_type_info_proto

    type_info = flink_fn_execution_pb2.TypeInfo()
    type_info.ParseFromString(type_info_proto)
    decode: Callable[[bytes], Any] = from_type_info_proto(type_info).get_impl().decode
    return decode
