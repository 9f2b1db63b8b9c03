"""Ordering keys of which messages went back: what of them is taken in again, and when."""

from __future__ import annotations

import pytest

from flink_pubsub.core.acks import AckTracker
from flink_pubsub.core.chunks import Delivery, Receipt
from flink_pubsub.core.known import KnownMessages
from flink_pubsub.core.returned import FORGET_SECONDS

pytestmark = [pytest.mark.feature("SRC-22"), pytest.mark.feature("SRC-24")]


class Key:
    """A split that keeps order, and one key of it, with the messages 1, 2 and 3 held; the first has just failed."""

    def __init__(self) -> None:
        self.tracker: AckTracker[str] = AckTracker(KnownMessages(), ordered=True)
        self.arrive("1", "2", "3")
        self.tracker.drain(1, 1000)
        assert self.tracker.nack(1, 0).ack_ids == ["ack-1"], "the service redelivers the others with it"

    def arrive(self, *ids: str, suffix: str = "", now: float = 0) -> Receipt[str]:
        ack_ids = [f"ack-{each}{suffix}" for each in ids]
        return self.tracker.receive(Delivery(ack_ids, [*ids], [1] * len(ids), [*ids], ["key"] * len(ids)), now)

    def taken(self, *ids: str, suffix: str = "", now: float = 0) -> tuple[list[str], list[str]]:
        """What of these is taken in, and which nacks are sent for the others."""
        receipt = self.arrive(*ids, suffix=suffix, now=now)
        return [] if receipt.chunk is None else receipt.chunk.message_ids, receipt.give_back


def test_a_message_whose_lease_ended_before_the_service_heard_of_the_nack_does_not_overtake() -> None:
    key = Key()
    assert key.taken("2", suffix="-again") == ([], ["ack-2-again"])
    assert key.taken("2", suffix="-and-again") == ([], ["ack-2-and-again"])
    key.tracker.heard(["ack-1"])
    assert key.taken("2", "3", suffix="-sent-before") == ([], ["ack-2-sent-before"])
    assert key.taken("1", "2", "3", suffix="-in-order") == (["1", "2", "3"], [])


def test_the_first_message_is_taken_in_whenever_it_comes() -> None:
    key = Key()
    assert key.taken("2", "1", "2", "3") == (["1", "2", "3"], ["ack-2"])


def test_a_key_goes_on_without_its_first_message_when_that_never_comes_again() -> None:
    key = Key()
    key.tracker.heard(["ack-of-another", "ack-1"])
    assert key.taken("2", "3", suffix="-once") == ([], ["ack-2-once"])
    assert key.taken("3", suffix="-alone") == ([], ["ack-3-alone"])
    assert key.taken("2", "3", suffix="-twice") == (["2", "3"], [])
    assert key.taken("4") == (["4"], [])


def test_a_later_message_that_comes_twice_around_an_earlier_one_does_not_overtake_it() -> None:
    key = Key()
    assert key.taken("2", suffix="-unheard") == ([], ["ack-2-unheard"])
    key.tracker.heard(["ack-1"])
    assert key.taken("3", "2", "3", suffix="-b") == ([], ["ack-3-b", "ack-2-b"])
    assert key.taken("3", suffix="-c") == ([], ["ack-3-c"])
    assert key.taken("2", "3", suffix="-d") == (["2", "3"], [])


def test_the_order_of_what_never_was_held_stays_known_when_an_earlier_message_goes_back() -> None:
    one: AckTracker[str] = AckTracker(KnownMessages(), ordered=True)
    held = one.receive(Delivery(["ack-1"], ["1"], [1], ["1"], ["key"]), 0).chunk
    assert held is not None
    assert one.refuse(Delivery(["ack-2"], ["2"], [1], ["2"], ["key"]), 0).give_back == ["ack-2"]
    assert held.lapse(0) == ["ack-1"]
    one.heard(["ack-1"])
    ids = ["3", "2", "3"]
    receipt = one.receive(Delivery([f"ack-{n}" for n in range(3)], ids, [1] * 3, [*ids], ["key"] * 3), 0)
    assert (receipt.chunk, receipt.give_back) == (None, ["ack-0", "ack-1"])


def test_what_a_stream_without_room_brings_of_a_key_goes_back_until_its_first_message_comes() -> None:
    key = Key()
    key.tracker.heard(["ack-1"])
    brought = Delivery(["ack-1-b", "ack-2-b"], ["1", "2"], [1, 1], ["1", "2"], ["key", "key"])
    assert key.tracker.refuse(brought, 0).give_back == ["ack-1-b", "ack-2-b"]
    assert key.taken("2", suffix="-c") == ([], ["ack-2-c"]), "the service may not have heard of the new nacks"
    key.tracker.heard(["ack-1-b", "ack-2-b"])
    assert key.taken("1", "2", suffix="-d") == (["1", "2"], [])


def test_a_key_that_nothing_arrived_for_is_forgotten_when_no_delivery_can_be_that_late() -> None:
    key = Key()
    assert key.taken("2", now=FORGET_SECONDS) == ([], ["ack-2"])
    assert key.taken("3", now=FORGET_SECONDS + 1) == (["3"], [])
