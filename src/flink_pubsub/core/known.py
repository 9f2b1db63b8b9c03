"""Which messages of a subscription its trackers know.

Almost every message is new, and that is all there is to find out: whether none of a response is in a set of ids. This is most
of what a message costs here, for the set outgrows the processor's caches. A mapping would take about twice the time, so where
a message is held is only worked out once one comes that is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from flink_pubsub.core.chunks import Chunk
from flink_pubsub.core.positions import TrackerError

P = TypeVar("P")


class KnownMessages(Generic[P]):
    """The ids of what is held by any tracker of a subscription, whose acknowledgement is under way, or that is remembered."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._holders: list[Callable[[], Iterable[Chunk[P]]]] = []
        self._places: dict[str, Chunk[P]] | None = None
        """Where each message is that is held. Only from when a known one came, until as many others have come as it names."""
        self._worth = 0
        """How many more messages may come before it is dropped."""

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._ids

    def __len__(self) -> int:
        return len(self._ids)

    def join(self, held: Callable[[], Iterable[Chunk[P]]]) -> None:
        """Takes a tracker in; `held` returns what it holds."""
        self._holders.append(held)

    def enter(self, chunk: Chunk[P]) -> bool:
        """Enters the messages of a response; but none of them if one is known, and not if one comes twice."""
        ids, known = chunk.message_ids, self._ids
        if not known.isdisjoint(ids):
            return False
        before = len(known)
        known.update(ids)
        if len(known) - before != len(ids):
            known.difference_update(ids)
            return False
        if self._places is not None:
            self._worth -= len(ids)
            if self._worth < 0:
                self._places = None
            else:
                self._places.update(dict.fromkeys(ids, chunk))
        return True

    def place(self, message_id: str) -> Chunk[P] | None:
        """What a known message is held in, or was until its acknowledgement; None when nobody holds it."""
        if self._places is None:
            self._places = {
                chunk.message_ids[i]: chunk
                for held in self._holders
                for chunk in held()
                for i in range(chunk.start, len(chunk.message_ids))
                if chunk.ack_ids[i] is not None
            }
        self._worth = len(self._places)
        return self._places.get(message_id)

    def remember(self, message_id: str) -> None:
        """Enters a message that is held no more."""
        self._ids.add(message_id)

    def forget(self, message_ids: Sequence[str]) -> None:
        """Knows these no more.

        Raises:
            TrackerError: one of them was not known.
        """
        before = len(self._ids)
        self._ids.difference_update(message_ids)
        if before - len(self._ids) != len(message_ids):
            raise TrackerError("a message was forgotten before")
        if self._places is not None:
            for message_id in message_ids:
                self._places.pop(message_id, None)
