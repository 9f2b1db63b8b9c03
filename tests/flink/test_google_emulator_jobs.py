"""Source and sink in a real job against Google's emulator, where it is installed: a Pub/Sub that is not of this project."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from pyflink.common import WatermarkStrategy

from flink_pubsub import (
    OrderingMode,
    PubSubDeserializationSchema,
    PubsubMessage,
    PubSubPublisherOptions,
    PubSubSerializationSchema,
    PubSubSink,
    PubSubSource,
    PubSubSubscriberOptions,
    SubscriptionDestination,
    TopicDestination,
)
from flink_pubsub.wire import pubsub_pb2 as wire
from tests.conformance.client import Client
from tests.conformance.servers import google_emulator, google_emulator_jar
from tests.flink.jobs import environment, running

COUNT, KEYS = 3000, 12


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    jar = google_emulator_jar()
    if jar is None:
        pytest.skip("Google's emulator (package google-cloud-cli-pubsub-emulator) is not installed")
    with google_emulator(jar) as endpoint:
        yield endpoint


@pytest.fixture
def client(endpoint: str) -> Iterator[Client]:
    client = Client(endpoint)
    yield client
    client.close()


class Whole(PubSubDeserializationSchema):
    """Everything of a message that goes on: what it says, its attribute and its key."""

    def deserialize(self, message: PubsubMessage, subscription: SubscriptionDestination, collector: Any) -> None:
        number = json.loads(message.data)["n"]
        collector.collect({"n": number, "parity": message.attributes["parity"], "key": message.ordering_key})


def published(client: Client) -> str:
    topic = client.topic()
    subscription = client.subscription(
        topic, enable_message_ordering=True, message_retention_duration=Duration(seconds=int(timedelta(days=1).total_seconds()))
    )
    for key in range(KEYS):
        client.publish_messages(
            topic,
            [
                wire.PubsubMessage(
                    data=json.dumps({"n": n}).encode(),
                    attributes={"parity": "even" if n % 2 == 0 else "odd"},
                    ordering_key=f"key-{key}",
                )
                for n in range(key, COUNT, KEYS)
            ],
        )
    return subscription


@pytest.mark.feature("SRC-07")
@pytest.mark.feature("SNK-07")
def test_a_job_carries_every_message_with_attributes_and_order_and_acknowledges_it(
    client: Client, endpoint: str, tmp_path: Path
) -> None:
    inbox, out_topic = published(client), client.topic()
    outbox = client.subscription(out_topic, enable_message_ordering=True)
    source = (
        PubSubSource.builder()
        .subscriptions(SubscriptionDestination(*inbox.split("/")[1::2]))
        .deserializer(Whole())
        .ordering_mode(OrderingMode.PER_KEY)
        .subscriber_options(PubSubSubscriberOptions(flow_control_max_outstanding_element_count=2 * COUNT))
        .emulator_endpoint(endpoint)
        .build()
    )
    sink = (
        PubSubSink.builder()
        .topic(TopicDestination(*out_topic.split("/")[1::2]))
        .serializer(
            PubSubSerializationSchema.payload(lambda record: json.dumps(record["n"]).encode())
            .with_attributes(lambda record: {"parity": record["parity"]})
            .with_ordering_key(lambda record: record["key"])
        )
        .publisher_options(PubSubPublisherOptions(enable_message_ordering=True, batch_request_byte_threshold=100_000))
        .emulator_endpoint(endpoint)
        .build()
    )
    arrived: list[wire.PubsubMessage] = []

    def all_arrived() -> bool:
        received = client.pull_now(outbox)
        arrived.extend(message.message for message in received)
        if received:
            client.ack(outbox, *(message.ack_id for message in received))
        return len({message.data for message in arrived}) == COUNT

    env = environment()
    env.from_source(source, WatermarkStrategy.no_watermarks(), "inbox").sink_to(sink)
    with running(env, "google") as job:
        job.wait_until(all_arrived, f"all {COUNT} messages are in the output")
        job.stop(str(tmp_path))
    assert sorted(json.loads(message.data) for message in arrived) == list(range(COUNT))
    for message in arrived:
        assert message.attributes["parity"] == ("even" if json.loads(message.data) % 2 == 0 else "odd")
    for key in range(KEYS):
        numbers = [json.loads(message.data) for message in arrived if message.ordering_key == f"key-{key}"]
        assert numbers == list(range(key, COUNT, KEYS))
    assert client.pull_now(inbox) == [], "the stopped job has acknowledged everything"
