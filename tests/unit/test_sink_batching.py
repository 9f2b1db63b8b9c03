"""How messages become publish requests."""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flink_pubsub.core.batching import MAX_REQUEST_BYTES, Batch, Batcher, Thresholds, varint
from flink_pubsub.wire.pubsub_pb2 import PublishRequest, PubsubMessage
from tests.unit.sink_support import entries

TOPIC = "projects/p/topics/t"


def entry(text: str, key: str = "") -> bytes:
    return entries([PubsubMessage(data=text.encode(), ordering_key=key)])[0]


def add(batcher: Batcher, texts: list[str], key: str = "", topic: str = TOPIC, now: float = 0) -> None:
    made = [entry(text, key) for text in texts]
    batcher.add((topic, key), b"".join(made), list(accumulate(map(len, made))), now)


def released(batcher: Batcher, now: float = 0, patience: float = 0) -> list[Batch]:
    batches = []
    while (batch := batcher.released() or batcher.due(now, patience)) is not None:
        batches.append(batch)
    return batches


def texts(batch: Batch) -> list[str]:
    request = PublishRequest.FromString(batch.request)
    assert request.topic == batch.lane[0]
    return [message.data.decode() for message in request.messages]


def make(messages: int = 1000, size: int = 10_000_000, delay: float = 1) -> Batcher:
    return Batcher(Thresholds(messages, size, delay))


@pytest.mark.feature("SNK-04")
def test_a_batch_goes_when_it_has_as_many_messages_as_asked_for() -> None:
    batcher = make(messages=2)
    add(batcher, ["a", "b", "c"])
    assert [texts(batch) for batch in released(batcher)] == [["a", "b"]]


@pytest.mark.feature("SNK-04")
def test_a_batch_goes_when_it_has_as_many_bytes_as_asked_for() -> None:
    batcher = make(size=2 * len(entry("a")))
    add(batcher, ["a"])
    assert released(batcher) == []
    add(batcher, ["b", "c"])
    assert [texts(batch) for batch in released(batcher)] == [["a", "b"]]


@pytest.mark.feature("SNK-04")
def test_a_message_that_would_exceed_the_byte_threshold_opens_the_next_batch() -> None:
    batcher = make(size=2 * len(entry("a")) + 1)
    add(batcher, ["a", "bbbb"])
    assert [texts(batch) for batch in released(batcher)] == [["a"]]


@pytest.mark.feature("SNK-04")
def test_a_message_larger_than_the_byte_threshold_goes_alone() -> None:
    batcher = make(size=10)
    add(batcher, ["a", "b" * 50, "c"])
    assert [texts(batch) for batch in released(batcher)] == [["a"], ["b" * 50]]


@pytest.mark.feature("SNK-04")
def test_a_batch_goes_when_its_first_message_has_waited_for_the_delay() -> None:
    batcher = make(delay=1)
    add(batcher, ["a"], now=10)
    add(batcher, ["b"], now=10.9)
    assert batcher.next_due() == 11
    assert released(batcher, 10.9) == []
    assert [texts(batch) for batch in released(batcher, 11)] == [["a", "b"]]
    assert batcher.next_due() is None


@pytest.mark.feature("SNK-04")
def test_a_batch_that_is_due_grows_until_it_is_sent() -> None:
    batcher = make(messages=3, delay=1)
    add(batcher, ["a"], now=10)
    batcher.send_now()
    add(batcher, ["b"], now=12)
    assert [texts(batch) for batch in released(batcher, 12)] == [["a", "b"]]
    add(batcher, ["c"], now=12)
    assert released(batcher, 12) == [], "what comes after is not hurried"


def test_a_batch_is_due_later_where_patience_is_asked_for_hurried_or_not() -> None:
    batcher = make(delay=1)
    add(batcher, ["a"], now=10)
    batcher.send_now()
    assert batcher.next_due(0.5) == 11.5
    assert released(batcher, 11.4, patience=0.5) == []
    assert [texts(batch) for batch in released(batcher, 11.5, patience=0.5)] == [["a"]]


@pytest.mark.feature("SNK-04")
def test_topics_do_not_share_requests() -> None:
    batcher = make()
    add(batcher, ["a"], topic="projects/p/topics/one")
    add(batcher, ["b"], topic="projects/p/topics/two")
    batcher.send_now()
    assert [(batch.lane[0], texts(batch)) for batch in released(batcher)] == [
        ("projects/p/topics/one", ["a"]),
        ("projects/p/topics/two", ["b"]),
    ]


def test_a_request_with_its_topic_never_exceeds_what_the_service_takes_whatever_the_threshold() -> None:
    batcher = make(size=10**9)
    add(batcher, ["x" * 1_000_000] * 25)
    batcher.send_now()
    requests = released(batcher)
    assert [batch.messages for batch in requests] == [9, 9, 7]
    assert max(len(batch.request) for batch in requests) <= MAX_REQUEST_BYTES


def test_a_request_of_exactly_the_largest_size_is_one_request() -> None:
    topic_field = len(PublishRequest(topic=TOPIC).SerializeToString())
    room = MAX_REQUEST_BYTES - topic_field - len(entry("a"))
    text = "x" * (room - (len(entry("x" * 5_000_000)) - 5_000_000))
    batcher = make(size=10**9)
    add(batcher, ["a", text])
    (batch,) = released(batcher)
    assert len(batch.request) == MAX_REQUEST_BYTES


def test_an_entry_too_large_for_any_request_still_goes_for_the_service_to_judge() -> None:
    batcher = make(size=10**9)
    add(batcher, ["a", "x" * (MAX_REQUEST_BYTES + 1), "b"])
    batcher.send_now()
    assert [batch.messages for batch in released(batcher)] == [1, 1, 1]


def test_a_request_never_holds_more_than_a_thousand_messages_whatever_the_threshold() -> None:
    batcher = make(messages=5000)
    add(batcher, ["a"] * 2500)
    batcher.send_now()
    assert [batch.messages for batch in released(batcher)] == [1000, 1000, 500]


@pytest.mark.feature("SNK-07")
def test_the_next_batch_of_a_key_goes_when_the_one_before_has_its_answer() -> None:
    batcher = make(messages=2)
    add(batcher, ["a", "b", "c", "d", "e"], key="k")
    (first,) = released(batcher)
    batcher.completed(first)
    (second,) = released(batcher)
    batcher.completed(second)
    (third,) = released(batcher)
    assert [texts(first), texts(second), texts(third)] == [["a", "b"], ["c", "d"], ["e"]]
    batcher.completed(third)
    assert batcher.idle


@pytest.mark.feature("SNK-07")
def test_keys_do_not_wait_for_each_other() -> None:
    batcher = make(messages=1)
    add(batcher, ["a", "b"], key="k")
    add(batcher, ["c"], key="l")
    add(batcher, ["d", "e"])
    assert [texts(batch) for batch in released(batcher)] == [["a"], ["c"], ["d"], ["e"]]


@pytest.mark.feature("SNK-07")
def test_a_key_in_two_topics_is_two_keys() -> None:
    batcher = make(messages=1)
    add(batcher, ["a"], key="k", topic="projects/p/topics/one")
    add(batcher, ["b"], key="k", topic="projects/p/topics/two")
    assert [texts(batch) for batch in released(batcher)] == [["a"], ["b"]]


def test_what_waits_behind_a_key_neither_goes_by_delay_nor_wakes_anyone() -> None:
    batcher = make(messages=1)
    add(batcher, ["a"], key="k")
    (first,) = released(batcher)
    batcher = make(messages=2, delay=1)
    add(batcher, ["a", "b", "c"], key="k")
    (first,) = released(batcher)
    assert batcher.next_due() is None
    assert batcher.due(100) is None
    batcher.send_now()
    assert released(batcher) == []
    batcher.completed(first)
    assert [texts(batch) for batch in released(batcher)] == [["c"]]


def test_no_batch_spans_a_flush() -> None:
    batcher = make()
    add(batcher, ["a"], key="k")
    batcher.flush()
    (first,) = released(batcher)
    add(batcher, ["b"], key="k")
    batcher.flush()
    add(batcher, ["c"], key="k")
    batcher.completed(first)
    (second,) = released(batcher)
    batcher.completed(second)
    (third,) = released(batcher)
    assert [texts(batch) for batch in (first, second, third)] == [["a"], ["b"], ["c"]]


def test_many_keys_leave_nothing_behind() -> None:
    batcher = make()
    for key in range(10_000):
        add(batcher, ["a"], key=str(key))
    batcher.send_now()
    for batch in released(batcher):
        batcher.completed(batch)
    assert batcher.idle


@given(st.integers(0, 2**40))
def test_lengths_are_encoded_as_protobuf_does(value: int) -> None:
    expected = bytearray()
    rest = value
    while rest > 0x7F:
        expected.append(rest & 0x7F | 0x80)
        rest >>= 7
    expected.append(rest)
    assert varint(value) == bytes(expected)


@given(
    thresholds=st.builds(Thresholds, st.integers(1, 5), st.integers(1, 60), st.sampled_from([0.0, 1.0])),
    writes=st.lists(st.tuples(st.sampled_from(["", "k", "l"]), st.lists(st.integers(0, 30), max_size=8)), max_size=12),
    choices=st.randoms(use_true_random=False),
)
def test_nothing_is_lost_and_keys_keep_their_order_however_answers_come(
    thresholds: Thresholds, writes: list[tuple[str, list[int]]], choices: random.Random
) -> None:
    batcher = Batcher(thresholds)
    out: list[Batch] = []
    sent: dict[str, list[str]] = defaultdict(list)
    written: dict[str, list[str]] = defaultdict(list)
    number = 0

    def take(now: float = 0) -> None:
        for batch in released(batcher, now):
            key = batch.lane[1]
            assert not key or all(other.lane != batch.lane for other in out), "two batches of a key are out"
            assert batch.messages <= thresholds.messages
            assert batch.size <= thresholds.size or batch.messages == 1
            assert batch.messages == len(texts(batch))
            sent[key] += texts(batch)
            out.append(batch)

    for now, (key, sizes) in enumerate(writes):
        made = [f"{number + index}:" + "x" * size for index, size in enumerate(sizes)]
        number += len(made)
        written[key] += made
        add(batcher, made, key, now=now)
        take(now if choices.random() < 0.5 else 0)
        while out and choices.random() < 0.4:
            batcher.completed(out.pop(choices.randrange(len(out))))
            take()
    batcher.flush()
    take()
    while out:
        batcher.completed(out.pop(choices.randrange(len(out))))
        take()
    assert {key: value for key, value in sent.items() if value} == {key: value for key, value in written.items() if value}
    assert batcher.idle
