"""Fakes for tests of the source: a server whose streams follow a script, a context that remembers, and waits without sleeps."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TypeVar

import grpc

from flink_pubsub.core.chunks import Bundle
from flink_pubsub.wire import pubsub_pb2 as wire

P = TypeVar("P")

WAIT = 10.0


class FakeContext:
    """A reader's or planner's context."""

    def __init__(self, parallelism: int = 1, checkpoint_interval: float | None = None) -> None:
        self.subtask = 0
        self.parallelism = parallelism
        self.checkpoint_interval = checkpoint_interval
        self.failures: queue.Queue[BaseException] = queue.Queue()
        self.settled: queue.Queue[int] = queue.Queue()
        self.withdrawn: queue.Queue[tuple[str, int, list[int]]] = queue.Queue()

    def fail(self, error: BaseException) -> None:
        self.failures.put(error)

    def checkpoint_settled(self, checkpoint: int) -> None:
        self.settled.put(checkpoint)

    def records_withdrawn(self, split: str, sequence: int, withdrawn: Sequence[int]) -> None:
        self.withdrawn.put((split, sequence, list(withdrawn)))

    def failure(self) -> BaseException:
        return self.failures.get(timeout=WAIT)


def response(*ids: str, empty: bool = False) -> bytes:
    """A streaming-pull response with messages of these ids, acknowledged as `ack-…`."""
    return response_of(*([] if empty else [received_message(message_id) for message_id in ids]))


def response_of(*messages: wire.ReceivedMessage) -> bytes:
    """A streaming-pull response with these messages."""
    return wire.StreamingPullResponse(received_messages=messages).SerializeToString()


def received_message(message_id: str, data: bytes = b"data", ack_id: str | None = None) -> wire.ReceivedMessage:
    message = wire.PubsubMessage(data=data, message_id=message_id)
    message.publish_time.seconds = 1_700_000_000
    message.publish_time.nanos = 123_456_000
    return wire.ReceivedMessage(ack_id=ack_id or f"ack-{message_id}", message=message)


class Whole(Bundle[P]):
    """Payloads in one piece, each of the same size."""

    def __init__(self, payloads: list[P], size: int) -> None:
        super().__init__(len(payloads), size * len(payloads))
        self._payloads = payloads

    def divided(self) -> tuple[list[P], list[int]]:
        return [*self._payloads], [self.share] * len(self)


class ServerStream:
    """The server's side of one stream: a test reads its requests and decides what it answers."""

    def __init__(self, first: wire.StreamingPullRequest, context: grpc.ServicerContext) -> None:
        self.first = first
        self.peer = context.peer()
        self.metadata = {str(key): value for key, value in context.invocation_metadata()}
        self.requests: queue.Queue[wire.StreamingPullRequest | None] = queue.Queue()
        self._answers: queue.Queue[bytes | tuple[grpc.StatusCode, str] | None] = queue.Queue()
        self._context = context
        context.add_callback(lambda: self._answers.put(None))

    def send(self, *responses: bytes) -> None:
        for each in responses:
            self._answers.put(each)

    def end(self, code: grpc.StatusCode = grpc.StatusCode.OK, details: str = "") -> None:
        self._answers.put((code, details))

    def request(self) -> wire.StreamingPullRequest | None:
        """The next request after the first; None when the client ended its half."""
        return self.requests.get(timeout=WAIT)

    def serve(self) -> Iterator[bytes]:
        while isinstance(answer := self._answers.get(), bytes):
            yield answer
        if answer is not None and answer[0] is not grpc.StatusCode.OK:
            self._context.abort(*answer)

    def listen(self, requests: Iterator[bytes]) -> None:
        try:
            for raw in requests:
                self.requests.put(wire.StreamingPullRequest.FromString(raw))
        except grpc.RpcError:
            return
        self.requests.put(None)


class ScriptedServer(grpc.GenericRpcHandler):
    """A server on a port of its own. Streams are handed to the test; unary calls are answered by a function per method."""

    def __init__(self) -> None:
        self.streams: queue.Queue[ServerStream] = queue.Queue()
        self.answers: dict[str, Callable[[bytes, grpc.ServicerContext], bytes]] = {}
        self.calls: queue.Queue[tuple[str, bytes]] = queue.Queue()
        self._pool = ThreadPoolExecutor(32)
        self._server = grpc.server(self._pool, handlers=[self], options=[("grpc.so_reuseport", 0)])
        self._port = self._server.add_insecure_port("127.0.0.1:0")

    def __enter__(self) -> ScriptedServer:
        self._server.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.stop(None).wait()
        self._pool.shutdown()

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self._port}"

    def channel(self) -> grpc.Channel:
        return grpc.insecure_channel(self.endpoint, options=[("grpc.use_local_subchannel_pool", 1)])

    def stream(self) -> ServerStream:
        """The next stream a client opens."""
        return self.streams.get(timeout=WAIT)

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        method = details.method.rsplit("/", 1)[1]
        if method == "StreamingPull":
            return grpc.stream_stream_rpc_method_handler(self._streaming_pull)
        if method in self.answers:
            return grpc.unary_unary_rpc_method_handler(lambda request, context: self._unary(method, request, context))
        return None

    def _streaming_pull(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        stream = ServerStream(wire.StreamingPullRequest.FromString(next(requests)), context)
        threading.Thread(target=stream.listen, args=(requests,), daemon=True).start()
        self.streams.put(stream)
        return stream.serve()

    def _unary(self, method: str, request: bytes, context: grpc.ServicerContext) -> bytes:
        self.calls.put((method, request))
        return self.answers[method](request, context)


def nacked(server: ScriptedServer, count: int) -> set[str]:
    """The ack ids given back, once there are so many."""
    found: set[str] = set()
    while len(found) < count:
        method, body = server.calls.get(timeout=WAIT)
        if method == "ModifyAckDeadline":
            request = wire.ModifyAckDeadlineRequest.FromString(body)
            found.update(request.ack_ids if request.ack_deadline_seconds == 0 else ())
    return found


def refuse(code: grpc.StatusCode, details: str = "") -> Callable[[bytes, grpc.ServicerContext], bytes]:
    """An answer that fails the call."""

    def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
        context.abort(code, details)
        raise AssertionError("abort raises")

    return answer


def in_turn(
    answers: Sequence[Callable[[bytes, grpc.ServicerContext], bytes]],
) -> Callable[[bytes, grpc.ServicerContext], bytes]:
    """An answer per call, the last one for ever."""
    remaining = list(answers)
    return lambda request, context: (remaining.pop(0) if len(remaining) > 1 else remaining[0])(request, context)


def accept(request: bytes, context: grpc.ServicerContext) -> bytes:
    """An answer of an empty message."""
    return b""


def eventually(condition: Callable[[], bool], seconds: float = WAIT) -> None:
    """Waits for what other threads bring about. Raises when it does not come."""
    ticker = threading.Event()
    for _ in range(int(seconds / 0.01)):
        if condition():
            return
        ticker.wait(0.01)
    raise AssertionError(f"it did not come about within {seconds} s")
