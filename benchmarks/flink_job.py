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
from pyflink.common import Configuration, JobClient, TypeInformation, Types, WatermarkStrategy
from pyflink.common.serialization import SimpleStringSchema
from pyflink.datastream import DataStream, StreamExecutionEnvironment
from pyflink.datastream.connectors import Sink
from pyflink.java_gateway import get_gateway
from pyflink.table import StreamTableEnvironment

from benchmarks.bare import until_stdin_ends
from benchmarks.replay import event
from benchmarks.sql import EVENT_COLUMNS, read, write
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

DATA_STREAM_LOOPS = ("source-raw", "source-python", "source-splits", "sink-raw", "sink-python", "sink-topics")
SQL_LOOPS = ("sql-source-raw", "sql-source-json", "sql-sink-raw", "sql-sink-json")

_CHECKPOINT_MILLISECONDS = 1000
_OUTSTANDING = 1_000_000
"""Messages are acknowledged at checkpoints, so a second of traffic has to fit; all splits together."""
_OUTSTANDING_BYTES = 4 * 1024 * 1024 * 1024
_IN_FLIGHT = 10_000
_REQUEST_BYTES = 9_000_000


def source(env: StreamExecutionEnvironment, endpoint: str, resources: list[str], schema: PubSubDeserializationSchema) -> None:
    """A job from the subscriptions to nowhere."""
    options = PubSubSubscriberOptions(
        flow_control_max_outstanding_element_count=_OUTSTANDING // len(resources),
        flow_control_max_outstanding_request_bytes=_OUTSTANDING_BYTES // len(resources),
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
    type_info: TypeInformation,
    schema: PubSubSerializationSchema,
) -> None:
    """A job that publishes the same elements over and over, to a topic or to those that a resolver chooses."""
    options = PubSubPublisherOptions(
        batch_element_count_threshold=1000,
        batch_request_byte_threshold=_REQUEST_BYTES,
        max_in_flight_messages=_IN_FLIGHT,
    )
    builder = PubSubSink.builder()
    builder = builder.topic(topics) if isinstance(topics, TopicDestination) else builder.destination_resolver(topics)
    built = builder.serializer(schema).publisher_options(options).emulator_endpoint(endpoint).build()
    generated(env, items, type_info).sink_to(built)


def generated(env: StreamExecutionEnvironment, items: list[Any], type_info: TypeInformation) -> DataStream:
    """An endless stream of the same elements over and over."""
    jvm = get_gateway().jvm
    j_type = type_info.get_java_type_info()
    generator = jvm.io.github.flinkpubsub.benchmarks.Cycle(items)
    j_source = jvm.org.apache.flink.connector.datagen.source.DataGeneratorSource(generator, 2**63 - 1, j_type)
    no_watermarks = jvm.org.apache.flink.api.common.eventtime.WatermarkStrategy.noWatermarks()
    j_stream = env._j_stream_execution_environment.fromSource(j_source, no_watermarks, "generator", j_type)
    return DataStream(j_stream)


def sql(env: StreamExecutionEnvironment, loop: str, endpoint: str, resource: str, size: int) -> JobClient:
    """A job of the same shape whose source or sink is a table."""
    project, name = _names(resource)
    form = loop.rpartition("-")[2]
    columns = EVENT_COLUMNS if form == "json" else "body STRING"
    options = {"connector": "pubsub", "project": project, "format": form, "emulator-endpoint": endpoint}
    tables = StreamTableEnvironment.create(env)
    if loop.startswith("sql-source"):
        options |= {
            "subscription": name,
            "scan.flow-control.max-outstanding-element-count": str(_OUTSTANDING),
            "scan.flow-control.max-outstanding-request-bytes": str(_OUTSTANDING_BYTES),
        }
        return read(tables, columns, options)
    options |= {
        "topic": name,
        "sink.batching.element-count-threshold": "1000",
        "sink.batching.request-byte-threshold": str(_REQUEST_BYTES),
        "sink.in-flight.max-messages": str(_IN_FLIGHT),
    }
    return write(tables, generated(env, [event(size).decode()], Types.STRING()), columns, options)


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


def data_stream(env: StreamExecutionEnvironment, loop: str, endpoint: str, resources: list[str], size: int) -> JobClient:
    """A job of the DataStream API."""
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
    return env.execute_async(loop)


def run(loop: str, endpoint: str, resources: list[str], size: int, folder: Path) -> None:
    """Builds the job and runs it until stdin ends."""
    configuration = Configuration()
    configuration.set_string("restart-strategy.type", "none")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(1)
    env.enable_checkpointing(_CHECKPOINT_MILLISECONDS)
    env.add_jars(jar(), *([generator_jar(folder)] if "sink" in loop else []))
    client = (
        sql(env, loop, endpoint, resources[0], size) if loop in SQL_LOOPS else data_stream(env, loop, endpoint, resources, size)
    )
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
    parser.add_argument("loop", choices=(*DATA_STREAM_LOOPS, *SQL_LOOPS))
    parser.add_argument("endpoint")
    parser.add_argument("resources", nargs="+")
    parser.add_argument("--payload-bytes", type=int, default=1024)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run(arguments.loop, arguments.endpoint, arguments.resources, arguments.payload_bytes, Path(folder))


if __name__ == "__main__":
    main()
