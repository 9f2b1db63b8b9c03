"""A sink on the bridge that has nothing to do with Pub/Sub and hosts a failure handler: what any sink would do with one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flink_pubsub import FailedElement, FailureHandler, FailureHandlerContext
from flink_pubsub.bridge.connector import Metrics, WriterContext, WriterSettings
from flink_pubsub.bridge.frames import WriteBatch
from tests.bridge_connectors import QuietWriter


@dataclass(frozen=True)
class LedgerSink:
    """Enters numbers into a ledger, one a line; it takes no multiples of seven."""

    path: str
    handler: FailureHandler[FailedElement]

    def open_writer(self, context: WriterContext) -> LedgerWriter:
        return LedgerWriter(self, context)


class LedgerWriter(QuietWriter):
    def __init__(self, sink: LedgerSink, context: WriterContext) -> None:
        self._sink = sink
        self._context = context
        self._file = Path(f"{sink.path}.{context.subtask}").open("ab", buffering=0)  # noqa: SIM115
        self._refused = 0
        close_seconds = 5 + sink.handler.shutdown_timeout.total_seconds()
        self.settings = WriterSettings(close_seconds, 100, 1 << 20, timestamps=False)
        self._handler_context = FailureHandlerContext(subtask=context.subtask)
        sink.handler.open(self._handler_context)

    def write(self, batch: WriteBatch) -> None:
        assert batch.elements is not None
        values: Sequence[bytes] = batch.elements.values()
        for value in values:
            if int(value) % 7:
                self._file.write(value + b"\n")
                continue
            self._refused += 1
            error = ValueError(f"{int(value)} is a multiple of seven")
            self._sink.handler.handle(
                FailedElement(
                    connector="ledger", destination="ledger/main", payload=bytes(value), error=str(error), cause=error
                )
            )
        self._context.settled(len(values), sum(map(len, values)))

    def flush(self, flush: int, end_of_input: bool) -> None:
        self._sink.handler.flush()
        self._context.flushed(flush)

    def interrupt(self) -> None:
        self._sink.handler.interrupt()

    def metrics(self) -> Metrics:
        counters, gauges, lasting = self._handler_context.metrics.read()
        return Metrics({**counters, "numRecordsSendErrors": self._refused}, gauges, lasting)

    def close(self, seconds: float) -> None:
        self._sink.handler.close()
        self._file.close()
