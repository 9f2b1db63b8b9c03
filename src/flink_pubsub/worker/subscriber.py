"""A subscriber: what reads one split, by one or more streaming-pull connections into one tracker."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import grpc

from flink_pubsub.core.chunks import Acks, GivenBack
from flink_pubsub.errors import SubscriptionError
from flink_pubsub.rpc.status import Status
from flink_pubsub.rpc.streaming_pull import LINGER_SECONDS, Limits, StreamingPull
from flink_pubsub.worker.decoding import Decoding
from flink_pubsub.worker.holding import Shared, SplitState
from flink_pubsub.worker.intake import Intake
from flink_pubsub.worker.keeper import Keeper

_log = logging.getLogger(__name__)


class Reports(Protocol):
    """What a subscriber tells its reader. Any thread, without the lock."""

    def fail(self, error: BaseException) -> None:
        """The job is to fail."""

    def starved(self) -> None:
        """A split that is not paused found no room in the budget for a long time."""

    def too_large(self, subscription: str, size: int) -> None:
        """A message of this size does not fit the budget even when nothing else is buffered."""


class _State(Enum):
    OPEN = "open"
    PARKING = "parking"
    PARKED = "parked"


@dataclass(slots=True)
class Teardowns:
    """What ends of connections left behind, over all subscribers of a reader."""

    abandoned: int = 0
    """Subscribers whose connections did not end in time."""
    unreported: int = 0
    """Failures that came while connections were being ended, and so fail no job."""


@dataclass(slots=True)
class _Leaving:
    """Connections asked to end, which may take until then."""

    connections: tuple[StreamingPull, ...]
    until: float
    cancelled: bool = field(default=False)


class Subscriber:
    """Reads one split.

    1. *Open*: connections bring messages.
    2. *Parking*: the split is paused and is to give its messages back; its connections are ending.
    3. *Parked*: they have ended, or were told to at once, and everything held was given back. When the split is not paused any
       more fresh connections are opened: back to 1. Nothing is noticed of the subscription meanwhile.
    """

    def __init__(
        self,
        state: SplitState,
        shared: Shared,
        keeper: Keeper,
        decoding: Decoding,
        open_channel: Callable[[], grpc.Channel],
        connections: int,
        reports: Reports,
        teardowns: Teardowns,
        shutdown_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.state = state
        self.tracker = state.tracker
        self.parked = 0
        """How often the split was parked."""
        self._shared = shared
        self._keeper = keeper
        self._decoding = decoding
        self._channels = tuple(open_channel() for _ in range(connections))
        self._reports = reports
        self._teardowns = teardowns
        self._shutdown_seconds = shutdown_seconds
        self._clock = clock
        self._life = _State.OPEN
        self._intakes: tuple[Intake, ...] = ()
        self._connections: tuple[StreamingPull, ...] = ()
        self._leaving: list[_Leaving] = []

    @property
    def is_parked(self) -> bool:
        """Whether it is in 2 or 3."""
        return self._life is not _State.OPEN

    @property
    def path(self) -> str:
        """The subscription's resource path."""
        return self.state.holding.subscription.resource_path

    def connect(self) -> None:
        """Opens fresh connections; the lock is held. Never blocks."""
        count, state = len(self._channels), self.state
        limits = Limits(max(1, state.max_messages // count), max(1, state.max_bytes // count))
        self._intakes = tuple(
            Intake(state, self._shared, self._decoding, self._keeper, self, self._clock) for _ in self._channels
        )
        self._connections = tuple(
            StreamingPull(channel, self.path, limits, intake)
            for channel, intake in zip(self._channels, self._intakes, strict=True)
        )
        for connection in self._connections:
            connection.start()

    # What intakes tell, each on its connection's thread.

    def overfull(self) -> None:
        """See `Events`."""
        self.park()

    def starved(self) -> None:
        """See `Events`."""
        self._reports.starved()

    def too_large(self, size: int) -> None:
        """See `Events`."""
        self._reports.too_large(self.path, size)

    def ended(self, status: Status) -> None:
        """See `Events`."""
        problem = status.details or "the service ended the stream without a reason"
        error = SubscriptionError(self.path, status.code.name, problem)
        if self.is_parked or self._shared.closing:
            with self._shared.lock:
                self._teardowns.unreported += 1
            _log.warning("a connection failed while it was being ended, which fails no job: %s", error)
        else:
            self._reports.fail(error)

    def broke(self, error: Exception) -> None:
        """See `Events`."""
        self._reports.fail(error)

    # Pausing.

    def pause(self, paused: bool) -> bool:
        """Pauses or resumes; the lock is held. Returns whether the split is to be parked because it buffers too much."""
        self.state.paused = paused
        return self.state.overfull

    def park(self) -> None:
        """Begins to park a paused split; `tick` goes on. Never blocks; any thread, without the lock."""
        with self._shared.lock:
            if self._life is not _State.OPEN or not self.state.paused or self._shared.closing:
                return
            self._life = _State.PARKING
            self.state.parking = True
            for intake in self._intakes:
                intake.shut = True
            self._shared.room.notify_all()
            leaving = _Leaving(self._connections, self._clock() + LINGER_SECONDS)
            self._leaving.append(leaving)
        _log.info("%s is paused and holds more than it may: its messages go back until it is resumed", self.state.split)
        for connection in leaving.connections:
            connection.finish()

    def tick(self, now: float) -> None:
        """Goes on with parking and with what it leaves behind. Called by the keeper's thread every 0.1 s at least."""
        self._see_off(now)
        if self._life is _State.PARKING and all(leaving.cancelled for leaving in self._leaving):
            with self._shared.lock:
                ack_ids = self.tracker.park(now)
                self.state.parking = False
                self._shared.room.notify_all()
            self._keeper.give_back(self.state.holding, ack_ids)
            self.parked += 1
            self._life = _State.PARKED
        if self._life is _State.PARKED:
            with self._shared.lock:
                if not self.state.paused and not self._shared.closing:
                    self._life = _State.OPEN
                    self.connect()

    def _see_off(self, now: float) -> None:
        for leaving in self._leaving[:]:
            if not any(connection.alive for connection in leaving.connections):
                leaving.cancelled = True
                if self._life is not _State.PARKING:
                    self._leaving.remove(leaving)
            elif now >= leaving.until and not leaving.cancelled:
                leaving.cancelled, leaving.until = True, now + self._shutdown_seconds
                for connection in leaving.connections:
                    connection.stop()
            elif now >= leaving.until:
                self._leaving.remove(leaving)
                self.abandon()

    # Settling.

    def complete(self, checkpoint: int) -> Acks:
        """What the completed checkpoint lets be acknowledged."""
        now = self._clock()
        deadlines = self.state.holding.deadlines
        with self._shared.lock:
            acks = self.tracker.complete(checkpoint, now)
            for received, messages in acks.held:
                deadlines.held(now - received, messages)
            deadlines.adapt()
            self._shared.room.notify_all()
        return acks

    def nack(self, sequence: int) -> GivenBack:
        """Gives one message back, if it is still held, and what may not overtake it."""
        with self._shared.lock:
            given_back = self.tracker.nack(sequence, self._clock())
            self._shared.room.notify_all()
        self._keeper.give_back(self.state.holding, given_back.ack_ids)
        return given_back

    # Closing.

    def finish(self) -> None:
        """Asks the server to end the connections in good order; what it still sends is read. Never blocks."""
        for connection in self._connections:
            connection.finish()

    def stop(self) -> None:
        """Ends the connections at once. Never blocks."""
        for connection in self._all():
            connection.stop()

    def join(self, until: float) -> bool:
        """Waits for the connections to end, and tells whether they did."""
        ended = [connection.join(max(0.0, until - self._clock())) for connection in self._all()]
        return all(ended)

    def _all(self) -> tuple[StreamingPull, ...]:
        leaving = [connection for each in self._leaving for connection in each.connections]
        return tuple(dict.fromkeys([*self._connections, *leaving]))

    def abandon(self) -> None:
        """Counts connections that do not end in time."""
        with self._shared.lock:
            self._teardowns.abandoned += 1
        _log.warning("a connection of %s did not end within %.1f s", self.state.split, self._shutdown_seconds)

    def release(self) -> None:
        """Gives back everything held, and whatever still arrives."""
        with self._shared.lock:
            ack_ids = self.tracker.close(self._clock())
        self._keeper.give_back(self.state.holding, ack_ids)
