"""Jobs from subscription to topic, and what has to hold of their output."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from pyflink.common import WatermarkStrategy
from pyflink.datastream import DataStream, StreamExecutionEnvironment

from flink_pubsub import (
    OrderingMode,
    PubSubDeserializationSchema,
    PubSubPublisherOptions,
    PubSubSerializationSchema,
    PubSubSink,
    PubSubSource,
    PubSubSubscriberOptions,
    SubscriptionDestination,
    TopicDestination,
)
from flink_pubsub.emulator import Emulator
from flink_pubsub.wire.pubsub_pb2 import PubsubMessage

IN_TOPIC, OUT_TOPIC = "projects/p/topics/input", "projects/p/topics/output"
SUBSCRIPTION = "projects/p/subscriptions/input"
KEYS = 20


@dataclass(frozen=True)
class Pipe:
    """An emulator with `count` numbered messages on its input, to be carried to its output."""

    emulator: Emulator
    count: int
    keyed: bool = False
    source_options: PubSubSubscriberOptions = field(
        default_factory=lambda: PubSubSubscriberOptions(flow_control_max_outstanding_element_count=10_000)
    )
    batching: PubSubPublisherOptions = field(
        default_factory=lambda: PubSubPublisherOptions(batch_element_count_threshold=500, batch_request_byte_threshold=500_000)
    )

    def source(self) -> PubSubSource:
        builder = PubSubSource.builder().subscriptions(SubscriptionDestination("p", "input"))
        builder.deserializer(PubSubDeserializationSchema.payload(json.loads)).subscriber_options(self.source_options)
        if self.keyed:
            builder.ordering_mode(OrderingMode.PER_KEY)
        return builder.emulator_endpoint(self.emulator.endpoint).build()

    def sink(self) -> PubSubSink:
        schema = PubSubSerializationSchema.payload(lambda record: json.dumps(record).encode())
        if self.keyed:
            schema = schema.with_ordering_key(lambda record: f"k{record['n'] % KEYS}")
        builder = PubSubSink.builder().topic(TopicDestination("p", "output")).serializer(schema)
        options = replace(self.batching, enable_message_ordering=self.keyed)
        return builder.publisher_options(options).emulator_endpoint(self.emulator.endpoint).build()

    def build(self, env: StreamExecutionEnvironment, function: Callable[[Any], Any] | None = None) -> None:
        """Adds source, function and sink to the environment."""
        stream: DataStream = env.from_source(self.source(), WatermarkStrategy.no_watermarks(), "input")
        (stream if function is None else stream.map(function)).sink_to(self.sink())

    def arrived(self) -> list[int]:
        """The numbers on the output, in the order in which they were published."""
        return [json.loads(message.data)["n"] for message in self.emulator.published(OUT_TOPIC)]

    def all_acked(self) -> bool:
        return self.emulator.counts(SUBSCRIPTION).acked >= self.count

    def half_arrived(self) -> bool:
        return self.emulator.published_count(OUT_TOPIC) >= self.count // 2

    def assert_nothing_lost(self) -> None:
        assert set(self.arrived()) == set(range(self.count))

    def assert_order_per_key(self) -> None:
        """Within a key each number follows its predecessor, or a restart went back to an earlier one."""
        last = {key: key - KEYS for key in range(KEYS)}
        for n in self.arrived():
            key = n % KEYS
            assert n <= last[key] + KEYS, f"{n} came right after {last[key]}: something between is missing or late"
            last[key] = n


@contextmanager
def pipe(count: int, *, keyed: bool = False, **settings: Any) -> Iterator[Pipe]:
    """A pipe with everything already published to its input."""
    with Emulator() as emulator:
        emulator.create_topic(IN_TOPIC)
        emulator.create_topic(OUT_TOPIC)
        emulator.create_subscription(SUBSCRIPTION, IN_TOPIC, ack_deadline_seconds=10, enable_message_ordering=keyed)
        numbers = iter(range(count))
        while chunk := list(islice(numbers, 1000)):
            for part in [[n for n in chunk if n % KEYS == key] for key in range(KEYS)] if keyed else [chunk]:
                key = f"k{part[0] % KEYS}" if keyed else ""
                messages = [PubsubMessage(data=json.dumps({"n": n}).encode(), ordering_key=key) for n in part]
                emulator.publish_all(IN_TOPIC, messages)
        yield Pipe(emulator, count, keyed, **settings)
