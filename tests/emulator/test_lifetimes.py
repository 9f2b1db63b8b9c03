"""Subscriptions that expire, are detached, or are not for pulling: on the state machine alone."""

from __future__ import annotations

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from grpc import StatusCode

from flink_pubsub.emulator.errors import ServiceError
from flink_pubsub.wire import pubsub_pb2 as wire
from tests.emulator.subscriptions import SUBSCRIPTION, TOPIC, Bench

pytestmark = pytest.mark.feature("BEY-07")

DAY = 86_400
TWO_DAYS = wire.ExpirationPolicy(ttl=Duration(seconds=2 * DAY))


def is_there(bench: Bench) -> bool:
    return SUBSCRIPTION in bench.service.subscriptions


def test_a_subscription_that_nobody_uses_expires() -> None:
    bench = Bench(expiration_policy=TWO_DAYS)
    bench.publish("a")
    bench.pass_time(2 * DAY - 1)
    assert is_there(bench)
    bench.pass_time(1)
    assert not is_there(bench)
    assert not bench.service.topic(TOPIC).subscriptions
    bench.publish("b")


def test_an_open_stream_keeps_a_subscription_and_its_end_starts_the_time_anew() -> None:
    bench = Bench(expiration_policy=TWO_DAYS)
    consumer = bench.consumer()
    for _ in range(3):
        bench.pass_time(2 * DAY)
    bench.pass_time(DAY)
    bench.subscription.close(consumer, bench.now)
    bench.pass_time(2 * DAY - 1)
    assert is_there(bench)
    bench.pass_time(1)
    assert not is_there(bench)


def test_a_change_of_settings_starts_the_time_anew_and_may_end_it() -> None:
    bench = Bench(expiration_policy=TWO_DAYS)
    bench.pass_time(2 * DAY - 1)
    changes = wire.Subscription(name=SUBSCRIPTION, expiration_policy=wire.ExpirationPolicy())
    request = wire.UpdateSubscriptionRequest(subscription=changes, update_mask=FieldMask(paths=["labels"]))
    bench.service.update_subscription(request, bench.now)
    bench.pass_time(2 * DAY - 1)
    assert is_there(bench)
    request.update_mask.paths.append("expiration_policy")
    bench.service.update_subscription(request, bench.now)
    bench.pass_time(1000 * DAY)
    assert is_there(bench)


def test_a_subscription_expires_after_31_days_if_nothing_else_is_said() -> None:
    bench = Bench()
    bench.pass_time(31 * DAY - 1)
    assert is_there(bench)
    bench.pass_time(1)
    assert not is_there(bench)


def test_a_detached_subscription_has_no_messages_and_cannot_be_pulled() -> None:
    bench = Bench(retain_acked_messages=True)
    consumer = bench.consumer()
    bench.publish("a", "b")
    ids = bench.take(consumer, 1)
    bench.service.detach_subscription(wire.DetachSubscriptionRequest(subscription=SUBSCRIPTION), bench.now)
    bench.publish("c")
    assert consumer.end is not None
    assert consumer.end.code is StatusCode.FAILED_PRECONDITION
    bench.ack(*ids.values())
    counts = bench.subscription.counts()
    assert (counts.received, counts.backlog, counts.outstanding, counts.dropped, counts.open_streams) == (2, 0, 0, 2, 0)
    assert bench.subscription.settings.detached
    listed = bench.service.list_topic_subscriptions(wire.ListTopicSubscriptionsRequest(topic=TOPIC), bench.now)
    assert not listed.subscriptions
    for refused in (lambda: bench.consumer(), lambda: bench.seek(0), lambda: bench.snapshot("late")):
        with pytest.raises(ServiceError) as refusal:
            refused()
        assert refusal.value.code is StatusCode.FAILED_PRECONDITION
    bench.service.detach_subscription(wire.DetachSubscriptionRequest(subscription=SUBSCRIPTION), bench.now)
    bench.service.delete_subscription(wire.DeleteSubscriptionRequest(subscription=SUBSCRIPTION), bench.now)
    assert not is_there(bench)


def test_a_push_subscription_is_shown_but_cannot_be_pulled() -> None:
    bench = Bench()
    consumer = bench.consumer()
    changes = wire.Subscription(name=SUBSCRIPTION, push_config=wire.PushConfig(push_endpoint="https://example.com/push"))
    request = wire.UpdateSubscriptionRequest(subscription=changes, update_mask=FieldMask(paths=["push_config"]))
    bench.service.update_subscription(request, bench.now)
    assert consumer.end is not None
    with pytest.raises(ServiceError, match=r"This method is not supported for this subscription type\.") as refusal:
        bench.consumer()
    assert refusal.value.code is StatusCode.FAILED_PRECONDITION
    request.subscription.ClearField("push_config")
    bench.service.update_subscription(request, bench.now)
    bench.publish("a")
    assert list(bench.take(bench.consumer())) == ["a"]


def test_a_mask_may_name_a_part_of_a_setting() -> None:
    bench = Bench(dead_letter=True, labels={"a": "1"})
    policy = wire.DeadLetterPolicy(max_delivery_attempts=7)
    changes = wire.Subscription(name=SUBSCRIPTION, dead_letter_policy=policy)
    request = wire.UpdateSubscriptionRequest(
        subscription=changes, update_mask=FieldMask(paths=["dead_letter_policy.max_delivery_attempts"])
    )
    settings = bench.service.update_subscription(request, bench.now)
    assert settings.dead_letter_policy.max_delivery_attempts == 7
    assert settings.dead_letter_policy.dead_letter_topic == "projects/p/topics/dead-letters"
    assert settings.labels == {"a": "1"}
    request.update_mask.paths[:] = ["dead_letter_policy.nonsense"]
    with pytest.raises(ServiceError, match="names no field"):
        bench.service.update_subscription(request, bench.now)
    request.update_mask.paths[:] = ["labels"]
    assert not bench.service.update_subscription(request, bench.now).labels


def test_a_dead_letter_topic_must_exist_when_it_is_named() -> None:
    bench = Bench()
    missing = wire.DeadLetterPolicy(dead_letter_topic="projects/p/topics/missing")
    changes = wire.Subscription(name=SUBSCRIPTION, dead_letter_policy=missing)
    request = wire.UpdateSubscriptionRequest(subscription=changes, update_mask=FieldMask(paths=["dead_letter_policy"]))
    with pytest.raises(ServiceError, match="missing"):
        bench.service.update_subscription(request, bench.now)
    assert not bench.subscription.settings.HasField("dead_letter_policy")
    with pytest.raises(ServiceError, match="missing"):
        bench.create_subscription("projects/p/subscriptions/other", dead_letter_policy=missing)


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"message_retention_duration": {"seconds": 599}}, StatusCode.INVALID_ARGUMENT),
        ({"message_retention_duration": {"seconds": 31 * DAY + 1}}, StatusCode.INVALID_ARGUMENT),
        ({"expiration_policy": {"ttl": {"seconds": DAY - 1}}}, StatusCode.INVALID_ARGUMENT),
        ({"retry_policy": {"minimum_backoff": {"seconds": 601}}}, StatusCode.INVALID_ARGUMENT),
        (
            {"retry_policy": {"minimum_backoff": {"seconds": 60}, "maximum_backoff": {"seconds": 50}}},
            StatusCode.INVALID_ARGUMENT,
        ),
        ({"dead_letter_policy": {"dead_letter_topic": TOPIC, "max_delivery_attempts": 4}}, StatusCode.OUT_OF_RANGE),
        ({"dead_letter_policy": {"dead_letter_topic": TOPIC, "max_delivery_attempts": 101}}, StatusCode.OUT_OF_RANGE),
        ({"filter": "attributes"}, StatusCode.INVALID_ARGUMENT),
    ],
)
def test_settings_out_of_bounds_are_refused(settings: dict[str, object], code: StatusCode) -> None:
    with pytest.raises(ServiceError) as refusal:
        Bench(**settings)  # type: ignore[arg-type]
    assert refusal.value.code is code


@pytest.mark.parametrize("seconds", [599, 31 * DAY + 1])
def test_a_topic_s_retention_out_of_bounds_is_refused(seconds: int) -> None:
    with pytest.raises(ServiceError, match="message_retention_duration"):
        Bench(topic={"message_retention_duration": {"seconds": seconds}})


def test_an_empty_retry_policy_gets_the_service_s_defaults() -> None:
    policy = Bench(retry_policy={}).subscription.settings.retry_policy
    assert (policy.minimum_backoff.seconds, policy.maximum_backoff.seconds) == (10, 600)


def test_topics_keep_the_settings_they_are_given() -> None:
    storage = {"allowed_persistence_regions": ["europe-west1"], "enforce_in_transit": True}
    key = "projects/p/locations/l/keyRings/r/cryptoKeys/k"
    bench = Bench(topic={"labels": {"a": "1"}, "kms_key_name": key, "message_storage_policy": storage})
    changes = wire.Topic(name=TOPIC, labels={"b": "2"})
    bench.service.update_topic(wire.UpdateTopicRequest(topic=changes, update_mask=FieldMask(paths=["labels"])), 0)
    topic = bench.service.get_topic(wire.GetTopicRequest(topic=TOPIC), 0)
    assert (dict(topic.labels), topic.kms_key_name) == ({"b": "2"}, key)
    assert list(topic.message_storage_policy.allowed_persistence_regions) == ["europe-west1"]
    assert topic.message_storage_policy.enforce_in_transit
