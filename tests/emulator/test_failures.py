"""What becomes of messages that fail: dead letters and retry policies, on the state machine alone."""

from __future__ import annotations

import pytest
from google.protobuf.duration_pb2 import Duration

from flink_pubsub.wire import pubsub_pb2 as wire
from tests.emulator.subscriptions import DEAD_LETTER_TOPIC, SUBSCRIPTION, Bench

pytestmark = pytest.mark.feature("BEY-07")


def with_dead_letters(*, ordered: bool = False, epoch: float = 0.0) -> Bench:
    bench = Bench(dead_letter=True, ordered=ordered, epoch=epoch)
    bench.create_subscription("projects/p/subscriptions/dead-letters", DEAD_LETTER_TOPIC)
    return bench


def dead_letters(bench: Bench) -> list[wire.PubsubMessage]:
    return [message.decode() for message in bench.service.topic(DEAD_LETTER_TOPIC).published]


def fail(bench: Bench, times: int) -> None:
    consumer = bench.consumer()
    for _ in range(times):
        bench.nack(*bench.take(consumer).values())
    bench.subscription.close(consumer, bench.now)


def test_a_message_is_forwarded_after_its_last_attempt_and_says_where_it_comes_from() -> None:
    bench = with_dead_letters(epoch=1_600_000_000.25)
    message = wire.PubsubMessage(data=b"x", attributes={"a": "1"}, ordering_key="k")
    (message_id,) = bench.service.publish(
        wire.PublishRequest(topic="projects/p/topics/orders", messages=[message]), 0, bench.now
    ).message_ids
    fail(bench, 4)
    assert dead_letters(bench) == []
    bench.take(bench.consumer())
    bench.pass_time(10)
    (letter,) = dead_letters(bench)
    assert (letter.data, letter.ordering_key) == (b"x", "k")
    assert letter.message_id != message_id
    assert letter.attributes == {
        "a": "1",
        "CloudPubSubDeadLetterSourceDeliveryCount": "5",
        "CloudPubSubDeadLetterSourceSubscription": "orders",
        "CloudPubSubDeadLetterSourceSubscriptionProject": "p",
        "CloudPubSubDeadLetterSourceTopicPublishTime": "2020-09-13T12:26:40.250Z",
    }
    counts = bench.subscription.counts()
    assert (counts.backlog, counts.outstanding, counts.acked, counts.dead_lettered) == (0, 0, 1, 1)
    assert bench.waiting(bench.service.subscription("projects/p/subscriptions/dead-letters")) == ["x"]


@pytest.mark.parametrize("withheld", [None, SUBSCRIPTION, DEAD_LETTER_TOPIC])
def test_without_the_grants_attempts_rise_until_they_are_given(withheld: str | None) -> None:
    bench = with_dead_letters()
    bench.service.dead_letters.withhold(withheld)
    bench.publish("a")
    fail(bench, 7)
    consumer = bench.consumer()
    assert bench.attempts(consumer) == [8]
    bench.service.dead_letters.grant(withheld)
    bench.pass_time(10)
    assert [letter.attributes["CloudPubSubDeadLetterSourceDeliveryCount"] for letter in dead_letters(bench)] == ["8"]


def test_without_the_dead_letter_topic_attempts_rise() -> None:
    bench = Bench(dead_letter=True)
    bench.service.delete_topic(wire.DeleteTopicRequest(topic=DEAD_LETTER_TOPIC), bench.now)
    bench.publish("a")
    fail(bench, 6)
    assert bench.attempts(bench.consumer()) == [7]


def test_a_forwarded_message_lets_the_later_ones_of_its_key_go_on() -> None:
    bench = with_dead_letters(ordered=True)
    consumer = bench.consumer()
    bench.publish("1", "2", "3", key="k")
    for _ in range(4):
        bench.nack(bench.take(consumer)["1"])
    ids = bench.take(consumer)
    bench.nack(ids["1"], ids["2"])
    assert [letter.data for letter in dead_letters(bench)] == [b"1"]
    assert list(bench.take(consumer)) == ["2", "3"]
    assert [d.attempt for d in list(bench.subscription.deliveries or ())[-2:]] == [2, 1]


def test_all_messages_of_a_key_that_fail_together_count_and_go_in_order() -> None:
    bench = with_dead_letters(ordered=True)
    bench.publish("1", "2", key="k")
    consumer = bench.consumer()
    for _ in range(5):
        bench.take(consumer)
        bench.pass_time(10)
    assert [letter.data for letter in dead_letters(bench)] == [b"1", b"2"]
    bench.publish("3", key="k")
    assert list(bench.take(consumer)) == ["3"]


def retrying(minimum: int, maximum: int, *, ordered: bool = False) -> Bench:
    policy = wire.RetryPolicy(minimum_backoff=Duration(seconds=minimum), maximum_backoff=Duration(seconds=maximum))
    return Bench(ordered=ordered, retry_policy=policy)


def test_a_failed_message_backs_off_longer_each_time_up_to_the_maximum() -> None:
    bench = retrying(10, 60)
    consumer = bench.consumer()
    bench.publish("a")
    waits = []
    for _ in range(5):
        bench.nack(*bench.take(consumer).values())
        assert bench.take(consumer) == {}
        waited = 0
        while not bench.subscription._backlog.ready:
            bench.pass_time(1)
            waited += 1
        waits.append(waited)
        assert bench.woken[-1] is consumer
    assert waits == [10, 20, 40, 60, 60]


def test_an_expiry_backs_off_too_and_the_message_counts_as_backlog_meanwhile() -> None:
    bench = retrying(20, 600)
    consumer = bench.consumer()
    bench.publish("a")
    bench.take(consumer)
    bench.pass_time(10)
    assert bench.subscription.counts().backlog == 1
    bench.pass_time(19.9)
    assert bench.take(consumer) == {}
    bench.pass_time(0.1)
    assert list(bench.take(consumer)) == ["a"]


def test_a_key_waits_whole_while_one_of_its_messages_backs_off() -> None:
    bench = retrying(10, 600, ordered=True)
    consumer = bench.consumer()
    bench.publish("a1", "a2", "a3", key="a")
    bench.publish("b1", key="b")
    ids = bench.take(consumer)
    bench.nack(ids["a2"])
    bench.publish("a4", key="a")
    assert bench.take(consumer) == {}
    bench.pass_time(9)
    bench.ack(ids["a1"], ids["b1"])
    assert bench.take(consumer) == {}
    bench.pass_time(1)
    assert list(bench.take(consumer)) == ["a2", "a3", "a4"]


def test_a_key_waits_as_long_as_the_last_of_its_failures_says() -> None:
    bench = retrying(10, 600, ordered=True)
    consumer = bench.consumer()
    bench.publish("a1", "a2", key="a")
    ids = bench.take(consumer)
    bench.nack(ids["a2"])
    bench.pass_time(5)
    bench.nack(ids["a1"])
    bench.pass_time(5)
    assert bench.take(consumer) == {}
    bench.pass_time(5)
    assert list(bench.take(consumer)) == ["a1", "a2"]
