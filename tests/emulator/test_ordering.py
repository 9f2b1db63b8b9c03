"""Ordered delivery, on the state machine alone."""

from __future__ import annotations

from tests.emulator.subscriptions import Bench


def test_messages_of_a_key_go_out_in_order_one_batch_at_a_time() -> None:
    bench = Bench(ordered=True)
    consumer = bench.consumer()
    bench.publish("a1", "a2", key="a")
    ids = bench.take(consumer)
    bench.publish("a3", key="a")
    assert list(ids) == ["a1", "a2"]
    assert bench.take(consumer) == {}
    bench.ack(ids["a2"])
    assert bench.take(consumer) == {}
    bench.ack(ids["a1"])
    assert list(bench.take(consumer)) == ["a3"]


def test_keys_do_not_wait_for_each_other() -> None:
    bench = Bench(ordered=True)
    consumer = bench.consumer()
    bench.publish("a1", key="a")
    bench.take(consumer)
    bench.publish("a2", key="a")
    bench.publish("b1", key="b")
    bench.publish("plain")
    assert sorted(bench.take(consumer)) == ["b1", "plain"]


def test_a_nack_brings_back_all_later_messages_of_the_key_acked_ones_included() -> None:
    bench = Bench(ordered=True)
    consumer = bench.consumer()
    bench.publish("a1", "a2", "a3", "a4", key="a")
    ids = bench.take(consumer)
    bench.ack(ids["a3"])
    bench.nack(ids["a2"])
    again = bench.take(consumer)
    assert list(again) == ["a2", "a3", "a4"]
    bench.ack(ids["a4"])
    assert bench.subscription.counts().late_acks == 1
    bench.ack(ids["a1"], *again.values())
    assert bench.subscription.counts().acked == 4


def test_an_expiry_of_the_first_brings_back_all() -> None:
    bench = Bench(ordered=True)
    consumer = bench.consumer()
    bench.publish("a1", "a2", "a3", key="a")
    ids = bench.take(consumer)
    bench.extend(600, ids["a2"], ids["a3"])
    bench.pass_time(10)
    assert list(bench.take(consumer)) == ["a1", "a2", "a3"]
    assert consumer.outstanding_messages == 3


def test_a_key_stays_with_the_stream_that_holds_it() -> None:
    bench = Bench(ordered=True, batches_per_key=2)
    holder, other = bench.consumer(), bench.consumer()
    bench.publish("a1", key="a")
    ids = bench.take(holder)
    bench.publish("a2", key="a")
    assert bench.take(other) == {}
    ids |= bench.take(holder)
    assert list(ids) == ["a1", "a2"]
    bench.publish("a3", key="a")
    assert bench.take(holder) == {}
    bench.ack(ids["a1"])
    assert bench.take(other) == {}
    assert list(bench.take(holder)) == ["a3"]


def test_a_key_goes_to_another_stream_once_nothing_of_it_is_outstanding() -> None:
    bench = Bench(ordered=True)
    holder, other = bench.consumer(), bench.consumer()
    bench.publish("a1", "a2", key="a")
    ids = bench.take(holder)
    bench.subscription.close(holder, bench.now)
    bench.nack(ids["a2"])
    assert bench.take(other) == {}
    bench.ack(ids["a1"])
    assert list(bench.take(other)) == ["a2"]


def test_flow_control_cuts_a_batch_of_a_key() -> None:
    bench = Bench(ordered=True)
    consumer = bench.consumer(max_messages=2)
    bench.publish("a1", "a2", "a3", key="a")
    ids = bench.take(consumer)
    assert list(ids) == ["a1", "a2"]
    bench.ack(ids["a1"])
    assert bench.take(consumer) == {}
    bench.ack(ids["a2"])
    assert list(bench.take(consumer)) == ["a3"]


def test_streams_share_keys() -> None:
    bench = Bench(ordered=True)
    streams = [bench.consumer() for _ in range(2)]
    for n in range(10):
        bench.publish("x", "y", key=f"k{n}")
    batches = [bench.subscription.take(stream, 0.0) for stream in streams]
    assert [len(batch.messages) if batch else 0 for batch in batches] == [10, 6]


def test_without_ordering_keys_are_carried_but_not_kept_in_order() -> None:
    bench = Bench()
    consumer = bench.consumer()
    bench.publish("a1", "a2", key="a")
    ids = bench.take(consumer)
    bench.publish("a3", key="a")
    bench.nack(ids["a1"])
    assert list(bench.take(consumer)) == ["a1", "a3"]
