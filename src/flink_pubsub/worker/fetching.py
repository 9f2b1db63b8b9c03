"""Fetching: draining the splits in turn into batches for the JVM, and decoding on the way.

Runs on the fetch thread, whenever the JVM asks. What was drained counts as buffered until its batch is handed over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from flink_pubsub.bridge.frames import Block
from flink_pubsub.core.budget import Tally
from flink_pubsub.core.chunks import GivenBack, Run
from flink_pubsub.worker.decoding import Decoding, Payload
from flink_pubsub.worker.holding import Shared, SplitState
from flink_pubsub.worker.undecodable import Undecodable

MAX_BATCH_BYTES = 8 * 1024 * 1024
"""About what one batch may hold; one message is always taken."""

_PIECE = 250
"""Messages decoded between two looks at the size and the time of a batch."""

_LONGEST_DECODE = 0.1
"""Seconds after which a batch leaves with what is decoded, so that a slow schema delays no record by a whole batch."""


class Fetching:
    """Makes batches."""

    def __init__(
        self,
        shared: Shared,
        decoding: Decoding,
        undecodable: Undecodable,
        nack: Callable[[SplitState, int], GivenBack],
        max_records: int,
        clock: Callable[[], float],
    ) -> None:
        """Makes batches of at most `max_records` messages of a split; `nack` gives one back and what may not overtake it."""
        self._shared = shared
        self._decoding = decoding
        self._undecodable = undecodable
        self._nack = nack
        self._max_records = max_records
        self._clock = clock
        self._turn = 0
        self._drained: deque[tuple[SplitState, Run[Payload]]] = deque()
        """Drained, not yet decoded."""
        self._in_hand = Tally()
        """Drained, and counted as buffered until all of it is handed over."""
        self._piece = None if decoding.whole_runs else _PIECE

    def poll(self, seconds: float) -> Sequence[Block]:
        """The next batch, or nothing after so many seconds.

        Raises:
            DeserializationError: the schema failed on a message, and such messages fail the job.
        """
        if not self._drained:
            self._drain(seconds)
        batch: list[Block] = []
        room, stop = MAX_BATCH_BYTES, self._clock() + _LONGEST_DECODE
        while self._drained and room > 0 and not (batch and self._clock() >= stop):
            block = self._decode_some(room)
            if block is not None:
                batch.append(block)
                room -= block.size
        if self._in_hand.messages and not self._drained:
            self._hand_over()
        return batch

    def _drain(self, seconds: float) -> None:
        """Waits for messages and takes them from every split in turn, beginning with another one each time."""
        shared, until = self._shared, self._clock() + seconds
        with shared.lock:
            while not shared.closing:
                splits = shared.splits
                budget = MAX_BATCH_BYTES
                for i in range(len(splits)):
                    split = splits[(self._turn + i) % len(splits)]
                    tracker = split.tracker
                    if not tracker.buffered_messages or split.paused or split.parking:
                        continue
                    messages, size = tracker.buffered_messages, tracker.buffered_bytes
                    runs = tracker.drain(self._max_records, budget, at_least_one=not self._drained)
                    self._drained.extend((split, run) for run in runs)
                    taken = size - tracker.buffered_bytes
                    self._in_hand.add(messages - tracker.buffered_messages, taken)
                    budget -= taken
                    if budget <= 0 or not runs:
                        self._turn += i
                        break
                self._turn = (self._turn + 1) % max(1, len(splits))
                remaining = until - self._clock()
                if self._drained or remaining <= 0:
                    break
                shared.records.wait(remaining)
            shared.room.notify_all()

    def _hand_over(self) -> None:
        """All that was drained leaves with this batch."""
        with self._shared.lock:
            self._shared.budget.used.add(-self._in_hand.messages, -self._in_hand.size)
            self._shared.room.notify_all()
        self._in_hand = Tally()

    def _decode_some(self, room: int) -> Block | None:
        split, run = self._drained.popleft()
        if split.withheld and self._withhold(split, run):
            return None
        whole = len(run.payloads)
        part = run if self._piece is None or whole <= self._piece else run.part(0, self._piece)
        block = self._decoding.decode(split.ordinal, split.holding.subscription, part, room)
        done = block.messages
        if done < whole:
            self._drained.appendleft((split, run.part(done, whole)))
        for sequence in self._undecodable.taken():
            split.withheld.update(later for later in self._nack(split, sequence).sequences if later > sequence)
        return block

    def _withhold(self, split: SplitState, run: Run[Payload]) -> bool:
        """Takes out of a run what was given back meanwhile; what is left is put back. False when all of it is left."""
        sequences = range(run.first, run.first + len(run.payloads))
        withheld = split.withheld.intersection(sequences)
        if not withheld:
            return False
        split.withheld -= withheld
        pieces: list[tuple[int, list[Payload]]] = []
        for sequence, payload in zip(sequences, run.divided(), strict=True):
            if sequence in withheld:
                continue
            if pieces and pieces[-1][0] + len(pieces[-1][1]) == sequence:
                pieces[-1][1].append(payload)
            else:
                pieces.append((sequence, [payload]))
        self._drained.extendleft((split, Run(first, payloads)) for first, payloads in reversed(pieces))
        return True
