"""The servers that the behaviour suite runs against: this project's emulator and, where they can be had, two of Google's.

These are the emulator of the gcloud tools, a Java program, and the fake server that Google's Go client is tested with.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import grpc

_JARS = Path("/usr/lib/google-cloud-sdk/platform/pubsub-emulator/lib")
_START_SECONDS = 30.0
_GO_MODULE = Path(__file__).parent / "pstest"
_BUILD_SECONDS = 400.0


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


class UnavailableError(Exception):
    """A server cannot be had here, and why."""


def build_pstest(folder: Path) -> Path:
    """Build Go's fake server into the folder; Go's own cache makes that quick from the second time on.

    Raises:
        UnavailableError: there is no Go, or a module cannot be fetched.
    """
    if shutil.which("go") is None:
        raise UnavailableError("Go is not installed, which builds its fake server")
    binary = folder / "pstest"
    command = ["go", "build", "-trimpath", "-o", str(binary), "."]
    try:
        build = subprocess.run(command, cwd=_GO_MODULE, capture_output=True, text=True, timeout=_BUILD_SECONDS)
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"Go's fake server was not built within {_BUILD_SECONDS:.0f} s") from None
    if build.returncode:
        last = build.stderr.strip().splitlines() or ["no reason given"]
        raise UnavailableError(f"Go's fake server cannot be built: {last[-1]}")
    return binary


@contextlib.contextmanager
def pstest(binary: Path) -> Iterator[str]:
    """The endpoint of a running fake server of Go's, which ends with the context."""
    with subprocess.Popen([str(binary)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()


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
