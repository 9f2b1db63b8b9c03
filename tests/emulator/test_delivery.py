"""What a subscription does with its messages, on the state machine alone."""

from __future__ import annotations

import pytest

from flink_pubsub.emulator.errors import ServiceError
from flink_pubsub.emulator.messages import ACK_ID_LENGTH
from tests.emulator.subscriptions import Bench


def test_a_message_is_delivered_once_while_its_lease_lasts() -> None:
    bench = Bench()
    consumer = bench.consumer()
    bench.publish("a", "b")
    assert list(bench.take(consumer)) == ["a", "b"]
    bench.pass_time(9.99)
    assert bench.take(consumer) == {}


def test_an_expired_message_is_delivered_again_under_another_ack_id() -> None:
    bench = Bench()
    consumer = bench.consumer()
    bench.publish("a")
    first = bench.take(consumer)["a"]
    bench.pass_time(10)
    second = bench.take(consumer)["a"]
    assert first != second
    assert len(first) == len(second) == ACK_ID_LENGTH
    assert bench.subscription.counts().expiries == 1


def test_an_ack_by_an_old_id_is_accepted_and_does_nothing() -> None:
    bench = Bench()
    consumer = bench.consumer()
    bench.publish("a")
    old = bench.take(consumer)["a"]
    bench.pass_time(10)
    bench.take(consumer)
    bench.ack(old)
    counts = bench.subscription.counts()
    assert (counts.outstanding, counts.acked, counts.late_acks) == (1, 0, 1)


def test_a_nacked_message_is_delivered_again_at_once_and_before_newer_ones() -> None:
    bench = Bench()
    consumer = bench.consumer()
    bench.publish("a", "b")
    ids = bench.take(consumer)
    bench.publish("c")
    bench.nack(ids["a"])
    assert list(bench.take(consumer)) == ["a", "c"]
    assert bench.subscription.counts().nacks == 1


def test_an_extended_lease_ends_when_the_extension_does() -> None:
    bench = Bench()
    consumer = bench.consumer()
    bench.publish("a", "b")
    ids = bench.take(consumer)
    bench.pass_time(5)
    bench.extend(600, ids["a"])
    bench.pass_time(5)
    assert list(bench.take(consumer)) == ["b"]
    bench.ack(*(d.ack_id for d in bench.subscription.deliveries or () if d.ack_id != ids["a"]))
    bench.pass_time(594.9)
    assert bench.take(consumer) == {}
    bench.pass_time(0.1)
    assert list(bench.take(consumer)) == ["a"]


def test_a_shortened_lease_ends_early() -> None:
    bench = Bench()
    consumer = bench.consumer(ack_deadline=600)
    bench.publish("a")
    bench.extend(15, bench.take(consumer)["a"])
    bench.pass_time(15)
    assert list(bench.take(consumer)) == ["a"]


def test_leases_begun_shortly_after_one_another_each_end_at_their_own_time() -> None:
    bench = Bench()
    consumer = bench.consumer()
    for data in ("a", "b", "c"):
        bench.publish(data)
        bench.take(consumer)
        bench.now += 0.02
    bench.pass_time(9.94)
    assert bench.subscription.counts().expiries == 1
    bench.pass_time(0.02)
    assert bench.subscription.counts().expiries == 2
    bench.pass_time(0.02)
    assert bench.subscription.counts().expiries == 3


def test_a_stream_s_deadline_governs_what_that_stream_receives() -> None:
    bench = Bench()
    patient, other = bench.consumer(ack_deadline=60), bench.consumer()
    bench.publish("a", "b")
    assert list(bench.take(patient)) == ["a"]
    assert list(bench.take(other)) == ["b"]
    bench.pass_time(10)
    assert list(bench.take(other)) == ["b"]
    bench.pass_time(50)
    assert bench.subscription.counts().expiries == 3


def test_flow_control_counts_messages_until_they_are_acked_nacked_or_expired() -> None:
    bench = Bench()
    consumer = bench.consumer(max_messages=2)
    bench.publish("a", "b", "c", "d", "e", "f")
    ids = bench.take(consumer)
    assert list(ids) == ["a", "b"]
    assert bench.take(consumer) == {}
    bench.ack(ids["a"])
    assert bench.woken == [consumer]
    assert list(bench.take(consumer)) == ["c"]
    bench.nack(ids["b"])
    assert list(bench.take(consumer)) == ["b"]
    bench.pass_time(10)
    assert list(bench.take(consumer)) == ["c", "b"]


def test_flow_control_by_bytes_stops_once_the_limit_is_reached() -> None:
    bench = Bench()
    consumer = bench.consumer(max_bytes=2000)
    for name in ("a", "b", "c"):
        bench.publish(name * 1500)
    ids = bench.take(consumer)
    assert len(ids) == 2
    assert bench.take(consumer) == {}
    bench.ack(*ids.values())
    assert len(bench.take(consumer)) == 1


def test_streams_share_what_waits() -> None:
    bench = Bench()
    streams = [bench.consumer() for _ in range(4)]
    bench.publish(*(f"m{n}" for n in range(100)))
    first_round = [len(bench.take(stream)) for stream in streams]
    assert first_round == [25, 19, 14, 11]


def test_no_more_streams_are_woken_than_there_are_messages() -> None:
    bench = Bench()
    streams = [bench.consumer() for _ in range(3)]
    for stream in streams:
        bench.take(stream)
    bench.publish("a")
    assert bench.woken == streams[:1]


def test_what_a_closed_stream_holds_stays_leased() -> None:
    bench = Bench()
    consumer = bench.consumer()
    bench.publish("a")
    bench.take(consumer)
    bench.subscription.close(consumer, bench.now)
    assert bench.subscription.counts().outstanding == 1
    bench.pass_time(10)
    assert list(bench.take(bench.consumer())) == ["a"]


def test_a_batch_ends_after_about_a_mebibyte() -> None:
    bench = Bench()
    consumer = bench.consumer()
    for n in range(3):
        bench.publish(f"{n}" * 600_000)
    assert len(bench.take(consumer)) == 2
    assert len(bench.take(consumer)) == 1


def test_delivery_attempts_count_nacks_and_expiries_with_a_dead_letter_policy() -> None:
    bench = Bench(dead_letter=True)
    consumer = bench.consumer()
    bench.publish("a")
    assert bench.attempts(consumer) == [1]
    bench.pass_time(10)
    assert bench.attempts(consumer) == [2]
    bench.nack((bench.subscription.deliveries or [])[-1].ack_id)
    assert bench.attempts(consumer) == [3]


def test_there_are_no_delivery_attempts_without_a_dead_letter_policy() -> None:
    bench = Bench()
    bench.publish("a")
    assert bench.attempts(bench.consumer()) is None


@pytest.mark.parametrize("ack_id", ["", "x", "x" * ACK_ID_LENGTH])
def test_an_ack_id_never_given_out_refuses_the_request_whole(ack_id: str) -> None:
    bench = Bench()
    consumer = bench.consumer()
    bench.publish("a")
    good = bench.take(consumer)["a"]
    with pytest.raises(ServiceError, match=r"You have passed an invalid ack ID to the service \(ack_id=" + ack_id):
        bench.ack(good, ack_id)
    assert bench.subscription.counts().outstanding == 1


def test_a_request_without_ack_ids_is_refused() -> None:
    with pytest.raises(ServiceError, match=r"You have not specified an ack ID in the request\."):
        Bench().ack()


@pytest.mark.parametrize("seconds", [-1, 601])
def test_an_ack_deadline_out_of_range_is_refused(seconds: int) -> None:
    bench = Bench()
    bench.publish("a")
    ack_id = bench.take(bench.consumer())["a"]
    with pytest.raises(ServiceError, match=rf"\(ack_deadline={seconds}\). The ack deadline must be between 0 and 600"):
        bench.extend(seconds, ack_id)


def test_settled_deliveries_leave_nothing_behind() -> None:
    bench = Bench(ordered=True)
    consumer = bench.consumer()
    for n in range(50):
        bench.publish(f"m{n}", key=f"k{n}")
        bench.ack(*bench.take(consumer).values())
    bench.pass_time(10)
    counts = bench.subscription.counts()
    assert (counts.acked, counts.backlog, counts.outstanding) == (50, 0, 0)
    assert bench.subscription._backlog.keyed is not None
    assert not bench.subscription._backlog.keyed._keys
    assert not bench.subscription._held._leases
