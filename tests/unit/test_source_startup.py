"""The startup check's rules, and what a source remembers of it."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from flink_pubsub.core.planner_state import VERSION, PlannerState
from flink_pubsub.core.startup import (
    Refused,
    SubscriptionFacts,
    not_created,
    not_described,
    not_sought,
    rejections,
    seek_time,
    warnings,
)
from flink_pubsub.destinations import SubscriptionDestination, TopicDestination
from flink_pubsub.errors import PubSubConnectorError
from flink_pubsub.options import DeserializationFailurePolicy, OrderingMode
from flink_pubsub.subscription_options import DeadLetterPolicy, StartPosition, SubscriptionCreateOptions

NONE, PER_KEY = OrderingMode.NONE, OrderingMode.PER_KEY
FAIL, DROP, NACK = DeserializationFailurePolicy.FAIL, DeserializationFailurePolicy.DROP, DeserializationFailurePolicy.NACK
ORDERS = SubscriptionDestination("project", "orders")
TOPIC = TopicDestination("project", "all-orders")
NOON = datetime(2024, 5, 1, 12, tzinfo=timezone.utc)
DAY = timedelta(days=1)


def facts(name: str = "orders", **settings: Any) -> SubscriptionFacts:
    return SubscriptionFacts(**{"path": f"projects/project/subscriptions/{name}", "topic": f"{name}-topic", **settings})


@pytest.mark.feature("SRC-19")
@pytest.mark.parametrize(
    ("subscription", "mode", "policy", "option", "mend"),
    [
        (facts(), PER_KEY, FAIL, "OrderingMode.PER_KEY", "enable_message_ordering"),
        (facts(), NONE, NACK, "DeserializationFailurePolicy.NACK", "give it a dead_letter_policy"),
        (facts(exactly_once=True), NONE, FAIL, "exactly-once", "turn enable_exactly_once_delivery off"),
        (facts(pushed=True), NONE, FAIL, "pushes to an endpoint", "remove its push_config"),
        (facts(detached=True), NONE, FAIL, "detached from its topic", "name another one in subscriptions"),
    ],
)
def test_a_rejection_names_the_subscription_the_option_and_the_mend(
    subscription: SubscriptionFacts, mode: OrderingMode, policy: DeserializationFailurePolicy, option: str, mend: str
) -> None:
    [rejection] = rejections(subscription, mode, policy)
    assert "projects/project/subscriptions/orders" in rejection
    assert option in rejection
    assert mend in rejection


@pytest.mark.feature("SRC-19")
@pytest.mark.parametrize(
    ("subscription", "mode", "policy"),
    [
        (facts(), NONE, FAIL),
        (facts(), NONE, DROP),
        (facts(ordered=True), NONE, FAIL),
        (facts(ordered=True), PER_KEY, DROP),
        (facts(dead_letters=True), NONE, NACK),
        (facts(ordered=True, dead_letters=True), PER_KEY, NACK),
    ],
)
def test_a_subscription_that_has_what_the_settings_need_is_accepted(
    subscription: SubscriptionFacts, mode: OrderingMode, policy: DeserializationFailurePolicy
) -> None:
    assert rejections(subscription, mode, policy) == []


@pytest.mark.feature("SRC-19")
def test_everything_wrong_with_a_subscription_is_told_at_once() -> None:
    assert len(rejections(facts(exactly_once=True, pushed=True), PER_KEY, NACK)) == 4
    assert len(rejections(facts(exactly_once=True, detached=True), PER_KEY, NACK)) == 1


@pytest.mark.feature("SRC-19")
def test_a_refused_call_names_the_permission_that_is_missing() -> None:
    denied = Refused("PERMISSION_DENIED", "User not authorized")
    options = SubscriptionCreateOptions(topic=TOPIC)
    assert "pubsub.subscriptions.get" in not_described(ORDERS, denied)
    created = not_created(ORDERS, options, denied)
    assert "pubsub.subscriptions.create on project project" in created
    assert "pubsub.topics.attachSubscription on projects/project/topics/all-orders" in created
    assert "pubsub.subscriptions.consume" in not_sought(ORDERS, StartPosition.latest(), denied)
    for problem in (not_described(ORDERS, denied), created, not_sought(ORDERS, StartPosition.latest(), denied)):
        assert ORDERS.resource_path in problem
        assert "User not authorized" in problem


@pytest.mark.feature("SRC-19")
@pytest.mark.feature("SRC-20")
def test_a_refused_call_names_the_mend() -> None:
    missing = Refused("NOT_FOUND", "Resource not found (resource=all-orders).")
    options = SubscriptionCreateOptions(topic=TOPIC)
    with_dead_letters = SubscriptionCreateOptions(topic=TOPIC, dead_letter_policy=DeadLetterPolicy(topic=other_topic()))
    assert "let the source create it" in not_described(ORDERS, missing)
    assert "create projects/project/topics/all-orders, or correct" in not_created(ORDERS, options, missing)
    assert "the topic of its dead_letter_policy" in not_created(ORDERS, with_dead_letters, missing)
    assert "correct its create_options" in not_created(ORDERS, options, Refused("INVALID_ARGUMENT", "Bad filter"))
    assert "credentials" in not_described(ORDERS, Refused("UNAUTHENTICATED", ""))
    assert not_described(ORDERS, Refused("INTERNAL", "")).endswith("cannot be described (INTERNAL)")


def other_topic() -> TopicDestination:
    return TopicDestination("project", "dead-letters")


@pytest.mark.feature("SRC-21")
def test_each_start_position_seeks_to_its_time_and_the_default_seeks_nothing() -> None:
    assert seek_time(StartPosition.continue_from_subscription(), NOON) is None
    assert seek_time(StartPosition.latest(), NOON) == NOON
    assert seek_time(StartPosition.from_timestamp(NOON - DAY), NOON + DAY) == NOON - DAY
    earliest = seek_time(StartPosition.earliest_retained(), NOON)
    assert earliest is not None
    assert earliest < NOON - timedelta(days=31)


@pytest.mark.feature("SRC-21")
@pytest.mark.parametrize(
    ("retention", "target", "warned"),
    [
        ({}, NOON - DAY, True),
        ({"retains_acked": True}, NOON - DAY, False),
        ({"topic_retains": True}, NOON - DAY, False),
        ({}, NOON, False),
        ({}, None, False),
    ],
)
def test_a_backwards_seek_without_retention_is_warned_of(
    retention: dict[str, Any], target: datetime | None, warned: bool
) -> None:
    found = warnings([facts(**retention), facts("returns", retains_acked=True)], target, NOON)
    assert len(found) == warned
    assert all("projects/project/subscriptions/orders retains no acknowledged messages" in text for text in found)


@pytest.mark.feature("SRC-21")
def test_a_start_in_the_future_is_warned_of() -> None:
    [warning] = warnings([facts()], NOON + DAY, NOON)
    assert "2024-05-02T12:00:00+00:00 lies in the future" in warning


@pytest.mark.feature("SRC-19")
def test_two_unfiltered_subscriptions_of_one_topic_and_a_deleted_topic_are_warned_of() -> None:
    same = [facts("a", topic="t"), facts("b", topic="t"), facts("c", topic="t", filtered=True), facts("d", topic="other")]
    [warning] = warnings(same, None, NOON)
    assert warning.startswith(
        "projects/project/subscriptions/a and projects/project/subscriptions/b subscribe to the same topic, t"
    )
    deleted = warnings([facts("a", topic="_deleted-topic_"), facts("b", topic="_deleted-topic_")], None, NOON)
    assert ["was deleted" in warning for warning in deleted] == [True, True]


@pytest.mark.feature("SRC-31")
@pytest.mark.parametrize("version", range(1, VERSION + 1))
def test_the_stored_sample_of_every_version_is_read(version: int) -> None:
    sample = json.loads((Path(__file__).parent / "planner_states" / f"v{version}.json").read_text())
    assert sample["version"] == version
    state = PlannerState.restore(sample)
    assert state.seek_done
    assert state.subscriptions == ("projects/project/subscriptions/orders", "projects/project/subscriptions/returns")


@pytest.mark.feature("SRC-31")
def test_the_state_as_written_now_is_the_sample_of_its_version() -> None:
    sample = json.loads((Path(__file__).parent / "planner_states" / f"v{VERSION}.json").read_text())
    assert PlannerState.restore(sample).as_json() == sample


@pytest.mark.feature("SRC-31")
def test_no_state_means_that_nothing_was_sought() -> None:
    assert PlannerState.restore(None) == PlannerState(seek_done=False)
    assert PlannerState.restore({"version": 1, "seek_done": False}) == PlannerState(seek_done=False)


@pytest.mark.feature("SRC-31")
def test_a_later_version_is_refused_rather_than_sought_again() -> None:
    with pytest.raises(PubSubConnectorError, match=f"has version {VERSION + 1}, and this flink-pubsub knows versions up to"):
        PlannerState.restore({"version": VERSION + 1, "seek_done": True})


@pytest.mark.feature("SRC-31")
@pytest.mark.parametrize(
    "state", [{}, [], "odd", 1, True, {"version": 1}, {"version": 1, "seek_done": 1}, {"version": "1", "seek_done": True}]
)
def test_state_of_something_else_is_refused(state: object) -> None:
    with pytest.raises(PubSubConnectorError, match="was not written by flink-pubsub"):
        PlannerState.restore(state)


@pytest.mark.feature("SRC-31")
def test_subscriptions_that_were_added_are_told_from_those_that_were_there() -> None:
    assert PlannerState(True, ("a", "b")).added(["b", "c", "d"]) == ["c", "d"]
    assert PlannerState(True).added(["a"]) == []
