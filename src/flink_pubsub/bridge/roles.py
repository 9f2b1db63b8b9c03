"""The four roles of a worker: each turns control frames into calls of a connector, and answers into frames."""

from __future__ import annotations

import base64
import pickle
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from flink_pubsub.bridge.connector import (
    ConnectorBuilder,
    Metrics,
    RequestRefusedError,
    SinkConnector,
    SourceConnector,
    Split,
)
from flink_pubsub.bridge.frames import Kind, ProtocolError, WriteBatch, decode_json
from flink_pubsub.bridge.output import Output

METRICS_SECONDS = 1.0
"""How often metrics are pushed. Flink's reporters look every 10 s by default, so they see figures of the same interval."""

_POLL_SECONDS = 1.0


class Failing(Protocol):
    """The session, as far as a role needs it."""

    def fail(self, error: BaseException) -> None: ...

    def submit(self, action: Callable[[], None]) -> None: ...

    @property
    def backlog(self) -> bool: ...


class Role(Protocol):
    """What the session runs on its command thread."""

    def handle(self, kind: Kind, body: bytes) -> None:
        """Handles one control frame.

        Raises:
            ProtocolError: the frame does not belong to this role.
        """

    def close(self, seconds: float) -> None:
        """Gives everything back; the last call."""


class _BaseContext:
    def __init__(self, session: Failing, output: Output, settings: dict[str, Any]) -> None:
        self._session = session
        self._output = output
        self.subtask: int = settings["subtask"]
        self.parallelism: int = settings["parallelism"]

    def fail(self, error: BaseException) -> None:
        self._session.fail(error)


class _ReaderContext(_BaseContext):
    def __init__(self, session: Failing, output: Output, settings: dict[str, Any]) -> None:
        super().__init__(session, output, settings)
        self.checkpoint_interval: float | None = settings.get("checkpoint_interval")

    def checkpoint_settled(self, checkpoint: int) -> None:
        self._output.send_json(Kind.CHECKPOINT_SETTLED, {"checkpoint": checkpoint})

    def records_withdrawn(self, split: str, sequence: int, withdrawn: Sequence[int]) -> None:
        body = {"split": split, "sequence": sequence, "withdrawn": list(withdrawn)}
        self._output.send_json(Kind.RECORDS_WITHDRAWN, body)


class _WriterContext(_BaseContext):
    @property
    def backlog(self) -> bool:
        return self._session.backlog

    def settled(self, records: int, size: int) -> None:
        self._output.send_json(Kind.SETTLED, {"records": records, "bytes": size})

    def flushed(self, flush: int) -> None:
        self._output.send_json(Kind.FLUSHED, {"flush": flush})

    def submit(self, action: Callable[[], None]) -> None:
        self._session.submit(action)


class BuilderRole:
    """Answers one BUILD: with `connector`, the pickle in base64, and `facts`, or with the reason in `refused`."""

    def __init__(self, build: ConnectorBuilder, session: Failing, output: Output, settings: dict[str, Any]) -> None:
        self._build = build
        self._output = output
        output.send_json(Kind.READY, {})

    def handle(self, kind: Kind, body: bytes) -> None:
        if kind is not Kind.BUILD:
            raise ProtocolError(f"a builder cannot handle {kind.name}")
        try:
            built = self._build(decode_json(kind, body))
        except RequestRefusedError as refusal:
            self._output.send_json(Kind.BUILT, {"refused": str(refusal)})
            return
        connector = base64.b64encode(pickle.dumps(built.connector)).decode()
        self._output.send_json(Kind.BUILT, {"connector": connector, "facts": built.facts})

    def close(self, seconds: float) -> None:
        pass


class PlannerRole:
    """Answers one PLAN."""

    def __init__(self, connector: SourceConnector, session: Failing, output: Output, settings: dict[str, Any]) -> None:
        self._connector = connector
        self._output = output
        self._context = _BaseContext(session, output, settings)
        output.send_json(Kind.READY, {})

    def handle(self, kind: Kind, body: bytes) -> None:
        if kind is not Kind.PLAN:
            raise ProtocolError(f"a planner cannot handle {kind.name}")
        plan = self._connector.plan(self._context, decode_json(kind, body)["state"])
        splits = [{"id": p.split.id, "data": p.split.data, "owner": p.owner} for p in plan.splits]
        self._output.send_json(Kind.PLANNED, {"splits": splits, "state": plan.state})

    def close(self, seconds: float) -> None:
        pass


class _MetricsThread:
    """Pushes metrics every second, the first at once, and only when they changed."""

    def __init__(self, source: Any, session: Failing, output: Output) -> None:
        self._source = source
        self._session = session
        self._output = output
        self._closed = threading.Event()
        self._last: Metrics | None = None
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while True:
                self.push()
                if self._closed.wait(METRICS_SECONDS):
                    return
        except Exception as error:
            self._session.fail(error)

    def push(self) -> None:
        metrics: Metrics = self._source.metrics()
        if metrics != self._last:
            self._last = metrics
            self._output.send_json(Kind.METRICS, asdict(metrics))

    def close(self) -> None:
        self._closed.set()
        self._thread.join(METRICS_SECONDS)


class ReaderRole:
    """Runs a `SourceReader`: control frames on the command thread, `poll` on a fetch thread of its own."""

    def __init__(self, connector: SourceConnector, session: Failing, output: Output, settings: dict[str, Any]) -> None:
        self._session = session
        self._output = output
        self._credits = threading.Semaphore(0)
        self._closed = threading.Event()
        self._ordinals = 0
        self._reader = connector.open_reader(_ReaderContext(session, output, settings))
        output.send_json(Kind.READY, asdict(self._reader.settings))
        self._metrics = _MetricsThread(self._reader, session, output)
        self._fetcher = threading.Thread(target=self._fetch, name="fetch", daemon=True)
        self._fetcher.start()

    def credit(self) -> None:
        """The JVM wants one more batch. Called by the thread that reads stdin."""
        self._credits.release()

    def _fetch(self) -> None:
        try:
            while not self._closed.is_set():
                if not self._credits.acquire(timeout=_POLL_SECONDS):
                    continue
                blocks = self._reader.poll(_POLL_SECONDS)
                while not blocks and not self._closed.is_set():
                    blocks = self._reader.poll(_POLL_SECONDS)
                if blocks:
                    self._output.send(Kind.RECORDS, [part for block in blocks for part in block.parts()])
        except Exception as error:
            self._session.fail(error)

    def handle(self, kind: Kind, body: bytes) -> None:
        if kind is Kind.FETCH:  # one that came before the role was open
            self.credit()
            return
        frame = decode_json(kind, body)
        if kind is Kind.ASSIGN:
            splits = [Split(split["id"], split["data"]) for split in frame["splits"]]
            first = self._ordinals
            self._ordinals += len(splits)
            self._reader.assign(list(enumerate(splits, first)))
        elif kind is Kind.PAUSE_RESUME:
            self._reader.pause_or_resume(frame["pause"], frame["resume"])
        elif kind is Kind.SNAPSHOT:
            self._reader.snapshot(frame["checkpoint"], frame["positions"])
        elif kind is Kind.CHECKPOINT_COMPLETE:
            self._reader.checkpoint_complete(frame["checkpoint"])
        elif kind is Kind.RECORD_FAILED:
            self._reader.record_failed(frame["split"], frame["sequence"], frame["error"], frame["emitting"])
        else:
            raise ProtocolError(f"a reader cannot handle {kind.name}")

    def close(self, seconds: float) -> None:
        self._closed.set()
        self._metrics.close()
        self._reader.close(seconds)
        self._metrics.push()


class WriterRole:
    """Runs a `SinkWriter`, all of it on the command thread."""

    def __init__(self, connector: SinkConnector, session: Failing, output: Output, settings: dict[str, Any]) -> None:
        self._writer = connector.open_writer(_WriterContext(session, output, settings))
        output.send_json(Kind.READY, asdict(self._writer.settings))
        self._metrics = _MetricsThread(self._writer, session, output)

    def handle(self, kind: Kind, body: bytes) -> None:
        if kind is Kind.WRITE:
            self._writer.write(WriteBatch.decode(body))
        elif kind is Kind.FLUSH:
            frame = decode_json(kind, body)
            self._writer.flush(frame["flush"], frame["end_of_input"])
        elif kind is Kind.SEND_NOW:
            self._writer.send_now()
        else:
            raise ProtocolError(f"a writer cannot handle {kind.name}")

    def interrupt(self) -> None:
        """Ends what waits on the command thread, without waiting for it."""
        threading.Thread(target=self._writer.interrupt, name="interrupt", daemon=True).start()

    def close(self, seconds: float) -> None:
        self._metrics.close()
        self._writer.close(seconds)
        self._metrics.push()
