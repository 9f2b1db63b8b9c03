"""What of a split waits to be drained, in order."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import Generic, TypeVar

from flink_pubsub.core.budget import Tally
from flink_pubsub.core.chunks import Chunk, Run, without_holes

P = TypeVar("P")


class Buffer(Generic[P]):
    """A split's messages with their payloads. No threads; part of an `AckTracker`, which tells it what becomes of them."""

    def __init__(self, total: Tally) -> None:
        """`total` counts up for what is added, and down for what goes otherwise than by `drain`."""
        self._chunks: deque[Chunk[P]] = deque()
        self._total = total
        self.held = Tally()
        """What there is."""
        self.drained = 0
        """Sequence number of the last message drained."""

    def add(self, chunk: Chunk[P]) -> None:
        """Appends the messages of a response."""
        self._chunks.append(chunk)
        count, size = len(chunk.message_ids), chunk.ends[-1]
        self.held.add(count, size)
        self._total.add(count, size)

    def drain(self, max_messages: int, max_bytes: int, at_least_one: bool) -> list[Run[P]]:
        """Takes messages out: up to so many and so large; with `at_least_one` the first even if that is larger.

        A bundle that does not fit whole is divided only if nothing would be taken otherwise.
        """
        runs: list[Run[P]] = []
        while self._chunks and max_messages > 0:
            chunk = self._chunks[0]
            low, high = chunk.drained, min(len(chunk.message_ids), chunk.drained + max_messages)
            too_large = chunk.bytes_between(low, high) > max_bytes
            if too_large or high < len(chunk.message_ids):
                if chunk.bundle is not None and (runs or (too_large and not at_least_one)):
                    break
                chunk.divide()
                high = bisect_right(chunk.ends, max_bytes + chunk.bytes_between(0, low), low, high)
                if high == low:
                    if runs or not at_least_one:
                        break
                    high = low + 1
            taken = self._hand_out(chunk, high, runs)
            max_messages -= taken.messages
            max_bytes -= taken.size
            if high == len(chunk.message_ids):
                self._chunks.popleft()
            self.drained = chunk.first + high - 1
        return runs

    def _hand_out(self, chunk: Chunk[P], high: int, runs: list[Run[P]]) -> Tally:
        """Returns what that was, holes not counted."""
        low, bundle = chunk.drained, chunk.bundle
        size = chunk.held_bytes_between(low, high)
        chunk.drained = high
        if bundle is not None:
            chunk.bundle = None
            runs.append(Run(chunk.first, bundle))
            taken = Tally(len(bundle), size)
        else:
            payloads, chunk.payloads[: high - low] = chunk.payloads[: high - low], []
            stretches = without_holes(chunk.ack_ids, low, payloads) if chunk.holes else [(0, payloads)]
            taken = Tally(sum(len(stretch) for _, stretch in stretches), size)
            for offset, stretch in stretches:
                first, last = chunk.first + low + offset, runs[-1] if runs else None
                if last is not None and isinstance(last.payloads, list) and last.first + len(last.payloads) == first:
                    last.payloads.extend(stretch)  # type: ignore[arg-type]  # what is not a hole has its payload
                else:
                    runs.append(Run(first, stretch))  # type: ignore[arg-type]
        self.held.add(-taken.messages, -taken.size)
        return taken

    def drop(self, chunk: Chunk[P], position: int, size: int) -> None:
        """Leaves a hole where a message was."""
        self.held.add(-1, -size)
        self._total.add(-1, -size)
        chunk.payloads[position - chunk.drained] = None

    def sweep(self) -> None:
        """Forgets chunks that are nothing but holes."""
        self._chunks = deque(chunk for chunk in self._chunks if chunk.held)

    def clear(self) -> None:
        """Drops everything."""
        for chunk in self._chunks:
            chunk.payloads.clear()
            chunk.bundle = None
        self._chunks.clear()
        self._total.add(-self.held.messages, -self.held.size)
        self.held = Tally()
