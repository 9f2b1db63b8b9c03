"""The same table from the file, with the standard library alone, and its comparison with what the job published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from flink_pubsub.demo.delays import LATE_MINUTES, Hour
from flink_pubsub.demo.flights import Flight

_Key = tuple[str, str]
"""Airport and scheduled hour."""


class Expected:
    """Counts flights as they are read."""

    def __init__(self) -> None:
        self._local: dict[_Key, int] = {}
        self._flights: Counter[_Key] = Counter()
        self._cancelled: Counter[_Key] = Counter()
        self._late: Counter[_Key] = Counter()
        self._delay: Counter[_Key] = Counter()

    def add(self, flight: Flight) -> None:
        """Counts a flight, which must not have been counted before."""
        key = str(flight["origin"]), str(flight["time_hour"])
        local, delay = flight["hour"], flight["dep_delay"]
        assert isinstance(local, int)
        self._local[key] = local
        self._flights[key] += 1
        if isinstance(delay, int):
            self._late[key] += delay >= LATE_MINUTES
            self._delay[key] += delay
        else:
            self._cancelled[key] += 1

    def hours(self) -> dict[_Key, Hour]:
        """What the job ought to find."""
        return {
            key: Hour(*key, self._local[key], flights, self._cancelled[key], self._late[key], self._delay[key])
            for key, flights in self._flights.items()
        }


@dataclass
class Outcome:
    """What the job found. A result may have come twice; then both must be right."""

    published: int
    results: dict[_Key, set[Hour]] = field(default_factory=dict)
    deliveries: dict[_Key, int] = field(default_factory=dict)

    def add(self, results: Iterable[tuple[Hour, int]]) -> None:
        """Takes results from the result topics."""
        for hour, deliveries in results:
            key = hour.airport, hour.time
            self.results.setdefault(key, set()).add(hour)
            self.deliveries[key] = deliveries

    @property
    def consumed(self) -> int:
        """Different flights the job has seen."""
        return sum(max(hour.flights for hour in hours) for hours in self.results.values())

    @property
    def lost(self) -> int:
        """Flights the job has not seen."""
        return self.published - self.consumed

    @property
    def duplicates(self) -> int:
        """Deliveries of flights that the job had seen already."""
        return sum(self.deliveries.values()) - self.consumed

    def mismatches(self, expected: dict[_Key, Hour]) -> int:
        """Results that are missing, too many, or different."""
        keys = expected.keys() | self.results.keys()
        return sum(key not in expected or self.results.get(key) != {expected[key]} for key in keys)

    def hours(self) -> list[Hour]:
        """Every result once."""
        return [hour for hours in self.results.values() for hour in hours]

    def line(self, expected: dict[_Key, Hour]) -> str:
        """The last line of the demo."""
        return (
            f"RESULT published={self.published} consumed={self.consumed} lost={self.lost} duplicates={self.duplicates}"
            f" results={len(self.results)} mismatches={self.mismatches(expected)}"
        )
