"""From responses to record blocks: untouched for the JVM, or through a Python schema and its collector."""

from __future__ import annotations

import pickle
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from flink_pubsub.bridge.frames import NO_TIMESTAMP, RecordBlock, SerializedBlock
from flink_pubsub.core.chunks import Run
from flink_pubsub.destinations import SubscriptionDestination
from flink_pubsub.errors import DeserializationError
from flink_pubsub.messages import PubsubMessage
from flink_pubsub.options import DeserializationFailurePolicy
from flink_pubsub.schemas import Collector, PubSubDeserializationSchema
from flink_pubsub.wire import pubsub_pb2 as wire
from flink_pubsub.worker.decoding import MAX_RECORDS_OF_A_MESSAGE, Decoding, RawDecoding, SchemaDecoding
from flink_pubsub.worker.payloads import python_decoding
from flink_pubsub.worker.recording import encoder
from flink_pubsub.worker.undecodable import Undecodable
from tests.unit.source_support import received_message, response_of

ORDERS = SubscriptionDestination("project", "orders")
PUBLISHED = 1_700_000_000_123
ROOM = 10_000


class Schema(PubSubDeserializationSchema):
    """Calls a function of the test."""

    def __init__(self, body: Callable[[PubsubMessage, Collector], None]) -> None:
        self.body = body
        self.subscriptions: list[SubscriptionDestination] = []

    def deserialize(self, message: PubsubMessage, subscription: SubscriptionDestination, collector: Collector) -> None:
        self.subscriptions.append(subscription)
        self.body(message, collector)


def decode(decoding: Decoding, *messages: wire.ReceivedMessage) -> RecordBlock:
    block = decoding.decode(0, ORDERS, Run(1, decoding.take(response_of(*messages)).payloads), ROOM)
    assert isinstance(block, RecordBlock)
    return block


def decoding_of(
    schema: PubSubDeserializationSchema, policy: DeserializationFailurePolicy = DeserializationFailurePolicy.FAIL
) -> tuple[Decoding, Undecodable]:
    undecodable = Undecodable(policy, lambda: 0.0)
    return python_decoding(schema, encoder(None), undecodable), undecodable


def decoding_of_body(body: Callable[[PubsubMessage, Collector], None]) -> SchemaDecoding:
    decoding = decoding_of(Schema(body))[0]
    assert isinstance(decoding, SchemaDecoding)
    return decoding


def failure(body: Callable[[PubsubMessage, Collector], None]) -> DeserializationError:
    decoding, undecodable = decoding_of(Schema(body))
    with pytest.raises(DeserializationError) as caught:
        decode(decoding, received_message("m1", b"SECRET"))
    assert (caught.value.subscription, caught.value.message_id) == (ORDERS.resource_path, "m1")
    assert undecodable.failed == 1
    assert "SECRET" not in str(caught.value)
    return caught.value


def records(block: RecordBlock) -> list[Any]:
    return [pickle.loads(record) for record in block.records]


@pytest.mark.feature("SRC-04")
@pytest.mark.parametrize("ordered", [True, False])
def test_raw_records_go_to_the_jvm_as_they_came(ordered: bool) -> None:
    messages = [received_message("a"), received_message("b")]
    messages[1].message.ordering_key, messages[1].delivery_attempt = "key", 3
    decoding, response = RawDecoding(ordered=ordered), response_of(*messages)
    delivery = decoding.take(response)
    assert len(response) <= delivery.size < len(response) + len(messages)
    assert (delivery.ack_ids, delivery.message_ids) == (["ack-a", "ack-b"], ["a", "b"])
    assert delivery.keys == (["", "key"] if ordered else None)
    assert decoding.decode(3, ORDERS, Run(7, delivery.payloads), ROOM) == SerializedBlock(3, 7, 2, response)


@pytest.mark.feature("SRC-04")
def test_raw_records_that_part_are_received_messages() -> None:
    messages = [received_message("a"), received_message("b", b"x" * 500), received_message("c")]
    messages[2].delivery_attempt = 3
    delivery = RawDecoding().take(response_of(*messages))
    part = delivery.part(1, 3)
    block = RawDecoding().decode(3, ORDERS, Run(8, part.payloads), ROOM)
    assert block == RecordBlock(3, 8, [each.SerializeToString() for each in messages[1:]])
    assert part.sizes == [each.ByteSize() for each in messages[1:]]


@pytest.mark.feature("SRC-02")
def test_a_schema_sees_the_whole_message_and_its_subscription() -> None:
    seen: list[PubsubMessage] = []
    decoding = decoding_of_body(lambda message, collector: seen.append(message))
    message = received_message("m1", b"payload")
    message.message.attributes["key"] = "value"
    message.message.ordering_key = "customer"
    message.delivery_attempt = 3
    decode(decoding, message)
    published = datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=timezone.utc)
    assert seen == [PubsubMessage(b"payload", {"key": "value"}, "customer", "m1", published, 3)]
    assert isinstance(decoding._schema, Schema)
    assert decoding._schema.subscriptions == [ORDERS]


@pytest.mark.feature("SRC-02")
def test_a_schema_may_emit_none_one_or_many_records() -> None:
    def body(message: PubsubMessage, collector: Collector) -> None:
        for i in range(int(message.data)):
            collector.collect((message.message_id, i))

    decoding = decoding_of_body(body)
    block = decode(decoding, *(received_message(f"m{n}", str(n).encode()) for n in (0, 1, 3, 0)))
    assert block.counts == [0, 1, 3, 0]
    assert records(block) == [("m1", 0), ("m3", 0), ("m3", 1), ("m3", 2)]
    assert decoding.skipped == 2


@pytest.mark.feature("BEY-13")
def test_a_record_has_the_publish_time_or_the_time_it_is_given() -> None:
    aware = datetime(2013, 1, 1, 5, tzinfo=timezone(timedelta(hours=-5)))

    def body(message: PubsubMessage, collector: Collector) -> None:
        collector.collect("default")
        collector.collect("millis", timestamp=42)
        collector.collect("aware", timestamp=aware)
        collector.collect("old", timestamp=datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=timezone.utc))

    block = decode(decoding_of_body(body), received_message("m1"))
    assert block.timestamps == [PUBLISHED, 42, 1_357_034_400_000, -1]


@pytest.mark.feature("SRC-04")
def test_a_message_without_a_publish_time_has_no_timestamp() -> None:
    message = received_message("m1")
    message.message.ClearField("publish_time")
    for decoding in (
        decoding_of_body(lambda message, collector: collector.collect(1)),
        decoding_of(PubSubDeserializationSchema.payload(len))[0],
    ):
        assert decode(decoding, message).timestamps == [NO_TIMESTAMP]


@pytest.mark.feature("BEY-13")
@pytest.mark.parametrize("timestamp", [datetime(2013, 1, 1), 1.5, True, "2013", 2**63])
def test_any_other_timestamp_is_an_error(timestamp: Any) -> None:
    error = failure(lambda message, collector: collector.collect("r", timestamp=timestamp))
    assert "a timestamp must be milliseconds since the epoch as int or an aware datetime" in error.problem


@pytest.mark.feature("SRC-02")
def test_a_none_record_is_an_error_even_when_the_schema_swallows_it() -> None:
    def body(message: PubsubMessage, collector: Collector) -> None:
        try:
            collector.collect(None)
        except DeserializationError:
            return

    assert "to drop a message, collect nothing" in failure(body).problem


@pytest.mark.feature("SRC-02")
def test_a_collector_used_after_its_call_is_an_error_also_during_the_next_call() -> None:
    kept: list[Collector] = []

    def body(message: PubsubMessage, collector: Collector) -> None:
        kept.append(collector)
        kept[0].collect("record")

    decoding = decoding_of_body(body)
    decode(decoding, received_message("m1"))
    with pytest.raises(DeserializationError, match="after the call of deserialize"):
        kept[0].collect("late")
    with pytest.raises(DeserializationError, match="after the call of deserialize"):
        decode(decoding, received_message("m2"))


@pytest.mark.feature("SRC-02")
def test_a_collector_used_on_another_thread_is_an_error_there_and_of_the_message() -> None:
    raised: list[BaseException] = []

    def body(message: PubsubMessage, collector: Collector) -> None:
        def use() -> None:
            try:
                collector.collect("record")
            except DeserializationError as error:
                raised.append(error)

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()

    assert "another thread" in failure(body).problem
    assert len(raised) == 1


@pytest.mark.feature("BEY-04")
def test_a_schemas_exception_is_the_cause_with_its_traceback_and_the_payload_is_not_shown() -> None:
    def body(message: PubsubMessage, collector: Collector) -> None:
        raise LookupError("no such customer")

    error = failure(body)
    shown = "".join(traceback.format_exception(error))
    assert error.problem == "the deserializer raised LookupError"
    assert isinstance(error.__cause__, LookupError)
    assert 'raise LookupError("no such customer")' in shown


@pytest.mark.feature("BEY-04")
def test_a_payload_function_makes_one_record_per_message_with_the_publish_time() -> None:
    block = decode(decoding_of(PubSubDeserializationSchema.payload(int))[0], received_message("m1", b"17"))
    assert (records(block), block.counts, block.timestamps) == ([17], None, [PUBLISHED])


@pytest.mark.feature("BEY-04")
@pytest.mark.parametrize(
    ("function", "problem"),
    [(lambda data: 1 // 0, "raised ZeroDivisionError"), (lambda data: None, "returned None")],
)
def test_a_payload_function_that_fails_names_message_and_subscription(function: Any, problem: str) -> None:
    decoding = decoding_of(PubSubDeserializationSchema.payload(function))[0]
    with pytest.raises(DeserializationError, match=problem) as caught:
        decode(decoding, received_message("m1", b"SECRET"))
    assert caught.value.message_id == "m1"
    assert "SECRET" not in str(caught.value)


def test_a_record_that_cannot_be_pickled_is_an_error_that_names_its_type() -> None:
    error = failure(lambda message, collector: collector.collect(threading.Lock()))
    assert error.problem == "a record of type lock cannot be encoded for Flink"


def test_an_instance_of_a_class_that_pickle_cannot_find_is_pickled_by_value() -> None:
    @dataclass
    class Local:
        value: int

    Local.__module__ = "__main__"
    assert not hasattr(sys.modules["__main__"], "Local")
    assert pickle.loads(encoder(None)(Local(5))).value == 5


@pytest.mark.parametrize("fast", [True, False])
def test_decoding_stops_after_the_message_that_fills_the_batch(fast: bool) -> None:
    schema = PubSubDeserializationSchema.payload(bytes) if fast else Schema(lambda m, collector: collector.collect(m.data))
    messages = [received_message(str(i), b"x" * 4000) for i in range(5)]
    assert len(decode(decoding_of(schema)[0], *messages).records) == 3


@pytest.mark.parametrize("fast", [True, False])
def test_a_message_whose_records_fit_no_frame_is_named(fast: bool) -> None:
    def grow(data: bytes) -> bytes:
        return data * (MAX_RECORDS_OF_A_MESSAGE // 4)

    schema = PubSubDeserializationSchema.payload(grow) if fast else Schema(lambda m, collector: collector.collect(grow(m.data)))
    with pytest.raises(DeserializationError, match=r"message m1 .* its records take") as caught:
        decode(decoding_of(schema)[0], received_message("m1", b"12345"))
    assert caught.value.message_id == "m1"
