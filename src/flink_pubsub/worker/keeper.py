"""The keeper: the one thread of a reader that talks back to the service about leases.

It extends everything that is held, sends acknowledgements and gives messages back, whatever the other threads are doing: a
blocked job, a slow schema and a paused split cost no lease. It looks every 0.1 s, and at once when something was submitted,
and lets the reader look as often at what else must not depend on records flowing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

import grpc

from flink_pubsub.core.acks import AckTracker
from flink_pubsub.core.chunks import Acks
from flink_pubsub.errors import SubscriptionError
from flink_pubsub.rpc.acks import AckSender
from flink_pubsub.rpc.status import Status
from flink_pubsub.worker.decoding import Payload
from flink_pubsub.worker.holding import Holding, Shared

TICK_SECONDS = 0.1

_log = logging.getLogger(__name__)


class Keeper:
    """Sends what trackers and lease books decide."""

    def __init__(
        self,
        channel: grpc.Channel,
        shared: Shared,
        fail: Callable[[BaseException], None],
        clock: Callable[[], float] = time.monotonic,
        tick: Callable[[float], None] = lambda now: None,
    ) -> None:
        """Starts the thread, which calls `tick` whenever it looks."""
        self._shared = shared
        self._fail = fail
        self._clock = clock
        self._tick = tick
        self._wake = threading.Event()
        self._sender = AckSender(channel, self._wake.set, clock, self._refused)
        self._holdings: tuple[Holding, ...] = ()
        self._until: float | None = None
        self.acked = 0
        """Messages whose acknowledgement the service confirmed."""
        self.nacked = 0
        """Messages given back, confirmed by the service."""
        self._thread = threading.Thread(target=self._run, name="leases", daemon=True)
        self._thread.start()

    def keep(self, holding: Holding) -> None:
        """Keeps the leases of one more subscription."""
        self._holdings += (holding,)

    def wake(self) -> None:
        """Makes it look at once. Any thread."""
        self._wake.set()

    def acknowledge(
        self,
        holding: Holding,
        tracker: AckTracker[Payload],
        acks: Acks,
        settled: Callable[[int, bool], None] = lambda messages, confirmed: None,
    ) -> None:
        """Acknowledges messages that the tracker let go of, and lets it forget each once the service has answered.

        `settled` hears of so many messages at a time whether the service confirmed them, on this thread; not of late ones.
        """

        def answered(low: int, high: int, confirmed: bool) -> None:
            with self._shared.lock:
                tracker.forget(acks.message_ids[low:high])
            if confirmed:
                self.acked += high - low
            settled(high - low, confirmed)

        def answered_late(low: int, high: int, confirmed: bool) -> None:
            self.acked += confirmed * (high - low)

        path, lease = holding.subscription.resource_path, holding.deadlines.seconds
        self._sender.acknowledge(path, acks.ack_ids, lease, answered)
        self._sender.acknowledge(path, acks.late, lease, answered_late)

    def acknowledge_again(self, holding: Holding, ack_ids: Sequence[str]) -> None:
        """Acknowledges deliveries of messages whose acknowledgement is already under way."""
        path, lease = holding.subscription.resource_path, holding.deadlines.seconds
        self._sender.acknowledge(path, ack_ids, lease, lambda low, high, confirmed: None)

    def give_back(self, holding: Holding, ack_ids: Sequence[str]) -> None:
        """Nacks messages, so that the service delivers them again at once."""

        def answered(low: int, high: int, confirmed: bool) -> None:
            if confirmed:
                self.nacked += high - low
            with self._shared.lock:
                for tracker in holding.trackers:
                    tracker.heard(ack_ids[low:high])

        path, lease = holding.subscription.resource_path, holding.deadlines.seconds
        self._sender.modify(path, ack_ids, 0, lease, answered)

    def close(self, until: float) -> None:
        """Sends what was submitted before, up to that time, and ends the thread. Extends nothing any more."""
        self._until = until
        self._wake.set()
        self._thread.join(max(0.0, until - self._clock()) + TICK_SECONDS)

    def _run(self) -> None:
        try:
            while True:
                until = self._until
                if until is None:
                    self._extend()
                    self._tick(self._clock())
                retry_at = self._sender.pump()
                now = self._clock()
                if until is not None and (self._sender.idle or now >= until):
                    return
                pause = TICK_SECONDS if retry_at is None else min(TICK_SECONDS, max(0.001, retry_at - now))
                self._wake.wait(pause)
                self._wake.clear()
        except Exception as error:  # without this thread every lease would lapse: the job has to know
            if self._until is None:
                self._fail(error)
            else:
                _log.warning("giving messages back ended early", exc_info=True)

    def _extend(self) -> None:
        for holding in self._holdings:
            length = holding.deadlines.seconds
            with self._shared.lock:
                now = self._clock()
                due = holding.leases.due(now, length)
                lapsing = [ack_id for members in due.lapsing for ack_id in members.lapse(now)]
                if due.lapsing:
                    self._shared.room.notify_all()
            for extension in due.extensions:
                path = holding.subscription.resource_path
                self._sender.modify(path, extension.ack_ids, extension.seconds, extension.seconds, None)
            self.give_back(holding, lapsing)

    def _refused(self, subscription: str, status: Status) -> None:
        """A subscription that is gone or may not be used any more may be noticed here first: its stream may be closed."""
        if self._until is None:
            self._fail(SubscriptionError(subscription, status.code.name, status.details))
