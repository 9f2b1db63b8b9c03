"""The ack tracker: which messages a split holds, and when each may be acknowledged.

Everything of a split is first in, first out. Messages get consecutive sequence numbers when they arrive; they are drained in
that order, the JVM emits them in that order, and a checkpoint covers all of them up to one number. So nothing is stored per
message but its ack id, its message id and its size, in the lists of the response it came with (a `Chunk`); what state a
message is in follows from a few positions, and every step moves many messages at once.

Plain data, no threads, no clock: whoever uses trackers serialises the calls to all trackers that share an index.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Generic, TypeVar

from flink_pubsub.errors import PubSubConnectorError

P = TypeVar("P")


class TrackerError(PubSubConnectorError):
    """A call that the life cycle of messages does not allow. A defect of the caller; there is nothing to mend outside."""


class Chunk(Generic[P]):
    """The messages that one response brought, as parallel lists. Message i has sequence number `first + i`.

    `start` is the first message still held: those before it are acknowledged. `ack_ids[i]` is None for a message given back.
    """

    __slots__ = ("ack_ids", "drained", "ends", "first", "holes", "message_ids", "moved", "payloads", "received", "start")

    def __init__(self, first: int, delivery: Delivery[P], received: float) -> None:
        self.first = first
        self.ack_ids: list[str | None] = list(delivery.ack_ids)
        self.message_ids = delivery.message_ids
        self.ends = array("q", accumulate(delivery.sizes))
        self.payloads: list[P | None] = list(delivery.payloads)
        """Those not drained yet: `payloads[0]` is message `drained`."""
        self.received = received
        self.start = 0
        self.drained = 0
        self.holes = 0
        self.moved: set[int] | None = None
        """Messages that were delivered again since; their leases run from then and are kept by a `Redelivered`."""

    def bytes_between(self, low: int, high: int) -> int:
        """Serialized size of the messages from `low` up to `high`."""
        return (self.ends[high - 1] if high else 0) - (self.ends[low - 1] if low else 0)

    def leased(self) -> list[str]:
        """Current ack ids of the messages held since they first arrived."""
        ids = self.ack_ids[self.start :] if self.start else self.ack_ids
        if not self.holes and self.moved is None:
            return ids  # type: ignore[return-value]  # no holes, no None
        moved = self.moved or ()
        return [ack_id for i, ack_id in enumerate(ids, self.start) if ack_id is not None and i not in moved]


class Redelivered(Generic[P]):
    """Held messages that one response delivered again, with the ack ids it brought."""

    __slots__ = ("_members",)

    def __init__(self) -> None:
        self._members: list[tuple[Chunk[P], int, str]] = []

    def add(self, chunk: Chunk[P], position: int, ack_id: str) -> None:
        """Notes that the message's lease runs anew, under this ack id."""
        self._members.append((chunk, position, ack_id))

    def leased(self) -> list[str]:
        """The ack ids of those still held that were not delivered yet another time."""
        return [ack_id for chunk, i, ack_id in self._members if i >= chunk.start and chunk.ack_ids[i] == ack_id]


@dataclass(slots=True)
class Delivery(Generic[P]):
    """The messages of one response, as parallel lists in server order."""

    ack_ids: list[str]
    message_ids: list[str]
    sizes: list[int]
    payloads: Sequence[P]


@dataclass(slots=True)
class Receipt(Generic[P]):
    """What became of a delivery."""

    chunk: Chunk[P] | None = None
    """The messages taken in, none of which was held before."""
    redelivered: Redelivered[P] | None = None
    """Held messages whose ack id was replaced."""
    acknowledge: list[str] = field(default_factory=list)
    """Ack ids to acknowledge at once: a completed checkpoint covers the message, its acknowledgement is under way."""
    give_back: list[str] = field(default_factory=list)
    """Ack ids to nack at once: the tracker is closed."""


@dataclass(slots=True)
class Acks:
    """Messages to acknowledge, as parallel lists. `AckTracker.forget` takes the message ids once there is an answer."""

    ack_ids: list[str] = field(default_factory=list)
    message_ids: list[str] = field(default_factory=list)
    held: list[tuple[float, int]] = field(default_factory=list)
    """When they were received, and how many then."""


@dataclass(slots=True)
class Run(Generic[P]):
    """Drained messages with consecutive sequence numbers."""

    first: int
    payloads: list[P]


class AckTracker(Generic[P]):
    """What one split holds. Trackers of one subscription share an index, so each knows what the others hold.

    The life of a message:

    1. *Received*: it has a sequence number and waits, with its payload, to be drained.
    2. *Staged*: `drain` handed it to the JVM; the payload is gone from here.
    3. *Bound* to a checkpoint: `snapshot` said that the JVM emitted it before that checkpoint.
    4. *Acknowledging*: `complete` for that checkpoint or a later one handed its ack id out. It takes no permit any more; its
       message id stays known until the service has answered, so that a delivery that crosses the acknowledgement is
       acknowledged too instead of being emitted again.
    5. *Gone*: `forget` after 4; or from 1, 2 or 3 given back by `nack` or `close`, which leaves a hole in the sequence.

    A message in 1, 2 or 3 is *held*: it takes a permit, its lease is kept, and when it is delivered again (to any split of the
    subscription) its ack id is replaced where it is, so it is not emitted a second time. A checkpoint that is aborted, or whose
    completion is never heard of, leaves its messages bound; the next completed one covers them.
    """

    def __init__(self, index: dict[str, Chunk[P]]) -> None:
        self._index = index
        self._held: deque[Chunk[P]] = deque()
        self._buffer: deque[Chunk[P]] = deque()
        self._checkpoints: deque[tuple[int, int]] = deque()
        self._next = 1
        self._drained = 0
        self._bound = 0
        self._closed = False
        self.held_messages = 0
        self.held_bytes = 0
        self.buffered_messages = 0
        """Messages in state 1."""
        self.buffered_bytes = 0

    @property
    def pending_checkpoints(self) -> int:
        """Checkpoints taken whose completion was not heard of."""
        return len(self._checkpoints)

    def receive(self, delivery: Delivery[P], now: float) -> Receipt[P]:
        """Takes in what a response brought.

        Raises:
            TrackerError: a message has no id. Without one a redelivery cannot be told from a new message.
        """
        receipt: Receipt[P] = Receipt()
        if self._closed:
            receipt.give_back = delivery.ack_ids
            return receipt
        fresh = set(delivery.message_ids)
        if "" in fresh:
            raise TrackerError("the server delivered a message without a message id")
        if len(fresh) != len(delivery.message_ids) or not self._index.keys().isdisjoint(fresh):
            delivery = self._take_redelivered(delivery, receipt, now)
        count = len(delivery.ack_ids)
        if count:
            chunk = Chunk(self._next, delivery, now)
            self._index.update(dict.fromkeys(delivery.message_ids, chunk))
            self._held.append(chunk)
            self._buffer.append(chunk)
            self._next += count
            size = chunk.ends[-1]
            self.held_messages += count
            self.held_bytes += size
            self.buffered_messages += count
            self.buffered_bytes += size
            receipt.chunk = chunk
        return receipt

    def _take_redelivered(self, delivery: Delivery[P], receipt: Receipt[P], now: float) -> Delivery[P]:
        """Replaces the ack ids of messages already known, and returns the delivery without them."""
        redelivered: Redelivered[P] = Redelivered()
        positions: dict[Chunk[P], dict[str, int]] = {}
        new: dict[str, int] = {}
        kept: Delivery[P] = Delivery([], [], [], [])
        payloads: list[P] = []
        for ack_id, message_id, size, payload in zip(
            delivery.ack_ids, delivery.message_ids, delivery.sizes, delivery.payloads, strict=True
        ):
            chunk = self._index.get(message_id)
            if chunk is not None:
                if chunk not in positions:
                    positions[chunk] = {known: i for i, known in enumerate(chunk.message_ids)}
                position = positions[chunk][message_id]
                if position < chunk.start:
                    receipt.acknowledge.append(ack_id)
                else:
                    chunk.ack_ids[position] = ack_id
                    chunk.moved = chunk.moved or set()
                    chunk.moved.add(position)
                    redelivered.add(chunk, position, ack_id)
                    receipt.redelivered = redelivered
            elif message_id in new:
                kept.ack_ids[new[message_id]] = ack_id
            else:
                new[message_id] = len(kept.ack_ids)
                kept.ack_ids.append(ack_id)
                kept.message_ids.append(message_id)
                kept.sizes.append(size)
                payloads.append(payload)
        kept.payloads = payloads
        return kept

    def drain(self, max_messages: int, max_bytes: int) -> list[Run[P]]:
        """Takes messages from 1 to 2, in order: up to so many and so large, but at least one if there is any."""
        runs: list[Run[P]] = []
        while self._buffer and max_messages > 0:
            chunk = self._buffer[0]
            low, high = chunk.drained, min(len(chunk.message_ids), chunk.drained + max_messages)
            size = chunk.bytes_between(low, high)
            if size > max_bytes:
                high = bisect_right(chunk.ends, max_bytes + chunk.bytes_between(0, low), low, high)
                if high == low:
                    if runs:
                        break
                    high = low + 1
                size = chunk.bytes_between(low, high)
            max_messages -= high - low
            max_bytes -= size
            self._hand_out(chunk, high, runs)
            if high == len(chunk.message_ids):
                self._buffer.popleft()
            self._drained = chunk.first + high - 1
        return runs

    def _hand_out(self, chunk: Chunk[P], high: int, runs: list[Run[P]]) -> None:
        low, count = chunk.drained, high - chunk.drained
        taken, chunk.payloads[:count] = chunk.payloads[:count], []
        chunk.drained = high
        position = chunk.first + low
        for first, payloads in _without_holes(chunk.ack_ids, low, taken) if chunk.holes else ((0, taken),):
            if runs and runs[-1].first + len(runs[-1].payloads) == position + first:
                runs[-1].payloads.extend(payloads)  # type: ignore[arg-type]  # what is not a hole has its payload
            else:
                runs.append(Run(position + first, payloads))  # type: ignore[arg-type]
            self.buffered_messages -= len(payloads)
        self.buffered_bytes -= self._size(chunk, low, high)

    def snapshot(self, checkpoint: int, position: int) -> None:
        """Takes everything up to this sequence number from 2 to 3.

        Raises:
            TrackerError: the checkpoint is not newer than the last, or the position goes back or beyond what was drained.
        """
        if self._checkpoints and checkpoint <= self._checkpoints[-1][0]:
            raise TrackerError(f"checkpoint {checkpoint} was taken after checkpoint {self._checkpoints[-1][0]}")
        if not self._bound <= position <= self._drained:
            raise TrackerError(
                f"checkpoint {checkpoint} covers messages up to {position}, but {self._bound} were covered before and"
                f" {self._drained} handed out"
            )
        self._bound = position
        self._checkpoints.append((checkpoint, position))

    def complete(self, checkpoint: int) -> Acks:
        """Takes what this checkpoint and all earlier ones cover from 3 to 4."""
        acks = Acks()
        position = None
        while self._checkpoints and self._checkpoints[0][0] <= checkpoint:
            position = self._checkpoints.popleft()[1]
        while position is not None and self._held and self._held[0].first + self._held[0].start <= position:
            chunk = self._held[0]
            high = min(len(chunk.message_ids), position - chunk.first + 1)
            self._release(chunk, high, acks)
            if high == len(chunk.message_ids):
                self._held.popleft()
        return acks

    def _release(self, chunk: Chunk[P], high: int, acks: Acks) -> None:
        low = chunk.start
        ack_ids, message_ids = chunk.ack_ids[low:high], chunk.message_ids[low:high]
        if chunk.holes:
            message_ids = [known for known, ack_id in zip(message_ids, ack_ids, strict=True) if ack_id is not None]
        self.held_bytes -= self._size(chunk, low, high)
        self.held_messages -= len(message_ids)
        chunk.start = high
        acks.ack_ids += ack_ids if not chunk.holes else [ack_id for ack_id in ack_ids if ack_id is not None]  # type: ignore[arg-type]
        acks.message_ids += message_ids
        acks.held.append((chunk.received, len(message_ids)))

    def forget(self, message_ids: Sequence[str]) -> None:
        """Takes messages from 4 to 5: the service has answered their acknowledgement, or it was given up.

        Raises:
            TrackerError: one of them is not in 4.
        """
        try:
            deque(map(self._index.__delitem__, message_ids), maxlen=0)
        except KeyError as error:
            raise TrackerError(f"message {error.args[0]} was forgotten before") from None

    def nack(self, sequence: int) -> str | None:
        """Gives one held message back; its ack id is to be nacked. None when it is not held any more."""
        for chunk in self._held:
            position = sequence - chunk.first
            if position < len(chunk.message_ids):
                break
        else:
            return None
        if position < chunk.start or (ack_id := chunk.ack_ids[position]) is None:
            return None
        size = self._size(chunk, position, position + 1)
        self.held_messages -= 1
        self.held_bytes -= size
        if position >= chunk.drained:
            self.buffered_messages -= 1
            self.buffered_bytes -= size
            chunk.payloads[position - chunk.drained] = None
        chunk.ack_ids[position] = None
        chunk.holes += 1
        del self._index[chunk.message_ids[position]]
        return ack_id

    def close(self) -> list[str]:
        """Gives everything held back, and whatever arrives from now on: returns the ack ids to nack."""
        given_back = Acks()
        for chunk in self._held:
            self._release(chunk, len(chunk.message_ids), given_back)
            chunk.payloads.clear()
        self.forget(given_back.message_ids)
        self._closed = True
        self._held.clear()
        self._buffer.clear()
        self._checkpoints.clear()
        self.buffered_messages = self.buffered_bytes = 0
        return given_back.ack_ids

    @staticmethod
    def _size(chunk: Chunk[P], low: int, high: int) -> int:
        """Bytes of the messages from `low` up to `high` that were not given back."""
        if not chunk.holes:
            return chunk.bytes_between(low, high)
        return sum(chunk.bytes_between(i, i + 1) for i in range(low, high) if chunk.ack_ids[i] is not None)


def _without_holes(ack_ids: Sequence[str | None], low: int, payloads: list[P | None]) -> list[tuple[int, list[P | None]]]:
    """The stretches of payloads between messages given back, each with its offset."""
    stretches: list[tuple[int, list[P | None]]] = []
    for offset, payload in enumerate(payloads):
        if ack_ids[low + offset] is None:
            continue
        if stretches and stretches[-1][0] + len(stretches[-1][1]) == offset:
            stretches[-1][1].append(payload)
        else:
            stretches.append((offset, [payload]))
    return stretches
