"""Seeking to times and snapshots, and what retention lets come back."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from google.protobuf.empty_pb2 import Empty
from grpc import StatusCode

from flink_pubsub.wire import pubsub_pb2 as wire
from tests.conformance.client import Client, Differs, Stream, data, refused

pytestmark = pytest.mark.feature("BEY-07")

HOUR = {"seconds": 3600}


@pytest.fixture(autouse=True)
def _not_with_pstest(differs: Differs) -> None:
    differs(pstest="has no snapshots, and a seek ends it", waits=True)


def past() -> datetime:
    return datetime.now(timezone.utc) - timedelta(minutes=5)


def acked(client: Client, subscription: str, count: int) -> Stream:
    """A stream that has received so many messages, all acknowledged."""
    stream = client.stream(subscription)
    client.ack(subscription, *(message.ack_id for message in stream.receive(count)))
    return stream


def test_a_seek_to_the_future_acks_everything(client: Client) -> None:
    topic = client.topic()
    subscription = client.subscription(topic)
    client.publish(topic, b"held", b"waiting")
    client.pull(subscription, 1)
    client.seek(subscription, datetime.now(timezone.utc) + timedelta(minutes=5))
    assert client.pull_now(subscription) == []


def test_a_seek_to_the_past_brings_back_acked_messages_that_are_retained(client: Client) -> None:
    topic = client.topic()
    subscription = client.subscription(topic, retain_acked_messages=True, message_retention_duration=HOUR)
    client.publish(topic, b"1", b"2")
    stream = acked(client, subscription, 2)
    client.seek(subscription, past())
    assert sorted(data(stream.receive(2))) == [b"1", b"2"]


def test_acked_messages_that_are_not_retained_stay_gone(client: Client) -> None:
    topic = client.topic()
    subscription = client.subscription(topic)
    client.publish(topic, b"1")
    acked(client, subscription, 1)
    client.seek(subscription, past())
    assert client.pull_now(subscription) == []


def test_a_seek_between_two_messages_acks_the_first_only(client: Client) -> None:
    topic = client.topic()
    subscription = client.subscription(topic, retain_acked_messages=True)
    stream = client.stream(subscription)
    client.publish(topic, b"1")
    (first,) = stream.receive(1)
    second = first
    while second.message.publish_time == first.message.publish_time:
        client.ack(subscription, second.ack_id)
        client.publish(topic, b"2")
        (second,) = stream.receive(1)
    client.ack(subscription, second.ack_id)
    client.seek(subscription, second.message.publish_time.ToDatetime(timezone.utc))
    (received,) = stream.receive(1)
    assert received.message == second.message


def test_an_ordered_subscription_comes_back_in_order(client: Client, differs: Differs) -> None:
    differs(google="does not seek ordered subscriptions to a time")
    topic = client.topic()
    subscription = client.subscription(
        topic, retain_acked_messages=True, message_retention_duration=HOUR, enable_message_ordering=True
    )
    client.publish(topic, b"1", b"2", b"3", key="k")
    stream = acked(client, subscription, 3)
    client.seek(subscription, past())
    assert data(stream.receive(3)) == [b"1", b"2", b"3"]


def test_a_topic_s_retention_reaches_back_before_the_subscription(client: Client) -> None:
    name = "projects/conformance/topics/retaining"
    client.call("Publisher/CreateTopic", wire.Topic(name=name, message_retention_duration=HOUR), wire.Topic)
    client.publish(name, b"before")
    subscription = client.subscription(name)
    client.publish(name, b"after")
    client.seek(subscription, past())
    assert sorted(data(client.stream(subscription).receive(2))) == [b"after", b"before"]


def test_a_snapshot_keeps_the_backlog_and_what_is_published_since(client: Client) -> None:
    topic = client.topic()
    subscription = client.subscription(topic)
    client.publish(topic, b"before")
    stream = acked(client, subscription, 1)
    client.publish(topic, b"backlog")
    snapshot = client.snapshot(subscription)
    client.publish(topic, b"since")
    client.ack(subscription, *(message.ack_id for message in stream.receive(2)))
    client.seek(subscription, snapshot=snapshot)
    assert sorted(data(stream.receive(2))) == [b"backlog", b"since"]


def test_a_snapshot_is_there_until_deleted(client: Client) -> None:
    topic = client.topic()
    subscription = client.subscription(topic)
    name = client.snapshot(subscription)
    got = client.call("Subscriber/GetSnapshot", wire.GetSnapshotRequest(snapshot=name), wire.Snapshot)
    assert got.topic == topic
    lifetime = got.expire_time.ToDatetime(timezone.utc) - datetime.now(timezone.utc)
    assert timedelta(days=6, hours=23) < lifetime <= timedelta(days=7, minutes=1)
    listed = client.call(
        "Publisher/ListTopicSnapshots", wire.ListTopicSnapshotsRequest(topic=topic), wire.ListTopicSnapshotsResponse
    )
    assert list(listed.snapshots) == [name]
    again = wire.CreateSnapshotRequest(name=name, subscription=subscription)
    assert refused(lambda: client.call("Subscriber/CreateSnapshot", again, wire.Snapshot))[0] is StatusCode.ALREADY_EXISTS
    client.call("Subscriber/DeleteSnapshot", wire.DeleteSnapshotRequest(snapshot=name), Empty)
    assert refused(lambda: client.seek(subscription, snapshot=name))[0] is StatusCode.NOT_FOUND


def test_a_snapshot_serves_subscriptions_of_its_topic_only(client: Client) -> None:
    snapshot = client.snapshot(client.subscription(client.topic()))
    other = client.subscription(client.topic())
    assert refused(lambda: client.seek(other, snapshot=snapshot))[0] is StatusCode.FAILED_PRECONDITION


def test_a_seek_needs_a_target(client: Client, is_ours: bool) -> None:
    subscription = client.subscription(client.topic())
    code, text = refused(lambda: client.seek(subscription))
    assert code is StatusCode.INVALID_ARGUMENT
    assert text.startswith("No target was specified in the SeekRequest.")


def test_a_missing_subscription_cannot_be_sought(client: Client) -> None:
    assert refused(lambda: client.seek("projects/conformance/subscriptions/nowhere", past()))[0] is StatusCode.NOT_FOUND
