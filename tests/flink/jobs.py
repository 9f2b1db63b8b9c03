"""What tests of real jobs share: the environment, the JVM's processes, and bounded waits."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote
from urllib.request import urlopen

import cloudpickle
import psutil
from py4j.protocol import Py4JJavaError
from pyflink.common import Configuration
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.java_gateway import get_gateway

import flink_pubsub

V = TypeVar("V")

PATIENCE = 90.0
"""Bound of every wait in these tests; only a broken job reaches it."""


def environment(
    *,
    parallelism: int = 1,
    checkpoint_millis: int | None = 200,
    restarts: int = 0,
    settings: Mapping[str, str] | None = None,
) -> StreamExecutionEnvironment:
    """An environment of the local mini-cluster with checkpoints, or without, and as many immediate restarts as wanted.

    `settings` are further ones, by Flink's keys.
    """
    all_settings = {
        **({} if checkpoint_millis is None else {"execution.checkpointing.interval": f"{checkpoint_millis} ms"}),
        "restart-strategy.type": "fixed-delay" if restarts else "none",
        "restart-strategy.fixed-delay.attempts": str(restarts),
        "restart-strategy.fixed-delay.delay": "0 s",
        "taskmanager.memory.network.max": "64 mb",
        "rest.port": "0",
        "pekko.ask.timeout": "60 s",  # on a busy machine a task may take longer than the default of 10 s to be deployed
        "metrics.fetcher.update-interval": "200 ms",
        **(settings or {}),
    }
    configuration = Configuration()
    for key, value in all_settings.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(parallelism)
    env.add_jars(flink_pubsub.jar())
    env.set_python_executable(sys.executable)  # for PyFlink's own functions
    return env


def worker_spec(python_executable: str | None = None) -> str:
    return json.dumps(
        {
            "python_executable": python_executable,
            "client_executable": sys.executable,
            "client_python": "{}.{}".format(*sys.version_info[:2]),
            "version": flink_pubsub.__version__,
            "search_path": [str(Path(__file__).parent.parent.parent)],
        }
    )


class JavaObject:
    """Passes a Java source or sink where PyFlink wants its Python wrapper."""

    def __init__(self, java: Any) -> None:
        self._java = java

    def get_java_function(self) -> Any:
        return self._java


def bridge_source(connector: object, *, python_executable: str | None = None, bounded: bool = True) -> JavaObject:
    """The generic bridge's source over a connector of the test's own, giving Java byte arrays."""
    jvm = get_gateway().jvm
    bridge = jvm.io.github.flinkpubsub.bridge
    bytes_type = jvm.org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO
    data = cloudpickle.dumps(connector)
    spec = worker_spec(python_executable)
    return JavaObject(bridge.PythonSource(data, spec, bridge.BytesDecoder(), bytes_type, bounded))


def bridge_sink(connector: object) -> JavaObject:
    """The generic bridge's sink over a connector of the test's own, taking Java byte arrays."""
    bridge = get_gateway().jvm.io.github.flinkpubsub.bridge
    return JavaObject(bridge.PythonSink(cloudpickle.dumps(connector), worker_spec(), bridge.BytesEncoder(), None))


def gateway_process() -> psutil.Process:
    """The JVM that PyFlink started, which the mini-cluster runs in."""
    [java] = [child for child in psutil.Process().children() if any("PythonGatewayServer" in part for part in child.cmdline())]
    return java


def workers(role: str | None = None) -> list[psutil.Process]:
    """The worker processes of all jobs in the JVM, or those of one role."""
    found = []
    for child in gateway_process().children(recursive=True):
        try:
            command = child.cmdline()
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
        if "flink_pubsub.bridge" in command and (role is None or role in command):
            found.append(child)
    return found


def eventually(condition: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
    """Waits for something outside this process, which cannot notify; fails naming it at the deadline."""
    pause = threading.Event()
    for _ in range(int(seconds / 0.05)):
        if condition():
            return
        pause.wait(0.05)
    raise AssertionError(f"after {seconds} s still not so: {what}")


class Rest:
    """Flink's REST API of one job. Every method raises OSError when the mini-cluster is gone."""

    def __init__(self, job: str) -> None:
        self._job = job

    def get(self, path: str = "") -> Any:
        with urlopen(f"{self._job}{path}", timeout=10) as answer:
            return json.load(answer)

    def vertex(self, name: str = "") -> Any:
        """The only vertex in whose name this occurs."""
        [vertex] = [each for each in self.get()["vertices"] if name in each["name"]]
        return vertex

    def metrics(self, source: str) -> dict[str, str]:
        """The metrics of a source's first subtask that belong to the operator of that name."""
        path, prefix = f"/vertices/{self.vertex(f'Source: {source}')['id']}/subtasks/0/metrics", f"Source__{source}."
        return {name[len(prefix) :]: value for name, value in self.values(path, lambda name: name.startswith(prefix)).items()}

    def enumerator(self, source: str) -> dict[str, int]:
        """The gauges of a source's enumerator by their last names."""
        path = f"/vertices/{self.vertex(f'Source: {source}')['id']}/jm-operator-metrics"
        values = self.values(path, lambda name: ".enumerator." in name)
        return {name.rsplit(".", 1)[1]: int(value) for name, value in values.items()}

    def writer_metrics(self) -> dict[str, int]:
        """What the writer's first subtask shows in a job with one sink, but no metric of Flink's that is no whole number."""
        values: dict[str, str] = {}
        for vertex in self.get()["vertices"]:
            values |= self.values(f"/vertices/{vertex['id']}/subtasks/0/metrics", lambda name: "Writer." in name)
        whole = {name: value for name, value in values.items() if value.lstrip("-").isdigit()}
        return {name.split("Writer.", 1)[1]: int(value) for name, value in whole.items()}

    def values(self, path: str, wanted: Callable[[str], bool]) -> dict[str, str]:
        """The metrics at a path whose names are wanted, by these names."""
        names = [each["id"] for each in self.get(path) if wanted(each["id"])]
        values: dict[str, str] = {}
        for part in (names[start : start + 50] for start in range(0, len(names), 50)):
            values |= {each["id"]: each["value"] for each in self.get(f"{path}?get={quote(','.join(part))}")}
        return values

    def completed_checkpoints(self) -> int:
        completed: int = self.get("/checkpoints")["counts"]["completed"]
        return completed


class Job:
    """A submitted job. The mini-cluster, which it has for itself, goes with it."""

    def __init__(self, client: Any) -> None:
        self._client = client

    @property
    def alive(self) -> bool:
        """Whether it has not ended. The mini-cluster of a job that has ended refuses to answer."""
        try:
            return not self._client.get_job_status().result().is_globally_terminal_state()
        except Py4JJavaError:
            return False

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Waits while the job is alive; fails with the job's own failure if it ends first."""
        eventually(lambda: condition() or not self.alive, what)
        if not condition():
            raise AssertionError(f"the job ended before {what}: {self.failure()}")

    def failure(self) -> str:
        try:
            self._client.get_job_execution_result().result()
        except Py4JJavaError as error:
            return str(error)
        return "it ended normally"

    def stop(self, folder: str) -> None:
        """Ends the job with a savepoint in the folder, so that everything before the end is part of a checkpoint."""
        # PyFlink's own method calls one that Flink no longer has.
        native = get_gateway().jvm.org.apache.flink.core.execution.SavepointFormatType.NATIVE
        self._client._j_job_client.stopWithSavepoint(False, folder, native).get()

    def rest(self) -> Rest:
        """Flink's REST API of the job."""
        client = self._client._j_job_client
        cluster = client.getClass().getDeclaredField("miniCluster")
        cluster.setAccessible(True)
        return Rest(f"{cluster.get(client).getRestAddress().get().toString()}/jobs/{client.getJobID().toString()}")

    def metrics(self, source: str) -> dict[str, str]:
        """What `Rest.metrics` shows; nothing once the job has ended."""
        try:
            return self.rest().metrics(source)
        except (OSError, Py4JJavaError):
            return {}

    def writer_metrics(self) -> dict[str, int]:
        """What `Rest.writer_metrics` shows; nothing once the job has ended."""
        try:
            return self.rest().writer_metrics()
        except (OSError, Py4JJavaError):
            return {}

    def shown(self, read: Callable[[], Mapping[str, V]], expected: Mapping[str, V]) -> Mapping[str, V]:
        """Waits until the metrics that are read have these values, and returns all that was read then."""
        now: Mapping[str, V] = {}

        def are_shown() -> bool:
            nonlocal now
            now = read()
            return expected.items() <= now.items()

        try:
            self.wait_until(are_shown, f"the metrics are {expected}")
        except AssertionError as error:
            raise AssertionError(f"{error}; they were {now} at last") from None
        return now

    def cancel(self) -> None:
        if self.alive:
            self._client.cancel().result()
        eventually(lambda: not workers() and not self.alive, "the job, its workers and its mini-cluster are gone")


@contextmanager
def running(env: StreamExecutionEnvironment, name: str = "test") -> Iterator[Job]:
    """A submitted job, cancelled at the end."""
    job = Job(env.execute_async(name))
    try:
        yield job
    finally:
        job.cancel()


def failure_of(env: StreamExecutionEnvironment) -> str:
    """Runs a job that must fail, and returns the whole text of its failure."""
    try:
        env.execute("failing")
    except Py4JJavaError as error:
        return str(error)  # holds the Java stack traces with all causes
    raise AssertionError("the job did not fail")
