"""The ack tracker: every message is in exactly one state, and is acknowledged only when a completed checkpoint covers it."""

from __future__ import annotations

import pytest

from flink_pubsub.core import late
from flink_pubsub.core.acks import AckTracker
from flink_pubsub.core.chunks import Delivery
from flink_pubsub.core.known import KnownMessages
from flink_pubsub.core.positions import TrackerError
from tests.unit.source_support import Whole


def delivery(*ids: str, size: int = 10, suffix: str = "") -> Delivery[str]:
    return Delivery([f"ack-{i}{suffix}" for i in ids], list(ids), [size] * len(ids), [f"payload-{i}" for i in ids])


def tracker() -> AckTracker[str]:
    return AckTracker(KnownMessages())


def drained(tracker: AckTracker[str], count: int = 1000, size: int = 1 << 20) -> list[tuple[int, list[str]]]:
    return [(run.first, run.divided()) for run in tracker.drain(count, size)]


def test_a_bundle_leaves_whole_or_waits_and_is_divided_only_where_nothing_else_would_leave() -> None:
    one = tracker()
    bundles = [Whole([f"{n}-{i}" for i in range(3)], 10) for n in range(3)]
    for n, bundle in enumerate(bundles):
        ids = [f"m{n}-{i}" for i in range(3)]
        one.receive(Delivery([*ids], [*ids], [], bundle), 0)
    assert [(run.first, run.payloads) for run in one.drain(8, 1000)] == [(1, bundles[0]), (4, bundles[1])]
    assert one.drain(1000, 20, at_least_one=False) == []
    assert (one.buffered_messages, one.buffered_bytes) == (3, 30)
    assert drained(one, size=20) == [(7, ["2-0", "2-1"])]
    assert drained(one) == [(9, ["2-2"])]
    assert (one.buffered_messages, one.buffered_bytes, one.held_bytes) == (0, 0, 90)


def test_a_bundle_of_which_a_message_goes_back_is_divided() -> None:
    one = tracker()
    one.receive(Delivery(["a", "b", "c"], ["a", "b", "c"], [], Whole(["A", "B", "C"], 10)), 0)
    assert one.nack(2, 0).ack_ids == ["b"]
    assert (one.buffered_messages, one.buffered_bytes) == (2, 20)
    assert drained(one) == [(1, ["A"]), (3, ["C"])]


@pytest.mark.feature("SRC-15")
def test_a_message_is_acknowledged_by_the_checkpoint_that_covers_it_and_not_before() -> None:
    one = tracker()
    one.receive(delivery("a", "b", "c"), 0)
    assert drained(one) == [(1, ["payload-a", "payload-b", "payload-c"])]
    one.snapshot(7, 2)
    assert one.complete(6, 0).ack_ids == []
    assert one.complete(7, 0).ack_ids == ["ack-a", "ack-b"]
    assert one.held_messages == 1


@pytest.mark.feature("SRC-15")
def test_an_aborted_checkpoint_and_a_lost_notification_are_healed_by_the_next_completed_one() -> None:
    one = tracker()
    one.receive(delivery("a", "b", "c"), 0)
    one.drain(3, 1000)
    one.snapshot(1, 1)
    one.snapshot(2, 2)
    one.snapshot(3, 3)
    assert one.complete(2, 0).message_ids == ["a", "b"]
    assert one.complete(1, 0).message_ids == []
    assert one.complete(9, 0).message_ids == ["c"]


@pytest.mark.feature("SRC-26")
@pytest.mark.feature("BEY-01")
def test_a_redelivery_of_a_held_message_replaces_its_ack_id_and_is_not_emitted_again() -> None:
    one = tracker()
    one.receive(delivery("a", "b"), 0)
    one.drain(1, 1000)
    receipt = one.receive(delivery("b", "a", "c", suffix="-2"), 5)
    assert receipt.redelivered is not None
    assert receipt.redelivered.leased() == ["ack-b-2", "ack-a-2"]
    assert one.held_messages == 3
    assert drained(one) == [(2, ["payload-b", "payload-c"])]
    one.snapshot(1, 3)
    assert one.complete(1, 0).ack_ids == ["ack-a-2", "ack-b-2", "ack-c-2"]


@pytest.mark.feature("BEY-01")
def test_a_redelivery_to_another_split_of_the_subscription_is_recognised() -> None:
    known: KnownMessages[str] = KnownMessages()
    one, two = AckTracker(known), AckTracker(known)
    one.receive(delivery("a"), 0)
    receipt = two.receive(delivery("a", suffix="-2"), 1)
    assert receipt.chunk is None
    assert (one.held_messages, two.held_messages) == (1, 0)
    assert one.close(9) == ["ack-a-2"]


@pytest.mark.feature("BEY-01")
def test_a_delivery_that_crosses_the_acknowledgement_is_acknowledged_too() -> None:
    one = tracker()
    one.receive(delivery("a"), 0)
    one.drain(1, 1000)
    one.snapshot(1, 1)
    acks = one.complete(1, 0)
    receipt = one.receive(delivery("a", suffix="-2"), 1)
    assert (receipt.acknowledge, receipt.chunk) == (["ack-a-2"], None)
    one.forget(acks.message_ids)
    assert one.receive(delivery("a", suffix="-3"), 2).chunk is not None


def test_a_message_twice_in_one_response_counts_once_under_its_last_ack_id() -> None:
    one = tracker()
    twice = Delivery(["first", "second"], ["a", "a"], [5, 5], ["p", "p"])
    assert one.receive(twice, 0).chunk is not None
    assert (one.held_messages, one.close(9)) == (1, ["second"])


def test_a_message_given_back_splits_what_is_drained_and_frees_its_permit() -> None:
    one = tracker()
    one.receive(delivery("a", "b", "c"), 0)
    assert one.nack(2, 1).ack_ids == ["ack-b"]
    assert one.nack(2, 1).ack_ids == []
    assert (one.held_messages, one.held_bytes, one.buffered_messages) == (2, 20, 2)
    assert drained(one) == [(1, ["payload-a"]), (3, ["payload-c"])]
    one.snapshot(1, 3)
    assert one.complete(1, 0).ack_ids == ["ack-a", "ack-c"]
    assert (one.held_messages, one.held_bytes) == (0, 0)


def test_messages_given_back_do_not_count_when_draining() -> None:
    one = tracker()
    one.receive(delivery("a", "b", "c"), 0)
    one.nack(1, 1)
    assert drained(one, 1, 10) == [(2, ["payload-b"])]


@pytest.mark.feature("SRC-11")
def test_draining_is_bounded_by_count_and_bytes_but_takes_one_message_at_least() -> None:
    one = tracker()
    one.receive(delivery("a", "b", "c", "d", size=100), 0)
    assert drained(one, 2, 10_000) == [(1, ["payload-a", "payload-b"])]
    assert drained(one, 2, 10) == [(3, ["payload-c"])]
    assert drained(one, 2, 10) == [(4, ["payload-d"])]
    assert drained(one, 2, 10) == []


def test_small_responses_are_drained_as_one_run() -> None:
    one = tracker()
    one.receive(delivery("a"), 0)
    one.receive(delivery("b"), 0)
    assert drained(one) == [(1, ["payload-a", "payload-b"])]


@pytest.mark.feature("SRC-14")
def test_closing_gives_everything_back_and_whatever_arrives_later() -> None:
    one = tracker()
    one.receive(delivery("a", "b", "c"), 0)
    one.drain(2, 1000)
    one.snapshot(1, 1)
    assert one.close(9) == ["ack-a", "ack-b", "ack-c"]
    assert one.receive(delivery("d"), 1).give_back == ["ack-d"]
    assert one.complete(1, 0).ack_ids == []


@pytest.mark.parametrize("position", [0, 3])
def test_a_position_that_goes_back_or_beyond_what_was_handed_out_is_a_defect(position: int) -> None:
    one = tracker()
    one.receive(delivery("a", "b", "c"), 0)
    one.drain(2, 1000)
    one.snapshot(1, 1)
    with pytest.raises(TrackerError, match="checkpoint 2"):
        one.snapshot(2, position)


def test_a_message_without_an_id_is_refused_since_it_could_not_be_told_from_another() -> None:
    with pytest.raises(TrackerError, match="without a message id"):
        tracker().receive(delivery(""), 0)


@pytest.mark.feature("SRC-13")
@pytest.mark.feature("SRC-22")
def test_where_order_is_kept_the_end_of_a_lease_takes_what_follows_in_the_key_along_and_comes_again_first() -> None:
    def keyed(*ids: str, suffix: str = "") -> Delivery[str]:
        made = delivery(*ids, suffix=suffix)
        made.keys = [each[0] for each in ids]
        return made

    one: AckTracker[str] = AckTracker(KnownMessages(), ordered=True)
    first = one.receive(keyed("a1", "b1", "a2"), 0).chunk
    one.receive(keyed("a3", "c1", "a4", "b2"), 9)
    assert first is not None
    one.drain(4, 1000)
    assert first.lapse(10) == ["ack-a1", "ack-b1"]
    assert one.permits == (1, 10), "c1 alone: what Flink has of the keys has lapsed, the rest went back"
    assert (one.held_messages, one.buffered_messages) == (5, 1)
    assert one.receive(keyed("a5", suffix="-late"), 11).give_back == ["ack-a5-late"]
    again = one.receive(keyed("a1", "a2", "a3", "a4", "a5", "b1", "b2", suffix="-2"), 12)
    assert again.give_back == []
    assert one.permits == (8, 80)
    assert [payload for _, payloads in drained(one) for payload in payloads] == [
        "payload-c1",
        "payload-a4",
        "payload-a5",
        "payload-b2",
    ]
    assert one.close(13) == ["ack-a1-2", "ack-b1-2", "ack-a2-2", "ack-a3-2", "ack-c1", "ack-a4-2", "ack-a5-2", "ack-b2-2"]


@pytest.mark.feature("BEY-01")
def test_what_was_acknowledged_after_its_lease_had_ended_is_acknowledged_again_when_it_comes_again_and_never_emitted() -> None:
    known: KnownMessages[str] = KnownMessages()
    one, two = AckTracker(known), AckTracker(known)
    chunk = one.receive(delivery("a", "b", "c"), 0).chunk
    assert chunk is not None
    one.drain(3, 1000)
    assert chunk.lapse(10) == []
    one.receive(delivery("b", suffix="-2"), 11)
    one.snapshot(1, 3)
    acks = one.complete(1, 0)
    assert (acks.ack_ids, acks.late, acks.message_ids) == (["ack-b-2"], ["ack-a", "ack-c"], ["b"])
    assert (one.held_messages, one.permits) == (0, (0, 0))
    one.forget(acks.message_ids)
    for tracker in (one, two):
        receipt = tracker.receive(delivery("a", "d" + str(id(tracker)), suffix="-3"), 12)
        assert receipt.acknowledge == ["ack-a-3"]
        assert receipt.chunk is not None
        assert len(receipt.chunk.message_ids) == 1


@pytest.mark.feature("BEY-01")
def test_of_late_acknowledgements_the_latest_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late, "REMEMBERED", 2)
    one = tracker()
    chunk = one.receive(delivery("a", "b", "c"), 0).chunk
    assert chunk is not None
    one.drain(3, 1000)
    chunk.lapse(10)
    one.snapshot(1, 3)
    assert one.complete(1, 0).late == ["ack-a", "ack-b", "ack-c"]
    receipt = one.receive(delivery("a", "b", "c", suffix="-2"), 11)
    assert receipt.acknowledge == ["ack-b-2", "ack-c-2"]
    assert receipt.chunk is not None
    assert receipt.chunk.message_ids == ["a"]


@pytest.mark.feature("BEY-01")
def test_a_late_acknowledgement_is_remembered_as_long_as_the_service_may_deliver_again_by_itself() -> None:
    one = tracker()
    chunk = one.receive(delivery("a"), 0).chunk
    assert chunk is not None
    one.drain(1, 1000)
    chunk.lapse(10)
    one.snapshot(1, 1)
    assert one.complete(1, 20).late == ["ack-a"]
    assert one.receive(delivery("a", suffix="-2"), 19 + late.SECONDS).acknowledge == ["ack-a-2"]
    sought = one.receive(delivery("a", suffix="-3"), 20 + late.SECONDS)
    assert (sought.acknowledge, sought.chunk is not None) == ([], True)
