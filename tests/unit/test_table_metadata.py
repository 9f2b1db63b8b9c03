"""Metadata columns have what Protocol Buffers read, in Flink's own forms, and NULL only where that is allowed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from flink_pubsub.wire.pubsub_pb2 import PubsubMessage
from tests.unit.java import JavaError, Reflected, jvm, make
from tests.unit.test_java_messages import messages, received

FEW = settings(max_examples=100)

pytestmark = pytest.mark.feature("SQL-03")


def column(name: str, message: PubsubMessage) -> Any:
    """The value of a metadata column, of the message that the JVM reads from its bytes."""
    reader = make("message.MessageReader")
    data = received(message.SerializeToString())
    reader.read(data, 0, len(data))
    constant = Reflected("table.ReadableMetadata").valueOf(name)
    subscription = jvm().org.apache.flink.table.data.StringData.fromString("projects/p/subscriptions/s")
    # The constant is of a class of its own, whose method its enum declares.
    return Reflected("table.ReadableMetadata", constant).read(reader.instance, subscription)


@FEW
@given(messages())
def test_texts_and_attributes_are_those_of_the_message(message: PubsubMessage) -> None:
    assert column("MESSAGE_ID", message).toString() == message.message_id
    attributes = column("ATTRIBUTES", message)
    string = jvm().org.apache.flink.table.data.StringData.fromString
    assert attributes.size() == len(message.attributes)
    assert all(attributes.get(string(key)).toString() == value for key, value in message.attributes.items())
    assert column("SUBSCRIPTION", message).toString() == "projects/p/subscriptions/s"


@FEW
@given(messages())
def test_an_ordering_key_is_null_when_there_is_none(message: PubsubMessage) -> None:
    key = column("ORDERING_KEY", message)
    assert (None if key is None else key.toString()) == (message.ordering_key or None)


@FEW
@given(messages())
def test_the_publish_time_is_cut_to_milliseconds_also_before_1970(message: PubsubMessage) -> None:
    message.publish_time.SetInParent()
    time = column("PUBLISH_TIME", message)
    assert time.getMillisecond() == message.publish_time.seconds * 1000 + message.publish_time.nanos // 1_000_000
    assert time.getNanoOfMillisecond() == 0


def test_a_message_without_a_publish_time_cannot_be_decoded_to_one() -> None:
    with pytest.raises(JavaError, match="the message has no publish time"):
        column("PUBLISH_TIME", PubsubMessage(data=b"x"))
    assert column("MESSAGE_ID", PubsubMessage(data=b"x")).toString() == ""
