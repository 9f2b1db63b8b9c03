"""Reads the subscription `orders` and prints each order, until it is interrupted."""

from __future__ import annotations

import argparse
import json
import sys

from pyflink.common import WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment

from flink_pubsub import PubSubDeserializationSchema, PubSubSource, SubscriptionDestination, jar


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--project", default="my-project", help="the Google Cloud project (default: %(default)s)")
    parser.add_argument("--emulator-endpoint", metavar="HOST:PORT", help="use an emulator; default: the real service")
    arguments = parser.parse_args()
    source = (
        PubSubSource.builder()
        .subscriptions(SubscriptionDestination(arguments.project, "orders"))
        .deserializer(PubSubDeserializationSchema.payload(json.loads))
    )
    if arguments.emulator_endpoint:
        source.emulator_endpoint(arguments.emulator_endpoint)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_python_executable(sys.executable)
    env.enable_checkpointing(1000)  # Milliseconds. Messages are acknowledged when a checkpoint completes.
    env.add_jars(jar())
    orders = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "orders")
    with orders.execute_and_collect("consume") as collected:
        for order in collected:
            print(order, flush=True)


if __name__ == "__main__":
    main()
