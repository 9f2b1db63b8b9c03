"""Flink's own SQL client on scripts. PyFlink's package brings it, but for one jar."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.standalone import FLINK_VERSION, PYFLINK, Cluster
from tests.flink.jobs import eventually

_GATEWAY = f"flink-sql-gateway-{FLINK_VERSION}.jar"


def gateway_jar(cache: Path) -> Path:
    """The jar without which `sql-client.sh` does not start, kept in the cache. Skips the test where Maven cannot fetch it."""
    jar = cache / _GATEWAY
    if not jar.exists():
        maven = shutil.which("mvn")
        if maven is None:
            pytest.skip(f"sql-client.sh needs {_GATEWAY}, which PyFlink does not bring, and there is no Maven to fetch it")
        artifact = f"org.apache.flink:flink-sql-gateway:{FLINK_VERSION}"
        copy = [maven, "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={cache}"]
        done = subprocess.run(copy, capture_output=True, text=True, timeout=100, check=False)
        if done.returncode:
            pytest.skip(f"sql-client.sh needs {_GATEWAY}, and Maven could not fetch it: {done.stdout[-500:]}")
    return jar


class SqlClient:
    """The client at work on a script. Made by `sql_client`."""

    def __init__(self, process: subprocess.Popen[bytes], printed: Path) -> None:
        self._process = process
        self._printed = printed

    def output(self) -> str:
        """What it has printed so far."""
        return self._printed.read_text(encoding="utf-8", errors="replace")

    def wait_for(self, text: str) -> None:
        """Waits until it has printed that; fails with what it printed instead if it ends before."""
        eventually(lambda: text in self.output() or self._process.poll() is not None, f"the SQL client has printed {text}", 60)
        assert text in self.output(), self.output()

    def end(self) -> str:
        """Waits for its end and returns what it has printed."""
        self._process.wait(60)
        return self.output()


@contextmanager
def sql_client(cluster: Cluster, folder: Path, init: str, script: str) -> Iterator[SqlClient]:
    """Runs the client on a script, after an initial one; killed at the end if it still runs."""
    folder.mkdir()
    for name, text in (("init.sql", init), ("script.sql", script)):
        (folder / name).write_text(text, encoding="utf-8")
    client = str(PYFLINK / "bin" / "sql-client.sh")
    command = [client, "--init", str(folder / "init.sql"), "--file", str(folder / "script.sql")]
    with (folder / "printed").open("wb") as out:
        process = subprocess.Popen(
            command, env=cluster.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
        )
        try:
            yield SqlClient(process, folder / "printed")
        finally:
            process.kill()
            process.wait(10)
