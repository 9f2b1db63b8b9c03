"""What becomes of messages that a deserializer refuses: FAIL, DROP and NACK, in the worker and in the JVM."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from flink_pubsub.bridge.frames import RecordBlock
from flink_pubsub.core.chunks import Run
from flink_pubsub.core.seldom import Seldom
from flink_pubsub.destinations import SubscriptionDestination
from flink_pubsub.emulator import Emulator
from flink_pubsub.errors import DeserializationError
from flink_pubsub.messages import PubsubMessage
from flink_pubsub.options import DeserializationFailurePolicy, OrderingMode
from flink_pubsub.schemas import Collector, PubSubDeserializationSchema
from flink_pubsub.wire import pubsub_pb2 as wire
from flink_pubsub.worker.decoding import MAX_RECORDS_OF_A_MESSAGE
from flink_pubsub.worker.payloads import python_decoding
from flink_pubsub.worker.recording import encoder
from flink_pubsub.worker.undecodable import Undecodable
from tests.unit.source_reading import ORDERS, TOPIC, Reading
from tests.unit.source_support import eventually, received_message, response_of

pytestmark = pytest.mark.feature("SRC-24")
FAIL, DROP, NACK = DeserializationFailurePolicy
PATH = ORDERS.resource_path
LETTERS = "projects/project/topics/letters"


class Words(PubSubDeserializationSchema):
    """A record per word; fails at "bad", after the words before it. "huge" is a word that fits no frame."""

    def deserialize(self, message: PubsubMessage, subscription: SubscriptionDestination, collector: Collector) -> None:
        for word in message.data.decode().split():
            if word == "bad":
                raise ValueError("SECRET")
            collector.collect("x" * (MAX_RECORDS_OF_A_MESSAGE + 1) if word == "huge" else word)


def decode(policy: DeserializationFailurePolicy, schema: PubSubDeserializationSchema, *payloads: bytes) -> Any:
    undecodable = Undecodable(policy, lambda: 0.0)
    decoding = python_decoding(schema, encoder(None), undecodable)
    messages = [received_message(f"m{i}", data) for i, data in enumerate(payloads)]
    delivery = decoding.take(response_of(*messages))
    block = decoding.decode(0, ORDERS, Run(10, delivery.payloads), 1 << 20)
    return block, undecodable, decoding.skipped


def per_message(block: RecordBlock) -> list[list[object]]:
    records = iter([pickle.loads(record) for record in block.records])
    counts = [1] * len(block.records) if block.counts is None else block.counts
    return [[next(records) for _ in range(count)] for count in counts]


def test_drop_keeps_what_was_emitted_before_the_failure_and_goes_on() -> None:
    block, undecodable, skipped = decode(DROP, Words(), b"a b", b"c bad d", b"bad", b"", b"e huge", b"f")
    assert per_message(block) == [["a", "b"], ["c"], [], [], [], ["f"]]
    assert (undecodable.failed, undecodable.dropped, skipped) == (3, 3, 1)
    assert undecodable.taken() == []


def test_nack_ends_the_block_with_the_message_that_goes_back() -> None:
    block, undecodable, skipped = decode(NACK, Words(), b"a", b"c bad", b"e")
    assert per_message(block) == [["a"], ["c"]]
    assert (undecodable.taken(), undecodable.taken()) == ([11], [])
    assert (undecodable.failed, undecodable.dropped, skipped) == (1, 0, 0)


def test_fail_raises_with_the_schemas_error_as_the_cause() -> None:
    with pytest.raises(DeserializationError) as caught:
        decode(FAIL, Words(), b"a", b"c bad")
    assert caught.value.message_id == "m1"
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize("data", [b"bad", b"none", b"huge"])
def test_a_payload_function_is_treated_alike(data: bytes) -> None:
    def function(payload: bytes) -> object:
        if payload == b"bad":
            raise ValueError("SECRET")
        return None if payload == b"none" else b"x" * (MAX_RECORDS_OF_A_MESSAGE + 1) if payload == b"huge" else payload

    schema = PubSubDeserializationSchema.payload(function)
    block, undecodable, _ = decode(DROP, schema, b"a", data, b"b", data)
    assert per_message(block) == [[b"a"], [], [b"b"], []]
    assert (undecodable.failed, undecodable.dropped) == (2, 2)
    block, undecodable, _ = decode(NACK, schema, b"a", data, b"b")
    assert per_message(block) == [[b"a"], []]
    assert undecodable.taken() == [11]
    with pytest.raises(DeserializationError):
        decode(FAIL, schema, data)


@pytest.mark.feature("SRC-30")
def test_drops_are_logged_less_and_less_often_and_without_the_payload(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    undecodable = Undecodable(DROP, lambda: now[0])
    with caplog.at_level(logging.WARNING):
        for second in range(3600):
            now[0] = second
            undecodable.gives_back(PATH, f"m{second}", "the deserializer", ValueError("SECRET"))
    assert undecodable.dropped == 3600
    assert 10 < len(caplog.records) < 20
    assert f"message m0 of {PATH} is dropped: the deserializer raised ValueError; 0 such warnings withheld" in caplog.text
    assert "SECRET" not in caplog.text


def test_an_interval_grows_only_where_that_is_asked_for() -> None:
    steady, growing = Seldom(10), Seldom(10, 40)
    assert [now for now in range(200) if steady.passes(now) is not None] == list(range(0, 200, 10))
    assert [now for now in range(200) if growing.passes(now) is not None] == [0, 10, 30, 70, 110, 150, 190]


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator() as emulator:
        emulator.create_topic(TOPIC)
        emulator.create_topic(LETTERS)
        policy = wire.DeadLetterPolicy(dead_letter_topic=LETTERS, max_delivery_attempts=5)
        emulator.create_subscription(
            PATH, TOPIC, ack_deadline_seconds=600, dead_letter_policy=policy, enable_message_ordering=True
        )
        yield emulator


def publish(emulator: Emulator, *payloads: bytes, key: str = "") -> None:
    emulator.publish_all(TOPIC, [wire.PubsubMessage(data=data, ordering_key=key) for data in payloads])


def test_a_dropped_message_is_acknowledged_with_the_next_checkpoint(emulator: Emulator) -> None:
    reading = Reading(emulator, PubSubDeserializationSchema.payload(int), policy=DROP)
    reading.assign(ORDERS)
    publish(emulator, b"1", b"two", b"3")
    assert reading.take(2) == [1, 3]
    assert (reading.counter("numRecordsInErrors"), reading.counter("messagesDropped")) == (1, 1)
    assert emulator.counts(PATH).acked == 0
    reading.checkpoint(1)
    emulator.wait_until(lambda: emulator.counts(PATH).acked == 3)
    reading.reader.close(5)


@pytest.mark.parametrize("mode", OrderingMode)
def test_a_message_given_back_ends_in_the_dead_letter_topic_and_nothing_of_its_key_overtakes_it(
    emulator: Emulator, mode: OrderingMode
) -> None:
    reading = Reading(emulator, PubSubDeserializationSchema.payload(int), policy=NACK, mode=mode, max_records_per_fetch=4)
    reading.assign(ORDERS)
    key = "k" if mode is OrderingMode.PER_KEY else ""
    publish(emulator, b"1", b"two", b"3", b"4", b"5", b"six", b"7", key=key)
    found: list[int] = []
    while len(found) < 5 or emulator.published_count(LETTERS) < 2:
        found += [record for block in reading.reader.poll(0.2) for record in reading.emit(block)]
    assert {letter.data for letter in emulator.published(LETTERS)} == {b"two", b"six"}
    assert (found if mode is OrderingMode.PER_KEY else sorted(found)) == [1, 3, 4, 5, 7]
    assert reading.counter("numRecordsInErrors") == 10
    assert reading.counter("messagesDropped") == 0
    reading.checkpoint(1)
    emulator.wait_until(lambda: emulator.counts(PATH).outstanding == 0 and emulator.counts(PATH).backlog == 0)
    assert reading.gauge("pendingAcks") == 0
    reading.reader.close(5)


def test_a_message_that_decodes_when_it_comes_again_is_still_before_the_later_ones_of_its_key(emulator: Emulator) -> None:
    refused: list[bytes] = []

    def moody(data: bytes) -> bytes:
        if data in (b"2", b"5") and refused.count(data) < 2:
            refused.append(data)
            raise ValueError("not now")
        return data

    reading = Reading(emulator, PubSubDeserializationSchema.payload(moody), policy=NACK, mode=OrderingMode.PER_KEY)
    reading.assign(ORDERS)
    numbers = [str(n).encode() for n in range(8)]
    publish(emulator, *numbers, key="k")
    assert reading.take(8) == numbers
    assert len(refused) == 4
    reading.reader.close(5)


def refuse_in_jvm(reading: Reading, sequence: int) -> None:
    reading.reader.record_failed("split-0", sequence, "java.io.IOException", emitting=False)


def test_the_jvms_refusals_fail_the_job_or_are_dropped_or_given_back(emulator: Emulator) -> None:
    for policy, acked, nacks in ((DROP, 3, 0), (NACK, 5, 1)):
        reading = Reading(emulator, policy=policy)
        assert reading.reader.settings.fail_on_record_failure is False
        reading.assign(ORDERS)
        publish(emulator, b"1", b"2", b"3")
        reading.take(3)
        refuse_in_jvm(reading, 2)
        reading.checkpoint(1)
        emulator.wait_until(lambda acked=acked: emulator.counts(PATH).acked == acked)  # type: ignore[misc]
        emulator.wait_until(lambda nacks=nacks: emulator.counts(PATH).nacks == nacks)  # type: ignore[misc]
        assert reading.counter("messagesDropped") == (policy is DROP)
        assert reading.counter("numRecordsInErrors") == 0, "the JVM counts its own"
        reading.reader.close(5)


def test_with_fail_the_jvm_fails_by_itself_and_a_report_of_it_raises(emulator: Emulator) -> None:
    reading = Reading(emulator)
    assert reading.reader.settings.fail_on_record_failure is True
    reading.assign(ORDERS)
    with pytest.raises(DeserializationError, match=r"the JVM's schema threw java\.io\.IOException"):
        refuse_in_jvm(reading, 1)
    reading.reader.close(5)


@pytest.mark.feature("SRC-22")
def test_later_messages_of_the_key_are_withdrawn_from_the_jvm(emulator: Emulator) -> None:
    reading = Reading(emulator, policy=NACK, mode=OrderingMode.PER_KEY, max_records_per_fetch=5)
    assert reading.reader.settings.await_record_failure is True
    reading.assign(ORDERS)
    for key in ("k", "j"):
        publish(emulator, *(f"{key}{n}".encode() for n in range(4)), key=key)
    eventually(lambda: reading.gauge("bufferedMessages") == 8)
    first = reading.take(5)
    failing = first.index(b"k1") + 1
    refuse_in_jvm(reading, failing)
    later = [i + 1 for i, data in enumerate(first) if data in (b"k2", b"k3")]
    assert reading.context.withdrawn.get(timeout=5) == ("split-0", failing, later)
    rest = reading.take(6)
    assert [data for data in rest if data.startswith(b"k")] == [b"k1", b"k2", b"k3"]
    assert [data for data in first + rest if data.startswith(b"j")] == [b"j0", b"j1", b"j2", b"j3"]
    reading.reader.close(5)


@pytest.mark.parametrize("policy", [FAIL, DROP])
def test_the_jvm_waits_for_withdrawals_only_where_there_can_be_some(
    emulator: Emulator, policy: DeserializationFailurePolicy
) -> None:
    assert Reading(emulator, policy=policy, mode=OrderingMode.PER_KEY).reader.settings.await_record_failure is False
