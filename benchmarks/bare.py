"""The bare gRPC loops: what the network, gRPC and protobuf alone cost in Python. Nothing a client has to do beyond that."""

from __future__ import annotations

import argparse
import os
import threading
from collections.abc import Callable, Iterator

import grpc

from benchmarks.replay import event
from benchmarks.server import OPTIONS, PUBLISHER, SUBSCRIBER
from flink_pubsub.wire import pubsub_pb2 as wire

_IN_FLIGHT = 10
_ACKS_PER_REQUEST = 1000
_BATCH = 1000


class Calls:
    """A unary method with ten calls in flight at most."""

    def __init__(self, channel: grpc.Channel, path: str) -> None:
        self._call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path)
        self._slots = threading.BoundedSemaphore(_IN_FLIGHT)

    def start(self, body: bytes) -> None:
        """Sends a request as soon as there is room for it."""
        self._slots.acquire()
        self._call.future(body).add_done_callback(self._done)

    def _done(self, future: grpc.Future[bytes]) -> None:
        self._slots.release()
        future.result()


def read(channel: grpc.Channel, subscription: str, parse: bool) -> None:
    """Receives, parses, serializes each message again as a source must to hand it on, and acknowledges.

    Without `parse` it only receives: that is the server's ceiling.
    """
    acknowledge = Calls(channel, SUBSCRIBER + "Acknowledge")
    pull: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(SUBSCRIBER + "StreamingPull")
    first = wire.StreamingPullRequest(subscription=subscription, stream_ack_deadline_seconds=60, client_id="bench")
    ended = threading.Event()

    def requests() -> Iterator[bytes]:
        yield first.SerializeToString()
        ended.wait()

    decode = wire.StreamingPullResponse.FromString
    ack_ids: list[str] = []
    for body in pull(requests()):
        if not parse:
            continue
        received = decode(body).received_messages
        records = [message.message.SerializeToString() for message in received]
        ack_ids += [message.ack_id for message in received]
        assert len(records) == len(received)
        while len(ack_ids) >= _ACKS_PER_REQUEST:
            request = wire.AcknowledgeRequest(subscription=subscription, ack_ids=ack_ids[:_ACKS_PER_REQUEST])
            acknowledge.start(request.SerializeToString())
            del ack_ids[:_ACKS_PER_REQUEST]


def publish(channel: grpc.Channel, topic: str, size: int, build: bool) -> None:
    """Builds requests of a thousand messages from a thousand payloads, serializes and sends them.

    Without `build` it sends the same bytes over and over: that is the server's ceiling.
    """
    calls = Calls(channel, PUBLISHER + "Publish")
    payloads = [event(size)] * _BATCH

    def request() -> bytes:
        made = wire.PublishRequest(topic=topic)
        add = made.messages.add
        for payload in payloads:
            add().data = payload
        return made.SerializeToString()

    prebuilt = request()
    while True:
        calls.start(request() if build else prebuilt)


def main() -> None:
    """Runs one loop until stdin ends."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bare")
    parser.add_argument("loop", choices=["read", "drain", "publish", "flood"])
    parser.add_argument("endpoint")
    parser.add_argument("resource")
    parser.add_argument("--payload-bytes", type=int, default=1024)
    arguments = parser.parse_args()
    channel = grpc.insecure_channel(arguments.endpoint, options=OPTIONS)
    loops: dict[str, Callable[[], None]] = {
        "read": lambda: read(channel, arguments.resource, parse=True),
        "drain": lambda: read(channel, arguments.resource, parse=False),
        "publish": lambda: publish(channel, arguments.resource, arguments.payload_bytes, build=True),
        "flood": lambda: publish(channel, arguments.resource, arguments.payload_bytes, build=False),
    }
    until_stdin_ends(loops[arguments.loop])


def until_stdin_ends(loop: Callable[[], None]) -> None:
    """Runs a loop in a thread that does not keep the process alive, and returns at the end of stdin or of the loop."""
    ended = threading.Event()

    def wait_for_stdin() -> None:
        # Not through `sys.stdin`: its lock would be held while the interpreter shuts down.
        while os.read(0, 1):
            pass
        ended.set()

    def run() -> None:
        try:
            loop()
        finally:
            ended.set()

    for target in (wait_for_stdin, run):
        threading.Thread(target=target, daemon=True).start()
    ended.wait()


if __name__ == "__main__":
    main()
