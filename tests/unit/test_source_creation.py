"""The planner's creation of missing subscriptions: with which settings, and what becomes of those that exist."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta

import grpc
import pytest

from flink_pubsub.destinations import TopicDestination
from flink_pubsub.emulator import Emulator
from flink_pubsub.subscription_options import DeadLetterPolicy, StartPosition, SubscriptionCreateOptions
from flink_pubsub.wire import pubsub_pb2 as wire
from tests.unit.planner_support import OPTIONS, ORDERS, RETURNS, TOPIC, Service, plan, rejected, spec


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    with service:
        yield service


@pytest.mark.feature("SRC-20")
def test_a_missing_subscription_is_created_with_its_settings(service: Service) -> None:
    service.add(RETURNS)
    options = SubscriptionCreateOptions(
        topic=TOPIC,
        ack_deadline=timedelta(seconds=60),
        enable_message_ordering=True,
        message_retention=timedelta(days=3),
        retain_acked_messages=True,
        expiration_ttl=timedelta(days=2),
        dead_letter_policy=DeadLetterPolicy(topic=TopicDestination("other-project", "dead-letters"), max_delivery_attempts=7),
        filter='attributes.region = "eu"',
    )
    assert plan(spec(service.endpoint, create={ORDERS: options})).splits
    created = service.subscriptions[ORDERS.resource_path]
    assert created.topic == TOPIC.resource_path
    assert created.ack_deadline_seconds == 60
    assert created.enable_message_ordering
    assert created.message_retention_duration.ToTimedelta() == timedelta(days=3)
    assert created.retain_acked_messages
    assert created.expiration_policy.ttl.ToTimedelta() == timedelta(days=2)
    assert created.dead_letter_policy.dead_letter_topic == "projects/other-project/topics/dead-letters"
    assert created.dead_letter_policy.max_delivery_attempts == 7
    assert created.filter == 'attributes.region = "eu"'


@pytest.mark.feature("SRC-20")
def test_what_creation_settings_leave_open_is_left_to_the_service(service: Service) -> None:
    plan(spec(service.endpoint, ORDERS, create={ORDERS: OPTIONS}))
    assert service.subscriptions[ORDERS.resource_path] == wire.Subscription(
        name=ORDERS.resource_path, topic=TOPIC.resource_path
    )


@pytest.mark.feature("SRC-20")
def test_a_subscription_that_never_expires_has_an_expiration_policy_without_a_time(service: Service) -> None:
    plan(spec(service.endpoint, ORDERS, create={ORDERS: SubscriptionCreateOptions(topic=TOPIC, never_expire=True)}))
    created = service.subscriptions[ORDERS.resource_path]
    assert created.HasField("expiration_policy")
    assert not created.expiration_policy.HasField("ttl")


@pytest.mark.feature("SRC-20")
def test_an_existing_subscription_keeps_its_settings_whatever_the_creation_settings_say(service: Service) -> None:
    service.add(ORDERS, ack_deadline_seconds=30)
    plan(
        spec(
            service.endpoint,
            ORDERS,
            create={ORDERS: SubscriptionCreateOptions(topic=TOPIC, ack_deadline=timedelta(seconds=60))},
        )
    )
    assert service.methods() == ["GetSubscription"]


@pytest.mark.feature("SRC-20")
def test_a_subscription_created_by_somebody_else_meanwhile_is_as_good_if_it_suits(service: Service) -> None:
    service.appears_at_creation = wire.Subscription(name=ORDERS.resource_path, topic=TOPIC.resource_path)
    assert plan(spec(service.endpoint, ORDERS, create={ORDERS: OPTIONS})).splits
    assert service.methods() == ["GetSubscription", "CreateSubscription", "GetSubscription"]


@pytest.mark.feature("SRC-20")
@pytest.mark.feature("SRC-19")
def test_a_subscription_created_by_somebody_else_is_judged_before_anything_is_sought(service: Service) -> None:
    service.add(RETURNS)
    service.appears_at_creation = wire.Subscription(name=ORDERS.resource_path, enable_exactly_once_delivery=True)
    [rejection] = rejected(spec(service.endpoint, create={ORDERS: OPTIONS}, start=StartPosition.latest()))
    assert "exactly-once" in rejection
    assert "Seek" not in service.methods()


@pytest.mark.feature("SRC-20")
def test_a_creation_whose_answer_was_lost_counts_as_done() -> None:
    with Emulator() as emulator:
        emulator.create_topic(TOPIC.resource_path, message_retention_duration={"seconds": 3600})
        emulator.lose_answers("CreateSubscription", grpc.StatusCode.UNAVAILABLE)
        assert plan(spec(emulator.endpoint, ORDERS, create={ORDERS: OPTIONS})).splits
        assert emulator.subscriptions() == [ORDERS.resource_path]
        assert emulator.calls("CreateSubscription") == 2


@pytest.mark.feature("SRC-20")
def test_a_creation_that_the_service_refuses_says_what_to_mend(service: Service) -> None:
    service.denied["CreateSubscription"] = (grpc.StatusCode.NOT_FOUND, "Resource not found (resource=all-orders).")
    [rejection] = rejected(spec(service.endpoint, ORDERS, create={ORDERS: OPTIONS}))
    assert "cannot be created on projects/project/topics/all-orders (NOT_FOUND: Resource not found" in rejection
    assert "create projects/project/topics/all-orders, or correct the name in create_options" in rejection


@pytest.mark.feature("SRC-20")
def test_a_creation_is_logged_with_the_subscription_and_its_topic(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    service.add(RETURNS)
    with caplog.at_level(logging.INFO):
        plan(spec(service.endpoint, create={ORDERS: OPTIONS}))
    assert f"created subscription {ORDERS.resource_path} on topic {TOPIC.resource_path}" in caplog.messages
    assert not any("created" in message and RETURNS.resource_path in message for message in caplog.messages)
