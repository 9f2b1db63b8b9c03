"""What one sees: steps with the time they happened, a line of live progress, and the table."""

from __future__ import annotations

import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Iterable

from flink_pubsub.demo.delays import Hour
from flink_pubsub.demo.flights import AIRPORTS

_QUIET = 5.0
"""Seconds between two lines of progress where lines cannot be overwritten."""
_BAR = 14


class Terminal:
    """Prints to stdout; overwrites the progress line if that is a terminal."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._live = sys.stdout.isatty()
        self._shown = ""
        self._last = self._start

    def step(self, text: str) -> None:
        """A step, kept on the screen."""
        self._clear()
        print(f"{self._elapsed()}  {text}", flush=True)

    def progress(self, text: str) -> None:
        """Where things stand; the next one takes its place."""
        now = time.monotonic()
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            line = f"{self._elapsed()}  {text}"[:width]
            print(f"\r{line.ljust(len(self._shown))}", end="", flush=True)
            self._shown = line
        elif now - self._last >= _QUIET:
            self._last = now
            print(f"{self._elapsed()}  {text}", flush=True)

    def _clear(self) -> None:
        if self._shown:
            print(f"\r{' ' * len(self._shown)}\r", end="")
            self._shown = ""

    def _elapsed(self) -> str:
        return f"{time.monotonic() - self._start:6.1f} s"


def table(hours: Iterable[Hour]) -> str:
    """Mean delay, share of late departures and cancellations per airport and hour of day."""
    cells: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for hour in hours:
        cell = cells[hour.hour, hour.airport]
        for index, value in enumerate((hour.flights, hour.cancelled, hour.late, hour.delay)):
            cell[index] += value
    longest = max((_mean(cell) for cell in cells.values()), default=0.0)
    lines = [
        "Departures in 2013: mean delay in minutes, share 15 minutes late or more, share cancelled",
        "",
        "hour  " + "".join(f"  {airport:<{_BAR + 22}}" for airport in AIRPORTS).rstrip(),
    ]
    for number in sorted({number for number, _ in cells}):
        row = "".join("  " + _cell(cells.get((number, airport)), longest) for airport in AIRPORTS)
        lines.append(f"{number:02}:00 {row}".rstrip())
    return "\n".join(lines)


def _cell(cell: list[int] | None, longest: float) -> str:
    if cell is None:
        return " " * (_BAR + 22)
    flights, cancelled, late, _ = cell
    flown = flights - cancelled
    mean = _mean(cell)
    bar = "█" * round(max(0.0, mean) / longest * _BAR) if longest > 0 else ""
    late_share = f"{late / flown:4.0%}" if flown else "   -"
    return f"{mean:6.1f} {bar:<{_BAR}} {late_share} {cancelled / flights:5.1%}   "


def _mean(cell: list[int]) -> float:
    flown = cell[0] - cell[1]
    # Adding zero turns a rounded -0.0 into 0.0.
    return round(cell[3] / flown, 1) + 0.0 if flown else 0.0
