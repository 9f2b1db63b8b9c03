"""A user's program for `flink run --python`: from a subscription to a topic. All settings are the cluster's."""

from __future__ import annotations

import json
import sys

from pyflink.common import WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment

from flink_pubsub import (
    PubSubDeserializationSchema,
    PubSubSerializationSchema,
    PubSubSink,
    PubSubSource,
    PubSubSubscriberOptions,
    SubscriptionDestination,
    TopicDestination,
    jar,
)


def main(endpoint: str) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.add_jars(jar())
    source = (
        PubSubSource.builder()
        .subscriptions(SubscriptionDestination("p", "input"))
        .deserializer(PubSubDeserializationSchema.payload(json.loads))
        # So few per checkpoint that the job is still at it when something happens.
        .subscriber_options(PubSubSubscriberOptions(flow_control_max_outstanding_element_count=300))
        .emulator_endpoint(endpoint)
        .build()
    )
    sink = (
        PubSubSink.builder()
        .topic(TopicDestination("p", "output"))
        .serializer(PubSubSerializationSchema.payload(lambda record: json.dumps(record).encode()))
        .emulator_endpoint(endpoint)
        .build()
    )
    env.from_source(source, WatermarkStrategy.no_watermarks(), "input").sink_to(sink)
    env.execute("pipe")


if __name__ == "__main__":
    main(sys.argv[1])
