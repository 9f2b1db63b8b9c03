"""`python -m benchmarks`: every row against the official client and the bare loop, several rounds in turn."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from benchmarks.measure import Counters, Rate
from benchmarks.processes import Process
from benchmarks.report import PAIR_ROWS, ROWS, Limit, Pair, Result, Row
from benchmarks.worker import BUFFER_BYTES, Reader, bare_acks, checkpoint_acks, waiting_memory

_GROWTH = 4.0
"""Megabytes by which the memory of a reader that waits may move: an extension of its leases takes some."""

_START = 90.0
"""Longest wait for a first message, in seconds: a cold PyFlink on a busy machine takes twenty."""


@dataclass(frozen=True)
class Bench:
    """One run's settings and its server."""

    port: int
    seconds: float
    warm_up: float
    folder: Path
    serial: count[int]

    def resource(self, counter: str) -> str:
        """A subscription or topic that nothing has used before."""
        kind = "topics" if counter == "published" else "subscriptions"
        return f"projects/bench/{kind}/bench-{next(self.serial):04}"

    def log(self, name: str) -> Path:
        """A file for the stderr of a process."""
        return self.folder / f"{name}-{next(self.serial):04}.log"

    def rate(self, module: str, loop: str, counter: str, clients: int = 1, spread: int = 1) -> Rate:
        """Runs clients until they have warmed up, and counts for the window; each uses as many resources as `spread` says."""
        resource = self.resource(counter)
        resources = [resource] if spread == 1 else [f"{resource}.{number:03}" for number in range(spread)]
        arguments = [loop, f"127.0.0.1:{self.port}", *resources]
        grace = 20 if module == "flink_job" else 1
        running: list[Process] = []
        try:
            for _ in range(clients):
                running.append(Process(f"benchmarks.{module}", arguments, self.log(f"{module}-{loop}"), grace=grace))

            def check() -> None:
                for process in running:
                    process.check()

            def cpu() -> float:
                return sum(process.cpu_seconds() for process in running)

            with Counters(self.port, resource) as counters:
                counters.wait(counter, 1, _START, check)
                time.sleep(self.warm_up)
                return counters.rate(counter, self.seconds, check, cpu)
        finally:
            for process in running:
                process.end()


def compare(bench: Bench, row: Row, result: Result) -> None:
    """One round of a row: ours, the official client, the bare loop."""
    for name, module, loop in (
        ("ours", "flink_job", row.name),
        ("official", "official", row.name),
        ("bare", "bare", row.bare_loop),
    ):
        rate = bench.rate(module, loop, row.counter)
        getattr(result, name).append(rate.per_second)
        result.server_load.setdefault(name, []).append(rate.server_load)
        say(f"  {row.name:13} {name:8} {rate.per_second:>12,.0f} msg/s   server busy {rate.server_load:.0%}")


def pair(bench: Bench, result: Pair) -> None:
    """One round of a row that sets one job of ours beside another."""
    row = result.row
    for job, rates in ((row.base, result.base), (row.job, result.job)):
        rate = bench.rate("flink_job", job.loop, row.counter, spread=job.spread)
        rates.append(rate)
        figures = f"{rate.per_second:>12,.0f} msg/s   {rate.cost:.2f} µs CPU each"
        say(f"  {row.name:15} {job.label:11} {figures}   server busy {rate.server_load:.0%}")


def ceilings(bench: Bench) -> list[Limit]:
    """How much the server can do for clients that do nothing."""
    found = []
    for name, loop, counter in (("server out", "drain", "sent"), ("server in", "flood", "published")):
        rate = bench.rate("bare", loop, counter, clients=2)
        limit = Limit(name, f"the server's ceiling, two clients that only {loop}", "msg/s", None, [rate.per_second])
        say(f"  {limit.lines()[0]}")
        found.append(limit)
    return found


def worker_limits(bench: Bench, rounds: int) -> list[Limit]:
    """The rows that look at one worker."""
    first = Limit("worker start", "to the first frame", "s", 0.7)
    ready = Limit("worker ready", "to an opened reader", "s", None)
    memory = Limit("worker memory", "resident, with an opened reader", "MB", 80)
    acks = Limit("checkpoint acks", "100,000 acks of one checkpoint, beyond the server's own time", "s", 0.5)
    for _ in range(rounds):
        with Reader(bench.port, bench.resource("acked")) as reader:
            first.values.append(reader.start.first_frame)
            ready.values.append(reader.start.ready)
            memory.values.append(reader.start.resident / 1e6)
        own = bare_acks(bench.port, bench.resource("acked"))
        acks.values.append(checkpoint_acks(bench.port, bench.resource("acked")) - own)
    limits = [first, ready, memory, acks]
    for limit in limits:
        say(f"  {limit.lines()[0]}")
    return limits


def memory_limits(bench: Bench, rounds: int) -> list[Limit]:
    """The rows that look at a reader which cannot hand anything on."""
    found = []
    for paused in (True, False):
        kind = "paused" if paused else "blocked"
        peak = Limit(f"memory {kind}", "beyond an idle reader's, with a budget of 64 MiB", "MB", 2 * BUFFER_BYTES / 1e6)
        growth = Limit(f"memory {kind} later", f"growth in {bench.seconds:g} s at that", "MB", _GROWTH)
        for _ in range(rounds):
            beyond, grown = waiting_memory(bench.port, bench.resource("acked"), paused, bench.seconds)
            peak.values.append(beyond / 1e6)
            growth.values.append(grown / 1e6)
        found += [peak, growth]
    for limit in found:
        say(f"  {limit.lines()[0]}")
    return found


def run(options: argparse.Namespace, folder: Path) -> int:
    """The whole run; the exit status says whether every minimum was met."""
    results = [Result(row) for row in ROWS if selected(row.name, options.only)]
    pairs = [Pair(row) for row in PAIR_ROWS if selected(row.name, options.only)]
    with Process("benchmarks.server", ["--messages-per-response", str(options.per_response)], folder / "server.log") as server:
        bench = Bench(int(server.line(20)), options.seconds, options.warm_up, folder, count())
        limits = ceilings(bench) if selected("server", options.only) else []
        if selected("worker", options.only):
            limits += worker_limits(bench, options.rounds)
        if selected("memory", options.only):
            limits += memory_limits(bench, options.rounds)
        for number in range(options.rounds if results or pairs else 0):
            say(f"round {number + 1} of {options.rounds}")
            for result in results:
                compare(bench, result.row, result)
            for other in pairs:
                pair(bench, other)
    say("")
    entries: list[Result | Pair | Limit] = [*results, *pairs, *limits]
    for entry in entries:
        say("\n".join(entry.lines()))
    if options.json:
        machine = {"python": platform.python_version(), "cores": os.cpu_count(), "system": platform.platform()}
        settings = {name: value for name, value in vars(options).items() if name != "json"}
        document = {"machine": machine, "settings": settings, "rows": [entry.json() for entry in entries]}
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    return 0 if all(entry.met for entry in entries) else 1


def selected(name: str, only: list[str]) -> bool:
    """Whether a row is wanted: by its name or by the first part of it."""
    return not only or any(name == part or name.startswith(f"{part}-") for part in only)


def say(text: str) -> None:
    """Prints at once, for those who watch."""
    print(text, flush=True)


def main() -> int:
    """Parses the command line and runs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds, each with every client in turn (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=8, help="length of a measured window (default: %(default)s)")
    parser.add_argument("--warm-up", type=float, default=4, help="seconds before the window (default: %(default)s)")
    parser.add_argument("--per-response", type=int, default=500, help="messages per pull response (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="also write everything measured to this file")
    parser.add_argument(
        "--only", type=lambda text: text.split(","), default=[], help="rows, such as source,sink-raw,worker,server"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="flink-pubsub-bench-") as folder:
        return run(options, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
