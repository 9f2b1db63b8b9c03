"""Connectors for tests of the JVM's side, importable by a worker without anything large."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flink_pubsub.bridge.connector import (
    Context,
    Plan,
    PlannedSplit,
    ReaderContext,
    Split,
    WriterContext,
    WriterSettings,
)
from flink_pubsub.bridge.frames import RecordBlock, WriteBatch
from tests.bridge_connectors import QuietReader, QuietWriter


@dataclass(frozen=True)
class FixedSource:
    """Gives these records once, all in one split, and ends."""

    records: tuple[bytes, ...]
    data: str

    def plan(self, context: Context, state: Any) -> Plan:
        return Plan([PlannedSplit(Split("only", self.data), 0)], None)

    def open_reader(self, context: ReaderContext) -> FixedReader:
        return FixedReader(self.records)


class FixedReader(QuietReader):
    def __init__(self, records: tuple[bytes, ...]) -> None:
        self.records = records
        self.assigned = threading.Semaphore(0)

    def assign(self, splits: Sequence[tuple[int, Split]]) -> None:
        self.assigned.release()

    def poll(self, seconds: float) -> Sequence[RecordBlock]:
        return [RecordBlock(0, 0, self.records, finished=True)] if self.assigned.acquire(timeout=seconds) else []


@dataclass(frozen=True)
class JournalSink:
    """Writes a line to `journal` for everything the JVM says.

    `settle` says when elements are settled: "at once", "when asked" (by SEND_NOW or FLUSH), then too but "one by one", or
    "never". `fail` is the number of elements after which the writer fails, from a thread of its own; 0 means that it fails when
    it is flushed.
    """

    journal: str
    max_in_flight_records: int = 1000
    max_in_flight_bytes: int = 1 << 20
    timestamps: bool = False
    settle: str = "at once"
    fail: int | None = None

    def open_writer(self, context: WriterContext) -> JournalWriter:
        return JournalWriter(self, context)


class JournalWriter(QuietWriter):
    def __init__(self, sink: JournalSink, context: WriterContext) -> None:
        self.sink = sink
        self.context = context
        self.settings = WriterSettings(5, sink.max_in_flight_records, sink.max_in_flight_bytes, sink.timestamps)
        self.file = Path(sink.journal).open("a", buffering=1)  # noqa: SIM115
        self.records = 0
        self.bytes = 0
        self.written = 0

    def note(self, **entry: Any) -> None:
        self.file.write(json.dumps(entry) + "\n")

    def write(self, batch: WriteBatch) -> None:
        assert batch.elements is not None
        values = batch.elements.values()
        self.records += len(values)
        self.bytes += sum(map(len, values))
        self.written += len(values)
        self.note(
            write=[int.from_bytes(value, "big") for value in values],
            watermark=batch.watermark,
            timestamps=batch.timestamps and list(batch.timestamps),
            records=self.records,
            bytes=self.bytes,
        )
        if self.sink.fail and self.written >= self.sink.fail:
            self.fail()
        elif self.sink.settle == "at once":
            self.settle()

    def settle(self) -> None:
        self.context.settled(self.records, self.bytes)
        self.records = self.bytes = 0

    def flush(self, flush: int, end_of_input: bool) -> None:
        self.note(flush=flush, end=end_of_input, records=self.records)
        if self.sink.fail == 0:
            self.fail()
        else:
            self.settle()
            self.context.flushed(flush)

    def fail(self) -> None:
        threading.Thread(target=self.context.fail, args=(ValueError("the disk is full"),)).start()

    def send_now(self) -> None:
        self.note(send_now=True)
        if self.sink.settle == "when asked":
            self.settle()
        elif self.sink.settle == "one by one":
            for _ in range(self.records):
                self.context.settled(1, 0)
            self.context.settled(0, self.bytes)
            self.records = self.bytes = 0

    def close(self, seconds: float) -> None:
        self.note(close=seconds)
        self.file.close()
