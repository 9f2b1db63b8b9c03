"""Messages that fail, subscriptions that choose or forbid, and ack ids that are no longer good."""

from __future__ import annotations

from functools import partial

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]
from grpc import StatusCode

from flink_pubsub.wire import pubsub_pb2 as wire
from tests.conformance.client import Client, Differs, data, refused

pytestmark = pytest.mark.feature("BEY-07")


def test_a_message_that_fails_too_often_goes_to_the_dead_letter_topic(client: Client, differs: Differs) -> None:
    differs(pstest="forwards without the attributes, under the same message id")
    letters = client.topic()
    reader = client.subscription(letters)
    topic = client.topic()
    policy = wire.DeadLetterPolicy(dead_letter_topic=letters, max_delivery_attempts=5)
    subscription = client.subscription(topic, dead_letter_policy=policy)
    message = wire.PubsubMessage(data=b"x", attributes={"a": "1"}, ordering_key="k")
    (message_id,) = client.publish_messages(topic, [message])
    attempts = []
    stream = client.stream(subscription)
    for _ in range(5):
        (received,) = stream.receive(1)
        attempts.append(received.delivery_attempt)
        published = received.message.publish_time.ToJsonString()
        client.modack(subscription, 0, received.ack_id)
    assert attempts == [1, 2, 3, 4, 5]
    (letter,) = client.stream(reader).receive(1)
    assert letter.message.message_id != message_id
    assert (letter.message.data, letter.message.ordering_key) == (b"x", "k")
    assert letter.message.attributes == {
        "a": "1",
        "CloudPubSubDeadLetterSourceDeliveryCount": "5",
        "CloudPubSubDeadLetterSourceSubscription": subscription.rsplit("/", 1)[1],
        "CloudPubSubDeadLetterSourceSubscriptionProject": "conformance",
        "CloudPubSubDeadLetterSourceTopicPublishTime": published,
    }


def test_a_dead_letter_topic_must_exist(client: Client) -> None:
    policy = wire.DeadLetterPolicy(dead_letter_topic="projects/conformance/topics/nowhere")
    topic = client.topic()
    assert refused(lambda: client.subscription(topic, dead_letter_policy=policy))[0] is StatusCode.NOT_FOUND


@pytest.mark.parametrize("attempts", [4, 101])
def test_delivery_attempts_have_bounds(client: Client, attempts: int, differs: Differs) -> None:
    differs(pstest="takes any number of attempts")
    topic = client.topic()
    policy = wire.DeadLetterPolicy(dead_letter_topic=topic, max_delivery_attempts=attempts)
    code, text = refused(lambda: client.subscription(topic, dead_letter_policy=policy))
    assert code is StatusCode.OUT_OF_RANGE
    assert text.startswith("The value for max_delivery_attempts is too ")


def test_a_retry_policy_has_a_failed_message_wait(client: Client, differs: Differs) -> None:
    differs(google="ignores retry policies", pstest="ignores retry policies", waits=True)
    topic = client.topic()
    policy = wire.RetryPolicy(minimum_backoff={"seconds": 600}, maximum_backoff={"seconds": 600})
    subscription = client.subscription(topic, retry_policy=policy)
    client.publish(topic, b"x")
    stream = client.stream(subscription)
    (received,) = stream.receive(1)
    client.modack(subscription, 0, received.ack_id)
    client.publish(topic, b"y")
    assert data(stream.receive(1)) == [b"y"]


@pytest.mark.parametrize(
    ("backoff", "text"),
    [
        (
            {"minimum_backoff": {"seconds": 601}},
            "The value for minimum_backoff is out of bounds. You passed 601s in the request, but the value must be between 0s "
            "and 600s.",
        ),
        (
            {"minimum_backoff": {"seconds": 60}, "maximum_backoff": {"seconds": 50}},
            "The value for maximum_backoff is too small. You passed 50s in the request, but the minimum value is 60s.",
        ),
    ],
)
def test_backoffs_have_bounds(client: Client, backoff: dict[str, dict[str, int]], text: str, differs: Differs) -> None:
    differs(pstest="takes any backoff")
    topic = client.topic()
    refusal = refused(lambda: client.subscription(topic, retry_policy=wire.RetryPolicy(**backoff)))
    assert refusal == (StatusCode.INVALID_ARGUMENT, text)


@pytest.mark.parametrize("seconds", [599, 31 * 86_400 + 1])
def test_retention_has_bounds(client: Client, seconds: int) -> None:
    topic = client.topic()
    code, _ = refused(lambda: client.subscription(topic, message_retention_duration={"seconds": seconds}))
    assert code is StatusCode.INVALID_ARGUMENT


FILTERED = {b"1": {"kind": "order", "region": "eu-west"}, b"2": {"kind": "order"}, b"3": {"region": "us"}, b"4": {"a.b": "x"}}


@pytest.mark.parametrize(
    ("text", "matching"),
    [
        ("attributes:kind", [b"1", b"2"]),
        ('attributes.kind = "order" AND attributes:region', [b"1"]),
        ('attributes.region != "us"', [b"1", b"2", b"4", b"5"]),
        ('hasPrefix(attributes.region, "eu-")', [b"1"]),
        ('NOT attributes:kind AND NOT attributes:"a.b"', [b"3", b"5"]),
        ('attributes:kind AND (hasPrefix(attributes.region, "us") OR NOT attributes:region)', [b"2"]),
    ],
)
def test_a_filter_chooses_messages(client: Client, text: str, matching: list[bytes], differs: Differs) -> None:
    differs(google="ignores filters")
    topic = client.topic()
    subscription = client.subscription(topic, filter=text)
    messages = [wire.PubsubMessage(data=content, attributes=attributes) for content, attributes in FILTERED.items()]
    client.publish_messages(topic, [*messages, wire.PubsubMessage(data=b"5")])
    assert sorted(data(client.pull_now(subscription))) == matching


@pytest.mark.parametrize("text", ["attributes", "attributes.a = b", "attributes:a AND attributes:b OR attributes:c", "x" * 257])
def test_a_filter_that_cannot_be_read_is_refused(client: Client, text: str, differs: Differs) -> None:
    differs(google="ignores filters", pstest="mixes AND and OR" if " OR " in text else "")
    topic = client.topic()
    assert refused(lambda: client.subscription(topic, filter=text))[0] is StatusCode.INVALID_ARGUMENT


def ack_id_failures(error: BaseException) -> dict[str, str]:
    assert isinstance(error, grpc.Call)
    assert error.code() is StatusCode.INVALID_ARGUMENT
    (detail,) = status_pb2.Status.FromString(dict(error.trailing_metadata() or ())["grpc-status-details-bin"]).details
    info = error_details_pb2.ErrorInfo()
    assert detail.Unpack(info)
    assert (info.reason, info.domain) == ("EXACTLY_ONCE_ACKID_FAILURE", "pubsub.googleapis.com")
    return dict(info.metadata)


@pytest.mark.parametrize("method", ["ack", "modack"])
def test_exactly_once_delivery_names_the_ack_ids_that_are_not_good(client: Client, method: str, differs: Differs) -> None:
    differs(pstest="accepts every ack id")
    topic = client.topic()
    subscription = client.subscription(topic, enable_exactly_once_delivery=True)
    client.publish(topic, b"1", b"2")
    first, second = (message.ack_id for message in client.stream(subscription).receive(2))
    client.ack(subscription, first)
    acknowledge = partial(client.ack, subscription)
    extend = partial(client.modack, subscription, 60)
    with pytest.raises(grpc.RpcError) as refusal:
        (acknowledge if method == "ack" else extend)(first, second)
    assert ack_id_failures(refusal.value) == {first: "PERMANENT_FAILURE_INVALID_ACK_ID"}


def test_a_stream_tells_of_exactly_once_delivery(client: Client) -> None:
    topic = client.topic()
    stream = client.stream(client.subscription(topic, enable_exactly_once_delivery=True))
    client.publish(topic, b"1")
    assert next(stream.responses()).subscription_properties.exactly_once_delivery_enabled


def test_a_detached_subscription_is_empty_and_cannot_be_pulled(client: Client, differs: Differs) -> None:
    differs(google="does not detach", pstest="lets a detached subscription be pulled")
    topic = client.topic()
    subscription = client.subscription(topic)
    client.publish(topic, b"x")
    stream = client.stream(subscription)
    stream.receive(1)
    request = wire.DetachSubscriptionRequest(subscription=subscription)
    client.call("Publisher/DetachSubscription", request, wire.DetachSubscriptionResponse)
    assert refused(lambda: client.pull_now(subscription))[0] is StatusCode.FAILED_PRECONDITION
    assert refused(lambda: list(stream.responses()))[0] is StatusCode.FAILED_PRECONDITION
    shown = client.call("Subscriber/GetSubscription", wire.GetSubscriptionRequest(subscription=subscription), wire.Subscription)
    assert shown.detached
