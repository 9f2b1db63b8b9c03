"""The user code of the job: what a flight is to it, what comes out, and where that goes.

Workers import this module, so it does not import PyFlink.

Deliveries repeat: after a failure the service sends again what was not acknowledged, and some of that may be in the job's state
already. So a window counts flights, which it tells apart by their identity, not deliveries. Both numbers are reported.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from flink_pubsub.destinations import SubscriptionDestination, TopicDestination
from flink_pubsub.messages import PubsubMessage
from flink_pubsub.schemas import Collector, PubSubDeserializationSchema
from flink_pubsub.sink import SinkContext

PROJECT = "new-york"
LATE_MINUTES = 15
"""A departure counts as late from here on, as it does in the official statistics."""

Departure: TypeAlias = tuple[str, str, int, str, "int | None"]
"""Airport, scheduled hour (UTC), hour of day there, the flight's identity, and its delay in minutes: None if cancelled."""


class Hour(NamedTuple):
    """The departures of one hour at one airport."""

    airport: str
    time: str
    hour: int
    """Hour of day, local time."""
    flights: int
    cancelled: int
    late: int
    delay: int
    """Sum of all delays in minutes; early departures count negative."""


class DepartureSchema(PubSubDeserializationSchema):
    """A departure from a flight's JSON, with the hour it was scheduled for as its event time."""

    def deserialize(self, message: PubsubMessage, subscription: SubscriptionDestination, collector: Collector) -> None:
        """Emits one departure per message."""
        flight = json.loads(message.data)
        time = flight["time_hour"]
        identity = f"{flight['carrier']}{flight['flight']} {time}"
        departure: Departure = (flight["origin"], time, flight["hour"], identity, flight["dep_delay"])
        collector.collect(departure, timestamp=milliseconds(time))


@lru_cache(maxsize=10_000)
def milliseconds(time: str) -> int:
    """Milliseconds since the epoch of a time such as 2013-01-01T10:00:00Z."""
    return int(datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp() * 1000)


def hours_of(departures: Iterable[Departure]) -> Iterator[tuple[Hour, int]]:
    """The hours among some departures, each with the number of its deliveries, repeated ones included."""
    flights: dict[tuple[str, str, int], dict[str, int | None]] = {}
    deliveries: dict[tuple[str, str, int], int] = {}
    for airport, time, hour, identity, delay in departures:
        key = (airport, time, hour)
        flights.setdefault(key, {})[identity] = delay
        deliveries[key] = deliveries.get(key, 0) + 1
    for key, delays in flights.items():
        flown = [delay for delay in delays.values() if delay is not None]
        late = sum(delay >= LATE_MINUTES for delay in flown)
        yield Hour(*key, len(delays), len(delays) - len(flown), late, sum(flown)), deliveries[key]


def to_json(result: tuple[Hour, int]) -> bytes:
    """A result's payload."""
    hour, deliveries = result
    return json.dumps({**hour._asdict(), "deliveries": deliveries}).encode()


def from_json(data: bytes) -> tuple[Hour, int]:
    """The result in a payload."""
    fields = json.loads(data)
    deliveries = fields.pop("deliveries")
    return Hour(**fields), deliveries


def destination(result: tuple[Hour, int], context: SinkContext) -> TopicDestination:
    """The topic of a result's airport."""
    return TopicDestination(PROJECT, results_name(result[0].airport))


def flights_name(airport: str) -> str:
    """Id of the topic and subscription with an airport's flights."""
    return f"flights-{airport.lower()}"


def results_name(airport: str) -> str:
    """Id of the topic and subscription with an airport's delays."""
    return f"delays-{airport.lower()}"
