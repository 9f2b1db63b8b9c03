"""Publishes what a writer takes over, to any number of topics over one channel.

Decisions are the outbox's; this file owns the lock around it, the clock, the calls and one thread that wakes up for batch
delays and retries. Calls start on whichever thread made a batch ready: the writer's, the timer's, or the one of gRPC that
brought the previous answer. One channel carries all topics: its connection takes any
number of calls.

Every batch that was not published comes back to `_unpublished`, the one place that decides what becomes of it. Failure
ends the publisher: `fail` is called once, and nothing is settled after it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias

import grpc

from flink_pubsub.core.batching import Batch, Lane
from flink_pubsub.core.outbox import Outbox
from flink_pubsub.errors import PublishError
from flink_pubsub.rpc.publish import Call, PublishStub, answer
from flink_pubsub.rpc.status import Purpose, Status

MAX_CALLS = 200
"""Publish calls out at a time. Servers cancel calls beyond about 1,000 pending ones, and a channel gets no faster with more."""

Entries: TypeAlias = tuple[Lane, "bytes | memoryview", Sequence[int]]
"""Where messages go, their entries in one buffer, and where each entry ends in it."""


class PublishListener(Protocol):
    """Hears what becomes of the messages. Called from any thread, one call at a time for `settled` and `flushed`."""

    def settled(self, records: int, size: int) -> None:
        """So many records with so many bytes of entries are published."""

    def flushed(self, flush: int) -> None:
        """Everything added before this flush is published."""

    def fail(self, error: BaseException) -> None:
        """Publishing has ended; called once."""


class Publisher:
    """Owns the channel given to it. `add`, `send_now` and `flush` never wait for the service; any thread may call them."""

    def __init__(
        self, channel: grpc.Channel, outbox: Outbox, listener: PublishListener, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._channel = channel
        self._stub = PublishStub(channel)
        self._outbox = outbox
        self._listener = listener
        self._clock = clock
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._calls: dict[Batch, Call] = {}
        self._out = 0
        self._timer_sleeps_until: float | None = None
        self._reporting = False
        self._ended = False
        self._timer = threading.Thread(target=self._run_timer, name="publish-timer", daemon=True)
        self._timer.start()

    def add(self, entries: Iterable[Entries]) -> None:
        """Takes over messages, in order."""
        with self._lock:
            now = self._clock()
            for lane, data, ends in entries:
                self._outbox.add(lane, data, ends, now)
        self._proceed()

    def send_now(self) -> None:
        """Lets partial batches go."""
        with self._lock:
            self._outbox.send_now()
        self._proceed()

    def flush(self, flush: int) -> None:
        """Lets everything go; the listener hears `flushed` once all of it is published."""
        with self._lock:
            self._outbox.flush(flush)
        self._proceed()

    @property
    def in_flight(self) -> tuple[int, int]:
        """Records and bytes taken over and not yet published. Takes no lock; the two may be of different moments."""
        return self._outbox.records, self._outbox.size

    def close(self, seconds: float) -> None:
        """Cancels what is out and ends every thread, within the budget. Nothing is settled after it."""
        deadline = self._clock() + seconds
        self._end()
        self._timer.join(seconds)
        with self._lock:
            while self._out and (left := deadline - self._clock()) > 0:
                self._changed.wait(left)
        self._channel.close()

    def _proceed(self) -> None:
        """Starts the calls that may start, reports what is settled, and sees that the timer wakes up in time."""
        while True:
            with self._lock:
                batches = self._outbox.take(self._clock())
                self._out += len(batches)
                if not batches:
                    wake_at = self._outbox.wake_at()
                    sleeps_until = self._timer_sleeps_until
                    if wake_at is not None and (sleeps_until is None or wake_at < sleeps_until):
                        self._changed.notify_all()
                    break
            for batch, timeout in batches:
                self._start(batch, timeout)
        self._report()

    def _start(self, batch: Batch, timeout: float | None) -> None:
        try:
            call = self._stub.start(batch.lane[0], batch.request, timeout)
        except ValueError as error:  # the channel was closed meanwhile
            self._answered(batch, Status(grpc.StatusCode.CANCELLED, f"the call could not start: {error}"))
            return
        with self._lock:
            self._calls[batch] = call
            ended = self._ended
        if ended:
            call.cancel()
        call.add_done_callback(lambda done: self._answered(batch, answer(done, batch.messages)))

    def _answered(self, batch: Batch, status: Status | None) -> None:
        """An answer came; on a thread of gRPC's."""
        try:
            with self._lock:
                self._calls.pop(batch, None)
                self._out -= 1
                if self._ended:
                    self._changed.notify_all()
                    return
                if status is None:
                    self._outbox.succeeded(batch)
                    error = None
                else:
                    error = self._unpublished(batch, status)
            if error is not None:
                self._fail(error)
            self._proceed()
        except Exception as defect:  # gRPC would only log it, and the job would wait for ever
            self._fail(defect)

    def _unpublished(self, batch: Batch, status: Status) -> PublishError | None:
        """Decides what becomes of a batch that was not published: returns what fails the job, or None if it goes again."""
        now = self._clock()
        passing = status.retryable(Purpose.PUBLISH)
        if passing and self._outbox.retry(batch, now):
            return None
        self._outbox.abandon()
        topic = batch.lane[0]
        assert batch.attempts is not None
        tried = f"{batch.attempts.count} attempt{'s' if batch.attempts.count > 1 else ''}"
        if not passing:
            return PublishError(topic, status.code.name, f"{status.details or 'no details given'} (after {tried})")
        waited = now - batch.attempts.began
        problem = (
            f"Pub/Sub did not take {batch.messages} messages within the retry budget: {tried} in {waited:.1f} s, "
            f"the last one ended with {status}"
        )
        return PublishError(topic, status.code.name, problem)

    def _report(self) -> None:
        """Tells what is settled. One thread at a time does; what others find meanwhile is left to it, in order."""
        with self._lock:
            if self._reporting:
                return
            self._reporting = True
        while True:
            with self._lock:
                settled = None if self._ended else self._outbox.take_settled()
                if settled is None:
                    self._reporting = False
                    return
            if settled.records:
                self._listener.settled(settled.records, settled.size)
            for flush in settled.flushes:
                self._listener.flushed(flush)

    def _fail(self, error: Exception) -> None:
        if self._end():
            self._listener.fail(error)

    def _end(self) -> bool:
        """Stops everything. Whether this call did."""
        with self._lock:
            first, self._ended = not self._ended, True
            self._outbox.abandon()
            calls = list(self._calls.values())
            self._changed.notify_all()
        for call in calls:
            call.cancel()
        return first

    def _run_timer(self) -> None:
        while True:
            with self._lock:
                if self._ended:
                    return
                now, wake_at = self._clock(), self._outbox.wake_at()
                if wake_at is None or wake_at > now:
                    self._timer_sleeps_until = wake_at
                    self._changed.wait(None if wake_at is None else wake_at - now)
                    continue
                self._timer_sleeps_until = now
            self._proceed()
