"""A service for tests of the planner: it keeps subscriptions, remembers calls, and refuses what it is told to."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

import grpc
import pytest

from flink_pubsub.bridge.connector import Plan
from flink_pubsub.destinations import SubscriptionDestination, TopicDestination
from flink_pubsub.errors import StartupCheckError
from flink_pubsub.options import Connection, DeserializationFailurePolicy, OrderingMode
from flink_pubsub.source import SourceSpec
from flink_pubsub.subscription_options import StartPosition, SubscriptionCreateOptions
from flink_pubsub.wire import pubsub_pb2 as wire
from flink_pubsub.worker import planner
from tests.unit.source_support import FakeContext, ScriptedServer

ORDERS, RETURNS = SubscriptionDestination("project", "orders"), SubscriptionDestination("project", "returns")
TOPIC = TopicDestination("project", "all-orders")
NOON = datetime(2024, 5, 1, 12, tzinfo=timezone.utc)
OPTIONS = SubscriptionCreateOptions(topic=TOPIC)


class Service(ScriptedServer):
    """Subscriptions by path; `calls_made` has the method and the subscription of each call."""

    def __init__(self) -> None:
        super().__init__()
        self.subscriptions: dict[str, wire.Subscription] = {}
        self.denied: dict[str, tuple[grpc.StatusCode, str]] = {}
        self.appears_at_creation: wire.Subscription | None = None
        self.calls_made: list[tuple[str, str]] = []
        self.sought: dict[str, datetime] = {}
        self._lock = threading.Lock()
        self.answers = {"GetSubscription": self._get, "CreateSubscription": self._create, "Seek": self._seek}

    def add(self, subscription: SubscriptionDestination, **settings: Any) -> None:
        path = subscription.resource_path
        settings = {"topic": f"projects/project/topics/{subscription.subscription}-topic", **settings}
        self.subscriptions[path] = wire.Subscription(name=path, **settings)

    def methods(self) -> list[str]:
        return [method for method, _ in self.calls_made]

    def _called(self, method: str, path: str, context: grpc.ServicerContext) -> None:
        with self._lock:
            self.calls_made.append((method, path))
        if method in self.denied:
            context.abort(*self.denied[method])

    def _get(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        path = wire.GetSubscriptionRequest.FromString(request).subscription
        self._called("GetSubscription", path, context)
        if path not in self.subscriptions:
            context.abort(grpc.StatusCode.NOT_FOUND, f"Resource not found (resource={path.rsplit('/', 1)[1]}).")
        return self.subscriptions[path].SerializeToString()

    def _create(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        settings = wire.Subscription.FromString(request)
        self._called("CreateSubscription", settings.name, context)
        if self.appears_at_creation is not None:
            self.subscriptions[settings.name] = self.appears_at_creation
            context.abort(grpc.StatusCode.ALREADY_EXISTS, "Resource already exists in the project.")
        self.subscriptions[settings.name] = settings
        return request

    def _seek(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        seek = wire.SeekRequest.FromString(request)
        self._called("Seek", seek.subscription, context)
        self.sought[seek.subscription] = seek.time.ToDatetime(timezone.utc)
        return b""


def spec(
    endpoint: str,
    *subscriptions: SubscriptionDestination,
    create: Mapping[SubscriptionDestination, SubscriptionCreateOptions] | None = None,
    mode: OrderingMode = OrderingMode.NONE,
    policy: DeserializationFailurePolicy = DeserializationFailurePolicy.FAIL,
    start: StartPosition | None = None,
) -> SourceSpec:
    return SourceSpec(
        subscriptions=subscriptions or (ORDERS, RETURNS),
        create_options=create or {},
        deserializer=None,
        ordering_mode=mode,
        deserialization_failure_policy=policy,
        start_position=start or StartPosition.continue_from_subscription(),
        connection=Connection(emulator_endpoint=endpoint),
    )


def plan(source: SourceSpec, state: object = None, parallelism: int = 1) -> Plan:
    return planner.plan(source, FakeContext(parallelism), state, lambda: NOON)


def rejected(source: SourceSpec) -> tuple[str, ...]:
    with pytest.raises(StartupCheckError) as caught:
        plan(source)
    return caught.value.rejections
