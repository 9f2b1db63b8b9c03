"""The planner against a service that keeps subscriptions, remembers calls, and refuses what it is told to."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

import grpc
import pytest

from flink_pubsub.bridge.connector import Plan
from flink_pubsub.core.planner_state import PlannerState
from flink_pubsub.destinations import SubscriptionDestination, TopicDestination
from flink_pubsub.emulator import Emulator
from flink_pubsub.errors import PubSubConnectorError, StartupCheckError
from flink_pubsub.options import Connection, DeserializationFailurePolicy, OrderingMode
from flink_pubsub.rpc.admin import Admin
from flink_pubsub.source import SourceSpec
from flink_pubsub.subscription_options import DeadLetterPolicy, StartPosition, SubscriptionCreateOptions
from flink_pubsub.wire import pubsub_pb2 as wire
from flink_pubsub.worker import planner
from flink_pubsub.worker.startup_check import StartupCheck
from tests.unit.source_support import FakeContext, ScriptedServer

ORDERS, RETURNS = SubscriptionDestination("project", "orders"), SubscriptionDestination("project", "returns")
TOPIC = TopicDestination("project", "all-orders")
NOON = datetime(2024, 5, 1, 12, tzinfo=timezone.utc)
OPTIONS = SubscriptionCreateOptions(topic=TOPIC)
DONE = PlannerState(True, (ORDERS.resource_path, RETURNS.resource_path)).as_json()


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


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    with service:
        yield service


def spec(
    service: Service,
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
        connection=Connection(emulator_endpoint=service.endpoint),
    )


def plan(source: SourceSpec, state: object = None, parallelism: int = 1) -> Plan:
    return planner.plan(source, FakeContext(parallelism), state, lambda: NOON)


def rejected(source: SourceSpec) -> tuple[str, ...]:
    with pytest.raises(StartupCheckError) as caught:
        plan(source)
    return caught.value.rejections


@pytest.mark.feature("SRC-07")
def test_the_plan_names_splits_owners_and_subscriptions(service: Service) -> None:
    service.add(ORDERS)
    made = plan(spec(service, ORDERS), parallelism=3)
    assert [(planned.split.id, planned.owner) for planned in made.splits] == [
        (f"projects/project/subscriptions/orders#{i}", i) for i in range(3)
    ]
    assert json.loads(made.splits[2].split.data) == {"subscription": ORDERS.resource_path}
    assert made.state == {"version": 1, "seek_done": True, "subscriptions": [ORDERS.resource_path]}


@pytest.mark.feature("SRC-19")
def test_the_default_position_costs_one_description_per_subscription_and_seeks_nothing(service: Service) -> None:
    service.add(ORDERS)
    service.add(RETURNS)
    assert plan(spec(service)).state["seek_done"] is True
    assert sorted(service.calls_made) == [("GetSubscription", each.resource_path) for each in (ORDERS, RETURNS)]


@pytest.mark.feature("SRC-19")
def test_a_missing_subscription_without_creation_settings_is_named_with_the_mend(service: Service) -> None:
    service.add(ORDERS)
    [rejection] = rejected(spec(service))
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
    source = spec(service, ORDERS, RETURNS, to_create, create={to_create: options}, mode=mode, policy=policy, start=start)
    [rejection] = rejected(source)
    assert f"subscription {RETURNS.resource_path}" in rejection
    assert text in rejection
    assert set(service.methods()) == {"GetSubscription"}


@pytest.mark.feature("SRC-19")
def test_all_rejections_come_in_one_error_in_the_order_of_the_subscriptions(service: Service) -> None:
    names = [SubscriptionDestination("project", f"sub-{i:02}") for i in range(20)]
    for name in names[1::2]:
        service.add(name)
    source = spec(service, *names, mode=OrderingMode.PER_KEY)
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
    [rejection] = rejected(spec(service, ORDERS, create={ORDERS: OPTIONS}, start=StartPosition.latest()))
    assert permission in rejection
    assert "PERMISSION_DENIED: User not authorized to perform this action." in rejection


@pytest.mark.feature("SRC-19")
def test_refused_credentials_end_the_check_with_one_reason_however_many_subscriptions(service: Service) -> None:
    service.denied["GetSubscription"] = (grpc.StatusCode.UNAUTHENTICATED, "Invalid credentials")
    [rejection] = rejected(spec(service, *(SubscriptionDestination("project", f"sub-{i}") for i in range(40))))
    assert "mend the credentials of the JobManager" in rejection


@pytest.mark.feature("SRC-19")
def test_a_service_that_stays_unavailable_ends_the_check_after_a_minute_with_one_reason(service: Service) -> None:
    service.denied["GetSubscription"] = (grpc.StatusCode.UNAVAILABLE, "try again")
    slept: list[float] = []
    names = (SubscriptionDestination("project", f"sub-{i}") for i in range(40))
    with service.channel() as channel:
        admin = Admin(channel, clock=lambda: 8 * sum(slept), sleep=slept.append)
        with pytest.raises(StartupCheckError, match=r"sub-0 cannot be described \(UNAVAILABLE: try again\)") as caught:
            StartupCheck(spec(service, *names), admin).resolve()
    assert len(caught.value.rejections) == 1


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
    assert plan(spec(service, create={ORDERS: options})).splits
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
    plan(spec(service, ORDERS, create={ORDERS: OPTIONS}))
    assert service.subscriptions[ORDERS.resource_path] == wire.Subscription(
        name=ORDERS.resource_path, topic=TOPIC.resource_path
    )


@pytest.mark.feature("SRC-20")
def test_a_subscription_that_never_expires_has_an_expiration_policy_without_a_time(service: Service) -> None:
    plan(spec(service, ORDERS, create={ORDERS: SubscriptionCreateOptions(topic=TOPIC, never_expire=True)}))
    created = service.subscriptions[ORDERS.resource_path]
    assert created.HasField("expiration_policy")
    assert not created.expiration_policy.HasField("ttl")


@pytest.mark.feature("SRC-20")
def test_an_existing_subscription_keeps_its_settings_whatever_the_creation_settings_say(service: Service) -> None:
    service.add(ORDERS, ack_deadline_seconds=30)
    plan(spec(service, ORDERS, create={ORDERS: SubscriptionCreateOptions(topic=TOPIC, ack_deadline=timedelta(seconds=60))}))
    assert service.methods() == ["GetSubscription"]


@pytest.mark.feature("SRC-20")
def test_a_subscription_created_by_somebody_else_meanwhile_is_as_good_if_it_suits(service: Service) -> None:
    service.appears_at_creation = wire.Subscription(name=ORDERS.resource_path, topic=TOPIC.resource_path)
    assert plan(spec(service, ORDERS, create={ORDERS: OPTIONS})).splits
    assert service.methods() == ["GetSubscription", "CreateSubscription", "GetSubscription"]


@pytest.mark.feature("SRC-20")
@pytest.mark.feature("SRC-19")
def test_a_subscription_created_by_somebody_else_is_judged_before_anything_is_sought(service: Service) -> None:
    service.add(RETURNS)
    service.appears_at_creation = wire.Subscription(name=ORDERS.resource_path, enable_exactly_once_delivery=True)
    [rejection] = rejected(spec(service, create={ORDERS: OPTIONS}, start=StartPosition.latest()))
    assert "exactly-once" in rejection
    assert "Seek" not in service.methods()


@pytest.mark.feature("SRC-20")
def test_a_creation_whose_answer_was_lost_counts_as_done() -> None:
    with Emulator() as emulator:
        emulator.create_topic(TOPIC.resource_path, message_retention_duration={"seconds": 3600})
        emulator.lose_answers("CreateSubscription", grpc.StatusCode.UNAVAILABLE)
        connection = Connection(emulator_endpoint=emulator.endpoint)
        source = SourceSpec(subscriptions=(ORDERS,), create_options={ORDERS: OPTIONS}, deserializer=None, connection=connection)
        assert plan(source).splits
        assert emulator.subscriptions() == [ORDERS.resource_path]
        assert emulator.calls("CreateSubscription") == 2


@pytest.mark.feature("SRC-20")
def test_a_creation_that_the_service_refuses_says_what_to_mend(service: Service) -> None:
    service.denied["CreateSubscription"] = (grpc.StatusCode.NOT_FOUND, "Resource not found (resource=all-orders).")
    [rejection] = rejected(spec(service, ORDERS, create={ORDERS: OPTIONS}))
    assert "cannot be created on projects/project/topics/all-orders (NOT_FOUND: Resource not found" in rejection
    assert "create projects/project/topics/all-orders, or correct the name in create_options" in rejection


@pytest.mark.feature("SRC-21")
@pytest.mark.parametrize(
    ("start", "target"),
    [
        (StartPosition.latest(), NOON),
        (StartPosition.from_timestamp(NOON - timedelta(hours=1, microseconds=5)), NOON - timedelta(hours=1, microseconds=5)),
        (StartPosition.earliest_retained(), NOON - timedelta(days=32)),
    ],
)
def test_every_subscription_is_sought_once_after_all_are_checked_and_created(
    service: Service, start: StartPosition, target: datetime
) -> None:
    service.add(RETURNS)
    made = plan(spec(service, create={ORDERS: OPTIONS}, start=start))
    assert made.state["seek_done"] is True
    assert service.sought == {ORDERS.resource_path: target, RETURNS.resource_path: target}
    assert sorted(service.methods()[-2:]) == ["Seek", "Seek"]
    assert service.methods().count("Seek") == 2


@pytest.mark.feature("SRC-21")
@pytest.mark.feature("SRC-31")
def test_latest_is_pinned_when_the_check_starts(service: Service) -> None:
    service.add(ORDERS)
    times = iter([NOON])  # a second look at the clock would fail
    planner.plan(spec(service, ORDERS, start=StartPosition.latest()), FakeContext(), None, lambda: next(times))
    assert service.sought == {ORDERS.resource_path: NOON}


@pytest.mark.feature("SRC-21")
@pytest.mark.feature("SRC-31")
@pytest.mark.parametrize("parallelism", [1, 7])
def test_a_restored_job_never_seeks_whatever_its_parallelism_and_subscriptions(
    service: Service, parallelism: int, caplog: pytest.LogCaptureFixture
) -> None:
    added = SubscriptionDestination("project", "added")
    service.add(RETURNS)
    service.add(added)
    with caplog.at_level(logging.WARNING):
        made = plan(spec(service, RETURNS, added, start=StartPosition.latest()), DONE, parallelism)
    assert len(made.splits) == max(2, parallelism)
    assert {json.loads(planned.split.data)["subscription"] for planned in made.splits} == {
        RETURNS.resource_path,
        added.resource_path,
    }
    assert made.state == {"version": 1, "seek_done": True, "subscriptions": [RETURNS.resource_path, added.resource_path]}
    assert "Seek" not in service.methods()
    assert [record.getMessage() for record in caplog.records] == [
        f"subscription {added.resource_path} is new in the restored job: start_position is not applied to it"
    ]


@pytest.mark.feature("SRC-31")
def test_a_restored_job_is_checked_and_may_create_like_any_other(service: Service) -> None:
    service.add(RETURNS)
    assert plan(spec(service, create={ORDERS: OPTIONS}), DONE).splits
    assert ORDERS.resource_path in service.subscriptions
    with pytest.raises(StartupCheckError, match=r"OrderingMode\.PER_KEY"):
        plan(spec(service, mode=OrderingMode.PER_KEY), DONE)


@pytest.mark.feature("SRC-31")
def test_state_from_before_the_end_of_the_check_lets_the_restored_job_seek(service: Service) -> None:
    service.add(ORDERS)
    before = PlannerState(seek_done=False).as_json()
    assert plan(spec(service, ORDERS, start=StartPosition.latest()), before).state["seek_done"] is True
    assert service.sought == {ORDERS.resource_path: NOON}


@pytest.mark.feature("SRC-21")
def test_a_failed_seek_can_be_repeated_by_the_next_start(service: Service) -> None:
    service.add(ORDERS)
    service.add(RETURNS)
    source = spec(service, start=StartPosition.from_timestamp(NOON))
    service.denied["Seek"] = (grpc.StatusCode.PERMISSION_DENIED, "not yet")
    assert len(rejected(source)) == 2
    service.denied.clear()
    assert plan(source).state["seek_done"] is True
    assert service.sought == {ORDERS.resource_path: NOON, RETURNS.resource_path: NOON}


@pytest.mark.feature("SRC-31")
def test_state_of_a_later_version_fails_before_any_call(service: Service) -> None:
    with pytest.raises(PubSubConnectorError, match="has version 2"):
        plan(spec(service), {"version": 2, "seek_done": True})
    assert service.calls_made == []


@pytest.mark.feature("SRC-21")
def test_a_backwards_seek_without_retention_is_warned_of_in_the_log(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    week = wire.Subscription().topic_message_retention_duration
    week.FromTimedelta(timedelta(days=7))
    service.add(ORDERS)
    service.add(RETURNS, topic_message_retention_duration=week)
    source = spec(service, start=StartPosition.earliest_retained())
    with caplog.at_level(logging.WARNING):
        plan(source)
        plan(source, DONE)
    [warning] = [record.getMessage() for record in caplog.records]
    assert warning.startswith(f"subscription {ORDERS.resource_path} retains no acknowledged messages")
