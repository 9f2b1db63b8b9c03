"""What a writer has taken over and not settled: batches open, waiting, out, or to be tried again.

Every record is settled exactly once, when its batch is answered; until then it counts as in flight. A flush is complete
when everything added before it is settled. After `abandon` nothing is handed out and nothing is settled any more, so a
failure can never be followed by the completion of a flush that covers it.

The life of a batch:

1. open or queued: in the batcher.
2. released: may go, and does as soon as fewer than `max_calls` calls are out.
3. out: `take` has handed it out; its answer is one of
4. `succeeded`: settled; or `retry`: released again at its time, while its ordering key waits; or neither: the caller abandons.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from flink_pubsub.core.batching import Batch, Batcher, Lane, Thresholds
from flink_pubsub.core.retry import Attempts, RetryPolicy


@dataclass(frozen=True, slots=True)
class Settled:
    """What came to its end since the last time this was asked."""

    records: int
    size: int
    flushes: Sequence[int]


class Outbox:
    """Batches, retries and flushes of one writer. Not thread-safe; times are monotonic seconds given by the caller."""

    def __init__(self, thresholds: Thresholds, retry: RetryPolicy, max_calls: int, jitter: Callable[[], float]) -> None:
        self._batcher = Batcher(thresholds)
        self._policy = retry
        self._free_calls = max_calls
        self._jitter = jitter
        self._retries: list[tuple[float, int, Batch]] = []
        self._flushes = _Flushes()
        self._abandoned = False
        self._settled_records = self._settled_size = 0
        self.records = 0
        """Records in flight."""
        self.size = 0
        """Bytes in flight, as entries of publish requests."""

    def add(self, lane: Lane, data: bytes | memoryview, ends: Sequence[int], now: float) -> None:
        """Takes over entries of one topic and ordering key; entry i is `data[ends[i-1]:ends[i]]`."""
        self._batcher.add(lane, data, ends, now)
        self._flushes.added(self._batcher.epoch, len(ends))
        self.records += len(ends)
        self.size += len(data)

    def send_now(self) -> None:
        """Lets partial batches go."""
        self._batcher.send_now()

    def flush(self, flush: int) -> None:
        """Lets everything go, and reports the flush once all of it is settled."""
        self._flushes.ask(self._batcher.flush(), flush)

    def take(self, now: float) -> list[tuple[Batch, float | None]]:
        """The batches to send now, each with its RPC timeout."""
        calls: list[tuple[Batch, float | None]] = []
        if self._abandoned:
            return calls
        self._batcher.due(now)
        while self._free_calls:
            if self._retries and self._retries[0][0] <= now:
                batch = heappop(self._retries)[2]
            else:
                released = self._batcher.released()
                if released is None:
                    break
                batch = released
            self._free_calls -= 1
            attempts = batch.attempts = batch.attempts or Attempts(self._policy)
            calls.append((batch, attempts.begin(now)))
        return calls

    def wake_at(self) -> float | None:
        """When `take` has to be called although nothing else happens."""
        if self._abandoned:
            return None
        due = self._batcher.next_due()
        # Without a free call a retry waits for an answer, not for a time.
        again = self._retries[0][0] if self._retries and self._free_calls else None
        return due if again is None else again if due is None else min(due, again)

    def succeeded(self, batch: Batch) -> None:
        """The service has stored the batch."""
        self._free_calls += 1
        if self._abandoned:
            return
        self._batcher.completed(batch)
        self._settle(batch.epoch, batch.messages, batch.size)

    def retry(self, batch: Batch, now: float) -> bool:
        """The batch failed in a way that may pass. Whether it will be tried again; its budget may be spent."""
        assert batch.attempts is not None
        at = batch.attempts.next_at(now, self._jitter())
        if at is None:
            return False
        self._free_calls += 1
        heappush(self._retries, (at, batch.sequence, batch))
        return True

    def abandon(self) -> None:
        """Ends it: nothing is sent or settled from here on."""
        self._abandoned = True

    def take_settled(self) -> Settled | None:
        """What was settled since the last call, if anything."""
        if self._abandoned:
            return None
        flushes = self._flushes.complete()
        if not self._settled_records and not flushes:
            return None
        settled = Settled(self._settled_records, self._settled_size, flushes)
        self._settled_records = self._settled_size = 0
        return settled

    def _settle(self, epoch: int, records: int, size: int) -> None:
        self._flushes.settled(epoch, records)
        self._settled_records += records
        self._settled_size += size
        self.records -= records
        self.size -= size


class _Flushes:
    """Counts what is outstanding between one flush and the next."""

    def __init__(self) -> None:
        self._outstanding: dict[int, int] = {}
        self._asked: deque[tuple[int, int]] = deque()

    def added(self, epoch: int, records: int) -> None:
        self._outstanding[epoch] = self._outstanding.get(epoch, 0) + records

    def settled(self, epoch: int, records: int) -> None:
        left = self._outstanding[epoch] - records
        if left < 0:
            raise AssertionError(f"{-left} more records of epoch {epoch} were settled than added")
        if left:
            self._outstanding[epoch] = left
        else:
            del self._outstanding[epoch]

    def ask(self, epoch: int, flush: int) -> None:
        self._asked.append((epoch, flush))

    def complete(self) -> list[int]:
        """Flushes whose epochs, and all earlier ones, are settled."""
        done: list[int] = []
        oldest = min(self._outstanding, default=None)
        while self._asked and (oldest is None or self._asked[0][0] < oldest):
            done.append(self._asked.popleft()[1])
        return done
