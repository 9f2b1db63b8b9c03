"""The parts of the demo that decide whether it has succeeded."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any

import pytest

from flink_pubsub.demo import flights as data
from flink_pubsub.demo.delays import Departure, DepartureSchema, Hour, destination, from_json, hours_of, to_json
from flink_pubsub.demo.errors import DemoError
from flink_pubsub.demo.flights import read_flights
from flink_pubsub.demo.reconcile import Expected, Outcome
from flink_pubsub.demo.terminal import table
from flink_pubsub.destinations import SubscriptionDestination, TopicDestination
from flink_pubsub.messages import PubsubMessage
from flink_pubsub.sink import SinkContext

_ON_TIME: Departure = ("EWR", "2013-01-01T10:00:00Z", 5, "UA1545 2013-01-01T10:00:00Z", 2)
_LATE: Departure = ("EWR", "2013-01-01T10:00:00Z", 5, "UA1714 2013-01-01T10:00:00Z", 15)
_CANCELLED: Departure = ("EWR", "2013-01-01T10:00:00Z", 5, "AA1141 2013-01-01T10:00:00Z", None)
_HOUR = Hour("EWR", "2013-01-01T10:00:00Z", 5, flights=3, cancelled=1, late=1, delay=17)


@dataclass
class _Collected:
    records: list[tuple[Any, Any]]

    def collect(self, record: Any, timestamp: Any = None) -> None:
        self.records.append((record, timestamp))


def test_a_flight_has_numbers_as_numbers_and_nothing_for_what_is_not_known() -> None:
    flights = list(read_flights(840))

    assert flights[0]["flight"] == 1545
    assert flights[0]["carrier"] == "UA"
    assert flights[0]["time_hour"] == "2013-01-01T10:00:00Z"
    cancelled = [flight for flight in flights if flight["dep_time"] is None]
    assert cancelled
    assert all(flight["dep_delay"] is None for flight in cancelled)


def test_data_that_is_not_installed_is_an_error_that_names_the_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(DemoError, match=r"pip install 'flink-pubsub\[demo\]'"):
        next(read_flights(1))


def test_a_departure_carries_its_scheduled_hour_as_event_time() -> None:
    collected = _Collected([])
    message = PubsubMessage(
        b'{"origin":"EWR","time_hour":"2013-01-01T10:00:00Z","hour":5,"carrier":"UA","flight":1545,"dep_delay":2}'
    )

    DepartureSchema().deserialize(message, SubscriptionDestination("new-york", "flights-ewr"), collected)

    assert collected.records == [(_ON_TIME, 1_357_034_400_000)]


def test_a_flight_delivered_twice_counts_once() -> None:
    assert list(hours_of([_ON_TIME, _LATE, _CANCELLED, _LATE])) == [(_HOUR, 4)]


def test_departures_of_a_window_are_told_apart_by_hour() -> None:
    later: Departure = ("EWR", "2013-01-01T11:00:00Z", 6, "UA1 2013-01-01T11:00:00Z", 0)

    assert [hour.hour for hour, _ in hours_of([_ON_TIME, later])] == [5, 6]


def test_a_result_survives_its_way_through_a_topic_of_its_airport() -> None:
    assert from_json(to_json((_HOUR, 4))) == (_HOUR, 4)
    assert destination((_HOUR, 4), SinkContext(None, None)) == TopicDestination("new-york", "delays-ewr")


def test_the_file_gives_the_same_hours_as_the_job() -> None:
    expected = Expected()
    flights = list(read_flights(500))
    for flight in flights:
        expected.add(flight)
    collected = _Collected([])
    schema = DepartureSchema()
    for flight in flights:
        schema.deserialize(PubsubMessage(data.json_of(flight)), SubscriptionDestination("new-york", "flights-ewr"), collected)

    found = {(hour.airport, hour.time): hour for hour, _ in hours_of(record for record, _ in collected.records)}

    assert found == expected.hours()


def _outcome(*results: tuple[Hour, int], published: int = 3) -> Outcome:
    outcome = Outcome(published)
    outcome.add(results)
    return outcome


def test_a_right_outcome_has_nothing_lost_and_no_mismatch() -> None:
    outcome, expected = _outcome((_HOUR, 4), (_HOUR, 4)), {("EWR", _HOUR.time): _HOUR}

    assert outcome.line(expected) == "RESULT published=3 consumed=3 lost=0 duplicates=1 results=1 mismatches=0"


def test_a_flight_the_job_has_not_seen_is_lost_and_makes_its_hour_wrong() -> None:
    outcome, expected = _outcome((_HOUR._replace(flights=2), 2)), {("EWR", _HOUR.time): _HOUR}

    assert outcome.lost == 1
    assert outcome.mismatches(expected) == 1


def test_a_result_that_comes_twice_has_to_be_right_both_times() -> None:
    outcome, expected = _outcome((_HOUR, 3), (_HOUR._replace(delay=0), 3)), {("EWR", _HOUR.time): _HOUR}

    assert outcome.lost == 0
    assert outcome.mismatches(expected) == 1


def test_missing_and_unexpected_hours_are_mismatches() -> None:
    elsewhere = _HOUR._replace(airport="LGA")

    assert _outcome((elsewhere, 3)).mismatches({("EWR", _HOUR.time): _HOUR}) == 2


def test_the_table_has_a_row_per_hour_of_day_and_a_column_per_airport() -> None:
    lines = table([_HOUR, _HOUR._replace(time="2013-01-02T10:00:00Z"), _HOUR._replace(airport="LGA", hour=6)]).splitlines()

    assert lines[2].split() == ["hour", "EWR", "JFK", "LGA"]
    assert [line.split()[0] for line in lines[3:]] == ["05:00", "06:00"]
    assert lines[3].split()[1] == "8.5"
    assert "50%" in lines[3]
    assert "33.3%" in lines[3]
