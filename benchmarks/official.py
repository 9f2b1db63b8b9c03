"""The official google-cloud-pubsub client, without Flink, tuned to its best: batches of 1000, generous flow control."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from typing import Any

from google.cloud import pubsub_v1

from benchmarks.bare import until_stdin_ends
from benchmarks.replay import event
from benchmarks.workload import attributes_of, data_of, elements

_OUTSTANDING = 1_000


def subscribe(subscription: str, decode: bool) -> None:
    """Receives with a callback that acknowledges, after parsing the payload if `decode`."""
    client = pubsub_v1.SubscriberClient()

    def receive(message: Any) -> None:
        message.ack()

    def decode_and_receive(message: Any) -> None:
        json.loads(message.data)
        message.ack()

    flow_control = pubsub_v1.types.FlowControl(max_messages=_OUTSTANDING, max_bytes=1024 * 1024 * 1024)
    client.subscribe(subscription, decode_and_receive if decode else receive, flow_control=flow_control).result()


def publish(topic: str, size: int, serialize: bool) -> None:
    """Publishes one message after another; with `serialize`, runs the sink's Python functions on each element."""
    client = pubsub_v1.PublisherClient(
        batch_settings=pubsub_v1.types.BatchSettings(max_messages=1000, max_bytes=9_000_000, max_latency=0.05),
        publisher_options=pubsub_v1.types.PublisherOptions(
            flow_control=pubsub_v1.types.PublishFlowControl(
                message_limit=_OUTSTANDING,
                byte_limit=1024 * 1024 * 1024,
                limit_exceeded_behavior=pubsub_v1.types.LimitExceededBehavior.BLOCK,
            )
        ),
    )
    data = event(size)
    items = elements(size)
    while True:
        if serialize:
            for element in items:
                client.publish(topic, data_of(element), **attributes_of(element))
        else:
            for _ in items:
                client.publish(topic, data)


def main() -> None:
    """Runs one loop until stdin ends."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.official")
    parser.add_argument("loop", choices=["source-raw", "source-python", "sink-raw", "sink-python"])
    parser.add_argument("endpoint")
    parser.add_argument("resource")
    parser.add_argument("--payload-bytes", type=int, default=1024)
    arguments = parser.parse_args()
    os.environ["PUBSUB_EMULATOR_HOST"] = arguments.endpoint
    resource, size = arguments.resource, arguments.payload_bytes
    loops: dict[str, Callable[[], None]] = {
        "source-raw": lambda: subscribe(resource, decode=False),
        "source-python": lambda: subscribe(resource, decode=True),
        "sink-raw": lambda: publish(resource, size, serialize=False),
        "sink-python": lambda: publish(resource, size, serialize=True),
    }
    until_stdin_ends(loops[arguments.loop])


if __name__ == "__main__":
    main()
