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
class Job:
    """One job of ours: what it is called in its row, what it runs, and over how many topics or splits."""

    label: str
    loop: str
    spread: int = 1


@dataclass(frozen=True)
class PairRow:
    """A line of the table that sets a job of ours beside another one."""

    name: str
    what: str
    counter: str
    base: Job
    job: Job
    most: float | None
    """A message may cost at most so many times as much; None for a row that is shown only."""


PAIR_ROWS = (
    PairRow(
        "sink-topics",
        "1 -> 100 topics in one writer, chosen per record by a resolver",
        "published",
        Job("1 topic", "sink-topics"),
        Job("100 topics", "sink-topics", 100),
        1.5,
    ),
    PairRow(
        "source-splits",
        "1 -> 32 splits in one reader, payload decoded in the JVM",
        "acked",
        Job("1 split", "source-splits"),
        Job("32 splits", "source-splits", 32),
        1.5,
    ),
    PairRow(
        "sql-source-raw",
        "SQL table in the format raw, beside source-raw",
        "acked",
        Job("DataStream", "source-raw"),
        Job("SQL", "sql-source-raw"),
        1.1,
    ),
    PairRow(
        "sql-source-json",
        "SQL table in the format json, seven columns, beside source-python",
        "acked",
        Job("DataStream", "source-python"),
        Job("SQL", "sql-source-json"),
        None,
    ),
    PairRow(
        "sql-sink-raw",
        "SQL table in the format raw, beside sink-raw",
        "published",
        Job("DataStream", "sink-raw"),
        Job("SQL", "sql-sink-raw"),
        None,
    ),
    PairRow(
        "sql-sink-json",
        "SQL table in the format json, seven columns, beside sink-python",
        "published",
        Job("DataStream", "sink-python"),
        Job("SQL", "sql-sink-json"),
        None,
    ),
)


@dataclass
class Pair:
    """What was measured of such a row, one of each per round."""

    row: PairRow
    base: list[Rate] = field(default_factory=list)
    job: list[Rate] = field(default_factory=list)

    @property
    def times(self) -> list[float]:
        """The CPU time of a message by that in the other job, per round."""
        return [b.cost / a.cost for a, b in zip(self.base, self.job, strict=True)]

    @property
    def met(self) -> bool:
        """Whether the worst round is below the bound."""
        return self.row.most is None or max(self.times) <= self.row.most

    def lines(self) -> list[str]:
        """The row for the terminal."""
        row = self.row
        verdict = "" if row.most is None else f": {'met' if self.met else 'MISSED'}"
        lines = [f"{row.name}: {row.what}{verdict}"]
        for job, rates in ((row.base, self.base), (row.job, self.job)):
            costs, speeds = [rate.cost for rate in rates], [rate.per_second for rate in rates]
            lines.append(f"  {job.label:11} {_span(costs, 2)} µs CPU a message, JVM and worker   {_span(speeds)} msg/s")
        asked = "" if row.most is None else f", at most {row.most:g}"
        return [*lines, f"  ratio       {_span(self.times, 2)} x the CPU{asked}"]

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
