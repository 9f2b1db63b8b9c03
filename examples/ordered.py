"""Copies `orders` to `ordered-orders` with each customer's messages in their order, until it is interrupted.

The subscription must have message ordering; the order holds because source, job and sink each keep it per key.
"""

from __future__ import annotations

from common import environment, parser
from pyflink.common import WatermarkStrategy

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
)


class KeyAndPayload(PubSubDeserializationSchema):
    """A message's ordering key and payload."""

    def deserialize(self, message: PubsubMessage, subscription: SubscriptionDestination, collector: Collector) -> None:
        collector.collect((message.ordering_key, message.data))


def main() -> None:
    arguments = parser(__doc__).parse_args()
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
    env = environment()
    # Equal parallelism all the way, and no shuffle: else messages of a key could overtake each other between subtasks.
    env.set_parallelism(1)
    env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "orders").sink_to(sink.build())
    env.execute("ordered")


if __name__ == "__main__":
    main()
