"""The planner's check: what is rejected, with which words, and that nothing has changed by then."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from flink_pubsub.destinations import SubscriptionDestination, TopicDestination
from flink_pubsub.emulator import Emulator
from flink_pubsub.errors import StartupCheckError
from flink_pubsub.options import DeserializationFailurePolicy, OrderingMode
from flink_pubsub.rpc.admin import Admin
from flink_pubsub.subscription_options import DeadLetterPolicy, StartPosition, SubscriptionCreateOptions
from flink_pubsub.wire import pubsub_pb2 as wire
from flink_pubsub.worker.startup_check import StartupCheck
from tests.unit.planner_support import OPTIONS, ORDERS, RETURNS, TOPIC, Service, plan, rejected, spec


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    with service:
        yield service


@pytest.mark.feature("SRC-07")
def test_the_plan_names_splits_owners_and_subscriptions(service: Service) -> None:
    service.add(ORDERS)
    made = plan(spec(service.endpoint, ORDERS), parallelism=3)
    assert [(planned.split.id, planned.owner) for planned in made.splits] == [
        (f"projects/project/subscriptions/orders#{i}", i) for i in range(3)
    ]
    assert json.loads(made.splits[2].split.data) == {"subscription": ORDERS.resource_path}
    assert made.state == {"version": 1, "seek_done": True, "subscriptions": [ORDERS.resource_path]}


@pytest.mark.feature("SRC-19")
def test_the_default_position_costs_one_description_per_subscription_and_seeks_nothing(service: Service) -> None:
    service.add(ORDERS)
    service.add(RETURNS)
    assert plan(spec(service.endpoint)).state["seek_done"] is True
    assert sorted(service.calls_made) == [("GetSubscription", each.resource_path) for each in (ORDERS, RETURNS)]


@pytest.mark.feature("SRC-19")
def test_a_missing_subscription_without_creation_settings_is_named_with_the_mend(service: Service) -> None:
    service.add(ORDERS)
    [rejection] = rejected(spec(service.endpoint))
    assert "projects/project/subscriptions/returns does not exist (Resource not found (resource=returns).)" in rejection
    assert "create it, correct the name given to subscriptions(...), or let the source create it" in rejection


@pytest.mark.feature("SRC-19")
@pytest.mark.parametrize(
    ("settings", "mode", "policy", "text"),
    [
        ({}, OrderingMode.PER_KEY, DeserializationFailurePolicy.FAIL, "OrderingMode.PER_KEY"),
        ({"enable_exactly_once_delivery": True}, OrderingMode.NONE, DeserializationFailurePolicy.FAIL, "exactly-once"),
        ({}, OrderingMode.NONE, DeserializationFailurePolicy.NACK, "DeserializationFailurePolicy.NACK"),
        ({"detached": True}, OrderingMode.NONE, DeserializationFailurePolicy.FAIL, "is detached"),
        (
            {"push_config": wire.PushConfig(push_endpoint="https://example.com")},
            OrderingMode.NONE,
            DeserializationFailurePolicy.FAIL,
            "pushes to an endpoint",
        ),
    ],
)
def test_every_rejection_comes_before_anything_is_created_or_sought(
    service: Service, settings: dict[str, Any], mode: OrderingMode, policy: DeserializationFailurePolicy, text: str
) -> None:
    dead_letters = wire.DeadLetterPolicy(dead_letter_topic="projects/project/topics/dead-letters")
    service.add(ORDERS, enable_message_ordering=True, dead_letter_policy=dead_letters)
    service.add(RETURNS, **settings)
    to_create = SubscriptionDestination("project", "to-create")
    options = SubscriptionCreateOptions(
        topic=TOPIC,
        enable_message_ordering=True,
        dead_letter_policy=DeadLetterPolicy(topic=TopicDestination("project", "dead-letters")),
    )
    start = StartPosition.earliest_retained()
    source = spec(
        service.endpoint, ORDERS, RETURNS, to_create, create={to_create: options}, mode=mode, policy=policy, start=start
    )
    [rejection] = rejected(source)
    assert f"subscription {RETURNS.resource_path}" in rejection
    assert text in rejection
    assert set(service.methods()) == {"GetSubscription"}


@pytest.mark.feature("SRC-19")
def test_all_rejections_come_in_one_error_in_the_order_of_the_subscriptions(service: Service) -> None:
    names = [SubscriptionDestination("project", f"sub-{i:02}") for i in range(20)]
    for name in names[1::2]:
        service.add(name)
    source = spec(service.endpoint, *names, mode=OrderingMode.PER_KEY)
    found = rejected(source)
    assert [name.resource_path in text for name, text in zip(names, found, strict=True)] == [True] * 20
    assert ["does not exist" in text for text in found] == [True, False] * 10
    with pytest.raises(StartupCheckError, match="the source cannot start for 20 reasons:\n- subscription projects/project/"):
        plan(source)


@pytest.mark.feature("SRC-19")
@pytest.mark.parametrize(
    ("method", "permission"),
    [
        ("GetSubscription", "pubsub.subscriptions.get"),
        ("CreateSubscription", "pubsub.topics.attachSubscription on projects/project/topics/all-orders"),
        ("Seek", "pubsub.subscriptions.consume"),
    ],
)
def test_a_denied_call_names_the_permission(service: Service, method: str, permission: str) -> None:
    service.denied[method] = (grpc.StatusCode.PERMISSION_DENIED, "User not authorized to perform this action.")
    [rejection] = rejected(spec(service.endpoint, ORDERS, create={ORDERS: OPTIONS}, start=StartPosition.latest()))
    assert permission in rejection
    assert "PERMISSION_DENIED: User not authorized to perform this action." in rejection


@pytest.mark.feature("SRC-19")
def test_refused_credentials_end_the_check_with_one_reason_however_many_subscriptions(service: Service) -> None:
    service.denied["GetSubscription"] = (grpc.StatusCode.UNAUTHENTICATED, "Invalid credentials")
    [rejection] = rejected(spec(service.endpoint, *(SubscriptionDestination("project", f"sub-{i}") for i in range(40))))
    assert "mend the credentials of the JobManager" in rejection


@pytest.mark.feature("SRC-19")
def test_a_service_that_stays_unavailable_ends_the_check_after_a_minute_with_one_reason(service: Service) -> None:
    service.denied["GetSubscription"] = (grpc.StatusCode.UNAVAILABLE, "try again")
    slept: list[float] = []
    names = (SubscriptionDestination("project", f"sub-{i}") for i in range(40))
    with service.channel() as channel:
        admin = Admin(channel, clock=lambda: 8 * sum(slept), sleep=slept.append)
        with pytest.raises(StartupCheckError, match=r"sub-0 cannot be described \(UNAVAILABLE: try again\)") as caught:
            StartupCheck(spec(service.endpoint, *names), admin).resolve()
    assert len(caught.value.rejections) == 1


EXACTLY_ONCE: dict[str, Any] = {"enable_exactly_once_delivery": True}
PUSHES: dict[str, Any] = {"push_config": wire.PushConfig(push_endpoint="https://example.com/push")}


@pytest.mark.feature("SRC-19")
@pytest.mark.parametrize(
    ("settings", "detaches", "text"),
    [
        (EXACTLY_ONCE, False, "has exactly-once delivery"),
        (PUSHES, False, "pushes to an endpoint"),
        ({}, True, "is detached"),
    ],
)
def test_what_the_emulator_says_of_a_subscription_is_judged_alike(settings: dict[str, Any], detaches: bool, text: str) -> None:
    with Emulator() as emulator:
        emulator.create_topic(TOPIC.resource_path)
        emulator.create_subscription(RETURNS.resource_path, TOPIC.resource_path)
        emulator.create_subscription(ORDERS.resource_path, TOPIC.resource_path, **settings)
        if detaches:
            emulator.detach_subscription(ORDERS.resource_path)
        [rejection] = rejected(spec(emulator.endpoint, start=StartPosition.latest()))
        assert f"subscription {ORDERS.resource_path} {text}" in rejection
        assert emulator.calls("Seek") == 0


@pytest.mark.feature("SRC-19")
@pytest.mark.parametrize("method", ["GetSubscription", "CreateSubscription", "Seek"])
def test_a_permission_that_the_service_denies_is_named_and_the_next_start_succeeds_once_it_is_granted(method: str) -> None:
    with Emulator() as emulator:
        emulator.create_topic(TOPIC.resource_path)
        emulator.deny(method)
        source = spec(emulator.endpoint, ORDERS, create={ORDERS: OPTIONS}, start=StartPosition.latest())
        [rejection] = rejected(source)
        assert "PERMISSION_DENIED" in rejection
        assert "to the account of the JobManager" in rejection
        emulator.allow(method)
        assert plan(source).splits
