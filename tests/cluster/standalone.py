"""A standalone Flink cluster of the test's own, started and stopped with the scripts that PyFlink's package brings.

The package stays as it is: configuration, jars, logs and process ids live in a folder of the test, which Flink's scripts take
from environment variables. Everything listens on 127.0.0.1 only, at ports that were free.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import psutil
import pyflink

from tests.flink.jobs import eventually
from tools import javahome

PYFLINK = Path(pyflink.__file__).parent
FLINK_VERSION = next((PYFLINK / "lib").glob("flink-dist-*.jar")).stem.removeprefix("flink-dist-")


class Cluster:
    """A running cluster. Made by `cluster`."""

    def __init__(self, folder: Path, rest_port: int) -> None:
        self.folder = folder
        self.rest_port = rest_port
        self.environment = {
            **javahome.environment(),
            "FLINK_CONF_DIR": str(folder / "conf"),
            "FLINK_LIB_DIR": str(folder / "lib"),
            "FLINK_OPT_DIR": str(folder / "opt"),
            "FLINK_LOG_DIR": str(folder / "log"),
            "FLINK_PID_DIR": str(folder / "pid"),
            "FLINK_IDENT_STRING": "tests",
            "HOME": str(folder),  # the SQL client keeps its history there
        }

    def run(self, script: str, *arguments: str, seconds: float = 60) -> str:
        """Runs one of Flink's scripts and returns what it printed; fails with that if it fails or takes too long."""
        done = subprocess.run(
            [PYFLINK / "bin" / script, *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert done.returncode == 0, f"{script} exited with {done.returncode}: {done.stdout}"
        return done.stdout

    def rest(self, path: str, method: str = "GET") -> Any:
        """The answer of the JobManager's REST API."""
        with urlopen(Request(f"http://127.0.0.1:{self.rest_port}{path}", method=method), timeout=10) as answer:
            return json.loads(answer.read() or b"null")

    def jobs(self, state: str) -> list[str]:
        """The ids of all jobs in that state."""
        return [job["jid"] for job in self.rest("/jobs/overview")["jobs"] if job["state"] == state]

    def cancel(self, job: str) -> None:
        """Cancels a job and waits for its end."""
        self.rest(f"/jobs/{job}", "PATCH")
        eventually(lambda: job in self.jobs("CANCELED"), "the job is cancelled", 30)

    def daemons(self, name: str = "*") -> list[psutil.Process]:
        """The JobManager (`standalonesession`) and the TaskManagers (`taskexecutor`) that run."""
        found = []
        for file in sorted((self.folder / "pid").glob(f"flink-tests-{name}.pid")):
            for line in file.read_text().split():
                with suppress(psutil.NoSuchProcess):
                    found.append(psutil.Process(int(line)))
        return found

    def processes(self) -> list[psutil.Process]:
        """All daemons and what they started."""
        return [process for daemon in self.daemons() for process in (daemon, *daemon.children(recursive=True))]

    def workers(self) -> list[psutil.Process]:
        """The connector's workers on all TaskManagers and the JobManager."""
        return [process for process in self.processes() if "flink_pubsub.bridge" in _command(process)]

    def logs(self) -> str:
        """The last lines of every process's log and output, for the message of a failed test."""
        return "".join(f"\n{path.name}:\n{path.read_text()[-3000:]}" for path in sorted((self.folder / "log").glob("*")))


@contextmanager
def cluster(
    folder: Path,
    *,
    task_managers: int = 1,
    slots: int = 2,
    jars: Sequence[Path] = (),
    opt: Sequence[Path] = (),
    settings: Mapping[str, str] | None = None,
) -> Iterator[Cluster]:
    """A cluster whose slots are there, stopped at the end; what does not stop by then is killed.

    Args:
        folder: an empty folder for everything it writes.
        task_managers: how many, each with so many `slots`.
        jars: for `lib`, beside Flink's own.
        opt: jars for `opt`, beside Flink's own.
        settings: for the configuration, by Flink's keys.
    """
    rest_port, rpc_port = _free_ports(2)
    for name in ("lib", "opt", "conf", "log", "pid"):
        (folder / name).mkdir()
    for name, more in (("lib", jars), ("opt", opt)):
        for jar in [*(PYFLINK / name).glob("*.jar"), *more]:
            (folder / name / jar.name).symlink_to(jar)
    _configure(folder / "conf", rest_port, rpc_port, slots, settings or {})
    (folder / "conf" / "workers").write_text("localhost\n" * task_managers)
    running = Cluster(folder, rest_port)
    try:
        running.run("start-cluster.sh")
        eventually(lambda: _slots(running) == task_managers * slots, "all TaskManagers have registered", 60)
        yield running
    except BaseException:
        print(running.logs(), file=sys.stderr)
        raise
    finally:
        _stop(running)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _configure(conf: Path, rest_port: int, rpc_port: int, slots: int, settings: Mapping[str, str]) -> None:
    for file in (PYFLINK / "conf").iterdir():
        shutil.copy(file, conf)
    own = {
        "jobmanager.rpc.address": "127.0.0.1",
        "jobmanager.rpc.port": str(rpc_port),
        "jobmanager.bind-host": "127.0.0.1",
        "jobmanager.memory.process.size": "1024m",
        "taskmanager.host": "127.0.0.1",
        "taskmanager.bind-host": "127.0.0.1",
        "taskmanager.memory.process.size": "1024m",
        "taskmanager.memory.managed.size": "64m",
        "taskmanager.memory.network.max": "64m",
        "taskmanager.numberOfTaskSlots": str(slots),
        "rest.address": "127.0.0.1",
        "rest.bind-address": "127.0.0.1",
        "rest.port": str(rest_port),
        "io.tmp.dirs": str(conf.parent / "tmp"),
        "python.executable": sys.executable,
        "restart-strategy.type": "none",
        **settings,
    }
    with (conf / "config.yaml").open("a") as yaml:  # after Flink's own, where the JVM's options are
        yaml.writelines(f"{key}: {json.dumps(value)}\n" for key, value in own.items())


def _slots(running: Cluster) -> int:
    try:
        return int(running.rest("/overview")["slots-total"])
    except OSError:
        return 0  # not up yet


def _stop(running: Cluster) -> None:
    processes = running.processes()
    for daemon in running.daemons():
        daemon.terminate()
    _, alive = psutil.wait_procs(processes, timeout=20)
    for process in alive:
        process.kill()
    assert not alive, f"these processes did not end with the cluster: {alive}"


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []
