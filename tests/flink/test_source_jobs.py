"""The source in real jobs: what records look like, and how jobs fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from pyflink.common import Duration, Time, Types, WatermarkStrategy
from pyflink.common.serialization import SimpleStringSchema
from pyflink.datastream import ProcessFunction
from pyflink.datastream.formats.json import JsonRowDeserializationSchema
from pyflink.datastream.functions import ProcessAllWindowFunction
from pyflink.datastream.window import TumblingEventTimeWindows

from flink_pubsub import (
    OrderingMode,
    PubSubDeserializationSchema,
    PubsubMessage,
    PubSubSource,
    SubscriptionDestination,
)
from flink_pubsub.bridge.frames import NO_TIMESTAMP
from flink_pubsub.emulator import Emulator
from flink_pubsub.wire import pubsub_pb2 as wire
from tests.flink.jobs import PATIENCE, environment, failure_of
from tests.unit.source_support import ScriptedServer, accept, received_message

ORDERS = SubscriptionDestination("p", "orders")


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator() as emulator:
        for name in ("orders", "returns"):
            emulator.create_topic(f"projects/p/topics/{name}")
            emulator.create_subscription(f"projects/p/subscriptions/{name}", f"projects/p/topics/{name}")
        yield emulator


def source(emulator: Emulator, deserializer: PubSubDeserializationSchema, *names: str) -> PubSubSource:
    subscriptions = [SubscriptionDestination("p", name) for name in names or ("orders",)]
    builder = PubSubSource.builder().subscriptions(*subscriptions).deserializer(deserializer)
    return builder.emulator_endpoint(emulator.endpoint).build()


def collect(built: PubSubSource, count: int) -> list[Any]:
    stream = environment().from_source(built, WatermarkStrategy.no_watermarks(), "source")
    with stream.execute_and_collect() as results:
        return list(islice(results, count))


@pytest.mark.feature("SRC-01")
@pytest.mark.feature("SRC-29")
def test_several_subscriptions_are_read_in_one_source(emulator: Emulator) -> None:
    emulator.publish("projects/p/topics/orders", b'"o"')
    emulator.publish("projects/p/topics/returns", b'"r"')
    records = collect(source(emulator, PubSubDeserializationSchema.payload(json.loads), "orders", "returns"), 2)
    assert sorted(records) == ["o", "r"]


@dataclass
class Everything(PubSubDeserializationSchema):
    """Gives every field of a message, and the subscription, as one record; nothing for "skip", one more for "twice"."""

    opened: bool = False

    def open(self) -> None:
        self.opened = True

    def deserialize(self, message: PubsubMessage, subscription: SubscriptionDestination, collector: Any) -> None:
        assert self.opened
        if message.data == b"skip":
            return
        collector.collect((message, subscription))
        if message.data == b"twice":
            collector.collect("again")


@pytest.mark.feature("SRC-02")
@pytest.mark.feature("BEY-04")
def test_a_deserializer_sees_the_whole_message_and_its_subscription_and_gives_any_number_of_records(emulator: Emulator) -> None:
    before = datetime.now(timezone.utc)
    topic = "projects/p/topics/orders"
    emulator.publish(topic, b"skip")
    message_id = emulator.publish(topic, b"twice", {"a": "b"}, "key")
    [(message, subscription), again] = collect(source(emulator, Everything()), 2)
    assert again == "again"
    assert subscription == ORDERS
    assert (message.data, dict(message.attributes), message.ordering_key) == (b"twice", {"a": "b"}, "key")
    assert (message.message_id, message.delivery_attempt) == (message_id, 0)
    assert message.publish_time is not None
    assert before.replace(microsecond=0) <= message.publish_time <= datetime.now(timezone.utc)


@pytest.mark.feature("SRC-03")
def test_jvm_schemas_decode_in_the_jvm_and_give_their_own_type(emulator: Emulator) -> None:
    emulator.publish("projects/p/topics/orders", '{"id": 7, "name": "späti"}'.encode())
    row_type = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])
    schema = JsonRowDeserializationSchema.builder().type_info(row_type).build()
    [row] = collect(source(emulator, PubSubDeserializationSchema.payload(schema)), 1)
    assert (row.id, row.name) == (7, "späti")


@pytest.mark.feature("SRC-29")
def test_an_explicit_type_is_the_type_of_the_stream(emulator: Emulator) -> None:
    emulator.publish("projects/p/topics/orders", b"hello")
    built = source(emulator, PubSubDeserializationSchema.payload(bytes.decode, Types.STRING()))
    stream = environment().from_source(built, WatermarkStrategy.no_watermarks(), "source")
    assert stream.get_type() == Types.STRING()
    with stream.execute_and_collect() as results:
        assert next(results) == "hello"


@pytest.mark.feature("BEY-14")
def test_whole_messages_come_as_typed_rows(emulator: Emulator) -> None:
    message_id = emulator.publish("projects/p/topics/orders", b"\x00\xff", {"a": "b"}, "key")
    emulator.publish("projects/p/topics/orders", b"plain")
    stream = environment().from_source(
        source(emulator, PubSubDeserializationSchema.message()), WatermarkStrategy.no_watermarks(), "source"
    )
    assert stream.get_type().get_field_names() == [
        "data",
        "attributes",
        "ordering_key",
        "message_id",
        "publish_time",
        "delivery_attempt",
        "subscription",
    ]
    with stream.map(lambda row: row.as_dict()).execute_and_collect() as results:
        rows = {row["message_id"]: row for row in islice(results, 2)}
    row = rows.pop(message_id)
    [plain] = rows.values()
    published = emulator.published("projects/p/topics/orders")[0].publish_time
    assert (bytes(row["data"]), row["attributes"], row["ordering_key"]) == (b"\x00\xff", {"a": "b"}, "key")
    assert row["subscription"] == ORDERS.resource_path
    assert row["publish_time"].to_epoch_milli() == published.ToMilliseconds()
    assert row["delivery_attempt"] is None
    assert (plain["attributes"], plain["ordering_key"]) == ({}, None)


class Timestamps(ProcessFunction):  # type: ignore[misc]  # PyFlink has no types
    """Gives each record with the timestamp Flink has for it."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[tuple[Any, int]]:
        yield value, ctx.timestamp()


def timestamps(built: PubSubSource, count: int) -> list[tuple[Any, int]]:
    stream = environment().from_source(built, WatermarkStrategy.no_watermarks(), "source").process(Timestamps())
    with stream.execute_and_collect() as results:
        return list(islice(results, count))


@pytest.mark.feature("SRC-04")
@pytest.mark.parametrize("schema", [PubSubDeserializationSchema.payload(bytes.decode), "jvm"])
def test_the_publish_time_is_the_timestamp_of_a_record(emulator: Emulator, schema: Any) -> None:
    emulator.publish("projects/p/topics/orders", b"x")
    if schema == "jvm":
        schema = PubSubDeserializationSchema.payload(SimpleStringSchema())
    [(value, timestamp)] = timestamps(source(emulator, schema), 1)
    [published] = emulator.published("projects/p/topics/orders")
    assert (value, timestamp) == ("x", published.publish_time.ToMilliseconds())


@pytest.mark.feature("SRC-30")
@pytest.mark.parametrize("schema", [PubSubDeserializationSchema.payload(bytes.decode), "jvm"])
def test_a_message_without_a_publish_time_is_emitted_without_a_timestamp(schema: Any) -> None:
    if schema == "jvm":
        schema = PubSubDeserializationSchema.payload(SimpleStringSchema())
    message = received_message("m1", b"timeless")
    message.message.ClearField("publish_time")
    with ScriptedServer() as server:
        described = wire.Subscription(name=ORDERS.resource_path, topic="projects/p/topics/orders").SerializeToString()
        server.answers = {"GetSubscription": lambda request, context: described}
        server.answers |= {"Acknowledge": accept, "ModifyAckDeadline": accept}
        built = PubSubSource.builder().subscriptions(ORDERS).deserializer(schema).emulator_endpoint(server.endpoint).build()
        stream = environment().from_source(built, WatermarkStrategy.no_watermarks(), "source").process(Timestamps())
        with stream.execute_and_collect() as results:
            pull = server.streams.get(timeout=PATIENCE)
            pull.send(wire.StreamingPullResponse(received_messages=[message]).SerializeToString())
            assert next(results) == ("timeless", NO_TIMESTAMP)
            pull.end()


class OwnTime(PubSubDeserializationSchema):
    """Takes event time from the payload: seconds."""

    def deserialize(self, message: PubsubMessage, subscription: SubscriptionDestination, collector: Any) -> None:
        second = int(message.data)
        stamp: Any = second * 1000 if second % 2 else datetime.fromtimestamp(second, timezone.utc)
        collector.collect(second, timestamp=stamp)


@pytest.mark.feature("BEY-13")
def test_a_deserializer_gives_records_their_own_event_time(emulator: Emulator) -> None:
    for second in (5, 8):
        emulator.publish("projects/p/topics/orders", str(second).encode())
    assert sorted(timestamps(source(emulator, OwnTime()), 2)) == [(5, 5000), (8, 8000)]


class Count(ProcessAllWindowFunction):  # type: ignore[misc]  # PyFlink has no types
    def process(self, context: ProcessAllWindowFunction.Context, elements: Any) -> Iterator[tuple[int, list[int]]]:
        yield context.window().start, sorted(elements)


@pytest.mark.feature("BEY-13")
def test_windows_fire_on_event_time_from_the_payload(emulator: Emulator) -> None:
    for second in (1, 4, 9, 12, 31):
        emulator.publish("projects/p/topics/orders", str(second).encode())
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(10))
    stream = environment().from_source(source(emulator, OwnTime()), strategy, "source")
    windows = stream.window_all(TumblingEventTimeWindows.of(Time.seconds(10))).process(Count())
    with windows.execute_and_collect() as results:
        assert list(islice(results, 2)) == [(0, [1, 4, 9]), (10_000, [12])]


@pytest.mark.feature("SRC-08")
def test_a_subtask_without_a_split_holds_no_watermark_back(emulator: Emulator) -> None:
    emulator.create_topic("projects/p/topics/ordered")
    emulator.create_subscription("projects/p/subscriptions/ordered", "projects/p/topics/ordered", enable_message_ordering=True)
    for second in (1, 12, 31):
        emulator.publish("projects/p/topics/ordered", str(second).encode())
    builder = PubSubSource.builder().subscriptions(SubscriptionDestination("p", "ordered")).deserializer(OwnTime())
    built = builder.ordering_mode(OrderingMode.PER_KEY).emulator_endpoint(emulator.endpoint).build()
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(10))
    stream = environment(parallelism=3).from_source(built, strategy, "source")
    windows = stream.window_all(TumblingEventTimeWindows.of(Time.seconds(10))).process(Count())
    with windows.execute_and_collect() as results:
        assert list(islice(results, 2)) == [(0, [1]), (10_000, [12])]


class KeepsCollector(PubSubDeserializationSchema):
    def deserialize(self, message: PubsubMessage, subscription: SubscriptionDestination, collector: Any) -> None:
        kept = getattr(self, "kept", None)
        if kept is not None:
            kept.collect("late")
        self.kept = collector


def failure(built: PubSubSource) -> str:
    env = environment()
    env.from_source(built, WatermarkStrategy.no_watermarks(), "source").print()
    return failure_of(env)


@pytest.mark.feature("SRC-02")
@pytest.mark.feature("BEY-04")
@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (PubSubDeserializationSchema.payload(lambda data: None), ["None", "payload"]),
        (PubSubDeserializationSchema.payload(json.loads), ["JSONDecodeError", "json/decoder.py"]),
        (KeepsCollector(), ["collector"]),
    ],
)
def test_a_misbehaving_deserializer_fails_the_job_clearly(
    emulator: Emulator, schema: PubSubDeserializationSchema, said: list[str]
) -> None:
    for _ in range(2):
        emulator.publish("projects/p/topics/orders", b"secret-payload")
    message = failure(source(emulator, schema))
    for part in (*said, "projects/p/subscriptions/orders", "Error"):
        assert part in message
    assert "secret-payload" not in message


def test_a_subscription_that_is_not_there_is_named_before_anything_is_read(emulator: Emulator) -> None:
    message = failure(source(emulator, PubSubDeserializationSchema.payload(json.loads), "orders", "missing"))
    assert "projects/p/subscriptions/missing" in message
    assert emulator.calls("StreamingPull") == 0


@pytest.mark.feature("SRC-27")
def test_a_subscription_deleted_while_it_is_read_fails_the_job_naming_it(emulator: Emulator) -> None:
    env = environment()
    built = source(emulator, PubSubDeserializationSchema.payload(json.loads))
    env.from_source(built, WatermarkStrategy.no_watermarks(), "source").print()
    client = env.execute_async("deleted")
    emulator.wait_until(lambda: emulator.open_streams() == 1, 60)
    emulator.delete_subscription(ORDERS.resource_path)
    with pytest.raises(Exception, match="NOT_FOUND") as raised:
        client.get_job_execution_result().result()
    assert ORDERS.resource_path in str(raised.value)


@pytest.mark.feature("SRC-05")
@pytest.mark.parametrize("content", [None, "not json: secret-content"])
def test_a_key_file_that_cannot_be_used_fails_the_job_and_shows_neither_path_nor_content(
    content: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "secret-path.json"
    if content is not None:
        path.write_text(content)
    builder = PubSubSource.builder().subscriptions(ORDERS).deserializer(PubSubDeserializationSchema.payload(json.loads))
    message = failure(builder.service_account_key_file(str(path)).build())
    assert "service_account_key_file" in message, message
    assert "secret" not in message, message


@pytest.mark.feature("SRC-06")
def test_the_environment_variable_for_emulators_is_ignored(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "127.0.0.1:1")
    emulator.publish("projects/p/topics/orders", b"1")
    assert collect(source(emulator, PubSubDeserializationSchema.payload(json.loads)), 1) == [1]
