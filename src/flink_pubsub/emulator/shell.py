"""The gRPC shell: takes calls off the wire, lets the state machine decide, and puts the answers back.

Handlers get and return raw bytes. Requests are parsed, but responses that carry messages are spliced from stored bytes.
A call occupies a thread of the pool while it lasts, a streaming pull one more that reads what the client sends.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Protobuf

from flink_pubsub.emulator.engine import Engine
from flink_pubsub.emulator.errors import ServiceError, invalid, too_small, unsupported
from flink_pubsub.emulator.faults import Faults
from flink_pubsub.emulator.leases import Consumer
from flink_pubsub.emulator.messages import encode_received
from flink_pubsub.emulator.streams import StreamSession
from flink_pubsub.wire import pubsub_pb2 as wire

POOL_THREADS = 4096
"""Bound of threads, hence of concurrent streams and calls; they are made when needed."""

PULL_WAIT_SECONDS = 5.0
"""How long a pull call waits for a first message."""

MAX_REQUEST_BYTES = 64 << 20

OPTIONS = [
    ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", 4 << 20),
    ("grpc.server.max_pending_requests", 1 << 20),
    ("grpc.server.max_pending_requests_hard_limit", 1 << 20),
    ("grpc.http2.min_ping_interval_without_data_ms", 1000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.so_reuseport", 0),
]

Context = grpc.ServicerContext


@dataclass(frozen=True)
class _Method:
    """A unary method: its request, the fields that name resources, separated by spaces, and what answers it."""

    request: type[Protobuf]
    resources: str
    answer: Callable[[Any, int, float], Protobuf]


class Shell(grpc.GenericRpcHandler):
    """A gRPC server around an engine.

    Attributes:
        faults: the faults to apply; guarded by the engine's lock.
        calls: calls per method so far; likewise.
    """

    def __init__(self, engine: Engine) -> None:
        self.faults = Faults()
        self.calls: Counter[str] = Counter()
        self._engine = engine
        self._released = threading.Condition(engine.lock)
        self._stopping = False
        self._streams: dict[StreamSession, None] = {}
        self._handlers = self._method_handlers()
        self._pool: ThreadPoolExecutor
        self._server: grpc.Server

    def start(self, host: str, port: int) -> int:
        """Listen; returns the port.

        Raises:
            OSError: the port is taken or the host is not this machine's.
        """
        pool = ThreadPoolExecutor(POOL_THREADS, thread_name_prefix="pubsub-emulator")
        server = grpc.server(pool, handlers=[self], options=OPTIONS)
        try:
            bound = server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as e:
            raise OSError(f"cannot listen on {host}:{port}: {e}") from e
        self._pool, self._server, self._stopping = pool, server, False
        server.start()
        return bound

    def stop(self) -> None:
        """End all calls and streams, and all threads; it may be started again."""
        with self._engine.lock:
            self._stopping = True
            self._released.notify_all()
            error = ServiceError(grpc.StatusCode.UNAVAILABLE, "The emulator is shutting down.")
            for session in list(self._streams):
                self._engine.run(lambda now, session=session: session.finish(error, now))  # type: ignore[misc]
        self._server.stop(None).wait()
        self._pool.shutdown(wait=True)

    def streams(self) -> list[StreamSession]:
        """The open streaming pulls; the lock is held."""
        return list(self._streams)

    def release(self) -> None:
        """Let waiting calls look at the faults again; the lock is held."""
        self._released.notify_all()
        for session in self._streams:
            session.wake()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Called by gRPC for every call, to find its handler."""
        return self._handlers.get(handler_call_details.method)

    def _method_handlers(self) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
        s = self._engine.service

        def plain(method: Callable[[Any, float], Protobuf]) -> Callable[[Any, int, float], Protobuf]:
            return lambda request, size, now: method(request, now)

        publisher = {
            "CreateTopic": _Method(wire.Topic, "name", plain(s.create_topic)),
            "GetTopic": _Method(wire.GetTopicRequest, "topic", plain(s.get_topic)),
            "UpdateTopic": _Method(wire.UpdateTopicRequest, "topic.name", plain(s.update_topic)),
            "ListTopics": _Method(wire.ListTopicsRequest, "project", plain(s.list_topics)),
            "ListTopicSubscriptions": _Method(wire.ListTopicSubscriptionsRequest, "topic", plain(s.list_topic_subscriptions)),
            "DeleteTopic": _Method(wire.DeleteTopicRequest, "topic", plain(s.delete_topic)),
            "ListTopicSnapshots": _Method(wire.ListTopicSnapshotsRequest, "topic", plain(s.snapshots.list_of_topic)),
            "DetachSubscription": _Method(wire.DetachSubscriptionRequest, "subscription", plain(s.detach_subscription)),
            "Publish": _Method(wire.PublishRequest, "topic", s.publish),
        }
        subscriber = {
            "CreateSubscription": _Method(wire.Subscription, "name topic", plain(s.create_subscription)),
            "GetSubscription": _Method(wire.GetSubscriptionRequest, "subscription", plain(s.get_subscription)),
            "UpdateSubscription": _Method(wire.UpdateSubscriptionRequest, "subscription.name", plain(s.update_subscription)),
            "ListSubscriptions": _Method(wire.ListSubscriptionsRequest, "project", plain(s.list_subscriptions)),
            "DeleteSubscription": _Method(wire.DeleteSubscriptionRequest, "subscription", plain(s.delete_subscription)),
            "CreateSnapshot": _Method(wire.CreateSnapshotRequest, "name subscription", plain(s.snapshots.create)),
            "GetSnapshot": _Method(wire.GetSnapshotRequest, "snapshot", plain(s.snapshots.get)),
            "ListSnapshots": _Method(wire.ListSnapshotsRequest, "project", plain(s.snapshots.list)),
            "UpdateSnapshot": _Method(wire.UpdateSnapshotRequest, "snapshot.name", plain(s.snapshots.update)),
            "DeleteSnapshot": _Method(wire.DeleteSnapshotRequest, "snapshot", plain(s.snapshots.delete)),
            "Seek": _Method(wire.SeekRequest, "subscription snapshot", plain(s.seek)),
            "Acknowledge": _Method(wire.AcknowledgeRequest, "subscription", s.acknowledge),
            "ModifyAckDeadline": _Method(wire.ModifyAckDeadlineRequest, "subscription", s.modify_ack_deadline),
        }
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
        for service, methods in (("Publisher", publisher), ("Subscriber", subscriber)):
            for name, method in methods.items():
                handlers[f"/google.pubsub.v1.{service}/{name}"] = grpc.unary_unary_rpc_method_handler(self._unary(name, method))
        for service, names in _UNSUPPORTED.items():
            for name in names:
                handlers[f"/google.pubsub.v1.{service}/{name}"] = grpc.unary_unary_rpc_method_handler(self._unsupported(name))
        handlers["/google.pubsub.v1.Subscriber/Pull"] = grpc.unary_unary_rpc_method_handler(self._pull)
        handlers["/google.pubsub.v1.Subscriber/StreamingPull"] = grpc.stream_stream_rpc_method_handler(self._streaming_pull)
        return handlers

    def _unary(self, name: str, method: _Method) -> Callable[[bytes, Context], bytes]:
        paths = method.resources.split()

        def handle(raw: bytes, context: Context) -> bytes:
            request = _parse(method.request, raw, context)
            lost_answer = self._admit(name, [_field(request, path) for path in paths], context)
            size = len(raw)
            try:
                answer = self._engine.run(lambda now: method.answer(request, size, now).SerializeToString())
            except ServiceError as e:
                _abort(context, e)
            if lost_answer is not None:
                _abort(context, lost_answer)
            return answer

        return handle

    def _unsupported(self, name: str) -> Callable[[bytes, Context], bytes]:
        def handle(raw: bytes, context: Context) -> bytes:
            self._admit(name, (), context)
            error = unsupported(name)
            _abort(context, error)

        return handle

    def _pull(self, raw: bytes, context: Context) -> bytes:
        request = _parse(wire.PullRequest, raw, context)
        lost_answer = self._admit("Pull", [request.subscription], context)
        try:
            answer = self._pull_messages(request, context)
        except ServiceError as e:
            _abort(context, e)
        if lost_answer is not None:
            _abort(context, lost_answer)
        return answer

    def _pull_messages(self, request: wire.PullRequest, context: Context) -> bytes:
        if request.max_messages < 1:
            raise too_small("max_messages", request.max_messages, 1)
        woken = threading.Condition(self._engine.lock)
        consumer = Consumer(woken.notify_all)
        remaining = context.time_remaining()
        wait = 0.0 if request.return_immediately else PULL_WAIT_SECONDS
        give_up_at = time.monotonic() + min(wait, max(0.0, (remaining if remaining is not None else wait) - 0.1))
        with self._engine.lock:
            subscription = self._engine.run(lambda now: self._engine.service.subscription(request.subscription))
            self._engine.run(lambda now: subscription.open(consumer, now))
            context.add_callback(lambda: self._engine.run(lambda now: woken.notify_all()))
            try:
                while True:
                    batch = self._engine.run(lambda now: subscription.take(consumer, now, min(request.max_messages, 1000)))
                    if batch is not None:
                        return encode_received(batch.first_number, batch.messages, batch.attempts)
                    waiting = give_up_at - time.monotonic()
                    if waiting <= 0 or self._stopping or not context.is_active():
                        return b""
                    woken.wait(waiting)
                    if consumer.end is not None:
                        raise consumer.end
            finally:
                self._engine.run(lambda now: subscription.close(consumer, now))

    def _streaming_pull(self, requests: Iterator[bytes], context: Context) -> Iterator[bytes]:
        try:
            first = _parse(wire.StreamingPullRequest, next(requests), context)
        except StopIteration:
            error = invalid("A streaming pull must begin with a request that names the subscription.")
            _abort(context, error)
        self._admit("StreamingPull", [first.subscription], context)
        session = StreamSession(self._engine, self.faults, first, context)
        try:
            self._engine.run(session.open)
        except ServiceError as e:
            _abort(context, e)
        with self._engine.lock:
            self._streams[session] = None
            if self._stopping:
                self._engine.run(lambda now: session.finish(None, now))
        try:
            self._pool.submit(session.read, requests)
            yield from session.responses()
        finally:
            self._engine.run(lambda now: session.finish(None, now))
            with self._engine.lock:
                self._streams.pop(session, None)
        if session.error is not None:
            context.set_code(session.error.code)
            context.set_details(session.error.message)
            context.set_trailing_metadata(tuple(session.error.trailers))

    def _admit(self, name: str, resources: Collection[str], context: Context) -> ServiceError | None:
        """Apply the faults to a call; returns the error to end it with after it had its effect."""
        engine = self._engine
        with engine.lock:
            self.calls[name] += 1
            verdict = self.faults.judge(name, resources)
            engine.changed.notify_all()
            if verdict.delay or self.faults.is_silent(name):
                self._hold(name, verdict.delay, context)
        if verdict.refusal is not None:
            _abort(context, verdict.refusal)
        return verdict.lost_answer

    def _hold(self, name: str, seconds: float, context: Context) -> None:
        def look_again() -> None:
            with self._engine.lock:
                self._released.notify_all()

        context.add_callback(look_again)
        until = time.monotonic() + seconds
        while context.is_active() and context.time_remaining() != 0 and not self._stopping:
            remaining = until - time.monotonic()
            if remaining <= 0 and not self.faults.is_silent(name):
                return
            self._released.wait(remaining if remaining > 0 else None)
        context.abort(grpc.StatusCode.CANCELLED, "The call was over before it was answered.")


_UNSUPPORTED = {"Subscriber": ("ModifyPushConfig",)}


def _abort(context: Context, error: ServiceError) -> NoReturn:
    context.set_trailing_metadata(tuple(error.trailers))
    context.abort(error.code, error.message)


def _parse(kind: type[Any], raw: bytes, context: Context) -> Any:
    try:
        return kind.FromString(raw)
    except DecodeError:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "The request cannot be parsed.")


def _field(request: Protobuf, path: str) -> str:
    value: Any = request
    for part in path.split("."):
        value = getattr(value, part)
    return str(value)
