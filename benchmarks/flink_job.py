"""Ours: one source or sink in a PyFlink job on the local mini-cluster, parallelism 1, a checkpoint every second.

Downstream of the source is Flink's discarding sink, upstream of the sink a generator in the JVM that hands out ready elements:
neither has a Python hop, so the rate is that of the connector.
"""

from __future__ import annotations

import argparse
import os
import pickle
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyflink
from pyflink.common import Configuration, Types, WatermarkStrategy
from pyflink.common.serialization import SimpleStringSchema
from pyflink.datastream import DataStream, StreamExecutionEnvironment
from pyflink.datastream.connectors import Sink
from pyflink.java_gateway import get_gateway

from benchmarks.bare import until_stdin_ends
from benchmarks.replay import event
from benchmarks.workload import ByNumber, Element, attributes_of, data_of, decode, elements
from flink_pubsub import (
    PubSubDeserializationSchema,
    PubSubPublisherOptions,
    PubSubSerializationSchema,
    PubSubSink,
    PubSubSource,
    PubSubSubscriberOptions,
    SinkContext,
    SubscriptionDestination,
    TopicDestination,
    jar,
)

LOOPS = ("source-raw", "source-python", "source-splits", "sink-raw", "sink-python", "sink-topics")

_CHECKPOINT_MILLISECONDS = 1000
_OUTSTANDING = 1_000_000
"""Messages are acknowledged at checkpoints, so a second of traffic has to fit; all splits together."""
_IN_FLIGHT = 10_000


def source(env: StreamExecutionEnvironment, endpoint: str, resources: list[str], schema: PubSubDeserializationSchema) -> None:
    """A job from the subscriptions to nowhere."""
    options = PubSubSubscriberOptions(
        flow_control_max_outstanding_element_count=_OUTSTANDING // len(resources),
        flow_control_max_outstanding_request_bytes=4 * 1024 * 1024 * 1024 // len(resources),
    )
    built = (
        PubSubSource.builder()
        .subscriptions(*(SubscriptionDestination(*_names(resource)) for resource in resources))
        .deserializer(schema)
        .subscriber_options(options)
        .emulator_endpoint(endpoint)
        .build()
    )
    stream = env.from_source(built, WatermarkStrategy.no_watermarks(), "pubsub")
    stream.sink_to(Sink(get_gateway().jvm.org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink()))


def sink(
    env: StreamExecutionEnvironment,
    endpoint: str,
    topics: TopicDestination | Callable[[Element, SinkContext], TopicDestination],
    items: list[Any],
    type_info: Any,
    schema: PubSubSerializationSchema,
) -> None:
    """A job that publishes the same elements over and over, to a topic or to those that a resolver chooses."""
    options = PubSubPublisherOptions(
        batch_element_count_threshold=1000,
        batch_request_byte_threshold=9_000_000,
        max_in_flight_messages=_IN_FLIGHT,
    )
    builder = PubSubSink.builder()
    builder = builder.topic(topics) if isinstance(topics, TopicDestination) else builder.destination_resolver(topics)
    built = builder.serializer(schema).publisher_options(options).emulator_endpoint(endpoint).build()
    jvm = get_gateway().jvm
    j_type = type_info.get_java_type_info()
    generator = jvm.io.github.flinkpubsub.benchmarks.Cycle(items)
    j_source = jvm.org.apache.flink.connector.datagen.source.DataGeneratorSource(generator, 2**63 - 1, j_type)
    no_watermarks = jvm.org.apache.flink.api.common.eventtime.WatermarkStrategy.noWatermarks()
    j_stream = env._j_stream_execution_environment.fromSource(j_source, no_watermarks, "generator", j_type)
    DataStream(j_stream).sink_to(built)


def generator_jar(folder: Path) -> str:
    """URL of a jar with the generator, compiled against PyFlink's Flink."""
    home = os.environ.get("JAVA_HOME")
    javac = (home and shutil.which(f"{home}/bin/javac")) or shutil.which("javac")
    if not javac:
        raise SystemExit("the sink's rows need a Java compiler (javac)")
    classes = folder / "classes"
    lib = Path(pyflink.__file__).parent / "lib"
    code = Path(__file__).parent / "java" / "Cycle.java"
    subprocess.run([javac, "--release", "11", "-d", classes, "-classpath", f"{lib}/*", code], check=True)
    path = folder / "generator.jar"
    with zipfile.ZipFile(path, "w") as archive:
        for file in classes.rglob("*.class"):
            archive.write(file, file.relative_to(classes))
    return path.as_uri()


def run(loop: str, endpoint: str, resources: list[str], size: int, folder: Path) -> None:
    """Builds the job and runs it until stdin ends."""
    configuration = Configuration()
    configuration.set_string("restart-strategy.type", "none")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(1)
    env.enable_checkpointing(_CHECKPOINT_MILLISECONDS)
    env.add_jars(jar(), *([generator_jar(folder)] if loop.startswith("sink") else []))
    if loop in ("source-raw", "source-splits"):
        source(env, endpoint, resources, PubSubDeserializationSchema.payload(SimpleStringSchema()))
    elif loop == "source-python":
        source(env, endpoint, resources, PubSubDeserializationSchema.payload(decode))
    else:
        topics = [TopicDestination(*_names(resource)) for resource in resources]
        if loop == "sink-raw":
            schema = PubSubSerializationSchema.payload(SimpleStringSchema())
            sink(env, endpoint, topics[0], [event(size).decode()], Types.STRING(), schema)
        else:
            schema = PubSubSerializationSchema.payload(data_of).with_attributes(attributes_of)
            pickled = [pickle.dumps(element) for element in elements(size)]
            target = ByNumber(topics) if loop == "sink-topics" else topics[0]
            sink(env, endpoint, target, pickled, Types.PICKLED_BYTE_ARRAY(), schema)
    client = env.execute_async(loop)
    until_stdin_ends(lambda: client.get_job_execution_result().result())
    with suppress(Exception):  # It may have ended by itself, and has said so on stderr then.
        client.cancel().result()


def _names(resource: str) -> tuple[str, str]:
    """Project and bare id of a resource path."""
    _, project, _, name = resource.split("/")
    return project, name


def main() -> None:
    """Runs one job until stdin ends."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flink_job")
    loops = ["source-raw", "source-python", "source-splits", "sink-raw", "sink-python", "sink-topics"]
    parser.add_argument("loop", choices=loops)
    parser.add_argument("endpoint")
    parser.add_argument("resources", nargs="+")
    parser.add_argument("--payload-bytes", type=int, default=1024)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run(arguments.loop, arguments.endpoint, arguments.resources, arguments.payload_bytes, Path(folder))


if __name__ == "__main__":
    main()
