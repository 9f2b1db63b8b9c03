"""A job that holds everything it is given: checkpoints are an hour apart. A process of its own, to be killed as a whole."""

from __future__ import annotations

import sys

from pyflink.common import WatermarkStrategy

from flink_pubsub import (
    PubSubDeserializationSchema,
    PubSubSource,
    PubSubSubscriberOptions,
    SubscriptionDestination,
)
from tests.flink.jobs import environment


def main(endpoint: str) -> None:
    env = environment(checkpoint_millis=3_600_000)
    source = (
        PubSubSource.builder()
        .subscriptions(SubscriptionDestination("p", "input"))
        .deserializer(PubSubDeserializationSchema.payload(bytes.decode))
        .subscriber_options(PubSubSubscriberOptions(flow_control_max_outstanding_element_count=100_000))
        .emulator_endpoint(endpoint)
        .build()
    )
    env.from_source(source, WatermarkStrategy.no_watermarks(), "input").print()
    env.execute("hold")


if __name__ == "__main__":
    main(sys.argv[1])
