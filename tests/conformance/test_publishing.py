"""Publishing, and what the service refuses to publish."""

from __future__ import annotations

import pytest
from grpc import StatusCode

from flink_pubsub.wire import pubsub_pb2 as wire
from tests.conformance.client import Client, Differs, refused

NO_LIMITS = "checks no limits of publishing"


def refused_messages(client: Client, *messages: wire.PubsubMessage) -> str:
    topic = client.topic()
    subscription = client.subscription(topic)
    code, text = refused(lambda: client.publish_messages(topic, list(messages)))
    assert code is StatusCode.INVALID_ARGUMENT
    assert client.pull_now(subscription) == []
    return text


def test_messages_get_ids_and_a_publish_time_and_keep_the_rest(client: Client) -> None:
    topic = client.topic()
    subscription = client.subscription(topic)
    message = wire.PubsubMessage(data=b"data", attributes={"a": "1", "b": ""}, ordering_key="key")
    (message_id,) = client.publish_messages(topic, [message])
    (received,) = client.pull(subscription, 1)
    assert received.message.message_id == message_id
    assert received.message.publish_time.seconds > 1_500_000_000
    assert (received.message.data, received.message.ordering_key) == (b"data", "key")
    assert received.message.attributes == {"a": "1", "b": ""}
    assert received.delivery_attempt == 0


def test_a_thousand_messages_fit_one_request_and_every_subscription_gets_them(client: Client, differs: Differs) -> None:
    differs(pstest="hands out one message a response, and not all of a thousand", waits=True)
    topic = client.topic()
    subscriptions = [client.subscription(topic) for _ in range(2)]
    ids = client.publish(topic, *(b"%d" % n for n in range(1000)))
    assert len(set(ids)) == 1000
    for subscription in subscriptions:
        received = {m.message.message_id for m in client.stream(subscription).receive(1000)}
        assert received == set(ids)


@pytest.mark.parametrize("count", [0, 1001])
def test_a_request_has_one_to_a_thousand_messages(client: Client, count: int, is_ours: bool, differs: Differs) -> None:
    differs(pstest=NO_LIMITS)
    text = refused_messages(client, *(wire.PubsubMessage(data=b"x") for _ in range(count)))
    if is_ours:
        bound = (
            "too small. You passed 0 in the request, but the minimum value is 1"
            if count == 0
            else ("too large. You passed 1001 in the request, but the maximum value is 1000")
        )
        assert text == f"The value for message_count is {bound}."


def test_a_message_has_data_or_an_attribute(client: Client, differs: Differs) -> None:
    differs(pstest=NO_LIMITS)
    refused_messages(client, wire.PubsubMessage(data=b"fine"), wire.PubsubMessage(ordering_key="key"))
    topic = client.topic()
    assert len(client.publish_messages(topic, [wire.PubsubMessage(attributes={"a": ""})])) == 1


def test_publishing_to_a_missing_topic_is_not_found(client: Client, is_ours: bool) -> None:
    code, text = refused(lambda: client.publish("projects/conformance/topics/nowhere", b"x"))
    assert code is StatusCode.NOT_FOUND
    if is_ours:
        assert text == "Resource not found (resource=nowhere)."


LIMITS = {
    "101 attributes": wire.PubsubMessage(attributes={f"k{n}": "" for n in range(101)}),
    "an empty key": wire.PubsubMessage(attributes={"": "v"}),
    "a key of 257 bytes": wire.PubsubMessage(attributes={"k" * 257: "v"}),
    "a key of 129 letters, 258 bytes": wire.PubsubMessage(attributes={"é" * 129: "v"}),
    "a key of Google's": wire.PubsubMessage(attributes={"googly": "v"}),
    "a value of 1025 bytes": wire.PubsubMessage(attributes={"k": "v" * 1025}),
    "an ordering key of 1025 bytes": wire.PubsubMessage(data=b"x", ordering_key="k" * 1025),
}


@pytest.mark.parametrize("case", LIMITS)
def test_limits_of_a_message(client: Client, case: str, differs: Differs) -> None:
    differs(google="does not check the limits of attributes and ordering keys", pstest=NO_LIMITS)
    refused_messages(client, wire.PubsubMessage(data=b"neighbour", ordering_key=LIMITS[case].ordering_key), LIMITS[case])


def test_a_message_at_its_limits_passes(client: Client) -> None:
    attributes = {("é" * 126 + f"{n:04d}"): "v" * 1024 for n in range(100)}
    message = wire.PubsubMessage(data=b"x", attributes=attributes, ordering_key="é" * 512)
    assert len(client.publish_messages(client.topic(), [message])) == 1


def test_one_request_has_one_ordering_key(client: Client, differs: Differs) -> None:
    differs(google="takes several ordering keys in a request", pstest="takes several ordering keys in a request")
    refused_messages(client, *(wire.PubsubMessage(data=b"x", ordering_key=key) for key in ("a", "b")))


def test_a_request_has_ten_million_bytes_at_most(client: Client, differs: Differs) -> None:
    differs(google="does not check the bytes of a request", pstest="takes no more than 4 MiB a request")
    topic = client.topic()
    empty = wire.PublishRequest(topic=topic, messages=[wire.PubsubMessage(data=b"x" * 9_000_000)])
    room = 10_000_000 - empty.ByteSize()
    assert len(client.publish(topic, b"x" * (9_000_000 + room))) == 1
    code, text = refused(lambda: client.publish(topic, b"x" * (9_000_001 + room)))
    assert code is StatusCode.INVALID_ARGUMENT
    assert text == (
        "The value for request_size is too large. You passed 10000001 in the request, but the maximum value is 10000000."
    )
