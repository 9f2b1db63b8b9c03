"""What a run found, as a table and as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.measure import Rate


@dataclass(frozen=True)
class Row:
    """A line of the table of minimums: ours against the official client and, where the table says so, the bare loop."""

    name: str
    what: str
    counter: str
    official: float
    """At least so many times the official client."""
    bare_loop: str
    bare: float | None
    """At least this part of the bare loop; None where the table asks for none."""


ROWS = (
    Row("source-raw", "source into Flink, payload decoded in the JVM (SimpleStringSchema)", "acked", 8, "read", 0.5),
    Row("source-python", "source into Flink, Python schema (json.loads)", "acked", 5, "read", None),
    Row("sink-raw", "sink from Flink, payload made in the JVM (SimpleStringSchema)", "published", 8, "publish", 0.5),
    Row("sink-python", "sink from Flink, Python serializer with two attributes", "published", 4, "publish", None),
)


@dataclass
class Result:
    """The rates of a row in messages per second, one of each per round, and the server's CPU load beside each."""

    row: Row
    ours: list[float] = field(default_factory=list)
    official: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)
    server_load: dict[str, list[float]] = field(default_factory=dict)

    @property
    def times_official(self) -> list[float]:
        """Ours by the official client's, per round."""
        return [a / b for a, b in zip(self.ours, self.official, strict=True)]

    @property
    def of_bare(self) -> list[float]:
        """Ours by the bare loop's, per round."""
        return [a / b for a, b in zip(self.ours, self.bare, strict=True)]

    @property
    def met(self) -> bool:
        """Whether the worst round meets the minimums."""
        return min(self.times_official) >= self.row.official and (self.row.bare is None or min(self.of_bare) >= self.row.bare)

    def lines(self) -> list[str]:
        """The row for the terminal."""
        verdict = "met" if self.met else "MISSED"
        asked = "" if self.row.bare is None else f", at least {self.row.bare:g}"
        return [
            f"{self.row.name}: {self.row.what}: {verdict}",
            f"  msg/s   ours {_span(self.ours)}   official {_span(self.official)}   bare {_span(self.bare)}",
            f"  ratios  {_span(self.times_official, 1)} x official, at least {self.row.official:g};"
            f"   {_span(self.of_bare, 2)} of bare{asked}",
        ]

    def json(self) -> dict[str, Any]:
        """The row with everything measured."""
        return {**asdict(self), "times_official": self.times_official, "of_bare": self.of_bare, "met": self.met}


@dataclass(frozen=True)
class SpreadRow:
    """A line of the table that sets many topics or splits beside one."""

    name: str
    what: str
    counter: str
    spread: int
    most: float
    """A message may cost at most so many times as much."""


SPREAD_ROWS = (
    SpreadRow("sink-topics", "topics of one writer, chosen per record by a resolver", "published", 100, 1.5),
    SpreadRow("source-splits", "splits of one reader, payload decoded in the JVM", "acked", 32, 1.5),
)


@dataclass
class Spread:
    """The rates of such a row with one and with many, one of each per round."""

    row: SpreadRow
    one: list[Rate] = field(default_factory=list)
    many: list[Rate] = field(default_factory=list)

    @property
    def times(self) -> list[float]:
        """The CPU time of a message with many by that with one, per round."""
        return [b.cost / a.cost for a, b in zip(self.one, self.many, strict=True)]

    @property
    def met(self) -> bool:
        """Whether the worst round is below the bound."""
        return max(self.times) <= self.row.most

    def lines(self) -> list[str]:
        """The row for the terminal."""
        verdict = "met" if self.met else "MISSED"
        lines = [f"{self.row.name}: 1 -> {self.row.spread} {self.row.what}: {verdict}"]
        for count, rates in ((1, self.one), (self.row.spread, self.many)):
            costs, speeds = [rate.cost for rate in rates], [rate.per_second for rate in rates]
            lines.append(f"  {count:<6}  {_span(costs, 2)} µs CPU a message, JVM and worker   {_span(speeds)} msg/s")
        return [*lines, f"  ratio   {_span(self.times, 2)} x the CPU, at most {self.row.most:g}"]

    def json(self) -> dict[str, Any]:
        """The row with everything measured."""
        return {**asdict(self), "times": self.times, "met": self.met}


@dataclass
class Limit:
    """A figure with an upper bound, measured once per round."""

    name: str
    what: str
    unit: str
    most: float | None
    """None for a figure that is shown only."""
    values: list[float] = field(default_factory=list)

    @property
    def met(self) -> bool:
        """Whether the worst round is below the bound."""
        return self.most is None or max(self.values) < self.most

    def lines(self) -> list[str]:
        """The figure for the terminal."""
        bound = "" if self.most is None else f", below {self.most:g}: {'met' if self.met else 'MISSED'}"
        digits = 0 if max(self.values) >= 10 else 2
        return [f"{self.name}: {self.what}: {_span(self.values, digits)} {self.unit}{bound}"]

    def json(self) -> dict[str, Any]:
        """The figure with its verdict."""
        return {**asdict(self), "met": self.met}


def _span(values: list[float], digits: int = 0) -> str:
    """Worst to best, or the one value."""
    low, high = f"{min(values):,.{digits}f}", f"{max(values):,.{digits}f}"
    return low if low == high else f"{low} to {high}"
