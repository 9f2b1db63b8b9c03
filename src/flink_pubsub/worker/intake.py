"""An intake: where what one connection brings enters its split, or is kept waiting, or is refused.

Three bounds stand one behind the other, so that the last is not reached:

1. *Flow control.* The server is told the limits and keeps to them for what it sent on the stream. What is held of earlier
   streams it does not count any more, so while there is such a message the intake counts itself, and stops at the limit. At
   the limit of the present streams the server waits, so reading goes on: the stream's end, pings, and deliveries of what is
   held already are noticed at once.
2. *The split's share of the reader's budget.* No further response is read while that is filled.
3. *The budget.* What a response brings beyond it waits in the connection's hands until there is room.

When one of them holds for half a deadline, the connection's stream is ended and what is left goes back (see
`streaming_pull`, *Resting*); messages that wait unread would otherwise be delivered again and again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Protocol

from flink_pubsub.core.budget import Tally
from flink_pubsub.core.chunks import Delivery, Receipt
from flink_pubsub.rpc.status import Status
from flink_pubsub.worker.decoding import Decoding, Payload
from flink_pubsub.worker.holding import Shared, SplitState
from flink_pubsub.worker.keeper import Keeper

_LONGEST_WAIT = 0.5

_WHOLE_SECONDS = 0.1
"""How long a response waits for room for all of it before it is divided."""


class Events(Protocol):
    """What an intake tells its subscriber. Called on the connection's thread, without the lock."""

    def overfull(self) -> None:
        """The split is paused and buffers more than a paused split may."""

    def starved(self) -> None:
        """The split buffers nothing, wants to, and found no room for a long time."""

    def too_large(self, size: int) -> None:
        """A message of this size does not fit the budget even when nothing else is buffered."""

    def ended(self, status: Status) -> None:
        """The subscription cannot be read any more."""

    def broke(self, error: Exception) -> None:
        """Handling a response raised."""


class Intake:
    """The receiver of one connection. Implements `streaming_pull.Receiver`.

    1. *Open*: takes responses in.
    2. *Shut*: its split is being parked; whatever still comes goes back.
    """

    def __init__(
        self,
        split: SplitState,
        shared: Shared,
        decoding: Decoding,
        keeper: Keeper,
        events: Events,
        clock: Callable[[], float],
    ) -> None:
        self._split = split
        self._shared = shared
        self._decoding = decoding
        self._keeper = keeper
        self._events = events
        self._clock = clock
        self._left: Delivery[Payload] | None = None
        self.shut = False
        """Set under the reader's lock."""

    @property
    def _ending(self) -> bool:
        return self.shut or self._shared.closing

    def wait_to_open(self, rested: bool) -> None:
        """See `Receiver`."""
        part = 2 if rested else 1
        with self._shared.lock:
            while not self._ending and not self._may_open(part):
                self._shared.room.wait(_LONGEST_WAIT)

    def _may_open(self, part: int) -> bool:
        """Whether no more than that part of each bound is used."""
        split, budget = self._split, self._shared.budget
        messages, size = split.tracker.permits
        buffered = split.tracker.buffered_messages * part, split.tracker.buffered_bytes * part
        share = budget.share
        return (
            messages * part < split.max_messages
            and size * part < split.max_bytes
            and (not buffered[0] or (buffered[0] < share.messages and buffered[1] < share.size))
            and not budget.full
        )

    def opened(self) -> None:
        """See `Receiver`."""
        with self._shared.lock:
            self._split.opened_at = self._split.tracker.next_sequence

    def wait_for_room(self, seconds: float) -> bool:
        """See `Receiver`."""
        shared, until = self._shared, self._clock() + seconds
        with shared.lock:
            while not self._ending and not self._has_room():
                left = until - self._clock()
                if left <= 0:
                    break
                shared.room.wait(min(left, _LONGEST_WAIT))
            else:
                return True
            starved = self._starved
        if starved:
            self._events.starved()
        return False

    def _has_room(self) -> bool:
        split, budget = self._split, self._shared.budget
        tracker, share = split.tracker, budget.share
        messages, size = tracker.permits
        if budget.full or (
            tracker.buffered_messages and (tracker.buffered_messages >= share.messages or tracker.buffered_bytes >= share.size)
        ):
            return False
        return (messages < split.max_messages and size < split.max_bytes) or tracker.oldest >= split.opened_at

    @property
    def _starved(self) -> bool:
        return not self._split.paused and not self._split.tracker.buffered_messages and not self._ending

    def stream_deadline(self) -> int:
        """See `Receiver`."""
        return self._split.holding.deadlines.seconds

    def parse(self, response: bytes) -> Delivery[Payload]:
        """See `Receiver`."""
        return self._decoding.take(response)

    def received(self, delivery: Delivery[Payload], deadline: int, waited: float) -> bool:
        """See `Receiver`."""
        if not delivery.ack_ids:
            return True
        began = now = self._clock()
        too_large = starved = overfull = False
        rest: Delivery[Payload] | None = delivery
        while rest is not None:
            with self._shared.lock:
                part, rest = self._fitting(rest)
                receipt = self._take(part, deadline, waited + now - began, now)
                if rest is not None and not receipt.chunk:
                    too_large = rest.sizes[0] > self._shared.budget.limit.size
                    if self._ending or too_large or now - began >= deadline / 2:
                        starved = self._starved
                        self._left, rest = rest, None
                    else:
                        self._shared.room.wait(min(_LONGEST_WAIT, deadline / 2))
                overfull = self._split.overfull
            self._settle(receipt)
            now = self._clock()
        if overfull:
            self._events.overfull()
        if too_large and self._left is not None:
            self._events.too_large(self._left.sizes[0])
        elif starved:
            self._events.starved()
        return self._left is None

    @property
    def _room(self) -> Tally:
        return self._shared.budget.room(self._split.tracker, [split.tracker for split in self._shared.splits])

    def _fits(self, delivery: Delivery[Payload]) -> bool:
        """Whether all of it may be taken in now, or is to be refused."""
        count, size = len(delivery.ack_ids), delivery.size
        if self.shut or self._shared.budget.holds(count, size):
            return True
        room = self._room
        return count <= room.messages and size <= room.size

    def _fitting(self, delivery: Delivery[Payload]) -> tuple[Delivery[Payload], Delivery[Payload] | None]:
        """Divides a delivery into what fits the budget now and the rest. What is held already needs no room."""
        limit, count = self._shared.budget.limit, len(delivery.ack_ids)
        if self._fits(delivery):
            return delivery, None
        if delivery.whole and count <= limit.messages and delivery.size <= limit.size:
            # To divide it costs more than all else that is done with it, and where the job goes on there is room soon.
            self._shared.room.wait_for(lambda: self._ending or self._fits(delivery), _WHOLE_SECONDS)
            if self._fits(delivery):
                return delivery, None
        room = self._room
        delivery.divided()
        new = [message_id not in self._split.holding.known for message_id in delivery.message_ids]
        sizes = [size if wanted else 0 for size, wanted in zip(delivery.sizes, new, strict=True)]
        fitting = min(
            bisect_right(list(accumulate(sizes)), room.size), bisect_right(list(accumulate(map(int, new))), room.messages)
        )
        return delivery.part(0, fitting), delivery.part(fitting, count) if fitting < count else None

    def _take(self, delivery: Delivery[Payload], deadline: int, waited: float, now: float) -> Receipt[Payload]:
        split, leases = self._split, self._split.holding.leases
        if self.shut:
            return split.tracker.refuse(delivery, now)
        receipt = split.tracker.receive(delivery, now)
        if receipt.chunk is not None:
            split.received_messages += len(receipt.chunk.message_ids)
            leases.grant(receipt.chunk, now, deadline, waited)
            self._shared.records.notify()
        if receipt.redelivered is not None:
            leases.grant(receipt.redelivered, now, deadline, waited)
        return receipt

    def _settle(self, receipt: Receipt[Payload]) -> None:
        self._keeper.acknowledge_again(self._split.holding, receipt.acknowledge)
        self._keeper.give_back(self._split.holding, receipt.give_back)

    def refused(self, deliveries: Sequence[Delivery[Payload]]) -> None:
        """See `Receiver`."""
        left = () if self._left is None else (self._left,)
        self._left = None
        now, leases = self._clock(), self._split.holding.leases
        for delivery in (*left, *deliveries):
            with self._shared.lock:
                receipt = self._split.tracker.refuse(delivery, now)
                if receipt.redelivered is not None:
                    leases.grant(receipt.redelivered, now, self.stream_deadline())
            self._settle(receipt)

    def ended(self, status: Status) -> None:
        """See `Receiver`."""
        self._events.ended(status)

    def broke(self, error: Exception) -> None:
        """See `Receiver`."""
        self._events.broke(error)
