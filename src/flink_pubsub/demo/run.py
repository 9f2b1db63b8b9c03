"""The sequence of the demo. Every wait is bounded, and whatever happens the job, its JVM and the emulator end with it."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from flink_pubsub.demo.delays import PROJECT, flights_name, from_json, results_name
from flink_pubsub.demo.errors import DemoError
from flink_pubsub.demo.flights import AIRPORTS, TOTAL, read_flights
from flink_pubsub.demo.processes import source_workers
from flink_pubsub.demo.reconcile import Expected, Outcome
from flink_pubsub.demo.service import EmulatorProcess
from flink_pubsub.demo.terminal import Terminal, table
from flink_pubsub.demo.traffic import FlightPublisher, receive_all

if TYPE_CHECKING:
    from pyflink.common import JobClient

T = TypeVar("T")

_POLL = 0.2
_STALL = 120.0
"""Seconds without any progress after which the demo gives up."""
_STOP = 120.0
_ANSWER = 10.0
_QUIET = 3.0
"""Seconds without progress after which the job is looked at."""
_ENDED = ("FINISHED", "FAILED", "CANCELED")
_CHECKPOINTS = 10
"""The run spans so many checkpoints at least, whatever the machine's speed, for there to be a half way."""


def run(flights: int = TOTAL) -> int:
    """Runs the demo with the first so many flights of the year. Returns the exit status: 0 if nothing is lost or wrong.

    Raises:
        DemoError: it cannot be run here, or the job failed for good.
    """
    terminal = Terminal()
    next(read_flights(1))
    with ExitStack() as stack:
        emulator = stack.enter_context(EmulatorProcess())
        for airport in AIRPORTS:
            emulator.create(PROJECT, flights_name(airport), ordered=True)
            emulator.create(PROJECT, results_name(airport), ordered=False)
        terminal.step(f"Pub/Sub emulator at {emulator.endpoint}: a topic of flights and one of delays per airport")
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flink-pubsub-demo-")))
        job = _submit(emulator.endpoint, flights, folder)
        stack.callback(_cancel, job)
        terminal.step("PyFlink job submitted: 3 subscriptions, event time windows, 3 result topics, a checkpoint every second")
        publisher = stack.enter_context(FlightPublisher(emulator.endpoint))
        expected = _in_background(lambda: _publish(publisher, flights))
        published = _watch(terminal, emulator, job, publisher, expected, flights)
        terminal.step("every flight is acknowledged; stopping the job with a drain, so that all windows fire")
        _drain(job, folder)
        outcome = Outcome(published)
        for airport in AIRPORTS:
            subscription = f"projects/{PROJECT}/subscriptions/{results_name(airport)}"
            outcome.add(map(from_json, receive_all(emulator.endpoint, subscription)))
        counts = [emulator.counts(PROJECT, flights_name(airport)) for airport in AIRPORTS]
        again = sum(count.delivered - count.received for count in counts)
        terminal.step(f"job finished, {len(outcome.results):,} results drained; {again:,} flights had been delivered again")
    print(f"\n{table(outcome.hours())}\n")
    hours = expected.result().hours()
    print(outcome.line(hours), flush=True)
    return 0 if outcome.lost == 0 and outcome.mismatches(hours) == 0 else 1


def _submit(endpoint: str, flights: int, folder: Path) -> JobClient:
    try:
        from flink_pubsub.demo.job import submit
    except ModuleNotFoundError as error:
        raise DemoError(f"{error}; PyFlink is needed: python -m pip install 'flink-pubsub[demo]'") from error
    outstanding = max(1, flights // (len(AIRPORTS) * _CHECKPOINTS))
    return submit(endpoint, outstanding, folder)


def _drain(job: JobClient, folder: Path) -> None:
    from flink_pubsub.demo.job import drain

    _within(_STOP, lambda: drain(job, folder / "savepoint"), "end")


def _publish(publisher: FlightPublisher, flights: int) -> Expected:
    expected = Expected()
    for flight in read_flights(flights):
        expected.add(flight)
        publisher.add(flight)
    publisher.flush()
    return expected


def _watch(
    terminal: Terminal,
    emulator: EmulatorProcess,
    job: JobClient,
    publisher: FlightPublisher,
    expected: Future[Expected],
    flights: int,
) -> int:
    """Shows progress and kills the source's worker half way; returns the number of flights once all are acknowledged."""
    killed: int | None = None
    recovered = False
    last, since = (0, 0), time.monotonic()
    while True:
        acknowledged = sum(emulator.counts(PROJECT, flights_name(airport)).acked for airport in AIRPORTS)
        published = publisher.published
        terminal.progress(f"published {published:,}   acknowledged {acknowledged:,}   of {flights:,} flights")
        if expected.done():
            flights = min(flights, published)
            if expected.result() and acknowledged >= published and recovered:
                return published
        if killed is None and acknowledged >= flights / 2:
            killed = _kill_worker(terminal, acknowledged)
        elif killed is not None and not recovered and (workers := source_workers()) and killed not in workers:
            recovered = True
            terminal.step(f"Flink restarted the job; worker {workers[0]} took over")
        if (published, acknowledged) != last:
            last, since = (published, acknowledged), time.monotonic()
        elif time.monotonic() - since > _QUIET:
            _check(job, time.monotonic() - since)
        time.sleep(_POLL)


def _check(job: JobClient, idle: float) -> None:
    """Raises DemoError if the job has ended, or nothing has happened for too long."""
    status = _within(_ANSWER, lambda: _status(job), "answer")
    if status in _ENDED:
        cause = _in_background(lambda: job.get_job_execution_result().result()).exception(_ANSWER)
        raise DemoError(f"the job is {status}: {cause}")
    if idle > _STALL:
        raise DemoError(f"no progress for {idle:.0f} s; the job is {status}")


def _kill_worker(terminal: Terminal, acknowledged: int) -> int | None:
    workers = source_workers()
    if not workers:
        return None
    os.kill(workers[0], signal.SIGKILL)
    terminal.step(f"half way ({acknowledged:,} acknowledged): SIGKILL to the source's worker, process {workers[0]}")
    return workers[0]


def _status(job: JobClient) -> str:
    return str(job.get_job_status().result().name)


def _cancel(job: JobClient) -> None:
    """Cancels the job if it still runs; it has failed or finished otherwise."""

    def cancel() -> None:
        if _status(job) not in _ENDED:
            job.cancel().result()

    with suppress(Exception):
        _within(_ANSWER, cancel, "cancel")


def _in_background(call: Callable[[], T]) -> Future[T]:
    """Runs a call on a thread that does not keep the process alive."""
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return future


def _within(seconds: float, call: Callable[[], T], what: str) -> T:
    """The call's result; the calls into the JVM know no time limit of their own."""
    try:
        return _in_background(call).result(seconds)
    except FutureTimeoutError:
        raise DemoError(f"the job did not {what} within {seconds:g} s") from None
