"""Creation settings, dead-letter policies and start positions: limits, contradictions, and what the builder makes of them."""

from __future__ import annotations

import json
import pickle
from dataclasses import FrozenInstanceError, replace
from datetime import date, datetime, timedelta, timezone
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flink_pubsub import (
    ConfigurationError,
    DeadLetterPolicy,
    DeserializationFailurePolicy,
    OrderingMode,
    PubSubDeserializationSchema,
    PubSubSource,
    PubSubSubscriberOptions,
    StartPosition,
    SubscriptionCreateOptions,
    SubscriptionDestination,
    TopicDestination,
)
from flink_pubsub.options import declared
from flink_pubsub.source import PubSubSourceBuilder, SourceSpec
from flink_pubsub.subscription_options import StartMode

ORDERS = SubscriptionDestination("my-project", "orders")
RETURNS = SubscriptionDestination("my-project", "returns")
TOPIC = TopicDestination("my-project", "all-orders")
POLICY = DeadLetterPolicy(topic=TopicDestination("my-project", "dead-letters"))
NOON = datetime(2024, 5, 1, 12, tzinfo=timezone.utc)
DAY = timedelta(days=1)


def options(**settings: Any) -> SubscriptionCreateOptions:
    return SubscriptionCreateOptions(topic=TOPIC, **settings)


def builder() -> PubSubSourceBuilder:
    return PubSubSource.builder().deserializer(PubSubDeserializationSchema.payload(json.loads))


def spec(source: PubSubSource) -> SourceSpec:
    return source._spec


@pytest.mark.feature("SRC-20")
def test_creation_settings_leave_everything_but_the_topic_to_the_service() -> None:
    made = options()
    assert made.topic == TOPIC
    assert (made.ack_deadline, made.message_retention, made.expiration_ttl, made.filter) == (None, None, None, None)
    assert (made.enable_message_ordering, made.retain_acked_messages, made.never_expire) == (False, False, False)
    assert made.dead_letter_policy is None
    assert DeadLetterPolicy(topic=TOPIC).max_delivery_attempts == 5


@pytest.mark.feature("VAL-02")
def test_creation_settings_are_immutable_equal_by_value_and_picklable() -> None:
    made = options(ack_deadline=timedelta(seconds=20), dead_letter_policy=POLICY, filter="attributes:a")
    assert made == options(ack_deadline=timedelta(seconds=20), dead_letter_policy=POLICY, filter="attributes:a")
    assert hash(made) == hash(replace(made))
    assert made != replace(made, filter=None)
    assert pickle.loads(pickle.dumps(made)) == made
    for value, name in [(made, "topic"), (made, "filter"), (POLICY, "max_delivery_attempts"), (StartPosition.latest(), "mode")]:
        with pytest.raises(FrozenInstanceError):
            setattr(value, name, None)
    assert made.filter == "attributes:a"


@pytest.mark.feature("VAL-02")
@pytest.mark.feature("SRC-20")
@pytest.mark.parametrize("wrong", [None, "projects/my-project/topics/all-orders", ORDERS, TopicDestination])
def test_a_topic_is_a_topic_destination(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="topic must be a TopicDestination"):
        SubscriptionCreateOptions(topic=wrong)
    with pytest.raises(ConfigurationError, match="topic must be a TopicDestination"):
        DeadLetterPolicy(topic=wrong)
    unchecked: Any = SubscriptionCreateOptions
    with pytest.raises(TypeError, match="topic"):
        unchecked()


@pytest.mark.feature("VAL-03")
@pytest.mark.feature("SRC-20")
@pytest.mark.parametrize(
    ("name", "good", "bad", "text"),
    [
        ("ack_deadline", [10, 600], [9, 601, 9.5], "must be between 10 and 600 seconds"),
        ("ack_deadline", [], [10.5, 599.999999], "must be whole seconds"),
        ("message_retention", [600, 31 * 86_400], [599, 31 * 86_400 + 1], "must be between 0:10:00 and 31 days, 0:00:00"),
        ("expiration_ttl", [86_400, 400 * 86_400], [86_399], "must be at least 1 day, 0:00:00"),
    ],
)
def test_a_duration_outside_the_services_range_is_refused(name: str, good: list[float], bad: list[float], text: str) -> None:
    for seconds in good:
        assert getattr(options(**{name: timedelta(seconds=seconds)}), name) == timedelta(seconds=seconds)
    for seconds in bad:
        with pytest.raises(ConfigurationError, match=f"{name} {text}") as caught:
            options(**{name: timedelta(seconds=seconds)})
        assert str(timedelta(seconds=seconds)) in str(caught.value)


@pytest.mark.feature("VAL-02")
@pytest.mark.parametrize("name", ["ack_deadline", "message_retention", "expiration_ttl"])
@pytest.mark.parametrize("wrong", [60, "60s", timedelta(0), -DAY])
def test_a_setting_that_is_no_positive_duration_is_refused(name: str, wrong: object) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} must"):
        options(**{name: wrong})


@pytest.mark.feature("VAL-02")
@pytest.mark.parametrize("name", ["enable_message_ordering", "retain_acked_messages", "never_expire"])
@pytest.mark.parametrize("wrong", [1, 0, "true"])
def test_a_switch_is_true_or_false(name: str, wrong: object) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} must be True or False"):
        options(**{name: wrong})


@pytest.mark.feature("VAL-03")
@pytest.mark.feature("SRC-20")
def test_a_filter_has_at_most_256_bytes_in_utf_8() -> None:
    assert options(filter="x" * 256).filter == "x" * 256
    with pytest.raises(ConfigurationError, match="filter must have at most 256 bytes in UTF-8, not 257"):
        options(filter="ä" * 128 + "x")
    for wrong in ("", "  ", b"attributes:a", 5):
        with pytest.raises(ConfigurationError, match="filter must be text that is not empty"):
            options(filter=wrong)
    with pytest.raises(ConfigurationError, match="filter must be text that UTF-8 can hold"):
        options(filter="\ud800")


@pytest.mark.feature("VAL-03")
@pytest.mark.feature("SRC-20")
def test_a_subscription_cannot_both_expire_and_never_expire() -> None:
    with pytest.raises(ConfigurationError, match="expiration_ttl cannot be combined with never_expire"):
        options(never_expire=True, expiration_ttl=DAY)
    assert options(never_expire=False, expiration_ttl=DAY).expiration_ttl == DAY


@pytest.mark.feature("VAL-03")
@pytest.mark.feature("SRC-20")
@pytest.mark.parametrize("wrong", [0, 4, 101, 5.0, "5", True])
def test_delivery_attempts_are_5_to_100(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="max_delivery_attempts must be an int between 5 and 100"):
        DeadLetterPolicy(topic=TOPIC, max_delivery_attempts=wrong)
    assert DeadLetterPolicy(topic=TOPIC, max_delivery_attempts=100).max_delivery_attempts == 100


@pytest.mark.feature("VAL-03")
@pytest.mark.feature("SRC-20")
def test_dead_letters_do_not_go_back_to_the_topic_they_came_from() -> None:
    with pytest.raises(ConfigurationError, match="dead_letter_policy must not forward to the topic that is subscribed to"):
        options(dead_letter_policy=DeadLetterPolicy(topic=TOPIC))
    with pytest.raises(ConfigurationError, match="dead_letter_policy must be a DeadLetterPolicy"):
        options(dead_letter_policy=TOPIC)


def test_every_sql_key_of_creation_settings_is_unique() -> None:
    keys = [option.sql for kind in (SubscriptionCreateOptions, DeadLetterPolicy) for option in declared(kind).values()]
    assert len(set(keys)) == len(keys)
    assert all(key.startswith("scan.auto-create.") for key in keys)


@pytest.mark.feature("SRC-21")
def test_start_positions_are_equal_by_value_and_picklable() -> None:
    positions = [
        StartPosition.continue_from_subscription(),
        StartPosition.earliest_retained(),
        StartPosition.latest(),
        StartPosition.from_timestamp(NOON),
    ]
    assert len(set(positions)) == 4
    assert [pickle.loads(pickle.dumps(position)) for position in positions] == positions
    assert {mode.value for mode in StartMode} == {"continue-from-subscription", "earliest-retained", "latest", "timestamp"}


@pytest.mark.feature("SRC-21")
def test_a_timestamp_is_a_datetime_in_any_zone_or_milliseconds() -> None:
    by_datetime = StartPosition.from_timestamp(datetime(2024, 5, 1, 14, tzinfo=timezone(timedelta(hours=2))))
    assert by_datetime == StartPosition.from_timestamp(NOON)
    assert by_datetime == StartPosition.from_timestamp(1_714_564_800_000)
    assert StartPosition.from_timestamp(0).timestamp == datetime(1970, 1, 1, tzinfo=timezone.utc)


@pytest.mark.feature("SRC-21")
@given(st.integers(0, 253_402_300_799_999))
def test_every_millisecond_is_kept_exactly(milliseconds: int) -> None:
    timestamp = StartPosition.from_timestamp(milliseconds).timestamp
    assert timestamp is not None
    assert (timestamp - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(milliseconds=1) == milliseconds


@pytest.mark.feature("VAL-02")
@pytest.mark.feature("SRC-21")
@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (datetime(2024, 5, 1), "needs a time zone"),
        (datetime(1969, 12, 31, 23, 59, tzinfo=timezone.utc), "must not lie before 1970"),
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5))), "must not lie outside the years"),
        (-1, "must be 0 or more milliseconds since 1970"),
        (253_402_300_800_000, "must be 0 or more milliseconds since 1970"),
        (True, "must be a datetime"),
        (1.5, "must be a datetime"),
        ("2024-05-01", "must be a datetime"),
        (date(2024, 5, 1), "must be a datetime"),
        (None, "must be a datetime"),
    ],
)
def test_a_timestamp_of_doubtful_meaning_is_refused(wrong: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"timestamp {text}"):
        StartPosition.from_timestamp(wrong)


@pytest.mark.feature("VAL-03")
@pytest.mark.feature("SRC-21")
def test_a_timestamp_comes_with_and_only_with_the_timestamp_mode() -> None:
    assert StartPosition(mode=StartMode.TIMESTAMP, timestamp=NOON) == StartPosition.from_timestamp(NOON)
    with pytest.raises(ConfigurationError, match="timestamp is missing"):
        StartPosition(mode=StartMode.TIMESTAMP)
    for mode in set(StartMode) - {StartMode.TIMESTAMP}:
        with pytest.raises(ConfigurationError, match=f"timestamp goes with StartMode.TIMESTAMP only, not with {mode}"):
            StartPosition(mode=mode, timestamp=NOON)
    wrong: Any = "latest"
    with pytest.raises(ConfigurationError, match="mode must be a StartMode"):
        StartPosition(mode=wrong)


@pytest.mark.feature("SRC-01")
@pytest.mark.feature("SRC-20")
def test_subscriptions_with_and_without_creation_settings_mix() -> None:
    made = options(retain_acked_messages=True)
    built = spec(builder().subscription(ORDERS, made).subscriptions(RETURNS).build())
    assert built.subscriptions == (ORDERS, RETURNS)
    assert built.create_options == {ORDERS: made}
    assert spec(builder().subscription(ORDERS).build()).create_options == {}
    assert pickle.loads(pickle.dumps(built)).create_options == {ORDERS: made}


@pytest.mark.feature("SRC-01")
@pytest.mark.feature("VAL-04")
def test_a_subscription_named_twice_is_refused_with_creation_settings_too() -> None:
    with pytest.raises(ConfigurationError, match="must not name a subscription twice"):
        builder().subscription(ORDERS, options()).subscription(ORDERS).build()


@pytest.mark.feature("SRC-21")
@pytest.mark.feature("SRC-24")
def test_what_is_not_said_continues_and_fails() -> None:
    built = spec(builder().subscription(ORDERS).build())
    assert built.start_position == StartPosition.continue_from_subscription()
    assert built.deserialization_failure_policy is DeserializationFailurePolicy.FAIL
    told = builder().subscription(ORDERS).start_position(StartPosition.latest())
    told.deserialization_failure_policy(DeserializationFailurePolicy.DROP)
    assert spec(told.build()).start_position == StartPosition.latest()
    assert spec(told.build()).deserialization_failure_policy is DeserializationFailurePolicy.DROP


@pytest.mark.feature("VAL-04")
@pytest.mark.parametrize(
    ("setter", "wrong", "text"),
    [
        ("subscription", "orders", "subscription must be a SubscriptionDestination"),
        ("subscription", TOPIC, "subscription must be a SubscriptionDestination"),
        ("start_position", StartMode.LATEST, "start_position must be a StartPosition"),
        ("start_position", "latest", "start_position must be a StartPosition"),
        ("start_position", StartPosition.latest, "start_position must be a StartPosition"),
        ("deserialization_failure_policy", "fail", "deserialization_failure_policy must be a DeserializationFailurePolicy"),
        ("deserialization_failure_policy", None, "deserialization_failure_policy must be a DeserializationFailurePolicy"),
    ],
)
def test_a_setter_refuses_the_wrong_kind_of_value(setter: str, wrong: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        getattr(builder(), setter)(wrong)


@pytest.mark.feature("VAL-04")
@pytest.mark.parametrize("wrong", [TOPIC, {"topic": TOPIC}, SubscriptionCreateOptions, PubSubSubscriberOptions()])
def test_creation_settings_are_subscription_create_options(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="create_options must be a SubscriptionCreateOptions"):
        builder().subscription(ORDERS, wrong)


@pytest.mark.feature("VAL-04")
@pytest.mark.feature("SRC-20")
@pytest.mark.feature("SRC-24")
@pytest.mark.parametrize(
    ("setting", "unsuitable", "suitable", "text"),
    [
        (
            lambda each: each.ordering_mode(OrderingMode.PER_KEY),
            options(dead_letter_policy=POLICY),
            options(enable_message_ordering=True),
            "enable_message_ordering must be True in the create_options of projects/my-project/subscriptions/orders",
        ),
        (
            lambda each: each.deserialization_failure_policy(DeserializationFailurePolicy.NACK),
            options(enable_message_ordering=True),
            options(dead_letter_policy=POLICY),
            "dead_letter_policy is missing in the create_options of projects/my-project/subscriptions/orders",
        ),
    ],
)
def test_creation_settings_that_the_startup_check_would_reject_are_refused_in_any_order_of_calls(
    setting: Any, unsuitable: SubscriptionCreateOptions, suitable: SubscriptionCreateOptions, text: str
) -> None:
    for create_options, refused in ((unsuitable, True), (suitable, False), (None, False)):
        calls = [setting, lambda each: each.subscriptions(RETURNS), lambda each, o=create_options: each.subscription(ORDERS, o)]
        for order in permutations(calls):
            made = builder()
            for call in order:
                call(made)
            if refused:
                with pytest.raises(ConfigurationError, match=text):
                    made.build()
            else:
                assert made.build()
