"""The ack tracker: which messages a split holds, and when each may be acknowledged.

Everything of a split is first in, first out. Messages get consecutive sequence numbers when they arrive; they are drained in
that order, the JVM emits them in that order, and a checkpoint covers all of them up to one number. So nothing is stored per
message but its ack id, its message id and its size, in the lists of the response it came with (a `Chunk`); what state a
message is in follows from a few positions, and every step moves many messages at once.

Plain data, no threads, no clock: whoever uses trackers serialises the calls to all of a subscription.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from flink_pubsub.core.budget import Tally
from flink_pubsub.core.buffer import Buffer
from flink_pubsub.core.chunks import Acks, Chunk, Delivery, GivenBack, Receipt, Redelivered, Run
from flink_pubsub.core.known import KnownMessages
from flink_pubsub.core.late import LateAcks
from flink_pubsub.core.positions import Positions, TrackerError
from flink_pubsub.core.returned import ReturnedKeys

P = TypeVar("P")


class AckTracker(Generic[P]):
    """What one split holds. Trackers of one subscription share what they know, so each sees what the others hold.

    The life of a message:

    1. *Received*: it has a sequence number and waits, with its payload, to be drained.
    2. *Staged*: `drain` handed it to the JVM; the payload is gone from here.
    3. *Bound* to a checkpoint: `snapshot` said that the JVM emitted it before that checkpoint.
    4. *Acknowledging*: `complete` for that checkpoint or a later one handed its ack id out. It takes no permit any more; its
       message id stays known until the service has answered, so that a delivery that crosses the acknowledgement is
       acknowledged too instead of being emitted again; for longer, if its lease had ended before (see `LateAcks`).
    5. *Gone*: `forget` after 4; or from 1, 2 or 3 given back by `nack`, `lapse`, `park` or `close`, which leaves a hole in the
       sequence.

    A message in 1, 2 or 3 is *held*: it takes a permit, its lease is kept, and when it is delivered again (to any split of the
    subscription) its ack id is replaced where it is, so it is not emitted a second time. A checkpoint that is aborted, or whose
    completion is never heard of, leaves its messages bound; the next completed one covers them.

    When a lease ends because it may not be extended any more, a message in 1 is given back, for another consumer may be able
    to use it. One in 2 or 3 cannot be recalled from the JVM: it has *lapsed*, and takes no permit until it is delivered again,
    just as it takes none of the service's. Where order is kept, the service takes all later ones of its key back with it: they
    lapse or are given back too, and it is nacked itself, so that it is the first to come again.

    Where order is kept, a message is given back together with every later one of its key that is not emitted yet, and
    deliveries that were under way meanwhile go back too (see `ReturnedKeys`): nothing of a key overtakes.
    """

    def __init__(self, known: KnownMessages[P], buffered: Tally | None = None, *, ordered: bool = False) -> None:
        """Makes an empty tracker.

        Args:
            known: the messages that the trackers of the subscription know.
            buffered: counts up for what is received, and down for what is given back before it was drained. Whoever drains
                counts down the rest.
            ordered: whether deliveries bring ordering keys, whose order is to be kept.
        """
        self._known = known
        self._buffer: Buffer[P] = Buffer(Tally() if buffered is None else buffered)
        self._returned = ReturnedKeys() if ordered else None
        self._held: deque[Chunk[P]] = deque()
        self._positions = Positions()
        self._next = 1
        self._parked = 0
        self._closed = False
        self._lapsed = Tally()
        self._late = LateAcks(known)
        known.join(lambda: self._held)
        self.held_messages = self.held_bytes = 0

    @property
    def buffered_messages(self) -> int:
        """Messages in state 1."""
        return self._buffer.held.messages

    @property
    def buffered_bytes(self) -> int:
        """Their bytes."""
        return self._buffer.held.size

    @property
    def pending_checkpoints(self) -> int:
        """Checkpoints taken whose completion was not heard of."""
        return len(self._positions)

    @property
    def permits(self) -> tuple[int, int]:
        """Messages held whose leases are kept, and their bytes: what counts against flow control."""
        return self.held_messages - self._lapsed.messages, self.held_bytes - self._lapsed.size

    @property
    def next_sequence(self) -> int:
        """What the next message to arrive is numbered."""
        return self._next

    @property
    def oldest(self) -> int:
        """Sequence number of the oldest message held, or of the next one to arrive."""
        return self._held[0].first + self._held[0].start if self._held else self._next

    def message_id(self, sequence: int) -> str | None:
        """The service's id of a message held."""
        found = self._find(sequence)
        return None if found is None else found[0].message_ids[found[1]]

    def receive(self, delivery: Delivery[P], now: float) -> Receipt[P]:
        """Takes in what a response brought.

        Raises:
            TrackerError: a message has no id. Without one a redelivery cannot be told from a new message.
        """
        if self._closed:
            return Receipt(give_back=delivery.ack_ids)
        receipt: Receipt[P] = Receipt()
        if "" in delivery.message_ids:
            raise TrackerError("the server delivered a message without a message id")
        self._late.expire(now)
        chunk = Chunk(self._next, delivery, now, self)
        if self._returned or not self._known.enter(chunk):
            delivery = self._take_known(delivery, receipt, now)
            chunk = Chunk(self._next, delivery, now, self)
            self._known.enter(chunk)
        count = len(delivery.ack_ids)
        if count:
            self._held.append(chunk)
            self._buffer.add(chunk)
            self._next += count
            self.held_messages += count
            self.held_bytes += chunk.ends[-1]
            receipt.chunk = chunk
        return receipt

    def _take_known(self, delivery: Delivery[P], receipt: Receipt[P], now: float) -> Delivery[P]:
        """Replaces the ack ids of messages already known, and returns the delivery without them and what must go back."""
        positions: dict[Chunk[P], dict[str, int]] = {}
        nacked: dict[str, str] = {}
        """By ordering key, which message of the response is nacked: the service redelivers the later ones with it."""
        new: dict[str, int] = {}
        """Where each message that is new stands in the delivery; it is kept under its last ack id."""
        for i, (ack_id, message_id) in enumerate(zip(delivery.ack_ids, delivery.message_ids, strict=True)):
            if message_id in self._known:
                chunk = self._known.place(message_id)
                if chunk is not None and chunk not in positions:
                    positions[chunk] = {known: i for i, known in enumerate(chunk.message_ids)}
                if chunk is None or (position := positions[chunk][message_id]) < chunk.start:
                    receipt.acknowledge.append(ack_id)
                else:
                    chunk.redeliver(position, ack_id)
                    receipt.redelivered = receipt.redelivered or Redelivered()
                    receipt.redelivered.add(chunk, position, ack_id)
            elif message_id in new:
                delivery.ack_ids[new[message_id]] = ack_id
            elif self._returned and delivery.keys and not self._returned.admits(delivery.keys[i], message_id, now):
                key = delivery.keys[i]
                if key not in nacked or not self._returned.goes_with(key, message_id, nacked[key]):
                    nacked[key] = message_id
                    self._returned.nacked(key, message_id)
                    receipt.give_back.append(ack_id)
            else:
                new[message_id] = i
        return delivery.picked(list(new.values()))

    def drain(self, max_messages: int, max_bytes: int, *, at_least_one: bool = True) -> list[Run[P]]:
        """Takes messages from 1 to 2, in order: up to so many and so large, or, if `at_least_one`, the first of any size."""
        return self._buffer.drain(max_messages, max_bytes, at_least_one)

    def snapshot(self, checkpoint: int, position: int) -> None:
        """Takes everything up to this sequence number from 2 to 3.

        Raises:
            TrackerError: the checkpoint is not newer than the last, or the position goes back or beyond what was drained.
        """
        self._positions.take(checkpoint, position, self._buffer.drained)

    def complete(self, checkpoint: int, now: float) -> Acks:
        """Takes what this checkpoint and all earlier ones cover from 3 to 4."""
        acks = Acks()
        position = self._positions.complete(checkpoint)
        while self._held and self._held[0].first + self._held[0].start <= position:
            chunk = self._held[0]
            high = min(len(chunk.message_ids), position - chunk.first + 1)
            for lapsed in sorted(i for i in chunk.lapsed if i < high):
                acks.late.append(self._drop(chunk, lapsed, GivenBack()))
                self._late.remember(chunk.message_ids[lapsed], now)
            self._release(chunk, high, acks)
            if not chunk.held:
                self._held.popleft()
        return acks

    def _release(self, chunk: Chunk[P], high: int, acks: Acks) -> None:
        low = chunk.start
        ack_ids, message_ids = chunk.ack_ids[low:high], chunk.message_ids[low:high]
        if chunk.holes:
            message_ids = [known for known, ack_id in zip(message_ids, ack_ids, strict=True) if ack_id is not None]
        for position in [i for i in chunk.lapsed if i < high]:
            self.renewed(chunk, position)
        self.held_bytes -= chunk.held_bytes_between(low, high)
        self.held_messages -= len(message_ids)
        chunk.held -= len(message_ids)
        chunk.start = high
        acks.ack_ids += ack_ids if not chunk.holes else [ack_id for ack_id in ack_ids if ack_id is not None]  # type: ignore[arg-type]
        acks.message_ids += message_ids
        acks.held.append((chunk.received, len(message_ids)))

    def forget(self, message_ids: Sequence[str]) -> None:
        """Takes messages from 4 to 5: the service has answered their acknowledgement, or it was given up.

        Raises:
            TrackerError: one of them is not in 4.
        """
        self._known.forget(message_ids)

    def nack(self, sequence: int, now: float) -> GivenBack:
        """Gives one held message back, and with it, where order is kept, every later one of its key. Nothing when it is not
        held."""
        given_back = GivenBack()
        found = self._find(sequence)
        if found is not None:
            self._give_back(found[0], {found[1]}, now, given_back)
            self._sweep()
        elif self._returned is not None:
            # It was given back by `park` and comes again; so does everything after it that was drained before that.
            given_back.sequences = list(range(sequence + 1, self._parked + 1))
        return given_back

    def lapse(self, chunk: Chunk[P], positions: Iterable[int], now: float) -> list[str]:
        """See `Owner`: messages in 1 are given back, those in 2 and 3 have lapsed."""
        given_back, nacked = GivenBack(), dict[str, str]()
        positions = [i for i in positions if i >= chunk.start and chunk.ack_ids[i] is not None]
        handed_out = [i for i in positions if i < chunk.drained]
        for position in handed_out:
            self._lapse(chunk, position)
            key = chunk.keys[position] if self._returned is not None and chunk.keys else ""
            if key and key not in nacked:
                nacked[key] = chunk.ack_ids[position] or ""
                given_back.ack_ids.append(nacked[key])
        for each in self._from(chunk) if nacked else ():
            for i in range(each.start, each.drained):
                if each.keys and each.keys[i] in nacked and each.ack_ids[i] is not None:
                    self._lapse(each, i)
        if nacked or len(handed_out) < len(positions):
            self._give_back(chunk, set(positions).difference(handed_out), now, given_back, nacked=nacked)
            self._sweep()
        return given_back.ack_ids

    def _lapse(self, chunk: Chunk[P], position: int) -> None:
        if position not in chunk.lapsed:
            chunk.lapsed = chunk.lapsed or set()
            chunk.lapsed.add(position)
            self._lapsed.add(1, chunk.bytes_between(position, position + 1))

    def renewed(self, chunk: Chunk[P], position: int) -> None:
        """See `Owner`."""
        chunk.lapsed.remove(position)
        self._lapsed.add(-1, -chunk.bytes_between(position, position + 1))

    def park(self, now: float) -> list[str]:
        """Gives everything held back; returns the ack ids to nack. Sequence numbers go on where they were."""
        returned = self._returned
        if returned is not None:
            returned.gave_back(
                (
                    (chunk.keys[i], chunk.message_ids[i], ack_id)
                    for chunk in self._held
                    if chunk.keys
                    for i in range(chunk.start, len(chunk.ack_ids))
                    if (ack_id := chunk.ack_ids[i]) is not None
                ),
                now,
            )
        given_back = Acks()
        for chunk in self._held:
            self._release(chunk, len(chunk.message_ids), given_back)
        self.forget(given_back.message_ids)
        self._parked = self._buffer.drained
        self._held.clear()
        self._buffer.clear()
        return given_back.ack_ids

    def refuse(self, delivery: Delivery[P], now: float) -> Receipt[P]:
        """Gives back what a response brought, except that what is held goes on under its new ack id."""
        receipt: Receipt[P] = Receipt()
        if self._closed:
            receipt.give_back = delivery.ack_ids
            return receipt
        new = self._take_known(delivery, receipt, now)
        if self._returned is not None and new.keys:
            self._returned.refused(zip(new.keys, new.message_ids, new.ack_ids, strict=True), now)
        receipt.give_back += new.ack_ids
        return receipt

    def heard(self, ack_ids: Sequence[str]) -> None:
        """The service has answered these nacks, or they were given up after the end of their leases."""
        if self._returned:
            self._returned.heard(set(ack_ids))

    def close(self, now: float) -> list[str]:
        """Gives everything held back, and whatever arrives from now on; returns the ack ids to nack."""
        self._closed = True
        self._positions.clear()
        return self.park(now)

    def _find(self, sequence: int) -> tuple[Chunk[P], int] | None:
        for chunk in self._held:
            position = sequence - chunk.first
            if position < len(chunk.message_ids):
                held = position >= chunk.start and chunk.ack_ids[position] is not None
                return (chunk, position) if held else None
        return None

    def _give_back(
        self, chunk: Chunk[P], positions: set[int], now: float, given_back: GivenBack, *, nacked: dict[str, str] | None = None
    ) -> None:
        """Drops these messages, and where order is kept all later ones of their keys.

        Only the first one of a key is nacked: the service redelivers the later ones with it, and a nack would count as a failed
        attempt of each. With `nacked`, keys of which an earlier one is nacked already (under this ack id), nothing is dropped
        that was drained.
        """
        drained = nacked is None
        nacked = {} if nacked is None else nacked
        returned: list[tuple[str, str, str]] = []
        keys = set(nacked)
        if self._returned is not None and chunk.keys:
            keys |= {chunk.keys[i] for i in positions if chunk.keys[i]}
        for each in self._from(chunk) if keys else (chunk,):
            first, names = (each.start if drained else each.drained), each.keys
            if each is chunk:
                first = min(positions, default=first)
            for i in range(first, len(each.ack_ids)):
                if each.ack_ids[i] is not None and ((each is chunk and i in positions) or (names and names[i] in keys)):
                    ack_id = self._drop(each, i, given_back)
                    name = names[i] if names else ""
                    if name not in nacked:
                        given_back.ack_ids.append(ack_id)
                    if name:
                        returned.append((name, each.message_ids[i], nacked.setdefault(name, ack_id)))
        if self._returned is not None:
            self._returned.gave_back(returned, now)

    def _from(self, chunk: Chunk[P]) -> Iterator[Chunk[P]]:
        return (each for each in self._held if each.first >= chunk.first)

    def _drop(self, chunk: Chunk[P], position: int, given_back: GivenBack) -> str:
        """Forgets a message held, and returns its ack id."""
        ack_id = chunk.ack_ids[position]
        assert ack_id is not None
        chunk.divide()
        size = chunk.bytes_between(position, position + 1)
        if position in chunk.lapsed:
            self.renewed(chunk, position)
        self.held_messages -= 1
        self.held_bytes -= size
        if position >= chunk.drained:
            self._buffer.drop(chunk, position, size)
        else:
            given_back.sequences.append(chunk.first + position)
        chunk.ack_ids[position] = None
        chunk.holes += 1
        chunk.held -= 1
        self._known.forget((chunk.message_ids[position],))
        return ack_id

    def _sweep(self) -> None:
        """Forgets chunks of which everything was given back, so that they do not add up while nothing is acknowledged."""
        self._held = deque(chunk for chunk in self._held if chunk.held)
        self._buffer.sweep()
