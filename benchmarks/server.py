"""The load server: answers as Pub/Sub would, from bytes made beforehand, so that it is not what is measured.

It runs in a process of its own, on raw-bytes handlers. What it counts per subscription and topic is what the rates come
from; `/bench.Control/Counters` hands it out together with the CPU time the server has used. It sends to a subscription as
long as less is outstanding than its streams allow; acks are trusted by number. There is no redelivery.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field

import grpc

from benchmarks.replay import Responses, entries, event
from flink_pubsub.wire import pubsub_pb2 as wire

SUBSCRIBER = "/google.pubsub.v1.Subscriber/"
PUBLISHER = "/google.pubsub.v1.Publisher/"
CONTROL = "/bench.Control/Counters"
OPTIONS = [
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    ("grpc.max_send_message_length", 64 * 1024 * 1024),
    ("grpc.server.max_pending_requests", 100_000),
    ("grpc.server.max_pending_requests_hard_limit", 100_000),
]
_NO_LIMIT = 1 << 60
_MESSAGES = 0x12
_ACK_IDS = 0x12


@dataclass
class Counters:
    """What happened to one subscription or topic since the start, in messages."""

    sent: int = 0
    acked: int = 0
    nacked: int = 0
    extended: int = 0
    published: int = 0
    published_bytes: int = 0
    requests: int = 0


@dataclass
class Resource:
    """A subscription or topic; the condition guards it and wakes its streams."""

    counters: Counters = field(default_factory=Counters)
    limits: dict[int, int] = field(default_factory=dict)
    streams: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)

    def room(self) -> bool:
        """Whether another response may be sent."""
        outstanding = self.counters.sent - self.counters.acked - self.counters.nacked
        return outstanding < sum(self.limits.values())


class LoadServer(grpc.GenericRpcHandler):
    """The handlers, looked up by method path."""

    def __init__(self, payload: bytes, messages_per_response: int) -> None:
        self._payload = payload
        self._per_response = messages_per_response
        self._resources: dict[str, Resource] = defaultdict(Resource)
        self._published: dict[int, bytes] = {}
        unary: dict[str, Callable[[bytes, grpc.ServicerContext], bytes]] = {
            SUBSCRIBER + "Acknowledge": self._acknowledge,
            SUBSCRIBER + "ModifyAckDeadline": self._modify_ack_deadline,
            SUBSCRIBER + "GetSubscription": self._get_subscription,
            PUBLISHER + "GetTopic": self._get_topic,
            PUBLISHER + "Publish": self._publish,
            CONTROL: self._counters,
        }
        self._handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            path: grpc.unary_unary_rpc_method_handler(handler) for path, handler in unary.items()
        }
        self._handlers[SUBSCRIBER + "StreamingPull"] = grpc.stream_stream_rpc_method_handler(self._streaming_pull)

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        """The handler of a call, or none: gRPC answers UNIMPLEMENTED."""
        return self._handlers.get(details.method)

    def _streaming_pull(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        first = wire.StreamingPullRequest.FromString(next(requests))
        resource = self._resources[first.subscription]
        with resource.changed:
            stream = resource.streams
            resource.streams += 1
            resource.limits[stream] = first.max_outstanding_messages if first.max_outstanding_messages > 0 else _NO_LIMIT
        responses = Responses(self._per_response, self._payload, stream)
        ended = threading.Event()
        threading.Thread(target=_drain, args=(requests, ended), daemon=True).start()
        try:
            while context.is_active() and not ended.is_set():
                with resource.changed:
                    if not resource.room():
                        resource.changed.wait(0.5)
                        continue
                    resource.counters.sent += responses.messages
                yield responses.next()
        finally:
            with resource.changed:
                del resource.limits[stream]

    def _acknowledge(self, body: bytes, context: grpc.ServicerContext) -> bytes:
        name, skip = _first_field(body)
        count, _ = entries(body, _ACK_IDS, skip)
        resource = self._resources[name]
        with resource.changed:
            resource.counters.acked += count
            resource.counters.requests += 1
            resource.changed.notify_all()
        return b""

    def _modify_ack_deadline(self, body: bytes, context: grpc.ServicerContext) -> bytes:
        request = wire.ModifyAckDeadlineRequest.FromString(body)
        resource = self._resources[request.subscription]
        with resource.changed:
            if request.ack_deadline_seconds:
                resource.counters.extended += len(request.ack_ids)
            else:
                resource.counters.nacked += len(request.ack_ids)
            resource.counters.requests += 1
            resource.changed.notify_all()
        return b""

    def _publish(self, body: bytes, context: grpc.ServicerContext) -> bytes:
        name, skip = _first_field(body)
        count, size = entries(body, _MESSAGES, skip)
        resource = self._resources[name]
        with resource.changed:
            resource.counters.published += count
            resource.counters.published_bytes += size
            resource.counters.requests += 1
        response = self._published.get(count)
        if response is None:
            ids = [f"1{number:016}" for number in range(count)]
            response = self._published[count] = wire.PublishResponse(message_ids=ids).SerializeToString()
        return response

    def _get_subscription(self, body: bytes, context: grpc.ServicerContext) -> bytes:
        name = wire.GetSubscriptionRequest.FromString(body).subscription
        topic = name.replace("/subscriptions/", "/topics/")
        return wire.Subscription(name=name, topic=topic, ack_deadline_seconds=60, state="ACTIVE").SerializeToString()

    def _get_topic(self, body: bytes, context: grpc.ServicerContext) -> bytes:
        return wire.Topic(name=wire.GetTopicRequest.FromString(body).topic, state="ACTIVE").SerializeToString()

    def _counters(self, body: bytes, context: grpc.ServicerContext) -> bytes:
        """The sums over the resource of that name and those whose names go on after it with a dot."""
        wanted = body.decode()
        counters = asdict(Counters())
        for name, resource in list(self._resources.items()):
            if name == wanted or name.startswith(f"{wanted}."):
                with resource.changed:
                    for counter, value in asdict(resource.counters).items():
                        counters[counter] += value
        return json.dumps({**counters, "time": time.monotonic(), "cpu": time.process_time()}).encode()


def _drain(requests: Iterator[bytes], ended: threading.Event) -> None:
    """Reads requests until the client ends its half of the stream, on which the service ends the other."""
    with suppress(grpc.RpcError):
        for _ in requests:
            pass
    ended.set()


def _first_field(body: bytes) -> tuple[str, int]:
    """The resource's name, which clients write first, and where the next field begins."""
    length = body[1]
    if body[0] != 0x0A or length >= 0x80:
        raise ValueError("a request begins with a resource name of less than 128 bytes")
    return body[2 : 2 + length].decode(), 2 + length


def main() -> None:
    """Serves until its stdin ends; the first line it prints is the port."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.server")
    parser.add_argument("--payload-bytes", type=int, default=1024)
    parser.add_argument("--messages-per-response", type=int, default=500)
    arguments = parser.parse_args()
    server = grpc.server(ThreadPoolExecutor(64), options=OPTIONS)
    server.add_generic_rpc_handlers((LoadServer(event(arguments.payload_bytes), arguments.messages_per_response),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    with suppress(EOFError):
        input()
    server.stop(0.2).wait()


if __name__ == "__main__":
    main()
