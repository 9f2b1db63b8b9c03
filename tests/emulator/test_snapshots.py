"""Snapshots, on the state machine alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp
from grpc import StatusCode

from flink_pubsub.emulator.errors import ServiceError
from flink_pubsub.wire import pubsub_pb2 as wire
from tests.emulator.subscriptions import SUBSCRIPTION, TOPIC, Bench

pytestmark = pytest.mark.feature("BEY-07")

DAY = 86_400
NAME = "projects/p/snapshots/before"


def code_of(call: Callable[[], object]) -> StatusCode:
    with pytest.raises(ServiceError) as refusal:
        call()
    return refusal.value.code


def test_a_seek_to_a_snapshot_brings_back_the_backlog_of_then_and_all_that_came_since() -> None:
    bench = Bench()
    consumer = bench.consumer()
    bench.publish("acked", "held", "waiting")
    ids = bench.take(consumer, 2)
    bench.ack(ids["acked"])
    bench.snapshot("before")
    bench.publish("later")
    bench.ack(ids["held"], *bench.take(consumer).values())
    assert bench.waiting() == []
    for _ in range(2):
        bench.seek_to("before")
        assert bench.waiting() == ["held", "waiting", "later"]
    counts = bench.subscription.counts()
    assert counts.received == counts.backlog + counts.acked
    assert counts.acked == 4


def test_it_keeps_messages_beyond_the_subscription_s_retention_until_it_expires() -> None:
    bench = Bench(message_retention_duration=Duration(seconds=600), expiration_policy=wire.ExpirationPolicy())
    bench.publish("a")
    bench.snapshot("before")
    bench.pass_time(3600)
    assert bench.waiting() == []
    assert bench.subscription.counts().dropped == 1
    bench.seek_to("before")
    assert bench.waiting() == ["a"]
    bench.pass_time(7 * DAY - 3600 - 1)
    assert bench.waiting() == ["a"]
    bench.pass_time(1)
    assert bench.waiting() == []
    assert code_of(lambda: bench.seek_to("before")) is StatusCode.NOT_FOUND


def test_another_subscription_of_the_topic_can_seek_to_it_and_keeps_its_filter() -> None:
    bench = Bench()
    bench.publish("a", keep="")
    bench.publish("b")
    bench.snapshot("before")
    other = bench.create_subscription("projects/p/subscriptions/other", filter="attributes:keep")
    bench.seek_to("before", other.settings.name)
    assert bench.waiting(other) == ["a"]
    assert other.counts().received == 1


def test_a_subscription_of_another_topic_cannot() -> None:
    bench = Bench()
    bench.snapshot("before")
    bench.service.create_topic(wire.Topic(name="projects/p/topics/other"), bench.now)
    bench.create_subscription("projects/p/subscriptions/other", "projects/p/topics/other")
    assert code_of(lambda: bench.seek_to("before", "projects/p/subscriptions/other")) is StatusCode.FAILED_PRECONDITION
    bench.service.delete_topic(wire.DeleteTopicRequest(topic=TOPIC), bench.now)
    bench.service.create_topic(wire.Topic(name=TOPIC), bench.now)
    again = bench.create_subscription("projects/p/subscriptions/again")
    assert code_of(lambda: bench.seek_to("before", again.settings.name)) is StatusCode.FAILED_PRECONDITION


def test_its_life_ends_seven_days_after_its_oldest_message_was_published() -> None:
    bench = Bench()
    bench.publish("a")
    bench.pass_time(2 * DAY)
    assert bench.snapshot("before").expire_time.seconds == 7 * DAY
    bench.pass_time(5 * DAY - 3601)
    bench.snapshot("young-enough")
    bench.pass_time(2)
    assert code_of(lambda: bench.snapshot("too-old")) is StatusCode.FAILED_PRECONDITION


def test_it_can_be_read_listed_changed_and_deleted() -> None:
    bench = Bench()
    snapshots = bench.service.snapshots
    made = bench.snapshot("before")
    bench.snapshot("other")
    assert (made.name, made.topic) == (NAME, TOPIC)
    assert code_of(lambda: bench.snapshot("before")) is StatusCode.ALREADY_EXISTS
    assert code_of(lambda: bench.snapshot("ab")) is StatusCode.INVALID_ARGUMENT
    listed = snapshots.list(wire.ListSnapshotsRequest(project="projects/p", page_size=1), 0)
    assert [s.name for s in listed.snapshots] == [NAME]
    of_topic = snapshots.list_of_topic(wire.ListTopicSnapshotsRequest(topic=TOPIC, page_token=listed.next_page_token), 0)
    assert list(of_topic.snapshots) == ["projects/p/snapshots/other"]
    changes = wire.Snapshot(name=NAME, labels={"a": "1"}, expire_time=Timestamp(seconds=50), topic="t")
    mask = FieldMask(paths=["labels", "expire_time"])
    changed = snapshots.update(wire.UpdateSnapshotRequest(snapshot=changes, update_mask=mask), 0)
    assert (dict(changed.labels), changed.expire_time.seconds, changed.topic) == ({"a": "1"}, 50, TOPIC)
    changes.expire_time.seconds = 8 * DAY
    request = wire.UpdateSnapshotRequest(snapshot=changes, update_mask=mask)
    assert code_of(lambda: snapshots.update(request, 0)) is StatusCode.INVALID_ARGUMENT
    request.update_mask.paths.append("topic")
    assert code_of(lambda: snapshots.update(request, 0)) is StatusCode.INVALID_ARGUMENT
    snapshots.delete(wire.DeleteSnapshotRequest(snapshot="projects/p/snapshots/other"), 0)
    bench.pass_time(50)
    assert not snapshots.list(wire.ListSnapshotsRequest(project="projects/p"), 0).snapshots
    assert not bench.service.topic(TOPIC).snapshots


def test_it_outlives_its_subscription_and_topic() -> None:
    bench = Bench()
    bench.publish("a")
    bench.snapshot("before")
    other = bench.create_subscription("projects/p/subscriptions/other")
    bench.service.delete_subscription(wire.DeleteSubscriptionRequest(subscription=SUBSCRIPTION), bench.now)
    bench.service.delete_topic(wire.DeleteTopicRequest(topic=TOPIC), bench.now)
    assert bench.service.snapshots.get(wire.GetSnapshotRequest(snapshot=NAME), 0).topic == "_deleted-topic_"
    bench.seek_to("before", other.settings.name)
    assert bench.waiting(other) == ["a"]
    bench.pass_time(7 * DAY)
    assert code_of(lambda: bench.seek_to("before", other.settings.name)) is StatusCode.NOT_FOUND
