"""Reads the subscription `orders` and prints each order, until it is interrupted."""

from __future__ import annotations

import json

from common import environment, parser
from pyflink.common import WatermarkStrategy

from flink_pubsub import PubSubDeserializationSchema, PubSubSource, SubscriptionDestination


def main() -> None:
    arguments = parser(__doc__).parse_args()
    source = (
        PubSubSource.builder()
        .subscriptions(SubscriptionDestination(arguments.project, "orders"))
        .deserializer(PubSubDeserializationSchema.payload(json.loads))
    )
    if arguments.emulator_endpoint:
        source.emulator_endpoint(arguments.emulator_endpoint)
    env = environment()
    orders = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "orders")
    with orders.execute_and_collect("consume") as collected:
        for order in collected:
            print(order, flush=True)


if __name__ == "__main__":
    main()
