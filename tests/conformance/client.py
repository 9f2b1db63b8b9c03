"""A bare client: stubs on Pub/Sub's method paths, nothing retried, nothing hidden."""

from __future__ import annotations

import itertools
import queue
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Protocol, TypeVar

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty

from flink_pubsub.wire import pubsub_pb2 as wire

CALL_SECONDS = 20.0
_ids = itertools.count(1)
T = TypeVar("T")


class Differs(Protocol):
    """The type of the fixture `differs`."""

    def __call__(self, *, google: str = "", pstest: str = "", waits: bool = False) -> None: ...


class Client:
    """A channel to a server and the calls the suite needs; names of topics and subscriptions are fresh."""

    def __init__(self, endpoint: str) -> None:
        self.channel = grpc.insecure_channel(endpoint, options=[("grpc.max_receive_message_length", -1)])
        self._streams: list[Stream] = []

    def close(self) -> None:
        for stream in self._streams:
            stream.close()
        self.channel.close()

    def call(self, path: str, request: Any, response: type[T]) -> T:
        """One unary call; `path` as in `Publisher/Publish`."""
        stub: grpc.UnaryUnaryMultiCallable[Any, T] = self.channel.unary_unary(
            f"/google.pubsub.v1.{path}",
            request_serializer=lambda r: r.SerializeToString(),
            response_deserializer=response.FromString,  # type: ignore[attr-defined]
        )
        return stub(request, timeout=CALL_SECONDS)

    def topic(self) -> str:
        name = f"projects/conformance/topics/topic-{next(_ids)}"
        self.call("Publisher/CreateTopic", wire.Topic(name=name), wire.Topic)
        return name

    def subscription(self, topic: str, **settings: Any) -> str:
        name = f"projects/conformance/subscriptions/subscription-{next(_ids)}"
        self.call("Subscriber/CreateSubscription", wire.Subscription(name=name, topic=topic, **settings), wire.Subscription)
        return name

    def publish(self, topic: str, *data: bytes, key: str = "") -> list[str]:
        return self.publish_messages(topic, [wire.PubsubMessage(data=item, ordering_key=key) for item in data])

    def publish_messages(self, topic: str, messages: list[wire.PubsubMessage]) -> list[str]:
        request = wire.PublishRequest(topic=topic, messages=messages)
        return list(self.call("Publisher/Publish", request, wire.PublishResponse).message_ids)

    def pull(self, subscription: str, count: int) -> list[wire.ReceivedMessage]:
        """At least one message and at most `count`."""
        request = wire.PullRequest(subscription=subscription, max_messages=count)
        return list(self.call("Subscriber/Pull", request, wire.PullResponse).received_messages)

    def pull_now(self, subscription: str) -> list[wire.ReceivedMessage]:
        """What is there without waiting."""
        request = wire.PullRequest(subscription=subscription, max_messages=1000, return_immediately=True)
        return list(self.call("Subscriber/Pull", request, wire.PullResponse).received_messages)

    def ack(self, subscription: str, *ack_ids: str) -> None:
        self.call("Subscriber/Acknowledge", wire.AcknowledgeRequest(subscription=subscription, ack_ids=ack_ids), Empty)

    def modack(self, subscription: str, seconds: int, *ack_ids: str) -> None:
        request = wire.ModifyAckDeadlineRequest(subscription=subscription, ack_ids=ack_ids, ack_deadline_seconds=seconds)
        self.call("Subscriber/ModifyAckDeadline", request, Empty)

    def seek(self, subscription: str, time: datetime | None = None, snapshot: str | None = None) -> None:
        request = wire.SeekRequest(subscription=subscription, snapshot=snapshot)
        if time is not None:
            request.time.FromDatetime(time)
        self.call("Subscriber/Seek", request, wire.SeekResponse)

    def snapshot(self, subscription: str) -> str:
        name = f"projects/conformance/snapshots/snapshot-{next(_ids)}"
        self.call("Subscriber/CreateSnapshot", wire.CreateSnapshotRequest(name=name, subscription=subscription), wire.Snapshot)
        return name

    def stream(self, subscription: str, **first: Any) -> Stream:
        first.setdefault("stream_ack_deadline_seconds", 60)
        stream = Stream(self.channel, wire.StreamingPullRequest(subscription=subscription, **first))
        self._streams.append(stream)
        return stream


class Stream:
    """An open streaming pull."""

    def __init__(self, channel: grpc.Channel, first: wire.StreamingPullRequest) -> None:
        self._requests: queue.SimpleQueue[wire.StreamingPullRequest | None] = queue.SimpleQueue()
        self._requests.put(first)
        stub = channel.stream_stream(
            "/google.pubsub.v1.Subscriber/StreamingPull",
            request_serializer=wire.StreamingPullRequest.SerializeToString,
            response_deserializer=wire.StreamingPullResponse.FromString,
        )
        self.call = stub(iter(self._requests.get, None), timeout=CALL_SECONDS)

    def send(self, **request: Any) -> None:
        self._requests.put(wire.StreamingPullRequest(**request))

    def finish_sending(self) -> None:
        self._requests.put(None)

    def responses(self) -> Iterator[wire.StreamingPullResponse]:
        return iter(self.call)

    def receive(self, count: int) -> list[wire.ReceivedMessage]:
        """Exactly the next `count` messages; more of them in a response fail the test."""
        received: list[wire.ReceivedMessage] = []
        while len(received) < count:
            received.extend(next(self.call).received_messages)
        assert len(received) == count
        return received

    def close(self) -> None:
        self.call.cancel()
        self._requests.put(None)


def refused(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    """The status with which the call ends."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    error = caught.value
    assert isinstance(error, grpc.Call)
    return error.code(), error.details() or ""


def data(messages: list[wire.ReceivedMessage]) -> list[bytes]:
    return [message.message.data for message in messages]
