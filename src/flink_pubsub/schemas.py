"""What turns messages into records and records into messages.

A schema is user code that travels with the job and runs in the worker of a source or sink, or it stands for a schema of
Flink's own that runs in the JVM; `decodes_in_jvm` and `payload_in_jvm` tell which. Nothing of the JVM is ever pickled: a
schema that wraps a Java object leaves it behind, since the JVM has its own copy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from flink_pubsub import _checks
from flink_pubsub.errors import SerializationError
from flink_pubsub.messages import PubsubMessage

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyflink.common import DeserializationSchema, SerializationSchema, TypeInformation

    from flink_pubsub.destinations import SubscriptionDestination


class Collector(Protocol):
    """Takes the records of one message, during the call of `deserialize` that it was given to and on that thread."""

    def collect(self, record: Any, timestamp: int | datetime | None = None) -> None:
        """Emits a record.

        Args:
            record: anything but None.
            timestamp: event time, in milliseconds since the epoch or as an aware datetime. Default: the publish time.

        Raises:
            DeserializationError: the record is None, the timestamp is neither of these, the call of `deserialize` has
                returned, or this is another thread.
        """


class PubSubDeserializationSchema(ABC):
    """Turns a message into any number of records. Subclass it, or see `payload` and `message`.

    The object is pickled with the job; each reader has a copy of its own and uses it on one thread.
    """

    decodes_in_jvm: bool = False
    """Whether Flink's JVM does the decoding; `open` and `deserialize` are never called then."""

    def open(self) -> None:  # noqa: B027 - most schemas have nothing to open
        """Called once in each reader, before the first message. Raising fails the job."""

    @abstractmethod
    def deserialize(self, message: PubsubMessage, subscription: SubscriptionDestination, collector: Collector) -> None:
        """Emits the records of a message, in order. None at all drops the message, which is acknowledged all the same.

        Raising fails the job; the records collected before stay emitted.
        """

    def get_produced_type(self) -> TypeInformation | None:
        """Type of the records; None stands for pickled Python objects. Called where the job is built.

        Types that the schema keeps as attributes may refuse to be pickled with it: make them here.
        """
        return None

    @staticmethod
    def payload(
        schema: DeserializationSchema | Callable[[bytes], Any], type_info: TypeInformation | None = None
    ) -> PubSubDeserializationSchema:
        """A schema that sees the payload only.

        Args:
            schema: a function from the payload to one record, which runs in the worker, or a PyFlink schema such as
                `SimpleStringSchema()`, which runs in the JVM.
            type_info: type of the function's records; None stands for pickled Python objects. A PyFlink schema knows its own.

        Raises:
            ConfigurationError: `schema` is neither, or a type is given for a PyFlink schema.
        """
        j_schema = getattr(schema, "_j_deserialization_schema", None)
        if j_schema is not None:
            if type_info is not None:
                _checks.refuse("type_info", "must be left out: a PyFlink schema brings its own type", type_info)
            return JvmPayloadDecoding(j_schema)
        _checks.payload_function(schema, "payload: bytes) -> record", PubSubDeserializationSchema)
        return PayloadFunction(schema, type_info)

    @staticmethod
    def message() -> PubSubDeserializationSchema:
        """A schema that emits each message as a row with all its metadata, decoded in the JVM."""
        return MessageRows()


class PayloadFunction(PubSubDeserializationSchema):
    """`payload(function)`: one record per message, from its payload alone."""

    NO_RECORD = (
        "the function given to PubSubDeserializationSchema.payload returned None, but it has to return a record; to drop"
        " messages, subclass PubSubDeserializationSchema and collect nothing"
    )
    """The problem to report when the function returns None."""

    def __init__(self, function: Callable[[bytes], Any], type_info: TypeInformation | None) -> None:
        self.function = function
        self._type_info = type_info

    def deserialize(self, message: PubsubMessage, subscription: SubscriptionDestination, collector: Collector) -> None:
        """Emits what the function returns. A reader calls `function` directly where it can."""
        collector.collect(self.function(message.data))

    def get_produced_type(self) -> TypeInformation | None:
        """The type given with the function."""
        return self._type_info

    def __getstate__(self) -> dict[str, Any]:
        # The type may hold Java objects, and no worker asks for it.
        return {"function": self.function, "_type_info": None}


class _DecodedInJvm(PubSubDeserializationSchema):
    decodes_in_jvm = True

    def deserialize(self, message: PubsubMessage, subscription: SubscriptionDestination, collector: Collector) -> None:
        raise NotImplementedError("this schema decodes in the JVM")


class JvmPayloadDecoding(_DecodedInJvm):
    """`payload(schema)` with a schema of PyFlink's."""

    def __init__(self, j_schema: JavaObject | None) -> None:
        self.j_schema = j_schema
        """The Java `DeserializationSchema`; None in a copy that was pickled."""

    def __reduce__(self) -> tuple[type, tuple[None]]:
        return JvmPayloadDecoding, (None,)


class MessageRows(_DecodedInJvm):
    """`message()`."""


class PubSubSerializationSchema(ABC):
    """Turns a record into a message. Subclass it, or see `payload`; either way attributes and a key can be added.

    The object is pickled with the job; each writer has a copy of its own and uses it on one thread.
    """

    def open(self) -> None:  # noqa: B027 - most schemas have nothing to open
        """Called once in each writer, before the first record. Raising fails the job."""

    @abstractmethod
    def serialize(self, element: Any) -> PubsubMessage | None:
        """The message for a record, or None to skip the record. Raising fails the job."""

    @property
    def payload_in_jvm(self) -> bool:
        """Whether the payload is made in the JVM; `serialize` cannot be called then."""
        return False

    @property
    def payload_function(self) -> Callable[[Any], bytes] | None:
        """The function of `payload`, if that is what this schema is made of, else None.

        With it, or with a payload made in the JVM, a message is the payload plus what the two functions below extract, and
        a writer may put it together itself; every other schema is called through `serialize`.
        """
        return None

    @property
    def attributes_function(self) -> Callable[[Any], Mapping[str, str] | None] | None:
        """What `with_attributes` added, as one function."""
        return None

    @property
    def ordering_key_function(self) -> Callable[[Any], str | None] | None:
        """What `with_ordering_key` added."""
        return None

    @staticmethod
    def payload(schema: SerializationSchema | Callable[[Any], bytes]) -> PubSubSerializationSchema:
        """A schema that makes the payload only.

        Args:
            schema: a function from a record to its payload, which runs in the worker, or a PyFlink schema such as
                `SimpleStringSchema()`, which runs in the JVM. It cannot skip: None for a payload fails the job.

        Raises:
            ConfigurationError: `schema` is neither.
        """
        j_schema = getattr(schema, "_j_serialization_schema", None)
        if j_schema is not None:
            return JvmPayloadEncoding(j_schema)
        _checks.payload_function(schema, "record) -> bytes", PubSubSerializationSchema)
        return PayloadEncoding(schema)

    def with_attributes(self, function: Callable[[Any], Mapping[str, str] | None]) -> PubSubSerializationSchema:
        """This schema, with attributes taken from the record added to those the message has; they win over those.

        The function is not called for skipped records; None or nothing adds nothing.

        Raises:
            ConfigurationError: `function` is not callable.
        """
        _checks.function("with_attributes", function, "(record) -> dict of str to str")
        return WithAttributes(self, function)

    def with_ordering_key(self, function: Callable[[Any], str | None]) -> PubSubSerializationSchema:
        """This schema, with an ordering key taken from the record; None or an empty one leaves the key as it is.

        The function is not called for skipped records. The sink must have `enable_message_ordering`.

        Raises:
            ConfigurationError: `function` is not callable.
        """
        _checks.function("with_ordering_key", function, "(record) -> str")
        return WithOrderingKey(self, function)


class PayloadEncoding(PubSubSerializationSchema):
    """`payload(function)`."""

    NO_PAYLOAD = (
        "the function given to PubSubSerializationSchema.payload returned None, but it has to return bytes; to skip"
        " records, subclass PubSubSerializationSchema and return None from serialize"
    )
    """The problem to report when the function returns None."""

    def __init__(self, function: Callable[[Any], bytes]) -> None:
        self._function = function

    @property
    def payload_function(self) -> Callable[[Any], bytes]:
        """The function."""
        return self._function

    def serialize(self, element: Any) -> PubsubMessage:
        """A message of just the payload."""
        data: object = self._function(element)
        if data is None:
            raise SerializationError(self.NO_PAYLOAD)
        if not isinstance(data, bytes):
            raise SerializationError(f"a payload must be bytes, not {type(data).__name__}")
        return PubsubMessage(data)


class JvmPayloadEncoding(PubSubSerializationSchema):
    """`payload(schema)` with a schema of PyFlink's."""

    def __init__(self, j_schema: JavaObject | None) -> None:
        self.j_schema = j_schema
        """The Java `SerializationSchema`; None in a copy that was pickled."""

    @property
    def payload_in_jvm(self) -> bool:
        """Always."""
        return True

    def serialize(self, element: Any) -> PubsubMessage:
        """Never called."""
        raise NotImplementedError("this schema encodes in the JVM")

    def __reduce__(self) -> tuple[type, tuple[None]]:
        return JvmPayloadEncoding, (None,)


class _Layer(PubSubSerializationSchema):
    """A schema on top of another: what it does not add comes from that one."""

    def __init__(self, inner: PubSubSerializationSchema) -> None:
        self.inner = inner

    def open(self) -> None:
        self.inner.open()

    @property
    def payload_in_jvm(self) -> bool:
        return self.inner.payload_in_jvm

    @property
    def payload_function(self) -> Callable[[Any], bytes] | None:
        return self.inner.payload_function

    @property
    def attributes_function(self) -> Callable[[Any], Mapping[str, str] | None] | None:
        return self.inner.attributes_function

    @property
    def ordering_key_function(self) -> Callable[[Any], str | None] | None:
        return self.inner.ordering_key_function


class WithAttributes(_Layer):
    """`with_attributes(function)`."""

    def __init__(self, inner: PubSubSerializationSchema, function: Callable[[Any], Mapping[str, str] | None]) -> None:
        super().__init__(inner)
        self._function = function

    @property
    def attributes_function(self) -> Callable[[Any], Mapping[str, str] | None]:
        """The function, joined with that of a layer below."""
        below, own = self.inner.attributes_function, self._function
        return own if below is None else lambda element: {**(below(element) or {}), **(own(element) or {})}

    def serialize(self, element: Any) -> PubsubMessage | None:
        """The inner message with the attributes added."""
        message = self.inner.serialize(element)
        attributes = None if message is None else self._function(element)
        return replace(message, attributes={**message.attributes, **attributes}) if message and attributes else message


class WithOrderingKey(_Layer):
    """`with_ordering_key(function)`."""

    def __init__(self, inner: PubSubSerializationSchema, function: Callable[[Any], str | None]) -> None:
        super().__init__(inner)
        self._function = function

    @property
    def ordering_key_function(self) -> Callable[[Any], str | None]:
        """The function, falling back to that of a layer below."""
        below, own = self.inner.ordering_key_function, self._function
        return own if below is None else lambda element: own(element) or below(element)

    def serialize(self, element: Any) -> PubsubMessage | None:
        """The inner message with the key set."""
        message = self.inner.serialize(element)
        key = None if message is None else self._function(element)
        return replace(message, ordering_key=key) if message and key else message


def jvm_encoding(schema: PubSubSerializationSchema) -> JvmPayloadEncoding | None:
    """The schema below all layers, if it is one of PyFlink's."""
    while isinstance(schema, _Layer):
        schema = schema.inner
    return schema if isinstance(schema, JvmPayloadEncoding) else None
