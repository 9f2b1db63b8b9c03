"""Publishes what a writer takes over, to any number of topics over one channel.

Decisions are the outbox's; this file owns the lock around it, the clock, the calls and one thread that wakes up for batch
delays and retries. Calls start on whichever thread made a batch ready: the writer's, the timer's, or the one of gRPC that
brought the previous answer. One channel carries all topics: its connection takes any
number of calls.

Failure ends the publisher: `fail` is called once, and nothing is settled after it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeAlias

import grpc

from flink_pubsub.core.batching import Batch, Lane
from flink_pubsub.core.outbox import Outbox, Rejection
from flink_pubsub.core.progress import Watch
from flink_pubsub.errors import PubSubConnectorError
from flink_pubsub.rpc.publish import Call, PublishStub, answer, outcome
from flink_pubsub.rpc.status import Status
from flink_pubsub.rpc.topics import TopicCreator

_LONGEST_SLEEP = 3600.0
"""So that no option can be longer than a thread is able to wait."""

_log = logging.getLogger(__name__)

Entries: TypeAlias = tuple[Lane, "bytes | memoryview", Sequence[int]]
"""Where messages go, their entries in one buffer, and where each entry ends in it."""


class PublishListener(Protocol):
    """Hears what becomes of the messages. Called from any thread, one call at a time, `fail` excepted."""

    def settled(self, records: int, size: int) -> None:
        """So many records with so many bytes of entries are published."""

    def flushed(self, flush: int) -> None:
        """Everything added before this flush is published, or was dropped."""

    def rejected(self, rejections: Sequence[Rejection]) -> None:
        """The service refuses these messages for themselves; each is to be answered by `Publisher.dropped`."""

    def fail(self, error: BaseException) -> None:
        """Publishing has ended; called once."""


class Publisher:
    """Owns the channel given to it. No method but `close` waits for the service; any thread may call them."""

    def __init__(
        self,
        channel: grpc.Channel,
        outbox: Outbox,
        listener: PublishListener,
        clock: Callable[[], float] = time.monotonic,
        creator: TopicCreator | None = None,
        busy: Callable[[], bool] = lambda: False,
    ) -> None:
        """Makes a publisher. `creator` is for outboxes that have topics created; `busy` tells that more messages follow."""
        self._channel = channel
        self._stub = PublishStub(channel)
        self._creator = creator
        self._busy = busy
        self._outbox = outbox
        self._listener = listener
        self._clock = clock
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._calls: dict[Batch | str, Call] = {}
        # By batch, or by the path of the topic that is being created.
        self._out = 0
        self._timer_sleeps_until: float | None = None
        self._reporting = False
        self._ended = False
        self._abandoned = 0
        self._watch = Watch(outbox.progress_timeout)
        self._watched = ""
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
        """Lets everything go; the listener hears `flushed` once all of it is settled."""
        with self._lock:
            self._outbox.flush(flush)
        self._proceed()

    def dropped(self, rejection: Rejection) -> None:
        """A rejected message has been taken care of: it is settled, and its ordering key goes on."""
        with self._lock:
            error = self._outbox.dropped(rejection)
        if error is not None:
            self._fail(error)
        self._proceed()

    @contextmanager
    def watched(self, what: str) -> Iterator[None]:
        """Bounds what runs in it as publishes are bounded, as nothing else would end a flush that waits for it."""
        with self._lock:
            self._watched = what
            self._watch.progress(self._clock())
        try:
            yield
        finally:
            with self._lock:
                self._watch.stop()

    def release_idle(self, seconds: float) -> None:
        """Forgets topics that have been unused for longer than that."""
        with self._lock:
            self._outbox.release_idle(self._clock(), seconds)

    @property
    def ended(self) -> bool:
        """Whether it has failed or was closed."""
        return self._ended

    # The metrics take no lock; several may be of different moments.

    @property
    def in_flight(self) -> tuple[int, int]:
        """Records and bytes taken over and not settled."""
        return self._outbox.records, self._outbox.size

    @property
    def failures(self) -> Mapping[str, int]:
        """Failed requests by status."""
        return dict(self._outbox.failures)

    @property
    def topics(self) -> tuple[int, int, int]:
        """Topics in use, messages whose topic is missing, and topics created."""
        return self._outbox.topics, self._outbox.parked, self._outbox.topics_created

    @property
    def shutdowns_abandoned(self) -> int:
        """1 when closing took longer than its budget."""
        return self._abandoned

    def close(self, seconds: float) -> None:
        """Cancels what is out and ends every thread, within the budget. Nothing is settled after it."""
        deadline = self._clock() + seconds
        self._end()
        self._timer.join(seconds)
        with self._lock:
            while self._out and (left := deadline - self._clock()) > 0:
                self._changed.wait(left)
            left_behind = self._out
        if left_behind or self._timer.is_alive():
            self._abandoned = 1
            _log.warning("closing the publisher took longer than %g s; %d calls are left behind", seconds, left_behind)
        self._channel.close()

    def _proceed(self) -> None:
        """Starts the calls that may start, reports what is settled, and sees that the timer wakes up in time."""
        while True:
            with self._lock:
                now, busy = self._clock(), self._busy()
                batches = self._outbox.take(now, busy)
                creations = self._outbox.take_creations(now) if self._outbox.repairs else ()
                self._out += len(batches) + len(creations)
                if not batches and not creations:
                    wake_at = self._outbox.wake_at(busy)
                    sleeps_until = self._timer_sleeps_until
                    if wake_at is not None and (sleeps_until is None or wake_at < sleeps_until):
                        self._changed.notify_all()
                    break
            for batch, timeout in batches:
                self._start(batch, timeout)
            for path in creations:
                self._create(path)
        self._report()

    def _start(self, batch: Batch, timeout: float | None) -> None:
        try:
            call = self._stub.start(batch.lane[0], batch.request, timeout)
        except ValueError as error:  # the channel was closed meanwhile
            self._answered(batch, Status(grpc.StatusCode.CANCELLED, f"the call could not start: {error}"))
            return
        self._track(batch, call)
        call.add_done_callback(lambda done: self._answered(batch, answer(done, batch.messages)))

    def _create(self, path: str) -> None:
        assert self._creator is not None
        try:
            call = self._creator.start(path)
        except ValueError as error:
            self._answered(path, Status(grpc.StatusCode.CANCELLED, f"the call could not start: {error}"))
            return
        self._track(path, call)
        call.add_done_callback(lambda done: self._created(path, outcome(done)))

    def _created(self, path: str, end: bytes | Status) -> None:
        if isinstance(end, Status) and end.code is not grpc.StatusCode.ALREADY_EXISTS:
            self._answered(path, end)
        else:
            _log.info("the missing topic %s was created%s", path, " by somebody else" if isinstance(end, Status) else "")
            self._answered(path, None)

    def _track(self, item: Batch | str, call: Call) -> None:
        with self._lock:
            self._calls[item] = call
            ended = self._ended
        if ended:
            call.cancel()

    def _answered(self, item: Batch | str, status: Status | None) -> None:
        """An answer came; on a thread of gRPC's."""
        try:
            with self._lock:
                self._calls.pop(item, None)
                self._out -= 1
                if self._ended:
                    self._changed.notify_all()
                    return
                error = None
                if isinstance(item, Batch):
                    if status is None:
                        self._outbox.succeeded(item, self._clock())
                    else:
                        error = self._outbox.failed(item, status.refusal(), self._clock())
                elif status is None:
                    self._outbox.created(item, self._clock())
                else:
                    error = self._outbox.not_created(item, status.refusal(), self._clock())
            if error is not None:
                self._fail(error)
            self._proceed()
        except Exception as defect:  # gRPC would only log it, and the job would wait for ever
            self._fail(defect)

    def _report(self) -> None:
        """Tells what is settled. One thread at a time does; what others find meanwhile is left to it, in order."""
        with self._lock:
            if self._reporting:
                return
            self._reporting = True
        while True:
            with self._lock:
                settled = None if self._ended else self._outbox.take_settled()
                rejected = self._outbox.take_rejected() if self._outbox.rejected and not self._ended else ()
                if settled is None and not rejected:
                    self._reporting = False
                    return
            if rejected:
                self._listener.rejected(rejected)
            if settled is None:
                continue
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
                now, wake_at = self._clock(), self._outbox.wake_at(self._busy())
                overdue = self._overdue(now)
                if overdue is None and (wake_at is None or wake_at > now):
                    check_at = min(self._outbox.check_at(now), self._watch.check_at(now))
                    self._timer_sleeps_until = check_at if wake_at is None else min(wake_at, check_at)
                    self._changed.wait(min(self._timer_sleeps_until - now, _LONGEST_SLEEP))
                    continue
                self._timer_sleeps_until = now
            if overdue is not None:
                error, expired = overdue
                if expired:
                    self._fail(error)
                else:
                    _log.warning("%s", error)
            self._proceed()

    def _overdue(self, now: float) -> tuple[PubSubConnectorError, bool] | None:
        """What takes so long that it is worth a warning, and whether so long that the job has to fail."""
        if (standstill := self._outbox.check(now)) is not None:
            oldest = next((item for item in self._calls if isinstance(item, Batch)), None)
            return self._outbox.standstill(standstill.seconds, oldest), standstill.expired
        if (standstill := self._watch.check(now)) is not None:
            error = PubSubConnectorError(
                f"{self._watched} has not returned for {standstill.seconds:.1f} s, and publish_progress_timeout allows "
                f"{self._watch.timeout:g} s: {self._outbox.records} messages for Pub/Sub are outstanding"
            )
            return error, standstill.expired
        return None
