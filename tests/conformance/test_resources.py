"""Topics and subscriptions: create, get, list, update, delete."""

from __future__ import annotations

import pytest
from google.protobuf.empty_pb2 import Empty
from google.protobuf.field_mask_pb2 import FieldMask
from grpc import StatusCode

from flink_pubsub.wire import pubsub_pb2 as wire
from tests.conformance.client import Client, Differs, refused


def get_subscription(client: Client, name: str) -> wire.Subscription:
    return client.call("Subscriber/GetSubscription", wire.GetSubscriptionRequest(subscription=name), wire.Subscription)


def test_a_topic_is_there_until_deleted(client: Client) -> None:
    topic = client.topic()
    request = wire.GetTopicRequest(topic=topic)
    assert client.call("Publisher/GetTopic", request, wire.Topic).name == topic
    client.call("Publisher/DeleteTopic", wire.DeleteTopicRequest(topic=topic), Empty)
    assert refused(lambda: client.call("Publisher/GetTopic", request, wire.Topic))[0] is StatusCode.NOT_FOUND


def test_a_name_can_be_taken_once(client: Client) -> None:
    topic = client.topic()
    assert refused(lambda: client.call("Publisher/CreateTopic", wire.Topic(name=topic), wire.Topic))[0] is (
        StatusCode.ALREADY_EXISTS
    )
    subscription = client.subscription(topic)
    again = wire.Subscription(name=subscription, topic=topic)
    assert refused(lambda: client.call("Subscriber/CreateSubscription", again, wire.Subscription))[0] is (
        StatusCode.ALREADY_EXISTS
    )


@pytest.mark.parametrize("name", ["topic", "projects/p/topics/ab", "projects/p/topics/1abc", "projects/p/topics/googly"])
def test_an_ill_formed_name_is_refused(client: Client, name: str, differs: Differs) -> None:
    differs(pstest="takes any name")
    code, text = refused(lambda: client.call("Publisher/CreateTopic", wire.Topic(name=name), wire.Topic))
    assert code is StatusCode.INVALID_ARGUMENT
    assert name in text


def test_a_subscription_needs_its_topic(client: Client) -> None:
    code, _ = refused(lambda: client.subscription("projects/conformance/topics/nowhere"))
    assert code is StatusCode.NOT_FOUND


def test_a_subscription_gets_the_service_s_defaults(client: Client, differs: Differs) -> None:
    differs(pstest="shows no default ack deadline")
    settings = get_subscription(client, client.subscription(client.topic()))
    assert settings.ack_deadline_seconds == 10
    assert settings.message_retention_duration.seconds == 7 * 86_400
    assert not settings.enable_message_ordering


@pytest.mark.parametrize("seconds", [5, 601])
def test_an_ack_deadline_has_bounds(client: Client, seconds: int, differs: Differs) -> None:
    google = "takes ack deadlines below 10 seconds" if seconds == 5 else ""
    differs(google=google, pstest="takes ack deadlines below 10 seconds, and refuses others with UNKNOWN")
    topic = client.topic()
    code, _ = refused(lambda: client.subscription(topic, ack_deadline_seconds=seconds))
    assert code is StatusCode.INVALID_ARGUMENT


def test_an_update_changes_what_its_mask_names(client: Client) -> None:
    name = client.subscription(client.topic(), labels={"kept": "yes"})
    changes = wire.Subscription(name=name, ack_deadline_seconds=30, retain_acked_messages=True)
    request = wire.UpdateSubscriptionRequest(subscription=changes, update_mask=FieldMask(paths=["ack_deadline_seconds"]))
    client.call("Subscriber/UpdateSubscription", request, wire.Subscription)
    settings = get_subscription(client, name)
    assert settings.ack_deadline_seconds == 30
    assert not settings.retain_acked_messages
    assert settings.labels == {"kept": "yes"}


@pytest.mark.parametrize("path", ["topic", "enable_message_ordering", "filter"])
def test_an_update_cannot_change_what_is_immutable(client: Client, path: str, differs: Differs) -> None:
    differs(pstest="lets a filter be changed" if path == "filter" else "")
    topic = client.topic()
    name = client.subscription(topic)
    changes = wire.Subscription(name=name, topic=topic, enable_message_ordering=True, filter="attributes:a")
    request = wire.UpdateSubscriptionRequest(subscription=changes, update_mask=FieldMask(paths=[path]))
    code, _ = refused(lambda: client.call("Subscriber/UpdateSubscription", request, wire.Subscription))
    assert code is StatusCode.INVALID_ARGUMENT


def test_lists_come_in_pages(client: Client) -> None:
    topic = client.topic()
    names = {client.subscription(topic) for _ in range(5)}
    listed: list[str] = []
    token = ""
    while True:
        request = wire.ListTopicSubscriptionsRequest(topic=topic, page_size=2, page_token=token)
        page = client.call("Publisher/ListTopicSubscriptions", request, wire.ListTopicSubscriptionsResponse)
        assert len(page.subscriptions) <= 2
        listed.extend(page.subscriptions)
        token = page.next_page_token
        if not token:
            break
    assert len(listed) == 5
    assert set(listed) == names


def test_lists_are_of_one_project(client: Client) -> None:
    topic, other = client.topic(), "projects/elsewhere/topics/other"
    client.call("Publisher/CreateTopic", wire.Topic(name=other), wire.Topic)
    request = wire.ListTopicsRequest(project="projects/conformance", page_size=1000)
    names = {t.name for t in client.call("Publisher/ListTopics", request, wire.ListTopicsResponse).topics}
    client.call("Publisher/DeleteTopic", wire.DeleteTopicRequest(topic=other), Empty)
    assert topic in names
    assert other not in names


def test_a_deleted_topic_leaves_its_subscription_with_its_backlog(client: Client) -> None:
    topic = client.topic()
    name = client.subscription(topic)
    client.publish(topic, b"left")
    client.call("Publisher/DeleteTopic", wire.DeleteTopicRequest(topic=topic), Empty)
    assert get_subscription(client, name).topic == "_deleted-topic_"
    assert [m.message.data for m in client.pull(name, 1)] == [b"left"]


def test_a_deleted_subscription_ends_its_streams(client: Client, differs: Differs) -> None:
    differs(pstest="leaves the streams open", waits=True)
    topic = client.topic()
    name = client.subscription(topic)
    stream = client.stream(name)
    client.publish(topic, b"x")
    stream.receive(1)
    client.call("Subscriber/DeleteSubscription", wire.DeleteSubscriptionRequest(subscription=name), Empty)
    assert refused(lambda: list(stream.responses()))[0] is StatusCode.NOT_FOUND


def test_a_subscription_shows_its_topic_s_retention(client: Client, differs: Differs) -> None:
    differs(google="does not show it")
    name = "projects/conformance/topics/shown"
    client.call("Publisher/CreateTopic", wire.Topic(name=name, message_retention_duration={"seconds": 3600}), wire.Topic)
    settings = get_subscription(client, client.subscription(name))
    assert settings.topic_message_retention_duration.seconds == 3600
