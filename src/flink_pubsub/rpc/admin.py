"""Describing, creating and seeking: short unary calls with a deadline each and a bound on all attempts together."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

import grpc

from flink_pubsub.core.backoff import Backoff
from flink_pubsub.rpc.status import Purpose, status_of
from flink_pubsub.wire.pubsub_pb2 import GetSubscriptionRequest, SeekRequest, SeekResponse, Subscription

GET_SUBSCRIPTION = "/google.pubsub.v1.Subscriber/GetSubscription"
CREATE_SUBSCRIPTION = "/google.pubsub.v1.Subscriber/CreateSubscription"
SEEK = "/google.pubsub.v1.Subscriber/Seek"

_CALL_SECONDS = 10.0
_TOTAL_SECONDS = 60.0

Response = TypeVar("Response")


class Admin:
    """Admin calls on one channel, from any thread. Each blocks for a minute at most.

    Attempts are repeated when that may help, which is safe: none of these calls does anything a second time.
    """

    def __init__(
        self,
        channel: grpc.Channel,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._get_subscription: grpc.UnaryUnaryMultiCallable[bytes, Subscription] = channel.unary_unary(
            GET_SUBSCRIPTION, response_deserializer=Subscription.FromString
        )
        self._create_subscription: grpc.UnaryUnaryMultiCallable[bytes, Subscription] = channel.unary_unary(
            CREATE_SUBSCRIPTION, response_deserializer=Subscription.FromString
        )
        self._seek: grpc.UnaryUnaryMultiCallable[bytes, SeekResponse] = channel.unary_unary(
            SEEK, response_deserializer=SeekResponse.FromString
        )
        self._clock = clock
        self._sleep = sleep

    def get_subscription(self, subscription: str) -> Subscription:
        """Describes a subscription.

        Raises:
            grpc.RpcError: the service refused, or did not answer within a minute.
        """
        request = GetSubscriptionRequest(subscription=subscription)
        return self._call(self._get_subscription, request.SerializeToString(), f"subscription={subscription}")

    def create_subscription(self, settings: Subscription) -> Subscription:
        """Creates a subscription. ALREADY_EXISTS may come from an attempt whose answer was lost.

        Raises:
            grpc.RpcError: the service refused, or did not answer within a minute.
        """
        return self._call(self._create_subscription, settings.SerializeToString(), f"name={settings.name}")

    def seek(self, subscription: str, to: datetime) -> None:
        """Acknowledges what was published before a time, and brings back what was published since and is retained.

        Raises:
            grpc.RpcError: the service refused, or did not answer within a minute.
        """
        request = SeekRequest(subscription=subscription)
        request.time.FromDatetime(to)
        self._call(self._seek, request.SerializeToString(), f"subscription={subscription}")

    def _call(self, method: grpc.UnaryUnaryMultiCallable[bytes, Response], request: bytes, routing: str) -> Response:
        metadata = (("x-goog-request-params", routing),)
        until = self._clock() + _TOTAL_SECONDS
        backoff = Backoff(0.1, 2, 10)
        while True:
            try:
                return method(request, timeout=min(_CALL_SECONDS, max(1.0, until - self._clock())), metadata=metadata)
            except grpc.RpcError as error:
                delay = backoff.failed()
                if not status_of(error).retryable(Purpose.ADMIN) or self._clock() + delay >= until:
                    raise
            self._sleep(delay)
