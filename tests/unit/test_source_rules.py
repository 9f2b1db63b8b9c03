"""The source's small rules: split plan, requests, pings, backoff, rare warnings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flink_pubsub.core.backoff import Backoff
from flink_pubsub.core.keepalive import Keepalive, Step
from flink_pubsub.core.requests import split_ids
from flink_pubsub.core.seldom import Seldom
from flink_pubsub.core.splits import plan_splits
from flink_pubsub.destinations import SubscriptionDestination
from flink_pubsub.options import OrderingMode
from flink_pubsub.wire.pubsub_pb2 import AcknowledgeRequest

SUBSCRIPTIONS = [SubscriptionDestination("project", f"sub-{i}") for i in range(12)]


@pytest.mark.feature("SRC-07")
@given(known=st.integers(1, 12), parallelism=st.integers(1, 40))
def test_without_order_every_subtask_and_every_subscription_has_a_split(known: int, parallelism: int) -> None:
    plan = plan_splits(SUBSCRIPTIONS[:known], OrderingMode.NONE, parallelism)
    assert len(plan) == max(known, parallelism)
    assert {split.subscription for split in plan} == set(SUBSCRIPTIONS[:known])
    assert {split.owner for split in plan} == set(range(parallelism))
    assert len({split.id for split in plan}) == len(plan)
    assert all(s.subscription == SUBSCRIPTIONS[s.index % known] and s.owner == s.index % parallelism for s in plan)


@pytest.mark.feature("SRC-07")
@given(known=st.integers(1, 12), parallelism=st.integers(1, 40))
def test_with_order_each_subscription_is_one_split(known: int, parallelism: int) -> None:
    plan = plan_splits(SUBSCRIPTIONS[:known], OrderingMode.PER_KEY, parallelism)
    assert [split.subscription for split in plan] == SUBSCRIPTIONS[:known]
    assert all(split.owner == split.index % parallelism for split in plan)


def test_a_split_is_named_by_its_subscription_and_index() -> None:
    assert plan_splits(SUBSCRIPTIONS[:1], OrderingMode.NONE, 2)[1].id == "projects/project/subscriptions/sub-0#1"


@given(ids=st.lists(st.text(max_size=60), max_size=200), max_ids=st.integers(1, 50), max_bytes=st.integers(80, 2000))
def test_requests_hold_every_id_once_in_order_and_keep_to_both_limits(ids: list[str], max_ids: int, max_bytes: int) -> None:
    ids = [each.encode("utf-8", "ignore").decode() for each in ids]
    ranges = list(split_ids(ids, max_ids, max_bytes))
    assert [i for low, high in ranges for i in range(low, high)] == list(range(len(ids)))
    for low, high in ranges:
        assert high - low <= max_ids
        size = AcknowledgeRequest(ack_ids=ids[low:high]).ByteSize()
        assert size <= max_bytes or high - low == 1


@pytest.mark.feature("SRC-15")
def test_todays_ack_ids_go_in_requests_of_2500_and_longer_ones_in_smaller_requests() -> None:
    name = "projects/" + "p" * 60 + "/subscriptions/" + "s" * 255
    assert [high - low for low, high in split_ids(["a" * 196] * 5000)] == [2500, 2500]
    for length in (196, 300, 2000):
        ids = ["a" * length] * 5000
        for low, high in split_ids(ids):
            assert AcknowledgeRequest(subscription=name, ack_ids=ids[low:high]).ByteSize() < 524_288


def test_a_ping_goes_out_every_thirty_seconds_while_the_server_answers() -> None:
    keepalive, pings = Keepalive(), []
    keepalive.opened(0)
    for now in range(301):
        step, seconds = keepalive.step(now)
        assert 0 < seconds <= 30
        if step is Step.PING:
            pings.append(now)
            keepalive.heard(empty=True)
    assert pings == list(range(30, 301, 30))


def test_silence_after_a_ping_reopens_the_stream_of_a_server_that_answered_one_before() -> None:
    keepalive = Keepalive()
    keepalive.opened(0)
    assert keepalive.step(30)[0] is Step.PING
    keepalive.heard(empty=True)
    assert keepalive.step(60)[0] is Step.PING
    assert keepalive.step(74.9)[0] is Step.WAIT
    assert keepalive.step(75)[0] is Step.REOPEN
    keepalive.opened(75)
    assert keepalive.step(104)[0] is Step.WAIT


def test_a_server_that_never_answers_pings_is_left_alone() -> None:
    keepalive = Keepalive()
    keepalive.opened(0)
    assert {keepalive.step(now)[0] for now in range(600)} == {Step.WAIT, Step.PING}


def test_any_response_is_life_but_only_an_empty_one_answers() -> None:
    keepalive = Keepalive()
    keepalive.opened(0)
    keepalive.step(30)
    keepalive.heard(empty=False)
    keepalive.step(60)
    assert keepalive.step(76)[0] is Step.WAIT


def test_time_in_which_nobody_reads_is_no_silence() -> None:
    keepalive = Keepalive()
    keepalive.opened(0)
    keepalive.step(30)
    keepalive.heard(empty=True)
    keepalive.reading(False, 50)
    assert keepalive.step(60)[0] is Step.PING
    assert all(keepalive.step(now)[0] is not Step.REOPEN for now in range(61, 500))
    keepalive.reading(True, 500)
    assert keepalive.step(514)[0] is not Step.REOPEN
    assert keepalive.step(515)[0] is Step.REOPEN


def test_delays_grow_to_their_bound_and_start_over_after_a_success() -> None:
    backoff = Backoff(0.1, 2, 10)
    assert [backoff.failed() for _ in range(9)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10]
    backoff.succeeded()
    assert (backoff.failed(), backoff.failures) == (0.1, 1)


def test_a_repeated_warning_passes_once_per_interval_and_tells_how_many_it_stands_for() -> None:
    seldom = Seldom(30)
    assert [seldom.passes(now) for now in (0, 1, 29, 30, 61)] == [0, None, None, 2, 0]
