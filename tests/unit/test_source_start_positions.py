"""The planner's seeks: where, once, and never in a restored job."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import datetime, timedelta

import grpc
import pytest

from flink_pubsub.core.planner_state import PlannerState
from flink_pubsub.destinations import SubscriptionDestination
from flink_pubsub.errors import PubSubConnectorError, StartupCheckError
from flink_pubsub.options import OrderingMode
from flink_pubsub.subscription_options import StartPosition
from flink_pubsub.wire import pubsub_pb2 as wire
from flink_pubsub.worker import planner
from tests.unit.planner_support import NOON, OPTIONS, ORDERS, RETURNS, Service, plan, rejected, spec
from tests.unit.source_support import FakeContext

DONE = PlannerState(True, (ORDERS.resource_path, RETURNS.resource_path)).as_json()


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    with service:
        yield service


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
    made = plan(spec(service.endpoint, create={ORDERS: OPTIONS}, start=start))
    assert made.state["seek_done"] is True
    assert service.sought == {ORDERS.resource_path: target, RETURNS.resource_path: target}
    assert sorted(service.methods()[-2:]) == ["Seek", "Seek"]
    assert service.methods().count("Seek") == 2


@pytest.mark.feature("SRC-21")
@pytest.mark.feature("SRC-31")
def test_latest_is_pinned_when_the_check_starts(service: Service) -> None:
    service.add(ORDERS)
    times = iter([NOON])  # a second look at the clock would fail
    planner.plan(spec(service.endpoint, ORDERS, start=StartPosition.latest()), FakeContext(), None, lambda: next(times))
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
        made = plan(spec(service.endpoint, RETURNS, added, start=StartPosition.latest()), DONE, parallelism)
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
    assert plan(spec(service.endpoint, create={ORDERS: OPTIONS}), DONE).splits
    assert ORDERS.resource_path in service.subscriptions
    with pytest.raises(StartupCheckError, match=r"OrderingMode\.PER_KEY"):
        plan(spec(service.endpoint, mode=OrderingMode.PER_KEY), DONE)


@pytest.mark.feature("SRC-31")
def test_state_from_before_the_end_of_the_check_lets_the_restored_job_seek(service: Service) -> None:
    service.add(ORDERS)
    before = PlannerState(seek_done=False).as_json()
    assert plan(spec(service.endpoint, ORDERS, start=StartPosition.latest()), before).state["seek_done"] is True
    assert service.sought == {ORDERS.resource_path: NOON}


@pytest.mark.feature("SRC-21")
def test_a_failed_seek_can_be_repeated_by_the_next_start(service: Service) -> None:
    service.add(ORDERS)
    service.add(RETURNS)
    source = spec(service.endpoint, start=StartPosition.from_timestamp(NOON))
    service.denied["Seek"] = (grpc.StatusCode.PERMISSION_DENIED, "not yet")
    assert len(rejected(source)) == 2
    service.denied.clear()
    assert plan(source).state["seek_done"] is True
    assert service.sought == {ORDERS.resource_path: NOON, RETURNS.resource_path: NOON}


@pytest.mark.feature("SRC-31")
def test_state_of_a_later_version_fails_before_any_call(service: Service) -> None:
    with pytest.raises(PubSubConnectorError, match="has version 2"):
        plan(spec(service.endpoint), {"version": 2, "seek_done": True})
    assert service.calls_made == []


@pytest.mark.feature("SRC-21")
def test_a_backwards_seek_without_retention_is_warned_of_in_the_log(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    week = wire.Subscription().topic_message_retention_duration
    week.FromTimedelta(timedelta(days=7))
    service.add(ORDERS)
    service.add(RETURNS, topic_message_retention_duration=week)
    source = spec(service.endpoint, start=StartPosition.earliest_retained())
    with caplog.at_level(logging.WARNING):
        plan(source)
        plan(source, DONE)
    [warning] = [record.getMessage() for record in caplog.records]
    assert warning.startswith(f"subscription {ORDERS.resource_path} retains no acknowledged messages")


@pytest.mark.feature("SRC-21")
def test_a_seek_is_logged_with_its_time_and_a_restored_job_logs_none(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    service.add(ORDERS)
    service.add(RETURNS)
    source = spec(service.endpoint, start=StartPosition.latest())
    with caplog.at_level(logging.INFO):
        plan(source, DONE)
        assert not caplog.messages
        plan(source)
    assert caplog.messages == ["sought 2 subscriptions to 2024-05-01T12:00:00+00:00"]
