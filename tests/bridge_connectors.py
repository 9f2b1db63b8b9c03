"""A counting source and a collecting sink: connectors small enough to see through, for tests of the bridge alone."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flink_pubsub.bridge.connector import (
    Built,
    Context,
    Metrics,
    Plan,
    PlannedSplit,
    ReaderContext,
    ReaderSettings,
    RequestRefusedError,
    Split,
    WriterContext,
    WriterSettings,
)
from flink_pubsub.bridge.frames import RecordBlock, WriteBatch


class QuietReader:
    """A reader as far as it has nothing to say to what it is told."""

    settings = ReaderSettings(close_seconds=5)

    def pause_or_resume(self, pause: Sequence[str], resume: Sequence[str]) -> None: ...

    def snapshot(self, checkpoint: int, positions: Mapping[str, int]) -> None: ...

    def checkpoint_complete(self, checkpoint: int) -> None: ...

    def record_failed(self, split: str, sequence: int, error: str, emitting: bool) -> None: ...

    def metrics(self) -> Metrics:
        return Metrics()

    def close(self, seconds: float) -> None: ...


class QuietWriter:
    """A writer as far as it has nothing to say to what it is told."""

    def send_now(self) -> None: ...

    def interrupt(self) -> None: ...

    def metrics(self) -> Metrics:
        return Metrics()

    def close(self, seconds: float) -> None: ...


@dataclass(frozen=True)
class CountingSource:
    """Counts from 0 to `count` in every one of `splits` splits, `batch` messages at a time; message n is the text of n.

    `journal` is a file that gets a line for everything the JVM said. `quirk` picks a misbehaviour.
    """

    splits: int = 1
    count: int = 10
    batch: int = 4
    journal: str | None = None
    quirk: str = ""

    def plan(self, context: Context, state: Any) -> Plan:
        if self.quirk == "plan raises":
            raise ValueError("no plan today")
        if self.quirk == "plan exits":
            os._exit(7)
        splits = [PlannedSplit(Split(f"s{i}", str(self.count)), i % context.parallelism) for i in range(self.splits)]
        return Plan(splits, {"plans": 1 + (state or {"plans": 0})["plans"]})

    def open_reader(self, context: ReaderContext) -> CountingReader:
        if self.quirk == "open raises":
            raise ValueError("closed on Mondays")
        return CountingReader(self, context)


class CountingReader(QuietReader):
    def __init__(self, source: CountingSource, context: ReaderContext) -> None:
        self.source = source
        self.context = context
        self.lock = threading.Condition()
        self.next: dict[int, int] = {}
        self.names: dict[str, int] = {}
        self.paused: set[int] = set()
        self.checkpoints = self.counted = self.endings = 0
        self.closed_before = source.journal is not None and "close" in self.noted()
        self.note(f"open {context.checkpoint_interval}")

    def noted(self) -> list[str]:
        assert self.source.journal is not None
        journal = Path(self.source.journal)
        return journal.read_text().splitlines() if journal.exists() else []

    def note(self, line: str) -> None:
        if self.source.journal is not None:
            with Path(self.source.journal).open("a") as journal:
                journal.write(line + "\n")

    def assign(self, splits: Sequence[tuple[int, Split]]) -> None:
        print("user code may print")
        with self.lock:
            for ordinal, split in splits:
                self.note(f"assign {split.id}")
                self.next[ordinal] = 0
                self.names[split.id] = ordinal
            self.lock.notify_all()

    def poll(self, seconds: float) -> Sequence[RecordBlock]:
        if self.source.quirk == "poll raises" or (self.source.quirk == "fails once" and not self.closed_before):
            raise ValueError("poll broke")
        with self.lock:
            self.lock.wait_for(lambda: any(o not in self.paused for o in self.next), timeout=seconds)
            blocks = []
            for ordinal, start in list(self.next.items()):
                if ordinal in self.paused:
                    continue
                end = min(start + self.source.batch, self.source.count)
                records = [self.record(n) for n in range(start, end)]
                finished = end == self.source.count and self.source.quirk not in ("never ends", "fails once")
                blocks.append(
                    RecordBlock(
                        ordinal,
                        start,
                        records,
                        timestamps=list(range(start, end)),
                        finished=finished,
                    )
                )
                self.next[ordinal] = end
                self.counted += len(records)
                if end == self.source.count:
                    del self.next[ordinal]
            return blocks

    def record(self, n: int) -> bytes:
        return str(n).encode()

    def pause_or_resume(self, pause: Sequence[str], resume: Sequence[str]) -> None:
        with self.lock:
            self.paused |= {self.names[name] for name in pause}
            self.paused -= {self.names[name] for name in resume}
            self.note(f"pause {list(pause)} resume {list(resume)}")
            self.lock.notify_all()

    def snapshot(self, checkpoint: int, positions: Mapping[str, int]) -> None:
        self.note(f"snapshot {checkpoint} {dict(positions)}")

    def checkpoint_complete(self, checkpoint: int) -> None:
        self.checkpoints += 1
        self.note(f"complete {checkpoint}")

    def record_failed(self, split: str, sequence: int, error: str, emitting: bool) -> None:
        self.note(f"failed {split} {sequence} {emitting}")

    def metrics(self) -> Metrics:
        return Metrics(
            {
                "counted": self.counted,
                "checkpoints.completed": self.checkpoints,
            },
            {"splits": len(self.names)},
            {"endings": self.endings},
        )

    def close(self, seconds: float) -> None:
        self.note("close")
        self.endings += 1
        if self.source.quirk == "close hangs":
            time.sleep(60)


@dataclass(frozen=True)
class LongsSource(CountingSource):
    """Counts in Java's longs. Those in `broken` are cut short, so that the JVM cannot decode them; told of one, the reader
    withdraws what `withdrawn` has for it."""

    broken: tuple[int, ...] = ()
    withdrawn: Mapping[int, Sequence[int]] = field(default_factory=dict)
    tolerant: bool = True

    def open_reader(self, context: ReaderContext) -> LongsReader:
        return LongsReader(self, context)


class LongsReader(CountingReader):
    def __init__(self, source: LongsSource, context: ReaderContext) -> None:
        super().__init__(source, context)
        self.longs = source
        self.settings = ReaderSettings(5, fail_on_record_failure=not source.tolerant, await_record_failure=source.tolerant)

    def record(self, n: int) -> bytes:
        return n.to_bytes(8, "big")[: 3 if n in self.longs.broken else 8]

    def record_failed(self, split: str, sequence: int, error: str, emitting: bool) -> None:
        super().record_failed(split, sequence, error, emitting)
        self.context.records_withdrawn(split, sequence, self.longs.withdrawn.get(sequence, ()))


@dataclass(frozen=True)
class CollectingSink:
    """Appends every element (or payload) to `path`, one a line, and settles it at once."""

    path: str
    max_in_flight_records: int = 100
    quirk: str = ""

    def open_writer(self, context: WriterContext) -> CollectingWriter:
        return CollectingWriter(self, context)


class CollectingWriter(QuietWriter):
    def __init__(self, sink: CollectingSink, context: WriterContext) -> None:
        self.sink = sink
        self.context = context
        self.file = Path(f"{sink.path}.{context.subtask}").open("ab", buffering=0)  # noqa: SIM115
        self.written = 0
        self.settings = WriterSettings(5, sink.max_in_flight_records, 1 << 20, timestamps=False)

    def write(self, batch: WriteBatch) -> None:
        column = batch.elements or batch.payloads
        assert column is not None
        values = column.values()
        self.written += len(values)
        if self.sink.quirk == "write raises" and self.written > 20:
            raise ValueError("the disk is full")
        self.file.write(b"".join(value + b"\n" for value in values))
        self.context.settled(len(values), sum(map(len, values)))

    def flush(self, flush: int, end_of_input: bool) -> None:
        if self.sink.quirk == "submits":
            threading.Thread(target=self.context.submit, args=(lambda: self.submitted(flush),)).start()
        else:
            self.context.flushed(flush)

    def submitted(self, flush: int) -> None:
        if flush == 13:
            raise ValueError("an action raised")
        self.context.flushed(flush if threading.current_thread().name == "commands" else -1)

    def metrics(self) -> Metrics:
        return Metrics({"numRecordsSend": self.written})

    def close(self, seconds: float) -> None:
        self.file.close()


def build_counting(request: Mapping[str, Any]) -> Built:
    """A builder of counting sources, which counts nothing negative."""
    count: int = request["count"]
    if count < 0:
        raise RequestRefusedError(f"nobody counts to {count}")
    return Built(CountingSource(count=count), {"last": count - 1})
