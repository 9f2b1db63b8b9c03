"""The JVM's reader of messages reads what Protocol Buffers read, and what is not a message is one clear error."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import cloudpickle
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from pyflink.common import Types, WatermarkStrategy
from pyflink.common.typeinfo import _from_java_type

from flink_pubsub.wire.pubsub_pb2 import PublishRequest, PubsubMessage, ReceivedMessage
from tests.flink.jobs import JavaObject, environment, worker_spec
from tests.unit.java import JavaError, Reflected, answering_null, classes, java_class, jvm, long_class, make
from tests.unit.java_connectors import FixedSource

FEW = settings(max_examples=150)
"""An example costs a dozen calls into the JVM."""

texts = st.text(max_size=20)


@st.composite
def messages(draw: st.DrawFn) -> PubsubMessage:
    message = PubsubMessage(
        data=draw(st.binary(max_size=200)),
        attributes=draw(st.dictionaries(texts, texts, max_size=5)),
        message_id=draw(texts),
        ordering_key=draw(texts),
    )
    if draw(st.booleans()):
        message.publish_time.seconds = draw(st.integers(-62_135_596_800, 253_402_300_799))
        message.publish_time.nanos = draw(st.integers(0, 999_999_999))
    return message


def received(message: bytes, attempt: int = 0) -> bytes:
    """A serialized ReceivedMessage with these bytes as its message."""
    around = ReceivedMessage(ack_id="an id", delivery_attempt=attempt).SerializeToString()
    return around + b"\x12" + varint(len(message)) + message


@pytest.fixture(scope="module")
def reader() -> Reflected:
    return make("message.MessageReader")


def read(reader: Reflected, data: bytes, before: bytes = b"", after: bytes = b"") -> PubsubMessage:
    """The message as the JVM understands it, from within a buffer."""
    whole = received(data)
    reader.read(before + whole + after, len(before), len(whole))
    message = PubsubMessage(
        data=bytes(reader.data()),
        attributes=dict(reader.attributes()),
        message_id=reader.messageId(),
        ordering_key=reader.orderingKey(),
    )
    time = reader.publishTime()
    if time is not None:
        message.publish_time.seconds = time.getEpochSecond()
        message.publish_time.nanos = time.getNano()
        assert reader.publishMillis() == time.toEpochMilli()
    else:
        assert reader.publishMillis() == -(2**63)
    return message


@FEW
@given(messages(), st.binary(max_size=5), st.binary(max_size=5))
def test_a_message_is_read_from_within_a_buffer(reader: Reflected, message: PubsubMessage, before: bytes, after: bytes) -> None:
    assert read(reader, message.SerializeToString(), before, after) == message


@FEW
@given(messages(), messages())
def test_fields_repeated_and_unknown_fields_are_taken_as_protobuf_takes_them(
    reader: Reflected, first: PubsubMessage, second: PubsubMessage
) -> None:
    unknown = b"\x80\x01\x05" + b"\x89\x01" + bytes(8) + b"\x92\x01\x02hi" + b"\x9d\x01" + bytes(4) + b"\x08\x07"
    data = first.SerializeToString() + unknown + second.SerializeToString()
    expected = PubsubMessage.FromString(data)
    expected.DiscardUnknownFields()
    assert read(reader, data) == expected


@pytest.mark.parametrize("attempt", [0, 1, 5, 2**31 - 1])
def test_the_delivery_attempt_is_read(reader: Reflected, attempt: int) -> None:
    data = received(PubsubMessage(data=b"x").SerializeToString(), attempt)
    reader.read(data, 0, len(data))
    assert reader.deliveryAttempt() == attempt
    reader.read(b"", 0, 0)
    assert reader.deliveryAttempt() == 0


@st.composite
def mutations(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(messages()).SerializeToString())
    for _ in range(draw(st.integers(1, 3))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))])


@FEW
@given(st.one_of(mutations(), st.binary(max_size=60)))
def test_what_protobuf_refuses_is_one_clear_error_and_the_rest_is_read_alike(reader: Reflected, data: bytes) -> None:
    try:
        expected: PubsubMessage | None = PubsubMessage.FromString(data)
    except DecodeError:
        expected = None
    try:
        message = read(reader, data)
    except JavaError as error:
        assert error.kind == "java.io.IOException"
        assert error.message.startswith("not a serialized PubsubMessage: ")
        assert expected is None or "wire type" in error.message or "publish time" in error.message
    else:
        assert expected is not None
        expected.DiscardUnknownFields()
        assert message == expected


@FEW
@given(st.one_of(mutations(), st.binary(max_size=60)))
def test_what_is_around_a_message_may_be_anything(reader: Reflected, data: bytes) -> None:
    try:
        reader.read(data, 0, len(data))
    except JavaError as error:
        assert error.kind == "java.io.IOException"
        assert error.message.startswith("not a serialized PubsubMessage: ")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x0a\x05abc", "a field claims 5 bytes where 3 are left"),
        (b"\x0a\xff\xff\xff\xff\x0f", "a field claims 4294967295 bytes where 0 are left"),
        (b"\x0a" + b"\xff" * 9 + b"\x01", "a field claims 18446744073709551615 bytes where 0 are left"),
        (b"\x0a" + b"\xff" * 11, "a number has more than 64 bits"),
        (b"\x0a\x80", "it ends within a number"),
        (b"\x00\x00", "tag 0 is none"),
        (b"\x0b\x0c", "wire type 3 is not supported"),
        (b"\x22\x02\x10\x80", "it ends within a number"),
        (b"\x22\x06\x10\xff\xff\xff\xff\x0f", "its publish time is"),
    ],
)
def test_a_malformed_message_is_an_error_that_says_why(reader: Reflected, data: bytes, reason: str) -> None:
    with pytest.raises(JavaError) as raised:
        read(reader, data)
    assert raised.value.kind == "java.io.IOException"
    assert reason in raised.value.message


@pytest.mark.parametrize("data", [b"\x1a\x01\xff", b"\x12\x03\x0a\x01\xc3"])
def test_a_text_that_is_not_utf_8_is_an_error(reader: Reflected, data: bytes) -> None:
    with pytest.raises(JavaError, match="a text is not UTF-8"):
        read(reader, data)


def test_the_replacement_character_itself_is_text(reader: Reflected) -> None:
    message = PubsubMessage(message_id="\ufffd")
    assert read(reader, message.SerializeToString()) == message


def varint(value: int) -> bytes:
    encoded = b""
    while value >= 0x80:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])


class Decoding:
    """A decoder of the JVM, and what it put out."""

    def __init__(self, decoder: Any) -> None:
        java_class("bridge.RecordOutput")
        self.decoder = decoder
        self.decoder.open(None)
        self.split = jvm().io.github.flinkpubsub.bridge.PythonSplit("s", '{"subscription":"projects/p/subscriptions/s"}')

    def decode(self, data: bytes) -> list[Any]:
        """The records of a message."""
        records = jvm().java.util.ArrayList()
        self.decoder.decode(self.split, data, 0, len(data), -(2**63), output_to(records))
        return list(records)


def output_to(records: Any) -> Any:
    """A RecordOutput that fills a Java list and drops the event times."""
    invoke = jvm().java.lang.invoke
    add = java_class("java.util.ArrayList").getMethod("add", classes(java_class("java.lang.Object")))
    handle = invoke.MethodHandles.publicLookup().unreflect(add).bindTo(records)
    collect = invoke.MethodHandles.dropArguments(handle, 1, classes(long_class()))
    return invoke.MethodHandleProxies.asInterfaceInstance(java_class("bridge.RecordOutput"), collect)


@pytest.mark.feature("BEY-14")
def test_pyflink_knows_the_type_of_whole_messages() -> None:
    j_type = jvm().io.github.flinkpubsub.message.MessageRowDecoder.type()
    assert _from_java_type(j_type) == Types.ROW_NAMED(
        ["data", "attributes", "ordering_key", "message_id", "publish_time", "delivery_attempt", "subscription"],
        [
            Types.PRIMITIVE_ARRAY(Types.BYTE()),
            Types.MAP(Types.STRING(), Types.STRING()),
            Types.STRING(),
            Types.STRING(),
            Types.INSTANT(),
            Types.INT(),
            Types.STRING(),
        ],
    )


@pytest.mark.feature("BEY-14")
@FEW
@given(messages(), st.integers(0, 9))
def test_a_message_becomes_a_row_of_all_it_has(message: PubsubMessage, attempt: int) -> None:
    decoding = Decoding(jvm().io.github.flinkpubsub.message.MessageRowDecoder())
    [row] = decoding.decode(received(message.SerializeToString(), attempt))
    time = row.getField(4)
    assert bytes(row.getField(0)) == message.data
    assert dict(row.getField(1)) == dict(message.attributes)
    assert row.getField(2) == (message.ordering_key or None)
    assert row.getField(3) == message.message_id
    assert (time and (time.getEpochSecond(), time.getNano())) == (
        (message.publish_time.seconds, message.publish_time.nanos) if message.HasField("publish_time") else None
    )
    assert row.getField(5) == (attempt or None)
    assert row.getField(6) == "projects/p/subscriptions/s"


@pytest.mark.feature("BEY-14")
def test_rows_of_messages_reach_python_functions() -> None:
    published = datetime(2024, 5, 17, 12, 30, 15, 250_000, tzinfo=timezone.utc)
    full = PubsubMessage(data=b"\x00\xff", attributes={"a": "b", "ü": ""}, message_id="17", ordering_key="k")
    full.publish_time.FromDatetime(published)
    messages = (received(full.SerializeToString(), 3), received(PubsubMessage(message_id="18").SerializeToString()))
    connector = cloudpickle.dumps(FixedSource(messages, '{"subscription":"projects/p/subscriptions/s"}'))
    package, env = jvm().io.github.flinkpubsub, environment()
    decoder = package.message.MessageRowDecoder()
    source = package.bridge.PythonSource(connector, worker_spec(), decoder, decoder.type(), True)
    stream = env.from_source(JavaObject(source), WatermarkStrategy.no_watermarks(), "messages")
    with stream.map(
        lambda row: (row.as_dict(), row.publish_time and row.publish_time.to_epoch_milli())
    ).execute_and_collect() as rows:
        (first, millis), (second, no_millis) = rows
    del first["publish_time"], second["publish_time"]
    assert first == {
        "data": b"\x00\xff",
        "attributes": {"a": "b", "ü": ""},
        "ordering_key": "k",
        "message_id": "17",
        "delivery_attempt": 3,
        "subscription": "projects/p/subscriptions/s",
    }
    assert (millis, no_millis) == (int(published.timestamp() * 1000), None)
    assert (second["data"], second["attributes"], second["ordering_key"], second["delivery_attempt"]) == (b"", {}, None, None)


def test_a_payload_is_decoded_by_a_flink_schema() -> None:
    schema = java_class("org.apache.flink.api.common.serialization.SimpleStringSchema").newInstance()
    decoding = Decoding(jvm().io.github.flinkpubsub.message.PayloadDecoder(schema))
    assert decoding.decode(received(PubsubMessage(data="größer".encode(), message_id="1").SerializeToString())) == ["größer"]
    assert decoding.decode(received(PubsubMessage(message_id="2").SerializeToString())) == [""]


@pytest.mark.parametrize(("record", "reason"), [(None, "emitted null"), ("late", "its collector must not be kept")])
def test_a_schema_may_neither_emit_null_nor_keep_its_collector(record: str | None, reason: str) -> None:
    schema = java_class("org.apache.flink.api.common.serialization.SimpleStringSchema").newInstance()
    records = make("message.PayloadDecoder$Records", schema)
    with pytest.raises(JavaError, match=f"SimpleStringSchema .*{reason}"):
        records.collect(record)


def encoded(encoder: str, text: str) -> bytes:
    out = jvm().org.apache.flink.core.memory.DataOutputSerializer(16)
    schema = java_class("org.apache.flink.api.common.serialization.SimpleStringSchema").newInstance()
    made = make(f"message.{encoder}", schema)
    made.open(answering_null("org.apache.flink.api.connector.sink2.WriterInitContext"))
    made.encode(text, out)
    return bytes(out.getCopyOfBuffer())


@FEW
@given(st.lists(st.one_of(st.text(max_size=60), st.integers(0, 70_000).map(lambda size: "x" * size)), max_size=4))
def test_encoded_messages_in_a_row_are_the_tail_of_a_publish_request(elements: list[str]) -> None:
    head = PublishRequest(topic="projects/p/topics/t").SerializeToString()
    request = PublishRequest.FromString(head + b"".join(encoded("MessageEncoder", element) for element in elements))
    assert request == PublishRequest(
        topic="projects/p/topics/t", messages=[PubsubMessage(data=element.encode()) for element in elements]
    )


def test_a_payload_is_what_the_flink_schema_makes() -> None:
    assert encoded("PayloadEncoder", "größer") == "größer".encode()


@pytest.mark.feature("SNK-02")
@pytest.mark.parametrize("encoder", ["PayloadEncoder", "MessageEncoder"])
def test_a_null_payload_is_a_serialization_failure(encoder: str) -> None:
    invoke = jvm().java.lang.invoke
    null = invoke.MethodHandles.constant(java_class("java.lang.Object"), None)
    schema = invoke.MethodHandleProxies.asInterfaceInstance(
        java_class("org.apache.flink.api.common.serialization.SerializationSchema"),
        invoke.MethodHandles.dropArguments(null, 0, classes(java_class("java.lang.Object"))),
    )
    batch = make("bridge.WriteBatch", None, make(f"message.{encoder}", schema).instance)
    with pytest.raises(
        JavaError, match=r"the serialization schema .* failed on it: .*a SerializationSchema must not return null"
    ):
        batch.encode("element")
