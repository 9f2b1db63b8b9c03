"""Seeking, and what is retained to be sought: on the state machine alone."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from flink_pubsub.emulator.errors import ServiceError
from flink_pubsub.wire import pubsub_pb2 as wire
from tests.emulator.subscriptions import SUBSCRIPTION, TOPIC, Bench

pytestmark = pytest.mark.feature("BEY-07")

HOUR = Duration(seconds=3600)
RETAINING: dict[str, Any] = {"message_retention_duration": HOUR, "retain_acked_messages": True}


def test_what_was_published_before_is_acked_and_what_was_published_after_is_not() -> None:
    bench = Bench(**RETAINING)
    consumer = bench.consumer()
    for n in range(4):
        bench.publish(f"m{n}")
        bench.pass_time(1)
    bench.ack(*bench.take(consumer).values())
    bench.seek(2)
    assert list(bench.take(consumer)) == ["m2", "m3"]
    counts = bench.subscription.counts()
    assert (counts.received, counts.outstanding, counts.acked) == (4, 2, 2)


def test_acked_messages_that_are_not_retained_do_not_come_back() -> None:
    bench = Bench()
    consumer = bench.consumer()
    bench.publish("acked", "held", "waiting")
    bench.ack(bench.take(consumer, 1)["acked"])
    bench.take(consumer, 1)
    bench.seek(0)
    assert list(bench.take(consumer)) == ["held", "waiting"]


def test_a_future_time_purges_what_there_is_and_nothing_that_comes() -> None:
    bench = Bench()
    consumer = bench.consumer()
    bench.publish("a", "b")
    bench.take(consumer, 1)
    bench.seek(3600)
    bench.publish("c")
    assert bench.waiting() == ["c"]
    assert bench.subscription.counts().acked == 2


def test_purged_messages_that_are_retained_can_be_sought_again() -> None:
    bench = Bench(**RETAINING)
    bench.publish("a", "b")
    bench.seek(3600)
    assert bench.waiting() == []
    bench.seek(0)
    assert bench.waiting() == ["a", "b"]


def test_deliveries_before_a_seek_are_void_and_free_their_stream_s_flow_control() -> None:
    bench = Bench(dead_letter=True)
    consumer = bench.consumer(max_messages=2)
    bench.publish("a", "b", "c")
    before = bench.take(consumer)
    assert bench.take(consumer) == {}
    bench.seek(0)
    assert bench.woken == [consumer]
    again = bench.take(consumer)
    assert list(again) == ["a", "b"]
    bench.ack(*before.values())
    bench.nack(*before.values())
    counts = bench.subscription.counts()
    assert (counts.outstanding, counts.late_acks, counts.nacks, counts.acked) == (2, 2, 0, 0)


def test_the_millisecond_decides_that_messages_show() -> None:
    bench = Bench()
    bench.pass_time(1.2345)
    bench.publish("a")
    bench.seek(1.234)
    assert bench.waiting() == ["a"]
    bench.seek(1.2341)
    assert bench.waiting() == []


def test_ordered_messages_come_back_in_order_and_to_any_stream() -> None:
    bench = Bench(ordered=True, **RETAINING)
    first, second = bench.consumer(), bench.consumer()
    bench.publish("a1", "a2", key="a")
    bench.publish("b1", key="b")
    ids = bench.take(first, 2)
    bench.publish("a3", key="a")
    bench.ack(ids["a2"])
    bench.subscription.close(first, bench.now)
    bench.seek(0)
    seen: list[str] = []
    while taken := bench.take(second):
        seen += taken
        bench.ack(*taken.values())
    assert [item for item in seen if item[0] == "a"] == ["a1", "a2", "a3"]
    assert sorted(seen) == ["a1", "a2", "a3", "b1"]


def test_a_message_is_dropped_when_its_retention_is_over() -> None:
    bench = Bench(message_retention_duration=HOUR)
    bench.publish("old")
    bench.pass_time(1800)
    bench.publish("new")
    bench.pass_time(1799.9)
    assert bench.waiting() == ["old", "new"]
    bench.pass_time(0.1)
    assert bench.waiting() == ["new"]
    assert bench.subscription.counts().dropped == 1


@pytest.mark.parametrize("ordered", [False, True])
def test_a_held_message_past_its_retention_can_be_acked_but_does_not_come_again(ordered: bool) -> None:
    bench = Bench(ordered=ordered, message_retention_duration=HOUR)
    consumer = bench.consumer()
    bench.publish("a", "b", "c", key="k")
    ids = bench.take(consumer)
    for _ in range(7):
        bench.extend(600, *ids.values())
        bench.pass_time(599)
    bench.ack(ids["a"])
    bench.nack(ids["b"])
    bench.pass_time(600)
    counts = bench.subscription.counts()
    assert (counts.received, counts.backlog, counts.outstanding, counts.acked, counts.dropped) == (3, 0, 0, 1, 2)
    bench.publish("d", key="k")
    assert list(bench.take(consumer)) == ["d"]


def test_retained_acked_messages_are_gone_after_the_retention() -> None:
    bench = Bench(**RETAINING)
    consumer = bench.consumer()
    bench.publish("a")
    bench.ack(*bench.take(consumer).values())
    bench.pass_time(1800)
    bench.publish("b")
    bench.ack(*bench.take(consumer).values())
    bench.pass_time(1800)
    bench.seek(0)
    assert bench.waiting() == ["b"]


def test_the_topic_s_retention_brings_back_what_was_published_before_the_subscription() -> None:
    bench = Bench(topic={"message_retention_duration": HOUR})
    bench.publish("a")
    bench.pass_time(10)
    bench.publish("b")
    late = bench.create_subscription("projects/p/subscriptions/late")
    bench.publish("c")
    assert late.settings.topic_message_retention_duration == HOUR
    assert bench.waiting(late) == ["c"]
    bench.seek(10, late.settings.name)
    assert bench.waiting(late) == ["b", "c"]
    bench.seek(0, late.settings.name)
    bench.seek(5, late.settings.name)
    assert bench.waiting(late) == ["b", "c"]
    counts = late.counts()
    assert (counts.received, counts.backlog, counts.acked) == (3, 2, 1)


def test_the_topic_s_longer_retention_keeps_the_backlog_too() -> None:
    bench = Bench(topic={"message_retention_duration": Duration(seconds=7200)}, message_retention_duration=HOUR)
    bench.publish("a")
    bench.pass_time(7199)
    assert bench.waiting() == ["a"]
    bench.pass_time(1)
    assert bench.waiting() == []


def test_other_settings_of_retention_take_effect_at_once() -> None:
    bench = Bench()
    consumer = bench.consumer()
    bench.publish("a", "b")
    bench.ack(bench.take(consumer, 1)["a"])
    update = wire.UpdateSubscriptionRequest(subscription=wire.Subscription(name=SUBSCRIPTION, **RETAINING))
    update.update_mask.paths.extend(["retain_acked_messages", "message_retention_duration"])
    bench.service.update_subscription(update, bench.now)
    bench.ack(bench.take(consumer, 1)["b"])
    bench.seek(0)
    assert bench.waiting() == ["b"]
    topic = wire.UpdateTopicRequest(topic=wire.Topic(name=TOPIC, message_retention_duration=Duration(seconds=7200)))
    topic.update_mask.paths.append("message_retention_duration")
    bench.service.update_topic(topic, bench.now)
    assert bench.subscription.settings.topic_message_retention_duration.seconds == 7200
    bench.pass_time(3600)
    assert bench.waiting() == ["b"]
    topic.topic.ClearField("message_retention_duration")
    bench.service.update_topic(topic, bench.now)
    assert bench.waiting() == []
    assert not bench.subscription.settings.HasField("topic_message_retention_duration")


def test_a_deleted_topic_retains_nothing() -> None:
    bench = Bench(topic={"message_retention_duration": HOUR})
    bench.publish("a")
    bench.ack(*bench.take(bench.consumer()).values())
    bench.service.delete_topic(wire.DeleteTopicRequest(topic=TOPIC), bench.now)
    bench.seek(0)
    assert bench.waiting() == []


def test_a_seek_needs_a_target() -> None:
    bench = Bench()
    with pytest.raises(ServiceError, match="No target was specified"):
        bench.service.seek(wire.SeekRequest(subscription=SUBSCRIPTION), bench.now)
