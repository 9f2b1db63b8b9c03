"""Faults to order: calls that fail, wait or lose their answer, streams that end, permissions that are missing."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from grpc import StatusCode

from flink_pubsub.emulator import Emulator, ManualClock
from flink_pubsub.wire import pubsub_pb2 as wire
from tests.conformance.client import Client, data, refused

TOPIC = "projects/p/topics/orders"
SUBSCRIPTION = "projects/p/subscriptions/orders"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def emulator(clock: ManualClock) -> Iterator[Emulator]:
    with Emulator(clock=clock, log_deliveries=100) as emulator:
        emulator.create_topic(TOPIC)
        emulator.create_subscription(SUBSCRIPTION, TOPIC)
        yield emulator


@pytest.fixture
def client(emulator: Emulator) -> Iterator[Client]:
    client = Client(emulator.endpoint)
    yield client
    client.close()


def test_the_next_calls_fail_as_often_as_told(emulator: Emulator, client: Client) -> None:
    emulator.fail_next("Publish", StatusCode.UNAVAILABLE, "not now", times=2)
    assert refused(lambda: client.publish(TOPIC, b"1")) == (StatusCode.UNAVAILABLE, "not now")
    assert refused(lambda: client.publish(TOPIC, b"2")) == (StatusCode.UNAVAILABLE, "not now")
    client.publish(TOPIC, b"3")
    assert [m.data for m in emulator.published(TOPIC)] == [b"3"]
    assert emulator.calls("Publish") == 3


def test_a_failure_may_be_meant_for_one_resource(emulator: Emulator, client: Client) -> None:
    other = "projects/p/topics/other"
    emulator.create_topic(other)
    emulator.fail_next("Publish", StatusCode.NOT_FOUND, resource=other)
    client.publish(TOPIC, b"x")
    assert refused(lambda: client.publish(other, b"x"))[0] is StatusCode.NOT_FOUND


def test_every_third_call_fails(emulator: Emulator, client: Client) -> None:
    emulator.fail_rate("Publish", StatusCode.INTERNAL, every=3)
    outcomes = []
    for n in range(9):
        try:
            client.publish(TOPIC, b"%d" % n)
            outcomes.append("ok")
        except grpc.RpcError:
            outcomes.append("failed")
    assert outcomes == ["ok", "ok", "failed"] * 3
    emulator.clear_faults()
    for _ in range(3):
        client.publish(TOPIC, b"x")


def test_a_lost_answer_has_had_its_effect(emulator: Emulator, client: Client) -> None:
    emulator.lose_answers("Publish")
    assert refused(lambda: client.publish(TOPIC, b"x"))[0] is StatusCode.UNAVAILABLE
    assert emulator.published_count(TOPIC) == 1


def test_a_silent_method_answers_when_resumed(emulator: Emulator, client: Client) -> None:
    emulator.stop_answering("Publish")
    stub: grpc.UnaryUnaryMultiCallable[bytes, bytes] = client.channel.unary_unary("/google.pubsub.v1.Publisher/Publish")
    request = wire.PublishRequest(topic=TOPIC, messages=[wire.PubsubMessage(data=b"x")]).SerializeToString()
    waiting = stub.future(request, timeout=20)
    given_up = stub.future(request, timeout=0.2)
    assert refused(given_up.result)[0] is StatusCode.DEADLINE_EXCEEDED
    assert emulator.published_count(TOPIC) == 0
    emulator.wait_until(lambda: emulator.calls("Publish") == 2)
    emulator.resume("Publish")
    assert wire.PublishResponse.FromString(waiting.result()).message_ids
    assert emulator.published_count(TOPIC) == 1


def test_a_silent_stream_stays_open_and_goes_on_when_resumed(emulator: Emulator, client: Client) -> None:
    stream = client.stream(SUBSCRIPTION)
    emulator.wait_until(lambda: emulator.open_streams(SUBSCRIPTION) == 1)
    emulator.stop_answering("StreamingPull")
    emulator.publish(TOPIC, b"x")
    assert emulator.counts(SUBSCRIPTION).outstanding == 0
    emulator.resume("StreamingPull")
    assert data(stream.receive(1)) == [b"x"]


def test_a_delayed_call_is_carried_out_afterwards(emulator: Emulator, client: Client) -> None:
    emulator.delay("Publish", 600)
    stub: grpc.UnaryUnaryMultiCallable[bytes, bytes] = client.channel.unary_unary("/google.pubsub.v1.Publisher/Publish")
    request = wire.PublishRequest(topic=TOPIC, messages=[wire.PubsubMessage(data=b"x")]).SerializeToString()
    assert refused(stub.future(request, timeout=0.2).result)[0] is StatusCode.DEADLINE_EXCEEDED
    emulator.delay("Publish", 0.05)
    client.publish(TOPIC, b"y")
    assert [m.data for m in emulator.published(TOPIC)] == [b"y"]


def test_dropped_streams_end_unavailable_and_their_leases_stay(emulator: Emulator, client: Client) -> None:
    streams = [client.stream(SUBSCRIPTION) for _ in range(2)]
    emulator.wait_until(lambda: emulator.open_streams() == 2)
    emulator.publish(TOPIC, b"x")
    emulator.wait_until(lambda: emulator.counts(SUBSCRIPTION).outstanding == 1)
    assert emulator.drop_streams() == 2
    for stream in streams:
        code, text = refused(lambda stream=stream: list(stream.responses()))  # type: ignore[misc]
        assert code is StatusCode.UNAVAILABLE
        assert "[code=8a75]" in text
    assert emulator.open_streams() == 0
    assert emulator.counts(SUBSCRIPTION).outstanding == 1


def test_closed_streams_end_normally(emulator: Emulator, client: Client) -> None:
    stream = client.stream(SUBSCRIPTION)
    emulator.wait_until(lambda: emulator.open_streams() == 1)
    assert emulator.close_streams("projects/p/subscriptions/other") == 0
    assert emulator.close_streams(SUBSCRIPTION) == 1
    assert list(stream.responses()) == []


@pytest.mark.feature("BEY-07")
def test_a_denied_method_is_refused_until_allowed(emulator: Emulator, client: Client) -> None:
    other = "projects/p/topics/other"
    emulator.create_topic(other)
    emulator.deny("Publish", TOPIC)
    refusal = (StatusCode.PERMISSION_DENIED, "User not authorized to perform this action.")
    assert refused(lambda: client.publish(TOPIC, b"x")) == refusal
    client.publish(other, b"x")
    emulator.deny("Publish")
    assert refused(lambda: client.publish(other, b"x")) == refusal
    emulator.allow("Publish")
    emulator.allow("Publish", TOPIC)
    client.publish(TOPIC, b"y")
    assert [m.data for m in emulator.published(TOPIC)] == [b"y"]


@pytest.mark.feature("BEY-07")
def test_denying_streaming_pull_ends_open_streams_too(emulator: Emulator, client: Client) -> None:
    stream = client.stream(SUBSCRIPTION)
    emulator.wait_until(lambda: emulator.open_streams() == 1)
    emulator.deny("StreamingPull", "projects/p/subscriptions/other")
    assert emulator.open_streams() == 1
    emulator.deny("StreamingPull", SUBSCRIPTION)
    assert refused(lambda: list(stream.responses()))[0] is StatusCode.PERMISSION_DENIED
    assert refused(lambda: list(client.stream(SUBSCRIPTION).responses()))[0] is StatusCode.PERMISSION_DENIED
    emulator.clear_faults()
    client.stream(SUBSCRIPTION)
    emulator.wait_until(lambda: emulator.open_streams() == 1)


@pytest.mark.feature("BEY-07")
def test_a_topic_that_a_client_creates_is_not_found_by_publishers_at_first(
    emulator: Emulator, clock: ManualClock, client: Client
) -> None:
    emulator.set_topic_propagation(3)
    topic = client.topic()
    assert client.call("Publisher/GetTopic", wire.GetTopicRequest(topic=topic), wire.Topic).name == topic
    clock.advance(2.9)
    assert refused(lambda: client.publish(topic, b"x")) == (
        StatusCode.NOT_FOUND,
        f"Resource not found (resource={topic.rsplit('/', 1)[1]}).",
    )
    emulator.publish(topic, b"past all faults")
    clock.advance(0.1)
    client.publish(topic, b"x")
    emulator.create_topic("projects/p/topics/prepared")
    client.publish("projects/p/topics/prepared", b"x")


@pytest.mark.feature("BEY-07")
def test_dead_letter_grants_can_be_withheld(emulator: Emulator, client: Client) -> None:
    letters = "projects/p/topics/dead-letters"
    emulator.create_topic(letters)
    subscription = client.subscription(TOPIC, dead_letter_policy=wire.DeadLetterPolicy(dead_letter_topic=letters))
    emulator.withhold_dead_letter_grants()
    emulator.publish(TOPIC, b"x")
    attempts = []
    for _ in range(6):
        (message,) = client.pull(subscription, 1)
        attempts.append(message.delivery_attempt)
        client.modack(subscription, 0, message.ack_id)
    assert attempts == [1, 2, 3, 4, 5, 6]
    emulator.restore_dead_letter_grants()
    (message,) = client.pull(subscription, 1)
    client.modack(subscription, 0, message.ack_id)
    assert [m.data for m in emulator.published(letters)] == [b"x"]
    assert emulator.counts(subscription).dead_lettered == 1
