"""Copies `orders` to `ordered-orders` with each customer's messages in their order, until it is interrupted.

The subscription must have message ordering; the order holds because source, job and sink each keep it per key.
"""

from __future__ import annotations

import argparse
import sys

from pyflink.common import WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment

from flink_pubsub import (
    Collector,
    OrderingMode,
    PubSubDeserializationSchema,
    PubsubMessage,
    PubSubPublisherOptions,
    PubSubSerializationSchema,
    PubSubSink,
    PubSubSource,
    SubscriptionDestination,
    TopicDestination,
    jar,
)


class KeyAndPayload(PubSubDeserializationSchema):
    """A message's ordering key and payload."""

    def deserialize(self, message: PubsubMessage, subscription: SubscriptionDestination, collector: Collector) -> None:
        collector.collect((message.ordering_key, message.data))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--project", default="my-project", help="the Google Cloud project (default: %(default)s)")
    parser.add_argument("--emulator-endpoint", metavar="HOST:PORT", help="use an emulator; default: the real service")
    arguments = parser.parse_args()
    source = (
        PubSubSource.builder()
        .subscriptions(SubscriptionDestination(arguments.project, "orders"))
        .deserializer(KeyAndPayload())
        .ordering_mode(OrderingMode.PER_KEY)
    )
    sink = (
        PubSubSink.builder()
        .topic(TopicDestination(arguments.project, "ordered-orders"))
        .serializer(PubSubSerializationSchema.payload(lambda pair: pair[1]).with_ordering_key(lambda pair: pair[0]))
        .publisher_options(PubSubPublisherOptions(enable_message_ordering=True))
    )
    if arguments.emulator_endpoint:
        source.emulator_endpoint(arguments.emulator_endpoint)
        sink.emulator_endpoint(arguments.emulator_endpoint)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_python_executable(sys.executable)
    env.enable_checkpointing(1000)  # Milliseconds. Messages are acknowledged when a checkpoint completes.
    env.add_jars(jar())
    # Equal parallelism all the way, and no shuffle: else messages of a key could overtake each other between subtasks.
    env.set_parallelism(1)
    env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "orders").sink_to(sink.build())
    env.execute("ordered")


if __name__ == "__main__":
    main()
