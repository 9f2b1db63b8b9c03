"""The processes of a run: each has an owner, none outlives it, every wait is bounded.

A process is asked to end by the end of its stdin; what is left of its session after the grace period is killed.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import psutil

_ROOT = Path(__file__).parent.parent


class ProcessError(Exception):
    """A process of the run ended or stayed silent; the message has the end of its output."""


class Process:
    """`python -m module arguments…` in a session of its own, its stderr in a file."""

    def __init__(
        self, module: str, arguments: Sequence[str], log: Path, environment: Mapping[str, str] | None = None, grace: float = 10
    ) -> None:
        self._module = module
        self._log = log
        self._grace = grace
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=_ROOT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )

    def __enter__(self) -> Process:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end()

    def line(self, seconds: float) -> str:
        """The next line the process prints.

        Raises:
            ProcessError: it ended, or printed nothing for so long.
        """
        assert self._process.stdout is not None
        deadline = time.monotonic() + seconds
        text = bytearray()
        descriptor = self._process.stdout.fileno()
        while not text.endswith(b"\n"):
            ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise self.failure(f"printed nothing for {seconds:g} s")
            piece = os.read(descriptor, 1)
            if not piece:
                raise self.failure("ended")
            text += piece
        return text.decode().strip()

    def check(self) -> None:
        """Raises ProcessError if the process has ended."""
        if self._process.poll() is not None:
            raise self.failure(f"ended with status {self._process.returncode}")

    def cpu_seconds(self) -> float:
        """What the process and all below it have used so far."""
        top = psutil.Process(self._process.pid)
        total = 0.0
        for process in (top, *top.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system
        return total

    def failure(self, what: str) -> ProcessError:
        """An error that tells what the process did, with the end of its stderr."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(0.5)
        tail = self._log.read_text(errors="replace")[-3000:]
        return ProcessError(f"{self._module} {what}:\n{tail}")

    def end(self) -> None:
        """Asks the process to end, waits for the grace period, kills what is left. May be called again."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(self._grace)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
