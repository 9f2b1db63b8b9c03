"""Pull, streaming pull, acks, deadlines and ordered delivery."""

from __future__ import annotations

import pytest
from grpc import StatusCode

from tests.conformance.client import Client, Differs, data, refused

SAME_ACK_ID = "has one ack id for all deliveries of a message"


def test_an_acked_message_is_gone(client: Client) -> None:
    topic = client.topic()
    subscription = client.subscription(topic)
    client.publish(topic, b"x")
    (received,) = client.pull(subscription, 10)
    client.ack(subscription, received.ack_id)
    assert client.pull_now(subscription) == []


def test_a_nacked_message_comes_again_under_another_ack_id(client: Client, differs: Differs) -> None:
    differs(pstest=SAME_ACK_ID)
    topic = client.topic()
    subscription = client.subscription(topic)
    client.publish(topic, b"x")
    (first,) = client.pull(subscription, 10)
    client.modack(subscription, 0, first.ack_id)
    (second,) = client.pull(subscription, 10)
    assert second.message == first.message
    assert second.ack_id != first.ack_id


def test_a_message_whose_deadline_passes_comes_again(client: Client, differs: Differs) -> None:
    differs(pstest=SAME_ACK_ID)
    topic = client.topic()
    subscription = client.subscription(topic, ack_deadline_seconds=10)
    stream = client.stream(subscription)
    client.publish(topic, b"x")
    (first,) = stream.receive(1)
    client.modack(subscription, 1, first.ack_id)
    (second,) = stream.receive(1)
    assert second.message == first.message
    assert second.ack_id != first.ack_id


def test_an_ack_by_an_old_id_is_accepted(client: Client) -> None:
    topic = client.topic()
    subscription = client.subscription(topic)
    client.publish(topic, b"x")
    (first,) = client.pull(subscription, 10)
    client.ack(subscription, first.ack_id)
    client.ack(subscription, first.ack_id)
    client.modack(subscription, 60, first.ack_id)


def test_acks_go_over_the_stream_too(client: Client) -> None:
    topic = client.topic()
    subscription = client.subscription(topic)
    stream = client.stream(subscription)
    client.publish(topic, b"x", b"y")
    x, y = stream.receive(2)
    stream.send(ack_ids=[x.ack_id], modify_deadline_ack_ids=[y.ack_id], modify_deadline_seconds=[0])
    (again,) = stream.receive(1)
    assert again.message.data == y.message.data


@pytest.mark.parametrize("method", ["ack", "modack"])
def test_a_request_without_ack_ids_is_refused(client: Client, method: str, differs: Differs) -> None:
    differs(google="accepts it", pstest="accepts it")
    subscription = client.subscription(client.topic())
    call = (lambda: client.ack(subscription)) if method == "ack" else (lambda: client.modack(subscription, 10))
    code, text = refused(call)
    assert code is StatusCode.INVALID_ARGUMENT
    assert text == "You have not specified an ack ID in the request."


def test_a_stream_s_answers_name_the_subscription_s_properties(client: Client) -> None:
    topic = client.topic()
    stream = client.stream(client.subscription(topic, enable_message_ordering=True))
    client.publish(topic, b"x", key="k")
    assert next(stream.responses()).subscription_properties.message_ordering_enabled


def test_a_stream_of_a_missing_subscription_is_not_found(client: Client) -> None:
    code, text = refused(lambda: list(client.stream("projects/conformance/subscriptions/nowhere").responses()))
    assert code is StatusCode.NOT_FOUND
    assert "nowhere" in text


@pytest.mark.parametrize("later", [{"max_outstanding_messages": 5}, {"subscription": "s"}, {"client_id": "c"}])
def test_only_the_first_request_of_a_stream_sets_it_up(client: Client, later: dict[str, object], differs: Differs) -> None:
    google = "" if "subscription" in later else "ignores flow control and client id of later requests"
    differs(google=google, pstest="ignores what later requests must not set", waits=True)
    stream = client.stream(client.subscription(client.topic()))
    stream.send(**later)
    assert refused(lambda: list(stream.responses()))[0] is StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("seconds", [5, 601])
def test_a_stream_s_deadline_has_bounds(client: Client, seconds: int, differs: Differs) -> None:
    differs(pstest="takes any deadline", waits=True)
    stream = client.stream(client.subscription(client.topic()), stream_ack_deadline_seconds=seconds)
    assert refused(lambda: list(stream.responses()))[0] is StatusCode.INVALID_ARGUMENT


def test_flow_control_is_the_server_s(client: Client, differs: Differs) -> None:
    differs(google="does not apply flow control")
    topic = client.topic()
    subscription = client.subscription(topic)
    stream = client.stream(subscription, max_outstanding_messages=3)
    client.publish(topic, *(b"%d" % n for n in range(10)))
    first = stream.receive(3)
    assert len(client.pull_now(subscription)) == 7
    client.publish(topic, b"10")
    client.ack(subscription, first[0].ack_id)
    assert data(stream.receive(1)) == [b"10"]


def test_pings_are_answered_from_protocol_version_1_on(client: Client, differs: Differs) -> None:
    differs(google="answers pings from 0.8.32 on only", pstest="does not answer pings", waits=True)
    stream = client.stream(client.subscription(client.topic()), protocol_version=1)
    for _ in range(3):
        stream.send()
        assert not next(stream.responses()).received_messages


def test_messages_of_a_key_arrive_in_order(client: Client) -> None:
    topic = client.topic()
    subscription = client.subscription(topic, enable_message_ordering=True)
    stream = client.stream(subscription)
    for n in range(20):
        client.publish(topic, b"a%d" % n, key="a")
        client.publish(topic, b"b%d" % n, key="b")
    seen: list[bytes] = []
    while len(seen) < 40:
        received = list(next(stream.responses()).received_messages)
        seen.extend(data(received))
        client.ack(subscription, *(m.ack_id for m in received))
    for key in (b"a", b"b"):
        assert [item for item in seen if item.startswith(key)] == [key + b"%d" % n for n in range(20)]


def test_a_nack_brings_back_all_later_messages_of_its_key(client: Client, differs: Differs) -> None:
    alone = "redelivers the nacked message alone"
    differs(google=alone, pstest=alone, waits=True)
    topic = client.topic()
    subscription = client.subscription(topic, enable_message_ordering=True)
    stream = client.stream(subscription)
    client.publish(topic, b"1", b"2", b"3", key="k")
    first = stream.receive(3)
    client.ack(subscription, first[2].ack_id)
    client.modack(subscription, 0, first[1].ack_id)
    assert data(stream.receive(2)) == [b"2", b"3"]


def test_a_half_closed_stream_ends_normally(client: Client) -> None:
    stream = client.stream(client.subscription(client.topic()))
    stream.finish_sending()
    assert list(stream.responses()) == []
