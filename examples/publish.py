"""Publishes a few orders to the topic `orders`, as JSON with an attribute."""

from __future__ import annotations

import json

from common import environment, parser

from flink_pubsub import PubSubSerializationSchema, PubSubSink, TopicDestination

ORDERS = [{"order": number, "region": ("eu", "us")[number % 2], "total": 10.0 * number} for number in range(10)]


def main() -> None:
    arguments = parser(__doc__).parse_args()
    sink = (
        PubSubSink.builder()
        .topic(TopicDestination(arguments.project, "orders"))
        .serializer(
            PubSubSerializationSchema.payload(lambda order: json.dumps(order).encode()).with_attributes(
                lambda order: {"region": order["region"]}
            )
        )
    )
    if arguments.emulator_endpoint:
        sink.emulator_endpoint(arguments.emulator_endpoint)
    env = environment()
    env.from_collection(ORDERS).sink_to(sink.build())
    env.execute("publish")


if __name__ == "__main__":
    main()
