"""The worker's way to the JVM: one descriptor, whole frames, any thread."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from flink_pubsub.bridge.frames import Kind, encode_json, encode_parts

_PIPE_BYTES = 1024 * 1024
"""Pipe size to ask for; 1 MiB is what Linux grants without privilege. A batch then crosses in few system calls."""


class Output:
    """Writes frames to the pipe, one at a time.

    The JVM's reader thread never blocks, so a write waits for the pipe only, never for the job. Once the JVM is gone writes
    are dropped: the end of stdin, which comes at the same moment, ends the worker.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._broken = False

    def send(self, kind: Kind, parts: Sequence[bytes] = ()) -> None:
        """Sends a frame whose body is the concatenation of the parts.

        Raises:
            ProtocolError: the frame would be too long; nothing was sent.
        """
        self._write(encode_parts(kind, parts))

    def send_json(self, kind: Kind, body: Mapping[str, Any]) -> None:
        """Sends a control frame."""
        self._write([encode_json(kind, body)])

    def _write(self, pieces: Sequence[bytes]) -> None:
        with self._lock:
            for piece in pieces:
                rest = memoryview(piece)
                while rest and not self._broken:
                    try:
                        rest = rest[os.write(self._descriptor, rest) :]
                    except BrokenPipeError:
                        self._broken = True


class LogHandler(logging.Handler):
    """Hands log records to the JVM's own logging, under the Python logger's name."""

    def __init__(self, output: Output) -> None:
        super().__init__()
        self._output = output
        self.setFormatter(logging.Formatter("%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            body = {"level": record.levelname, "logger": record.name, "message": self.format(record)[:_LONGEST_LOG]}
            self._output.send_json(Kind.LOG, body)
        except Exception:
            self.handleError(record)


_LONGEST_LOG = 16 * 1024


def claim_standard_streams() -> tuple[int, int]:
    """Moves stdin and stdout to private descriptors, so that `print` and `input` in user code cannot touch the frames.

    Afterwards descriptor 1 is stderr, which the JVM logs, and descriptor 0 is empty.
    """
    source, sink = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    for descriptor in (source, sink):
        enlarge_pipe(descriptor)
    return source, sink


def enlarge_pipe(descriptor: int) -> None:
    """Asks for a larger pipe. A refusal, or something that is not a pipe, costs speed only."""
    try:
        fcntl.fcntl(descriptor, _F_SETPIPE_SZ, _PIPE_BYTES)
    except OSError:
        logging.getLogger(__name__).debug("the pipe keeps its size")


_F_SETPIPE_SZ = getattr(fcntl, "F_SETPIPE_SZ", 1031)
