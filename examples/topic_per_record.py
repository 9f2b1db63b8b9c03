"""Publishes each order to the topic of its region: `orders-eu` or `orders-us`."""

from __future__ import annotations

import argparse
import json
import sys

from pyflink.datastream import StreamExecutionEnvironment

from flink_pubsub import PubSubSerializationSchema, PubSubSink, TopicDestination, jar

ORDERS = [{"order": number, "region": ("eu", "us")[number % 2], "total": 10.0 * number} for number in range(10)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--project", default="my-project", help="the Google Cloud project (default: %(default)s)")
    parser.add_argument("--emulator-endpoint", metavar="HOST:PORT", help="use an emulator; default: the real service")
    arguments = parser.parse_args()
    project = arguments.project
    sink = (
        PubSubSink.builder()
        .destination_resolver(lambda order, context: TopicDestination(project, f"orders-{order['region']}"))
        .serializer(PubSubSerializationSchema.payload(lambda order: json.dumps(order).encode()))
    )
    if arguments.emulator_endpoint:
        sink.emulator_endpoint(arguments.emulator_endpoint)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_python_executable(sys.executable)
    env.enable_checkpointing(1000)  # Milliseconds. The sink waits at checkpoints until all is published.
    env.add_jars(jar())
    env.from_collection(ORDERS).sink_to(sink.build())
    env.execute("topic per record")


if __name__ == "__main__":
    main()
