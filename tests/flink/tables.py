"""What tests of `pubsub` tables share: one table environment for a module, tables on an emulator, and the rows of queries."""

from __future__ import annotations

import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyflink.table import StreamTableEnvironment
from pyflink.util.exceptions import JavaException

from flink_pubsub.emulator import Emulator, ManualClock
from flink_pubsub.emulator.clock import Clock
from flink_pubsub.wire.pubsub_pb2 import PubsubMessage
from tests.flink.jobs import environment, eventually, workers
from tests.flink.lineage import compile_java

TOPIC, SUBSCRIPTION = "projects/p/topics/orders", "projects/p/subscriptions/orders-sub"


def table_environment(*jars: str, parallelism: int = 1, checkpoint_millis: int | None = 200) -> StreamTableEnvironment:
    """A table environment whose queries run in a mini-cluster each, with checkpoints and without restarts."""
    env = environment(parallelism=parallelism, checkpoint_millis=checkpoint_millis)
    if jars:
        env.add_jars(*jars)
    return StreamTableEnvironment.create(env)


@contextmanager
def orders(*messages: PubsubMessage, ordered: bool = False, clock: Clock = time.monotonic) -> Iterator[Emulator]:
    """An emulator whose subscription orders-sub has these messages, in their order."""
    with Emulator(clock=clock) as emulator:
        emulator.create_topic(TOPIC)
        emulator.create_subscription(SUBSCRIPTION, TOPIC, ack_deadline_seconds=10, enable_message_ordering=ordered)
        for message in messages:
            emulator.publish_all(TOPIC, [message])
        yield emulator


def to_the_middle_of_a_minute(clock: ManualClock) -> None:
    """Moves the clock of a new emulator, so that the second of its start does not decide in which window a message falls."""
    clock.advance((30 - time.time()) % 60)


def formats_jar(folder: Path) -> str:
    """The URL of a jar with the formats of `TestFormats.java`, made in the folder."""
    jar, classes = folder / "formats.jar", folder / "classes"
    compile_java(Path(__file__).with_name("TestFormats.java"), classes)
    with zipfile.ZipFile(jar, "w") as archive:
        for path in classes.rglob("*.class"):
            archive.write(path, path.relative_to(classes).as_posix())
        factories = "tests.TestFormats$Lines\ntests.TestFormats$Clashing\n"
        archive.writestr("META-INF/services/org.apache.flink.table.factories.Factory", factories)
    return jar.as_uri()


def json_messages(*payloads: str, **fields: Any) -> list[PubsubMessage]:
    return [PubsubMessage(data=payload.encode(), **fields) for payload in payloads]


def with_clause(emulator: Emulator | None = None, options: Mapping[str, str] | None = None) -> str:
    """A WITH clause: a table of orders-sub in json, unless the options say something else."""
    clause = {"connector": "pubsub", "project": "p", "subscription": "orders-sub", "format": "json"}
    if emulator is not None:
        clause["emulator-endpoint"] = emulator.endpoint
    clause.update(options or {})
    return "WITH (" + ", ".join(f"'{key}' = '{value}'" for key, value in clause.items()) + ")"


@contextmanager
def table(env: StreamTableEnvironment, columns: str, clause: str, name: str = "orders") -> Iterator[None]:
    """A temporary table, gone afterwards."""
    env.execute_sql(f"CREATE TEMPORARY TABLE {name} ({columns}) {clause}")
    try:
        yield
    finally:
        env.execute_sql(f"DROP TEMPORARY TABLE {name}")


def rows(env: StreamTableEnvironment, query: str, count: int) -> list[tuple[Any, ...]]:
    """The first rows of a query; then its job is cancelled."""
    with env.execute_sql(query).collect() as found:
        taken = [tuple(row) for row in islice(found, count)]
    eventually(lambda: not workers(), "the query's workers are gone")
    return taken


def refusal(env: StreamTableEnvironment, statement: str) -> str:
    """What the planner says of a statement that it must refuse: the Java exception with all its causes."""
    try:
        env.execute_sql(statement)
    except (Py4JJavaError, JavaException) as error:
        return str(error)
    raise AssertionError(f"this was planned: {statement}")
