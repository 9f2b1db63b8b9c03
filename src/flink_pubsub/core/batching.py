"""Gathers messages into publish requests.

Messages come as *entries*: the bytes a message takes in a PublishRequest, that is tag, length and serialized message. A
request is then its topic field followed by entries, so a batch is built by joining slices and its size is exact by
construction. The invariants this file owns:

- A request never holds more than the service takes (1,000 messages, 10,000,000 bytes), whatever the thresholds say; only an
  entry that is larger than that by itself exceeds it, alone in its request, for the service to judge.
- A request holds the messages of one topic and one ordering key, in the order in which they were added.
- Of one topic and ordering key, one request is out at a time; the next is released by `completed`. Messages without a key
  have no order, and any number of their requests may be out.
- A request that is refused as a whole can be taken apart by `isolate`: one request per message then, in the same place of its
  lane's order.
- A lane (topic and ordering key) with nothing open and nothing out leaves nothing behind.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from flink_pubsub.core.refusals import Refusal
from flink_pubsub.core.retry import Attempts

MAX_REQUEST_MESSAGES = 1000
"""Most messages in one request (Pub/Sub quotas and limits)."""

MAX_REQUEST_BYTES = 10_000_000
"""Largest request (Pub/Sub quotas and limits). The service counts the topic field as well."""

Lane: TypeAlias = tuple[str, str]
"""A topic's resource path and an ordering key, "" for none."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """A batch goes as soon as one of these is reached."""

    messages: int
    size: int
    """Bytes of entries. A batch grows beyond it only when a single entry does."""
    delay: float
    """Seconds from a batch's first message; 0 lets a batch go with the call that began it."""


class Batch:
    """One publish request.

    1. open: entries are appended.
    2. sealed: `request` holds the finished bytes, and what the entries came from is let go.
    """

    __slots__ = (
        "_head", "_most", "_parts", "attempts", "deadline", "epoch", "lane", "messages", "order", "refusal", "request", "size",
    )  # fmt: skip

    def __init__(self, lane: Lane, order: tuple[int, int], epoch: int, deadline: float, thresholds: Thresholds) -> None:
        head = _topic_field(lane[0])
        self.lane = lane
        self.order = order
        """Position in the order in which the writer began its batches; within a lane, the publish order."""
        self.epoch = epoch
        """Number of flushes asked for before its first message; no batch spans a flush."""
        self.deadline = deadline
        self.messages = 0
        self.size = 0
        """Bytes of the entries, without the topic field."""
        self.request = b""
        self.attempts: Attempts | None = None
        """What the retry budget remembers of this batch."""
        self.refusal: Refusal | None = None
        """Its last failure."""
        self._head = len(head)
        self._parts: list[bytes | memoryview] = [head]
        self._most = min(thresholds.size, MAX_REQUEST_BYTES - len(head))

    @property
    def sealed(self) -> bool:
        return not self._parts

    def fitting(self, ends: Sequence[int], index: int, start: int, most_messages: int) -> int:
        """Index behind the last of the entries from `index` (beginning at byte `start`) that may join this batch."""
        stop = bisect_right(ends, start + self._most - self.size, index, min(len(ends), index + most_messages - self.messages))
        return index + 1 if stop == index and not self.messages else stop

    def append(self, data: bytes | memoryview, messages: int) -> None:
        self._parts.append(data)
        self.messages += messages
        self.size += len(data)

    def full(self, most_messages: int) -> bool:
        return self.messages >= most_messages or self.size >= self._most

    def seal(self) -> None:
        self.request = b"".join(self._parts)
        self._parts = []

    def message(self) -> bytes:
        """The serialized message of a request that holds a single one."""
        assert self.messages == 1
        return self.request[_read_varint(self.request, self._head + 1)[1] :]

    def singles(self) -> list[Batch]:
        """Its messages in requests of their own, in order."""
        request, position = self.request, self._head
        head = request[:position]
        singles: list[Batch] = []
        while position < len(request):
            length, start = _read_varint(request, position + 1)
            single = Batch.__new__(Batch)
            single.lane, single.order, single.epoch = self.lane, (self.order[0], len(singles) + 1), self.epoch
            single.deadline, single.attempts, single.refusal = self.deadline, None, self.refusal
            single.messages, single.size = 1, start + length - position
            single.request = head + request[position : start + length]
            single._head, single._most, single._parts = self._head, 0, []
            singles.append(single)
            position = start + length
        assert len(singles) == self.messages
        return singles


class Batcher:
    """Open batches and the lanes' queues. `released` hands out those that are complete, `due` those that waited long enough."""

    def __init__(self, thresholds: Thresholds) -> None:
        self._thresholds = thresholds
        self._most_messages = min(thresholds.messages, MAX_REQUEST_MESSAGES)
        self._open: OrderedDict[Lane, Batch] = OrderedDict()
        # Open batches of lanes that may send. All wait equally long, so the first is the first one due.
        self._behind: dict[Lane, deque[Batch]] = {}
        # Keyed lanes with a batch out, and what queues behind it; only the last batch of a queue may still be open.
        self._released: deque[Batch] = deque()
        self._sequence = 0
        self._hurried = 0
        # Batches before this one in the order do not wait for their delay.

    def add(self, lane: Lane, data: bytes | memoryview, ends: Sequence[int], now: float, epoch: int = 0) -> None:
        """Appends entries to a lane; entry i is `data[ends[i-1]:ends[i]]`. Full batches are released or queued.

        Between entries of different epochs everything has to be sealed by `flush`.
        """
        start = index = 0
        most, whole = self._most_messages, len(data)
        while index < len(ends):
            batch = self._current(lane, now, epoch)
            stop = batch.fitting(ends, index, start, most)
            if stop > index:
                end = ends[stop - 1]
                batch.append(data if end - start == whole else data[start:end], stop - index)
                start, index = end, stop
            if index < len(ends) or batch.full(most):
                self._seal(batch)

    def send_now(self) -> None:
        """Makes every open batch due; what queues behind a key goes as its lane gets free."""
        self._hurried = self._sequence

    def flush(self) -> None:
        """Seals everything, so that no batch holds messages from before and after."""
        while self._open:
            self._seal(next(iter(self._open.values())))
        for queue in self._behind.values():
            if queue and not queue[-1].sealed:
                queue[-1].seal()

    def due(self, now: float, patience: float = 0) -> Batch | None:
        """The next batch to send although it is not full: its delay is over, and so much more time if any is given.

        It grows until this is called, so it should be only when the batch can go.
        """
        due_at = self.next_due(patience)
        if due_at is None or due_at > now:
            return None
        self._seal(next(iter(self._open.values())))
        return self._released.pop()

    def next_due(self, patience: float = 0) -> float | None:
        """When `due` has something to hand out."""
        if not self._open:
            return None
        batch = next(iter(self._open.values()))
        return 0 if batch.order[0] < self._hurried and not patience else batch.deadline + patience

    def released(self) -> Batch | None:
        """The next batch to send that takes nothing more."""
        return self._released.popleft() if self._released else None

    def completed(self, batch: Batch) -> None:
        """The batch has its answer: its key's next batch goes, without waiting for more, as it has waited for this one."""
        if not batch.lane[1]:
            return
        queue = self._behind[batch.lane]
        if not queue:
            del self._behind[batch.lane]
            return
        following = queue.popleft()
        if not following.sealed:
            following.seal()
        self._released.append(following)

    def isolate(self, batch: Batch) -> None:
        """Replaces a batch that is out by one per message. They are released, a key's one after the other."""
        singles = batch.singles()
        if batch.lane[1]:
            self._behind[batch.lane].extendleft(reversed(singles[1:]))
            self._released.append(singles[0])
        else:
            self._released.extend(singles)

    @property
    def idle(self) -> bool:
        """Whether nothing is open, released or queued, and no key has a batch out."""
        return not (self._open or self._behind or self._released)

    def _current(self, lane: Lane, now: float, epoch: int) -> Batch:
        queue = self._behind.get(lane) if lane[1] else None
        batch = self._open.get(lane) if queue is None else queue[-1] if queue else None
        if batch is None or batch.sealed:
            batch = Batch(lane, (self._sequence, 0), epoch, now + self._thresholds.delay, self._thresholds)
            self._sequence += 1
            if queue is None:
                self._open[lane] = batch
            else:
                queue.append(batch)
        return batch

    def _seal(self, batch: Batch) -> None:
        batch.seal()
        if self._open.pop(batch.lane, None) is None:
            return  # it queues behind its key's batch
        if batch.lane[1]:
            self._behind[batch.lane] = deque()
        self._released.append(batch)


def _topic_field(topic: str) -> bytes:
    name = topic.encode()
    return b"\x0a" + varint(len(name)) + name


def varint(value: int) -> bytes:
    """The protobuf encoding of a length."""
    if value < 0x80:
        return value.to_bytes(1, "big")
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    """A varint's value, and where it ends."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
