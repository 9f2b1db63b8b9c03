"""Leases over simulated time: everything held is extended, nothing beyond its bound, and nothing more often than needed."""

from __future__ import annotations

import pytest

from flink_pubsub.core.acks import AckTracker
from flink_pubsub.core.chunks import Delivery
from flink_pubsub.core.deadlines import DeadlineEstimator
from flink_pubsub.core.known import KnownMessages
from flink_pubsub.core.leases import LeaseBook

HOUR = 3600


class Held:
    """Messages held until a test lets them go."""

    def __init__(self, *ack_ids: str) -> None:
        self.ack_ids = list(ack_ids)
        self.lapsed_at: float | None = None

    def leased(self) -> list[str]:
        return self.ack_ids

    def lapse(self, now: float) -> list[str]:
        self.lapsed_at = now
        return []


class Service:
    """The server's view: when each lease ends, on a clock that a test moves."""

    def __init__(self, book: LeaseBook, length: int = 10) -> None:
        self.book = book
        self.length = length
        self.ends: dict[str, float] = {}
        self.sent = 0

    def deliver(self, held: Held, now: float, deadline: int) -> None:
        self.book.grant(held, now, deadline)
        self.ends.update(dict.fromkeys(held.ack_ids, now + deadline))

    def tick(self, now: float) -> None:
        due = self.book.due(now, self.length)
        for extension in due.extensions:
            assert 0 < extension.seconds <= 600
            for ack_id in extension.ack_ids:
                assert self.ends[ack_id] > now, f"{ack_id} lapsed before it was extended"
                self.ends[ack_id] = now + extension.seconds
                self.sent += 1
        for members in due.lapsing:
            members.lapse(now)


@pytest.mark.feature("SRC-13")
@pytest.mark.parametrize(("deadline", "length"), [(10, 10), (10, 60), (60, 10), (600, 600), (60, 17)])
def test_what_is_held_never_lapses_for_as_long_as_it_may_be_held(deadline: int, length: int) -> None:
    service = Service(LeaseBook(HOUR), length)
    service.deliver(Held("a"), 0, deadline)
    now = 0.0
    while now < HOUR - 1:
        now += 0.1
        service.tick(now)
        assert service.ends["a"] > now


@pytest.mark.feature("SRC-13")
def test_nothing_is_extended_beyond_the_bound_after_its_receipt() -> None:
    service = Service(LeaseBook(100), 60)
    service.deliver(Held("a"), 5, 10)
    for step in range(4000):
        service.tick(5 + step / 10)
    assert 104 <= service.ends["a"] <= 105
    assert service.sent < 10


@pytest.mark.feature("SRC-13")
def test_a_bound_of_zero_extends_nothing() -> None:
    book = LeaseBook(0)
    book.grant(Held("a"), 0, 10)
    assert [extension for step in range(600) for extension in book.due(step / 10, 10).extensions] == []


@pytest.mark.feature("SRC-13")
@pytest.mark.parametrize(
    ("bound", "deadline", "ends"), [(100, 10, 100), (3600, 60, 3600), (25.5, 10, 25), (0, 10, 10), (5, 60, 60)]
)
def test_messages_are_told_a_second_before_the_last_of_their_leases_ends(bound: float, deadline: int, ends: float) -> None:
    service = Service(LeaseBook(bound), 10)
    held = Held("a")
    service.deliver(held, 0, deadline)
    step = 0
    while held.lapsed_at is None:
        step += 1
        service.tick(step / 10)
        assert step / 10 < service.ends["a"]
    assert ends - 2 < held.lapsed_at + 1 <= ends + 0.01
    assert service.ends["a"] - held.lapsed_at == pytest.approx(1, abs=0.1)


def test_what_is_acknowledged_within_two_seconds_costs_no_extension() -> None:
    service = Service(LeaseBook(HOUR))
    held = Held("a")
    service.deliver(held, 0, 10)
    service.tick(1.9)
    held.ack_ids = []
    service.tick(2.1)
    assert service.sent == 0


def test_messages_that_may_have_waited_unread_are_extended_before_half_their_deadline_is_over() -> None:
    book = LeaseBook(HOUR)
    book.grant(Held("a"), 100, 10, waited=6)
    assert [extension.ack_ids for extension in book.due(100, 10).extensions] == [["a"]]


def test_arrivals_within_a_tenth_of_a_second_share_one_lease() -> None:
    book = LeaseBook(HOUR)
    for i in range(50):
        book.grant(Held(str(i)), i / 1000, 10)
    assert len(book.due(2.0, 10).extensions) == 1
    assert len(book._due) == 1


def test_a_shorter_deadline_does_not_join_a_longer_lease() -> None:
    service = Service(LeaseBook(HOUR), 10)
    service.deliver(Held("long"), 0, 60)
    service.deliver(Held("short"), 0.01, 10)
    for step in range(600):
        service.tick(step / 10)
        assert service.ends["short"] > step / 10


@pytest.mark.feature("BEY-01")
def test_a_redelivered_message_has_a_lease_of_its_own_and_the_old_one_no_longer_counts() -> None:
    tracker: AckTracker[str] = AckTracker(KnownMessages())
    book = LeaseBook(100)
    chunk = tracker.receive(Delivery(["a1", "b1"], ["a", "b"], [1, 1], ["", ""]), 0).chunk
    assert chunk is not None
    book.grant(chunk, 0, 10)
    again = tracker.receive(Delivery(["a2"], ["a"], [1], [""]), 90).redelivered
    assert again is not None
    book.grant(again, 90, 10)
    extended: dict[str, float] = {}
    for step in range(3000):
        for extension in book.due(step / 10, 10).extensions:
            extended.update(dict.fromkeys(extension.ack_ids, step / 10 + extension.seconds))
    assert set(extended) == {"a2", "b1"}
    assert 99 <= extended["b1"] <= 100
    assert 189 <= extended["a2"] <= 190


def test_the_deadline_starts_short_and_follows_how_long_messages_are_held() -> None:
    estimator = DeadlineEstimator()
    assert estimator.seconds == 10
    estimator.held(58, 10_000)
    assert estimator.adapt() == 60
    estimator.held(2, 10_000_000)
    estimator.held(1, 1)
    assert estimator.adapt() == 10


def test_one_message_in_a_million_does_not_stretch_the_deadline() -> None:
    estimator = DeadlineEstimator()
    estimator.held(300, 1)
    estimator.held(14, 999_999)
    assert estimator.adapt() == 15


@pytest.mark.feature("SRC-13")
def test_the_users_bounds_hold_whatever_is_observed() -> None:
    estimator = DeadlineEstimator(30, 45)
    assert estimator.seconds == 30
    estimator.held(1, 100)
    assert estimator.adapt() == 30
    estimator.held(500, 100)
    assert estimator.adapt() == 45
