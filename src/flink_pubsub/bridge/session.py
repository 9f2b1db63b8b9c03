"""A worker's life, from HELLO to CLOSED: who reads, who runs what, and how it ends.

Threads: the main thread only reads stdin, so the end of stdin is noticed whatever else is stuck. The command thread unpickles
the connector, opens its role and handles control frames in order. A reader also has a fetch thread, which runs user schemas,
and every role a metrics thread, so that metrics stay live while the others are blocked.

A session ends in one of three ways, all bounded; a writer's command that waits is interrupted in the first two:

1. CLOSE: the role gives back what it holds within the given seconds, CLOSED is sent, the process exits 0.
2. The end of stdin, because the JVM is gone: the same within `ORPHAN_SECONDS`, without anybody to tell.
3. A failure: FAILED is sent once, the JVM fails the job and then sends CLOSE.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import pickle
import platform
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flink_pubsub.bridge.connector import ConnectorBuilder, Rewording, SinkConnector, SourceConnector
from flink_pubsub.bridge.frames import (
    PROTOCOL_VERSION,
    FrameReader,
    Kind,
    ProtocolError,
    decode_json,
)
from flink_pubsub.bridge.output import LogHandler, Output, claim_standard_streams
from flink_pubsub.bridge.roles import BuilderRole, PlannerRole, ReaderRole, Role, WriterRole

ORPHAN_SECONDS = 4.0
"""How long a worker whose JVM is gone may take to give its messages back. Its process must be gone within 5 seconds."""

MAX_QUEUED_COMMANDS = 100_000
"""Credit keeps the queue short; this many waiting frames mean that the JVM broke the protocol."""

_log = logging.getLogger(__name__)


def main() -> None:
    """Entry point of the worker process."""
    tune_interpreter()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the job; the JVM ends its workers
    source, sink = claim_standard_streams()
    session = Session(FrameReader(lambda size: os.read(source, size)), Output(sink))
    status = session.run()
    sys.stderr.flush()
    os._exit(status)  # threads of gRPC or of user code must not delay or prevent the end


def tune_interpreter() -> None:
    """Fits the garbage collector to many long-lived lists.

    What a worker holds refers to nothing in circles, so looking for such circles every few hundred objects only costs time;
    user code that makes some is still cleaned up after, less often.
    """
    gc.set_threshold(50_000, 20, 20)


def build_info() -> dict[str, str]:
    """Version and digest of the build this package belongs to; empty where the jar was never built."""
    try:
        build = json.loads((Path(__file__).parent.parent / "_jar" / "build.json").read_bytes())
        return {"version": str(build["version"]), "digest": str(build["digest"])}
    except (OSError, ValueError, KeyError):
        return {"version": "", "digest": ""}


class Session:
    """One worker's conversation with the JVM."""

    def __init__(self, reader: FrameReader, output: Output) -> None:
        self._reader = reader
        self._output = output
        self._commands: queue.Queue[tuple[Kind, bytes] | Callable[[], None]] = queue.Queue()
        self._failed = threading.Event()
        self._ended = threading.Event()
        self._role: Role | None = None
        self._rewording: Rewording | None = None

    def run(self) -> int:
        """Reads frames until the session ends, and returns the exit status."""
        hello = {"protocol": PROTOCOL_VERSION, "python": platform.python_version(), "executable": sys.executable}
        self._output.send_json(Kind.HELLO, {**hello, **build_info()})
        threading.excepthook = lambda args: self.fail(args.exc_value or args.exc_type())
        threading.Thread(target=self._run_commands, name="commands", daemon=True).start()
        try:
            budget = self._read_until_close()
        except ProtocolError as error:
            self.fail(error)
            budget = ORPHAN_SECONDS
        if isinstance(self._role, WriterRole):
            self._role.interrupt()
        self._commands.put((Kind.CLOSE, json.dumps({"seconds": budget}).encode()))
        ended = self._ended.wait(budget + 0.5)
        return 0 if ended else 1

    def fail(self, error: BaseException) -> None:
        """Reports the error that fails the job; only the first one is sent."""
        if self._failed.is_set():
            return
        self._failed.set()
        trace, message = "".join(traceback.format_exception(error)), str(error)
        if self._rewording is not None and message:
            told = self._rewording.reworded(message)
            trace, message = trace.replace(message, told), told
        kind = type(error)
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        self._output.send_json(Kind.FAILED, {"type": name, "message": message, "traceback": trace})

    def submit(self, action: Callable[[], None]) -> None:
        """Has an action run on the command thread, between two frames."""
        self._commands.put(action)

    @property
    def backlog(self) -> bool:
        """Whether something waits for the command thread."""
        return not self._commands.empty()

    def _read_until_close(self) -> float:
        """Hands frames to the command thread, and returns the seconds that closing may take."""
        while (frame := self._reader.next()) is not None:
            kind, body = frame
            if kind is Kind.CLOSE:
                return float(decode_json(kind, body)["seconds"])
            role = self._role
            if kind is Kind.FETCH and isinstance(role, ReaderRole):
                role.credit()
            elif self._commands.qsize() > MAX_QUEUED_COMMANDS:
                raise ProtocolError(f"more than {MAX_QUEUED_COMMANDS} frames wait to be handled")
            else:
                self._commands.put(frame)
        return ORPHAN_SECONDS

    def _run_commands(self) -> None:
        try:
            self._role = self._open()
        except Exception as error:
            self.fail(error)
        seconds = self._handle_until_close()
        try:
            if self._role is not None:
                self._role.close(seconds)
            self._output.send(Kind.CLOSED)
        except Exception:
            _log.warning("closing failed", exc_info=True)
        self._ended.set()

    def _handle_until_close(self) -> float:
        """Handles frames up to CLOSE, which the main thread always puts last; after a failure it only waits for that.

        What the JVM sent before CLOSE still counts: a completed checkpoint is acknowledged, not given back.
        """
        usable = self._role is not None
        while True:
            command = self._commands.get()
            if isinstance(command, tuple) and command[0] is Kind.CLOSE:
                return float(decode_json(*command)["seconds"])
            if not usable or self._role is None:
                continue
            try:
                if isinstance(command, tuple):
                    self._role.handle(*command)
                else:
                    command()
            except Exception as error:
                usable = False
                self.fail(error)

    def _open(self) -> Role:
        init = self._expect(Kind.INIT)
        settings = decode_json(Kind.INIT, init)
        check_build(settings)
        for entry in settings["search_path"]:
            if entry not in sys.path and os.path.exists(entry):
                sys.path.append(entry)
        root = logging.getLogger()
        root.addHandler(LogHandler(self._output))
        root.setLevel(settings["log_level"])
        logging.captureWarnings(True)
        connector = load_connector(self._expect(Kind.CONNECTOR), settings)
        if isinstance(connector, Rewording):
            self._rewording = connector
        roles: dict[str, Callable[[Any, Session, Output, dict[str, Any]], Role]] = {
            "builder": BuilderRole,
            "planner": PlannerRole,
            "reader": ReaderRole,
            "writer": WriterRole,
        }
        try:
            make = roles[settings["role"]]
        except KeyError:
            raise ProtocolError(f"unknown role {settings['role']!r}") from None
        return make(connector, self, self._output, settings)

    def _expect(self, wanted: Kind) -> bytes:
        command = self._commands.get()
        assert isinstance(command, tuple), "nothing can be submitted before the role is open"
        kind, body = command
        if kind is Kind.CLOSE:
            self._commands.put(command)
            raise ProtocolError("closed before it was opened")
        if kind is not wanted:
            raise ProtocolError(f"expected a {wanted.name} frame, got {kind.name}")
        return body


def check_build(settings: dict[str, Any]) -> None:
    """Refuses a JVM side of another build, or pickled code of another Python, naming the mend.

    Raises:
        ProtocolError: protocol, version, digest or Python differ.
    """
    mine = build_info()
    theirs = (settings["protocol"], settings["version"], settings["digest"])
    if theirs != (PROTOCOL_VERSION, mine["version"], mine["digest"]):
        raise ProtocolError(
            f"the job's jar is of flink-pubsub {settings['version']} (build {settings['digest'][:12]}), the package of "
            f"{sys.executable} is {mine['version'] or 'of unknown version'} (build {mine['digest'][:12] or 'unknown'}): "
            f"install the same version in both places, for instance with 'pip install flink-pubsub=={settings['version']}'"
        )
    here = "{}.{}".format(*sys.version_info[:2])
    if settings["client_python"] not in (here, None):  # None: there was no Python before this one
        raise ProtocolError(
            f"the job was built with Python {settings['client_python']}, but {sys.executable} is Python {here}; functions "
            "travel between equal versions only: set python_executable to a matching interpreter"
        )


def load_connector(data: bytes, settings: dict[str, Any]) -> SourceConnector | SinkConnector | ConnectorBuilder:
    """The connector that travelled with the job, or what builds one.

    Raises:
        ProtocolError: it refers to a module that this interpreter does not have.
    """
    try:
        connector: SourceConnector | SinkConnector | ConnectorBuilder = pickle.loads(data)
    except ModuleNotFoundError as error:
        raise ProtocolError(
            f"the job's {settings['role']} needs the Python module {error.name!r}, which {sys.executable} does not have: "
            "install it there, or define the functions in the job's main script so that they travel with it"
        ) from error
    return connector
