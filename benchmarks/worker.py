"""One worker without Flink: this module stands in the JVM's place, to time what the JVM's own speed must not blur."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import grpc

from benchmarks.bare import Calls
from benchmarks.measure import Counters
from benchmarks.server import OPTIONS, SUBSCRIBER
from flink_pubsub import PubSubSubscriberOptions, SubscriptionDestination
from flink_pubsub.bridge.frames import Kind
from flink_pubsub.options import Connection
from flink_pubsub.source import SourceSpec
from flink_pubsub.wire import pubsub_pb2 as wire
from flink_pubsub.worker.source import PubSubSourceConnector
from tests.bridge_driver import WorkerDriver, record_blocks

CHECKPOINT_MESSAGES = 100_000
BUFFER_BYTES = 64 * 1024 * 1024
_REST = 15.0
"""Seconds after which a reader without room has ended its stream, given back what was on it, and extended its leases twice."""
_WAIT = 30.0


@dataclass(frozen=True)
class Start:
    """A worker's start, in seconds and bytes."""

    first_frame: float
    ready: float
    resident: int


class Reader:
    """A reader's worker, driven by frames."""

    def __init__(self, port: int, subscription: str) -> None:
        self._subscription = subscription
        started = time.monotonic()
        self._worker = WorkerDriver()
        try:
            self._worker.expect(Kind.HELLO)
            first_frame = time.monotonic() - started
            self._worker.init(PubSubSourceConnector(_spec(port, subscription)), "reader")
            self._worker.expect(Kind.READY)
            self.start = Start(first_frame, time.monotonic() - started, self.resident)
        except BaseException:
            self._worker.close()
            raise

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._worker.close()

    @property
    def resident(self) -> int:
        """Memory in use, in bytes."""
        return _resident(self._worker.process.pid)

    def pause(self) -> None:
        """Pauses the split, as watermark alignment does."""
        self._worker.send_json(Kind.PAUSE_RESUME, pause=["0"], resume=[])

    def assign(self) -> None:
        """Gives the reader its only split."""
        split = {"id": "0", "data": f'{{"subscription":"{self._subscription}"}}'}
        self._worker.send_json(Kind.ASSIGN, splits=[split])

    def fetch(self, messages: int) -> int:
        """Takes at least so many messages and returns the last one's sequence number."""
        taken, last = 0, -1
        while taken < messages:
            self._worker.send(Kind.FETCH)
            for first, count in record_blocks(self._worker.expect(Kind.RECORDS)):
                taken += count
                last = first + count - 1
        return last

    def complete(self, checkpoint: int, position: int) -> None:
        """Tells the reader of a checkpoint that covers everything up to the position, and of its completion."""
        self._worker.send_json(Kind.SNAPSHOT, checkpoint=checkpoint, positions={"0": position})
        self._worker.send_json(Kind.CHECKPOINT_COMPLETE, checkpoint=checkpoint)


def checkpoint_acks(port: int, subscription: str, messages: int = CHECKPOINT_MESSAGES) -> float:
    """Seconds from a completed checkpoint to the server's count of its acks."""
    with Reader(port, subscription) as reader, Counters(port, subscription) as counters:
        reader.assign()
        position = reader.fetch(messages)
        before = counters.read().time
        reader.complete(1, position)
        return counters.wait("acked", messages, _WAIT, lambda: None, interval=0.002).time - before


def waiting_memory(port: int, subscription: str, paused: bool, seconds: float) -> tuple[float, float]:
    """A reader that hands nothing on while the server has more, paused or never asked: its memory beyond that of an idle one
    at the most, and how much it grew in so many seconds after it had filled up. In bytes."""
    with Reader(port, subscription) as reader:
        idle = reader.start.resident
        reader.assign()
        if paused:
            reader.pause()
        time.sleep(_REST)
        samples = [reader.resident]
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(0.1)
            samples.append(reader.resident)
    return max(samples) - idle, max(samples) - samples[0]


def bare_acks(port: int, subscription: str) -> float:
    """The server's own time: the same number of acks in prebuilt requests of a thousand, ten in flight."""
    ids = [f"1{number:016}".ljust(190, "A") for number in range(1000)]
    request = wire.AcknowledgeRequest(subscription=subscription, ack_ids=ids).SerializeToString()
    with (
        grpc.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) as channel,
        Counters(port, subscription) as counters,
    ):
        calls = Calls(channel, SUBSCRIBER + "Acknowledge")
        before = counters.read().time
        for _ in range(CHECKPOINT_MESSAGES // len(ids)):
            calls.start(request)
        return counters.wait("acked", CHECKPOINT_MESSAGES, _WAIT, lambda: None, interval=0.002).time - before


def _spec(port: int, subscription: str) -> SourceSpec:
    _, project, _, name = subscription.split("/")
    options = PubSubSubscriberOptions(
        flow_control_max_outstanding_element_count=CHECKPOINT_MESSAGES,
        flow_control_max_outstanding_request_bytes=1024 * 1024 * 1024,
        subscriber_buffer_max_messages=CHECKPOINT_MESSAGES,
        subscriber_buffer_max_bytes=BUFFER_BYTES,
    )
    return SourceSpec(
        subscriptions=(SubscriptionDestination(project, name),),
        deserializer=None,
        options=options,
        connection=Connection(emulator_endpoint=f"127.0.0.1:{port}"),
    )


def _resident(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"process {pid} has no resident memory")
