"""Plays the JVM's part against a real worker process."""

from __future__ import annotations

import queue
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import cloudpickle

from flink_pubsub.bridge.frames import (
    PROTOCOL_VERSION,
    FrameReader,
    Kind,
    decode_json,
    encode,
    encode_json,
)
from flink_pubsub.bridge.session import build_info

PATIENCE = 20.0
"""Bound of every wait for the worker; only a broken worker reaches it."""

_BLOCK = struct.Struct(">HBqII")


class WorkerDriver:
    """A worker process with a test at both ends of its pipes."""

    def __init__(self, *, python: str = sys.executable, env: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [python, "-m", "flink_pubsub.bridge"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=None if env is None else dict(env),
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.stdin, self.stdout, self.stderr = (
            self.process.stdin,
            self.process.stdout,
            self.process.stderr,
        )
        self.frames: queue.Queue[tuple[Kind, bytes] | None] = queue.Queue()
        self.skipped: list[tuple[Kind, bytes]] = []
        self.errors = b""
        self._threads = [
            threading.Thread(target=self._read),
            threading.Thread(target=self._drain),
        ]
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        reader = FrameReader(self.stdout.read1 if hasattr(self.stdout, "read1") else self.stdout.read)
        while (frame := reader.next()) is not None:
            self.frames.put(frame)
        self.frames.put(None)

    def _drain(self) -> None:
        self.errors = self.stderr.read()

    def __enter__(self) -> WorkerDriver:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the worker, if it has not ended by itself."""
        self.process.kill()
        self.process.wait(PATIENCE)
        for thread in self._threads:
            thread.join(PATIENCE)
        for stream in (self.stdin, self.stdout, self.stderr):
            try:
                stream.close()
            except BrokenPipeError:
                continue

    def send(self, kind: Kind, body: bytes = b"") -> None:
        self.stdin.write(encode(kind, body))
        self.stdin.flush()

    def send_json(self, kind: Kind, **body: Any) -> None:
        self.stdin.write(encode_json(kind, body))
        self.stdin.flush()

    def open(self, connector: object, role: str, **changes: Any) -> dict[str, Any]:
        """HELLO, INIT, CONNECTOR; returns HELLO's body."""
        hello = self.expect_json(Kind.HELLO)
        self.init(connector, role, **changes)
        return hello

    def init(self, connector: object, role: str, **changes: Any) -> None:
        """INIT, CONNECTOR."""
        settings = {
            "protocol": PROTOCOL_VERSION,
            **build_info(),
            "client_python": "{}.{}".format(*sys.version_info[:2]),
            "role": role,
            "subtask": 0,
            "parallelism": 1,
            "search_path": [str(Path(__file__).parent.parent)],
            "log_level": "INFO",
        }
        self.send_json(Kind.INIT, **{**settings, **changes})
        self.send(Kind.CONNECTOR, cloudpickle.dumps(connector))

    def expect(self, *wanted: Kind) -> bytes:
        """The body of the next frame of these kinds; others are kept in `skipped`."""
        deadline = time.monotonic() + PATIENCE
        while True:
            frame = self.frames.get(timeout=max(0.0, deadline - time.monotonic()))
            assert frame is not None, f"the worker ended: {self.errors.decode()}"
            kind, body = frame
            if kind in wanted:
                return body
            assert kind is not Kind.FAILED, body.decode()
            self.skipped.append(frame)

    def expect_json(self, kind: Kind) -> dict[str, Any]:
        return decode_json(kind, self.expect(kind))

    def ended(self) -> int:
        """Waits for the process to end by itself."""
        return self.process.wait(PATIENCE)


def record_blocks(body: bytes) -> Iterator[tuple[int, int]]:
    """First sequence number and number of messages of each block of a RECORDS frame."""
    position = 0
    while position < len(body):
        _, flags, first, messages, records = _BLOCK.unpack_from(body, position)
        position += _BLOCK.size
        columns = 1 if flags & 8 else records
        if not flags & 8:
            position += 4 * messages * bool(flags & 1) + 8 * records * bool(flags & 2)
        position += 4 * columns + sum(struct.unpack_from(f">{columns}I", body, position))
        yield first, messages
    assert position == len(body), f"blocks of {position} bytes in a frame of {len(body)}"
