"""What the demo itself publishes and receives, with plain gRPC calls: it stands for the systems around a job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from types import TracebackType

import grpc

from flink_pubsub.demo.delays import PROJECT, flights_name
from flink_pubsub.demo.flights import Flight, json_of
from flink_pubsub.wire import pubsub_pb2 as wire

_BATCH = 500
_PULL = 1000
_SECONDS = 30.0


class FlightPublisher:
    """Publishes each flight to its airport's topic, with the carrier as ordering key.

    A request holds messages of one key, and the next of that key waits for its answer: that is what keeps the order.
    """

    def __init__(self, endpoint: str) -> None:
        self._channel = grpc.insecure_channel(endpoint, options=(("grpc.enable_http_proxy", 0),))
        self._publish: grpc.UnaryUnaryMultiCallable[wire.PublishRequest, wire.PublishResponse] = self._channel.unary_unary(
            "/google.pubsub.v1.Publisher/Publish",
            request_serializer=wire.PublishRequest.SerializeToString,
            response_deserializer=wire.PublishResponse.FromString,
        )
        self._batches: dict[tuple[str, str], wire.PublishRequest] = defaultdict(wire.PublishRequest)
        self._answers: dict[tuple[str, str], grpc.Future[wire.PublishResponse]] = {}
        self.published = 0
        """Flights the service has confirmed."""

    def __enter__(self) -> FlightPublisher:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._channel.close()

    def add(self, flight: Flight) -> None:
        """Takes a flight; a full batch leaves at once."""
        carrier, airport = str(flight["carrier"]), str(flight["origin"])
        batch = self._batches[airport, carrier]
        batch.messages.add(data=json_of(flight), ordering_key=carrier)
        if len(batch.messages) >= _BATCH:
            self._send((airport, carrier))

    def flush(self) -> None:
        """Returns when everything is published."""
        for key in list(self._batches):
            self._send(key)
        for key in list(self._answers):
            self._settle(key)

    def _send(self, key: tuple[str, str]) -> None:
        self._settle(key)
        request = self._batches.pop(key)
        request.topic = f"projects/{PROJECT}/topics/{flights_name(key[0])}"
        self._answers[key] = self._publish.future(request, timeout=_SECONDS)

    def _settle(self, key: tuple[str, str]) -> None:
        if key in self._answers:
            self.published += len(self._answers.pop(key).result().message_ids)


def receive_all(endpoint: str, subscription: str) -> Iterator[bytes]:
    """The payloads of all messages that wait in a subscription now; they are acknowledged."""
    with grpc.insecure_channel(endpoint, options=(("grpc.enable_http_proxy", 0),)) as channel:
        pull: grpc.UnaryUnaryMultiCallable[wire.PullRequest, wire.PullResponse] = channel.unary_unary(
            "/google.pubsub.v1.Subscriber/Pull",
            request_serializer=wire.PullRequest.SerializeToString,
            response_deserializer=wire.PullResponse.FromString,
        )
        acknowledge: grpc.UnaryUnaryMultiCallable[wire.AcknowledgeRequest, bytes] = channel.unary_unary(
            "/google.pubsub.v1.Subscriber/Acknowledge", request_serializer=wire.AcknowledgeRequest.SerializeToString
        )
        request = wire.PullRequest(subscription=subscription, max_messages=_PULL, return_immediately=True)
        while received := pull(request, timeout=_SECONDS).received_messages:
            yield from (message.message.data for message in received)
            ack_ids = [message.ack_id for message in received]
            acknowledge(wire.AcknowledgeRequest(subscription=subscription, ack_ids=ack_ids), timeout=_SECONDS)
