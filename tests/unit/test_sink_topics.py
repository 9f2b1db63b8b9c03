"""Many topics and many ordering keys: what the writer's core keeps of them."""

from __future__ import annotations

import gc
import sys

import pytest

from flink_pubsub.core.outbox import Settled
from flink_pubsub.core.topics import Topics
from tests.unit.outbox_support import (
    ONE,
    THREE,
    TWO,
    add,
    make,
    missing,
    take,
    texts,
)


def held() -> int:
    """Memory blocks of Python objects."""
    gc.collect()
    return sys.getallocatedblocks()


@pytest.mark.feature("SNK-08")
def test_one_topic_too_many_takes_the_place_of_the_settled_one_that_was_unused_for_longest() -> None:
    topics = Topics(2)
    assert all(topics.admit(path) for path in (ONE, TWO, ONE))
    topics.added(TWO, 1, now=0)
    topics.settled(topics.by_path[TWO], 1)
    assert topics.admit(THREE)
    assert set(topics.by_path) == {ONE, THREE}
    topics.added(ONE, 1, now=0)
    assert topics.admit(TWO)
    assert set(topics.by_path) == {ONE, TWO}, "THREE is the older one that is settled"
    topics.added(TWO, 1, now=0)
    assert not topics.admit(THREE)
    assert set(topics.by_path) == {ONE, TWO}


@pytest.mark.feature("SNK-08")
def test_with_no_settled_topic_everything_new_waits_partial_batches_go_and_nothing_is_dropped() -> None:
    outbox = make(messages=10, max_topics=1)
    add(outbox, ["a"], ONE)
    assert take(outbox) == []
    add(outbox, ["b"], TWO)
    add(outbox, ["c"], ONE)
    (first,) = take(outbox)
    assert texts(first) == [["a"]]
    outbox.flush(1)
    assert outbox.records == 3
    outbox.succeeded(first, 0)
    (second,) = take(outbox)
    assert (second.lane[0], texts(second)) == (TWO, [["b"]])
    assert outbox.topics == 1
    outbox.succeeded(second, 0)
    (third,) = take(outbox)
    assert texts(third) == [["c"]]
    outbox.succeeded(third, 0)
    assert outbox.take_settled() == Settled(3, first.size + second.size + third.size, [1])


@pytest.mark.feature("SNK-08")
def test_a_missing_topic_is_repaired_before_it_makes_room() -> None:
    outbox = make(max_topics=1)
    missing(outbox)
    add(outbox, ["b"], TWO)
    assert take(outbox, 1) == []
    outbox.created(ONE, 1)
    (probe,) = take(outbox, 2)
    assert probe.lane[0] == ONE
    outbox.succeeded(probe, 2)
    assert [batch.lane[0] for batch in take(outbox, 2)] == [TWO]


@pytest.mark.feature("SNK-08")
def test_settled_topics_are_let_go_once_they_have_been_unused_for_longer_than_that() -> None:
    outbox = make()
    for now, topic in enumerate((ONE, TWO, THREE)):
        add(outbox, ["a"], topic, now=now)
    one, _, three = take(outbox, 3)
    outbox.succeeded(one, 3)
    outbox.succeeded(three, 3)
    outbox.release_idle(now=12, seconds=12)
    assert outbox.topics == 3, "not longer, and not settled"
    outbox.release_idle(now=12, seconds=11)
    assert outbox.topics == 2
    outbox.release_idle(now=100, seconds=10)
    assert outbox.topics == 1


@pytest.mark.feature("SNK-08")
def test_ten_thousand_topics_in_turn_keep_to_the_bound() -> None:
    outbox = make(max_topics=100)

    def write(topics: range) -> None:
        for number in topics:
            add(outbox, ["a", "b"], f"projects/p/topics/t{number}")
            for batch in take(outbox):
                outbox.succeeded(batch, 0)
            assert outbox.topics <= 100
        outbox.take_settled()

    write(range(1_000))
    before = held()
    write(range(1_000, 10_000))
    assert held() - before < 500


@pytest.mark.feature("SNK-07")
def test_a_hundred_thousand_keys_leave_nothing_behind_once_settled() -> None:
    outbox = make(max_calls=1000)

    def write(keys: range) -> None:
        for number in keys:
            add(outbox, ["a"], key=f"key-{number}")
            if number % 1000 == 999:
                for batch in take(outbox):
                    outbox.succeeded(batch, 0)
        outbox.take_settled()

    write(range(2_000))
    before = held()
    write(range(2_000, 100_000))
    assert held() - before < 500
    assert outbox.records == 0
    assert outbox._batcher.idle
    assert outbox.wake_at() is None
