"""What the sink's tests share: a Publish service that does as it is told, a listener, and WRITE batches."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate

import grpc

from flink_pubsub.bridge.frames import NO_TIMESTAMP, Column, WriteBatch
from flink_pubsub.wire.pubsub_pb2 import PublishRequest, PublishResponse, PubsubMessage

Verdict = tuple[grpc.StatusCode, str] | None


class PublishServer:
    """Answers Publish calls as `verdict` says: None publishes, a status refuses. Keeps what was published, by topic."""

    THREADS = 16
    """Calls it can work on at a time."""

    def __init__(self) -> None:
        self.verdict: Callable[[PublishRequest], Verdict] = lambda request: None
        self.ids: Callable[[int], int] = lambda messages: messages
        self.requests: list[PublishRequest] = []
        self.published: dict[str, list[PubsubMessage]] = {}
        self.metadata: list[dict[str, str]] = []
        self.peers: list[str] = []
        """The connection that each request came over; a writer has one."""
        self.timeouts: list[float] = []
        self.gate = threading.Event()
        """Calls are answered only while it is set."""
        self.gate.set()
        self.arrived = threading.Semaphore(0)
        """Released by every call that arrives."""
        self._lock = threading.Lock()
        self._server = grpc.server(ThreadPoolExecutor(self.THREADS), options=[("grpc.so_reuseport", 0)])
        handler = grpc.unary_unary_rpc_method_handler(
            self._publish, PublishRequest.FromString, PublishResponse.SerializeToString
        )
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("google.pubsub.v1.Publisher", {"Publish": handler}),)
        )
        self.endpoint = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def __enter__(self) -> PublishServer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.gate.set()
        self._server.stop(0).wait()

    def _publish(self, request: PublishRequest, context: grpc.ServicerContext) -> PublishResponse:
        with self._lock:
            self.requests.append(request)
            self.metadata.append({key: str(value) for key, value in context.invocation_metadata()})
            self.peers.append(context.peer())
            self.timeouts.append(context.time_remaining() or 0)
            verdict = self.verdict(request)
            if verdict is None:
                self.published.setdefault(request.topic, []).extend(request.messages)
        self.arrived.release()
        assert self.gate.wait(30)
        if verdict is not None:
            context.abort(*verdict)
        return PublishResponse(message_ids=[str(index) for index in range(self.ids(len(request.messages)))])


class Listener:
    """Remembers what a writer reports; waits for it without sleeping. A `bridge.connector.WriterContext`.

    The test's thread is the command thread: while it waits, it runs what was submitted.
    """

    subtask = 0
    parallelism = 1
    backlog = False

    def __init__(self) -> None:
        self.records = 0
        self.size = 0
        self.events: list[tuple[str, int]] = []
        self.error: BaseException | None = None
        self._submitted: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()

    def settled(self, records: int, size: int) -> None:
        with self._changed:
            self.records += records
            self.size += size
            if records:
                self.events.append(("settled", records))
            self._changed.notify_all()

    def flushed(self, flush: int) -> None:
        with self._changed:
            self.events.append(("flushed", flush))
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        with self._changed:
            assert self.error is None, "fail was called twice"
            self.error = error
            self.events.append(("failed", 0))
            self._changed.notify_all()

    def submit(self, action: Callable[[], None]) -> None:
        with self._changed:
            self._submitted.append(action)
            self._changed.notify_all()

    def wait_for_flush(self, flush: int) -> None:
        self.wait(lambda: ("flushed", flush) in self.events or self.error is not None)
        assert self.error is None, self.error

    def wait_for_failure(self) -> BaseException:
        self.wait(lambda: self.error is not None)
        assert self.error is not None
        return self.error

    def wait(self, condition: Callable[[], bool]) -> None:
        while True:
            with self._changed:
                assert self._changed.wait_for(lambda: condition() or self._submitted, 30), "nothing happened for 30 s"
                if condition():
                    return
                action = self._submitted.popleft()
            try:
                action()
            except Exception as error:
                self.fail(error)


def column(values: Sequence[bytes]) -> Column:
    return Column(list(accumulate(map(len, values))), memoryview(b"".join(values)))


def write_batch(
    elements: Sequence[bytes] | None = None,
    payloads: Sequence[bytes] | None = None,
    timestamps: Sequence[int] | None = None,
    watermark: int = NO_TIMESTAMP,
    failures: bool = False,
) -> WriteBatch:
    values = elements if elements is not None else payloads
    assert values is not None
    first, second = (None if column_values is None else column(column_values) for column_values in (elements, payloads))
    return WriteBatch(len(values), watermark, timestamps, first, second, failures)


def entries(messages: Sequence[PubsubMessage]) -> list[bytes]:
    """What the JVM sends with the payload coding "message"."""
    return [PublishRequest(messages=[message]).SerializeToString() for message in messages]
