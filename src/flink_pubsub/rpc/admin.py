"""Describing resources: short unary calls with a deadline each and a bound on all attempts together."""

from __future__ import annotations

import time
from collections.abc import Callable

import grpc

from flink_pubsub.core.backoff import Backoff
from flink_pubsub.rpc.status import Purpose, status_of
from flink_pubsub.wire.pubsub_pb2 import GetSubscriptionRequest, Subscription

GET_SUBSCRIPTION = "/google.pubsub.v1.Subscriber/GetSubscription"

_CALL_SECONDS = 10.0
_TOTAL_SECONDS = 60.0


class Admin:
    """Admin calls on one channel. Each blocks for a minute at most."""

    def __init__(
        self,
        channel: grpc.Channel,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._get_subscription: grpc.UnaryUnaryMultiCallable[bytes, Subscription] = channel.unary_unary(
            GET_SUBSCRIPTION, response_deserializer=Subscription.FromString
        )
        self._clock = clock
        self._sleep = sleep

    def get_subscription(self, subscription: str) -> Subscription:
        """Describes a subscription.

        Raises:
            grpc.RpcError: the service refused, or did not answer within a minute.
        """
        request = GetSubscriptionRequest(subscription=subscription).SerializeToString()
        metadata = (("x-goog-request-params", f"subscription={subscription}"),)
        return self._call(lambda timeout: self._get_subscription(request, timeout=timeout, metadata=metadata))

    def _call(self, attempt: Callable[[float], Subscription]) -> Subscription:
        until = self._clock() + _TOTAL_SECONDS
        backoff = Backoff(0.1, 2, 10)
        while True:
            try:
                return attempt(min(_CALL_SECONDS, max(1.0, until - self._clock())))
            except grpc.RpcError as error:
                delay = backoff.failed()
                if not status_of(error).retryable(Purpose.ADMIN) or self._clock() + delay >= until:
                    raise
            self._sleep(delay)
