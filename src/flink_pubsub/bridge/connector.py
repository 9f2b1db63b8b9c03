"""What a connector implements to run on the bridge, and what the bridge gives it.

A connector object is pickled with the job. In the worker it makes a planner, a reader or a writer. Reader and writer are
called from the worker's threads as said at each method; the bridge never calls two methods marked *command thread* at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, runtime_checkable

from flink_pubsub.bridge.frames import Block, WriteBatch


@dataclass(frozen=True, slots=True)
class Split:
    """A part of the source that one reader owns. `data` is text only the connector understands."""

    id: str
    data: str


@dataclass(frozen=True, slots=True)
class PlannedSplit:
    """A split and the subtask that reads it."""

    split: Split
    owner: int


@dataclass(frozen=True, slots=True)
class Plan:
    """All splits, and what the enumerator has to remember in checkpoints (a JSON value)."""

    splits: Sequence[PlannedSplit]
    state: Any


class Context(Protocol):
    """What every role gets from the bridge."""

    @property
    def subtask(self) -> int:
        """Index of the subtask, 0 for a planner."""

    @property
    def parallelism(self) -> int:
        """Parallelism of the operator."""

    def fail(self, error: BaseException) -> None:
        """Fails the job with this error. Any thread; the first call counts."""


class ReaderContext(Context, Protocol):
    """What a reader is told, and may tell the JVM."""

    @property
    def checkpoint_interval(self) -> float | None:
        """Seconds between the job's checkpoints, if that can be seen from a TaskManager."""

    def checkpoint_settled(self, checkpoint: int) -> None:
        """Ends the JVM's wait for this checkpoint's confirmation (`ReaderSettings.await_checkpoint_seconds`). Any thread."""

    def records_withdrawn(self, split: str, sequence: int, withdrawn: Sequence[int]) -> None:
        """Ends the JVM's wait after a record failure (`ReaderSettings.await_record_failure`): of the messages it has, these
        later ones are not to be emitted. Command thread."""


class WriterContext(Context, Protocol):
    """What a writer tells the JVM."""

    @property
    def backlog(self) -> bool:
        """Whether more waits for the command thread. Any thread."""

    def settled(self, records: int, size: int) -> None:
        """Gives credit back: so many records have their answer, and so many of their bytes are free. Any thread.

        `size` counts the bytes of the WRITE columns; it may be negative, to charge what serialization added.
        """

    def flushed(self, flush: int) -> None:
        """Everything written before this flush is settled. Any thread."""

    def submit(self, action: Callable[[], None]) -> None:
        """Has an action run on the command thread, after what waits there. Any thread.

        What it raises fails the job. It is not run once the writer is being closed, or the job has failed.
        """


@dataclass(frozen=True, slots=True)
class Metrics:
    """Current values by Flink metric name; a dot in a name opens a metric group. Counters are totals since the start."""

    counters: Mapping[str, int] = field(default_factory=dict)
    gauges: Mapping[str, int] = field(default_factory=dict)
    lasting: Mapping[str, int] = field(default_factory=dict)
    """Totals since the start that matter most when a worker ends. The JVM adds up those of all workers, past and present, and
    every worker's metrics show the sum."""


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """What the JVM has to know of an open reader."""

    close_seconds: float
    """Budget of `close`; the JVM kills the worker a little later."""
    fail_on_record_failure: bool = True
    """Whether a record that the JVM's decoder refuses fails the job there and then, else it is reported to the reader."""
    await_record_failure: bool = False
    """Whether the JVM then waits for `records_withdrawn` before it emits anything else."""
    await_checkpoint_seconds: float = 0
    """How long a completed checkpoint waits for `checkpoint_settled`; 0 means it does not wait."""


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """What the JVM has to know of an open writer."""

    close_seconds: float
    max_in_flight_records: int
    max_in_flight_bytes: int
    timestamps: bool
    """Whether the writer wants event times; without, the JVM does not send them."""
    takes_failures: bool = False
    """Whether elements that the JVM's payload encoder refuses come as batches of failures; without, they fail the job."""


class SourceReader(Protocol):
    """Reads splits. Made by `SourceConnector.open_reader`."""

    @property
    def settings(self) -> ReaderSettings: ...

    def assign(self, splits: Sequence[tuple[int, Split]]) -> None:
        """Starts reading splits; each comes with the ordinal that names it in blocks. Command thread; must not block."""

    def poll(self, seconds: float) -> Sequence[Block]:
        """The next records, or nothing after that many seconds. Fetch thread, only when the JVM asked for a batch."""

    def pause_or_resume(self, pause: Sequence[str], resume: Sequence[str]) -> None:
        """Stops or continues draining splits. Command thread."""

    def snapshot(self, checkpoint: int, positions: Mapping[str, int]) -> None:
        """A checkpoint covers every message up to these sequence numbers (per split id). Called for every checkpoint, also when
        there is none. Command thread."""

    def checkpoint_complete(self, checkpoint: int) -> None:
        """That checkpoint, and with it every earlier one, is complete. Command thread; must not block."""

    def record_failed(self, split: str, sequence: int, error: str, emitting: bool) -> None:
        """The JVM could not decode a message or, when `emitting`, the job failed on its records. Command thread."""

    def metrics(self) -> Metrics:
        """Current values. Metrics thread, every second; must not wait for any other thread."""

    def close(self, seconds: float) -> None:
        """Gives everything back and ends all threads within the budget. Called once; only `metrics` is read after it."""


class SinkWriter(Protocol):
    """Writes elements. Made by `SinkConnector.open_writer`."""

    @property
    def settings(self) -> WriterSettings: ...

    def write(self, batch: WriteBatch) -> None:
        """Takes over elements; every one is settled later through the context, or the job failed. Command thread."""

    def flush(self, flush: int, end_of_input: bool) -> None:
        """Sends everything; `WriterContext.flushed` is called once all before it is settled. Command thread; must not wait."""

    def send_now(self) -> None:
        """Sends what is held back for batching: the JVM waits for credit. Command thread."""

    def interrupt(self) -> None:
        """The writer is about to be closed: a call that waits on the command thread is to end, by raising. A thread of its own;
        called once at most, perhaps while nothing waits. Calls that come before `close` still are not to wait either."""

    def metrics(self) -> Metrics:
        """Current values. Metrics thread, every second; must not wait for any other thread."""

    def close(self, seconds: float) -> None:
        """Ends all threads within the budget. Called once; only `metrics` is read after it."""


class SourceConnector(Protocol):
    """The pickled half of a source."""

    def plan(self, context: Context, state: Any) -> Plan:
        """All splits for the parallelism. `state` is what an earlier plan left in the checkpoint restored from, else None.

        Runs in a short-lived worker for the enumerator. Raising fails the job.
        """

    def open_reader(self, context: ReaderContext) -> SourceReader:
        """A reader for one subtask. Raising fails the job."""


class SinkConnector(Protocol):
    """The pickled half of a sink."""

    def open_writer(self, context: WriterContext) -> SinkWriter:
        """A writer for one subtask. Raising fails the job."""


@runtime_checkable
class Rewording(Protocol):
    """A connector may be this as well, when its settings have other names where its user wrote them."""

    def reworded(self, text: str) -> str:
        """The text of a failure in the user's words. Any thread; must not raise."""


@dataclass(frozen=True, slots=True)
class Built:
    """A connector that was made from a request, and what else the JVM has to know of it (JSON values)."""

    connector: SourceConnector | SinkConnector
    facts: Mapping[str, Any]


class RequestRefusedError(Exception):
    """The request for a connector is wrong; the text says how to mend it, and is shown as it is."""


ConnectorBuilder: TypeAlias = Callable[[Mapping[str, Any]], Built]
"""Makes a connector from a request, a JSON object, where there is no Python client: when a SQL statement is planned.

A function of a module, which the JVM names. Runs once, in a short-lived worker. `RequestRefusedError` refuses the request; any
other exception is a failure.
"""
