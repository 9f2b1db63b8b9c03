"""Jobs from one subscription to a topic, with the source's settings in the test's hands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyflink.common import WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment

from flink_pubsub import (
    DeserializationFailurePolicy,
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
from flink_pubsub.wire import pubsub_pb2 as wire

IN_TOPIC, OUT_TOPIC, LETTERS = (f"projects/p/topics/{name}" for name in ("input", "output", "letters"))
PATH = "projects/p/subscriptions/input"


@contextmanager
def emulator_of_a_pipe() -> Iterator[Emulator]:
    """An emulator with an input that keeps order and has dead letters, and an output."""
    with Emulator() as emulator:
        for topic in (IN_TOPIC, OUT_TOPIC, LETTERS):
            emulator.create_topic(topic)
        policy = wire.DeadLetterPolicy(dead_letter_topic=LETTERS, max_delivery_attempts=5)
        emulator.create_subscription(
            PATH, IN_TOPIC, ack_deadline_seconds=10, dead_letter_policy=policy, enable_message_ordering=True
        )
        yield emulator


def publish(emulator: Emulator, *payloads: bytes, key: str = "") -> None:
    for low in range(0, len(payloads), 1000):
        messages = [wire.PubsubMessage(data=data, ordering_key=key) for data in payloads[low : low + 1000]]
        emulator.publish_all(IN_TOPIC, messages)


def source(
    emulator: Emulator,
    schema: PubSubDeserializationSchema,
    policy: DeserializationFailurePolicy = DeserializationFailurePolicy.FAIL,
    mode: OrderingMode = OrderingMode.NONE,
    **options: Any,
) -> PubSubSource:
    builder = PubSubSource.builder().subscriptions(SubscriptionDestination("p", "input")).deserializer(schema)
    builder.deserialization_failure_policy(policy).ordering_mode(mode)
    builder.subscriber_options(PubSubSubscriberOptions(**options))
    return builder.emulator_endpoint(emulator.endpoint).build()


def to_output(emulator: Emulator, env: StreamExecutionEnvironment, built: PubSubSource, cap: int = 1000) -> None:
    """A job that publishes what it reads, as JSON."""
    schema = PubSubSerializationSchema.payload(lambda record: json.dumps(record).encode())
    builder = PubSubSink.builder().topic(TopicDestination("p", "output")).serializer(schema)
    builder.publisher_options(PubSubPublisherOptions(max_in_flight_messages=cap))
    stream = env.from_source(built, WatermarkStrategy.no_watermarks(), "input")
    stream.sink_to(builder.emulator_endpoint(emulator.endpoint).build())


def arrived(emulator: Emulator) -> list[Any]:
    return [json.loads(message.data) for message in emulator.published(OUT_TOPIC)]
