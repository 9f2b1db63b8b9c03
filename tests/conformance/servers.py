"""The servers that the behaviour suite runs against: this project's emulator and, where it is installed, Google's."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import grpc

_JARS = Path("/usr/lib/google-cloud-sdk/platform/pubsub-emulator/lib")
_START_SECONDS = 30.0


def google_emulator_jar() -> Path | None:
    """The jar of Google's emulator as Debian's package google-cloud-cli-pubsub-emulator installs it."""
    return next(iter(sorted(_JARS.glob("cloud-pubsub-emulator-*-all.jar"))), None)


@contextlib.contextmanager
def google_emulator(jar: Path) -> Iterator[str]:
    """The endpoint of a running Google emulator, which is ended with the context."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            ["java", "-Xmx512m", "-jar", str(jar), "--host=127.0.0.1", f"--port={port}"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait_for(process, port)
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(10)


def _wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        ready = grpc.channel_ready_future(channel)
        give_up_at = time.monotonic() + _START_SECONDS
        while process.poll() is None and time.monotonic() < give_up_at:
            with contextlib.suppress(grpc.FutureTimeoutError):
                ready.result(1)
                return
        ready.cancel()
    raise RuntimeError(f"Google's emulator did not start (exit status {process.poll()})")
