"""Publishes each order to the topic of its region: `orders-eu` or `orders-us`."""

from __future__ import annotations

import json

from common import environment, parser
from publish import ORDERS

from flink_pubsub import PubSubSerializationSchema, PubSubSink, TopicDestination


def main() -> None:
    arguments = parser(__doc__).parse_args()
    project = arguments.project
    sink = (
        PubSubSink.builder()
        .destination_resolver(lambda order, context: TopicDestination(project, f"orders-{order['region']}"))
        .serializer(PubSubSerializationSchema.payload(lambda order: json.dumps(order).encode()))
    )
    if arguments.emulator_endpoint:
        sink.emulator_endpoint(arguments.emulator_endpoint)
    env = environment()
    env.from_collection(ORDERS).sink_to(sink.build())
    env.execute("topic per record")


if __name__ == "__main__":
    main()
