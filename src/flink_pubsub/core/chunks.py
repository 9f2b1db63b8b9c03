"""The messages of one response as an ack tracker keeps them, and what goes in and out of a tracker.

Messages are kept in parallel lists, one entry per message of a response: no message has an object of its own.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Generic, Protocol, TypeVar

P = TypeVar("P")


class Bundle(Generic[P]):
    """The payloads of a response in one piece, so that nothing need be done for each message.

    Until it is divided, because some messages go another way than others, each counts with the same share of its size.
    """

    __slots__ = ("_messages", "share")

    def __init__(self, messages: int, size: int) -> None:
        self._messages = messages
        self.share = -(-size // max(1, messages))
        """Bytes each message counts with; rounded up, so that they count for no less than they take."""

    def __len__(self) -> int:
        return self._messages

    def divided(self) -> tuple[list[P], list[int]]:
        """Every payload by itself, and its size."""
        raise NotImplementedError

    def part(self, low: int, high: int) -> list[P] | Bundle[P]:
        """The payloads from `low` up to `high`."""
        return self.divided()[0][low:high]


@dataclass(slots=True)
class Delivery(Generic[P]):
    """The messages of one response, as parallel lists in server order."""

    ack_ids: list[str]
    message_ids: list[str]
    sizes: list[int]
    """Empty for a bundle."""
    payloads: list[P] | Bundle[P]
    keys: list[str] | None = None
    """Ordering keys, empty for none; None where order is not kept."""

    @property
    def whole(self) -> bool:
        """Whether the payloads are in one piece."""
        return isinstance(self.payloads, Bundle)

    @property
    def size(self) -> int:
        """Bytes of all payloads."""
        payloads = self.payloads
        return payloads.share * len(payloads) if isinstance(payloads, Bundle) else sum(self.sizes)

    def divided(self) -> list[P]:
        """The payloads one by one, as they are from now on."""
        if isinstance(self.payloads, Bundle):
            self.payloads, self.sizes = self.payloads.divided()
        return self.payloads

    def part(self, low: int, high: int) -> Delivery[P]:
        """The messages from `low` up to `high`."""
        payloads, keys = self.divided(), None if self.keys is None else self.keys[low:high]
        return Delivery(self.ack_ids[low:high], self.message_ids[low:high], self.sizes[low:high], payloads[low:high], keys)

    def picked(self, positions: list[int]) -> Delivery[P]:
        """The messages at these positions, which are in order."""
        if len(positions) == len(self.ack_ids):
            return self
        payloads = self.divided()
        return Delivery(
            [self.ack_ids[i] for i in positions],
            [self.message_ids[i] for i in positions],
            [self.sizes[i] for i in positions],
            [payloads[i] for i in positions],
            None if self.keys is None else [self.keys[i] for i in positions],
        )


class Owner(Protocol[P]):
    """The tracker a chunk belongs to."""

    def lapse(self, chunk: Chunk[P], positions: Iterable[int], now: float) -> list[str]:
        """The leases of these messages end. Returns the ack ids to nack before that."""

    def renewed(self, chunk: Chunk[P], position: int) -> None:
        """A message whose lease had ended was delivered again."""


class Chunk(Generic[P]):
    """The messages that one response brought, as parallel lists. Message i has sequence number `first + i`.

    `start` is the first message still held: those before it are acknowledged. `ack_ids[i]` is None for a message given back.
    """

    __slots__ = (
        "ack_ids",
        "bundle",
        "drained",
        "ends",
        "first",
        "held",
        "holes",
        "keys",
        "lapsed",
        "message_ids",
        "moved",
        "owner",
        "payloads",
        "received",
        "start",
    )

    def __init__(self, first: int, delivery: Delivery[P], received: float, owner: Owner[P]) -> None:
        self.first = first
        self.ack_ids: list[str | None] = list(delivery.ack_ids)
        self.message_ids = delivery.message_ids
        self.keys = delivery.keys
        self.bundle: Bundle[P] | None = None
        """All payloads, while none was drained or given back; `payloads` is empty then."""
        self.payloads: list[P | None] = []
        """Those not drained yet: `payloads[0]` is message `drained`."""
        if isinstance(delivery.payloads, Bundle):
            self.bundle, share = delivery.payloads, delivery.payloads.share
            self.ends: Sequence[int] = range(share, share * len(delivery.payloads) + 1, share)
        else:
            self.payloads += delivery.payloads
            self.ends = array("q", accumulate(delivery.sizes))
        self.received = received
        self.owner = owner
        self.start = 0
        self.drained = 0
        self.holes = 0
        """Messages given back, acknowledged positions before `start` included."""
        self.held = len(delivery.message_ids)
        self.moved: set[int] | None = None
        """Messages that were delivered again since; their leases run from then and are kept by a `Redelivered`."""
        self.lapsed: set[int] = _NONE
        """Held messages whose leases have ended."""

    def bytes_between(self, low: int, high: int) -> int:
        """Serialized size of the messages from `low` up to `high`."""
        return (self.ends[high - 1] if high else 0) - (self.ends[low - 1] if low else 0)

    def held_bytes_between(self, low: int, high: int) -> int:
        """The same without those given back."""
        if not self.holes:
            return self.bytes_between(low, high)
        return sum(self.bytes_between(i, i + 1) for i in range(low, high) if self.ack_ids[i] is not None)

    def divide(self) -> None:
        """From here on the payloads not drained yet are in `payloads`, and their sizes are exact; the last makes up the sum."""
        if self.bundle is not None:
            whole = self.ends[-1]
            payloads, sizes = self.bundle.divided()
            self.payloads += payloads
            self.ends = array("q", [*accumulate(sizes[:-1]), whole])
            self.bundle = None

    def redeliver(self, position: int, ack_id: str) -> None:
        """Goes on under another ack id, with a lease of its own."""
        self.ack_ids[position] = ack_id
        self.moved = self.moved or set()
        self.moved.add(position)
        if position in self.lapsed:
            self.owner.renewed(self, position)

    def leased(self) -> list[str]:
        """Current ack ids of the messages held since they first arrived."""
        ids = self.ack_ids[self.start :] if self.start else self.ack_ids
        if not self.holes and self.moved is None:
            return ids  # type: ignore[return-value]  # no holes, no None
        moved = self.moved or ()
        return [ack_id for i, ack_id in enumerate(ids, self.start) if ack_id is not None and i not in moved]

    def lapse(self, now: float) -> list[str]:
        """Their leases end; see `Owner.lapse`."""
        moved: Collection[int] = self.moved or ()
        return self.owner.lapse(self, [i for i in range(self.start, len(self.ack_ids)) if i not in moved], now)


_NONE: set[int] = set()
"""Shared by all chunks of which nothing has lapsed; never changed."""


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
        return [ack_id for _, _, ack_id in self._current()]

    def lapse(self, now: float) -> list[str]:
        """Their leases end; see `Owner.lapse`."""
        return [ack_id for chunk, i, _ in self._current() for ack_id in chunk.owner.lapse(chunk, [i], now)]

    def _current(self) -> list[tuple[Chunk[P], int, str]]:
        return [(chunk, i, ack_id) for chunk, i, ack_id in self._members if i >= chunk.start and chunk.ack_ids[i] == ack_id]


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
    """Ack ids to nack at once: the tracker is closed, or an earlier message of the key is on its way back to the service."""


@dataclass(slots=True)
class Acks:
    """Messages to acknowledge, as parallel lists. `AckTracker.forget` takes the message ids once there is an answer."""

    ack_ids: list[str] = field(default_factory=list)
    message_ids: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    """Ack ids of others, whose leases had ended: the service may accept them or not."""
    held: list[tuple[float, int]] = field(default_factory=list)
    """When those in `ack_ids` were received, and how many then."""


@dataclass(slots=True)
class GivenBack:
    """Messages that go back to the service."""

    ack_ids: list[str] = field(default_factory=list)
    """To be nacked."""
    sequences: list[int] = field(default_factory=list)
    """Those of them that had been drained already; whoever has them must not emit them."""


@dataclass(slots=True)
class Run(Generic[P]):
    """Drained messages with consecutive sequence numbers."""

    first: int
    payloads: list[P] | Bundle[P]

    def divided(self) -> list[P]:
        """The payloads one by one."""
        return self.payloads.divided()[0] if isinstance(self.payloads, Bundle) else self.payloads

    def part(self, low: int, high: int) -> Run[P]:
        """The messages from `low` up to `high`."""
        payloads = self.payloads
        return Run(self.first + low, payloads.part(low, high) if isinstance(payloads, Bundle) else payloads[low:high])


def without_holes(ack_ids: Sequence[str | None], low: int, payloads: list[P | None]) -> list[tuple[int, list[P | None]]]:
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
