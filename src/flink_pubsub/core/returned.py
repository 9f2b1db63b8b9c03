"""Ordering keys of which messages were given back: what else of such a key must go back until they come again.

The service redelivers a key from the first message it got back. What it had sent before it heard of that is still on its
way, and until it hears of it the lease of a later message may end, which it then sends alone: emitted, that would overtake. The
life of a key:

1. *Returned*: messages of it were given back, with a nack for the first one, which stands for all. Until the service has
   answered it, only that first message is taken in; whatever else arrives goes back too.
2. *Heard*: the service has answered. What arrives may have been sent before, so it goes back too, with a nack of its own.
3. The first message arrives, or another one for the second time since 2 with no earlier one in between: it was sent after 2,
   so from here on the service delivers the key in order, and the key is forgotten.

The second way to 3 is for keys whose first message never comes again, since the service dead-lettered or dropped it. Which of
two messages is the earlier one is known because each is seen for the first time in order.

When held messages are given back in 1 or 2, it begins anew with them, which are before all others: what was known before may
be under way once more already, behind them. A key that nothing ever arrives for again is forgotten when no delivery can be that
late.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterable
from dataclasses import dataclass, field

FORGET_SECONDS = 1200.0
"""Twice the longest lease: by then the lease of every message given back is over, whatever became of the nack."""


@dataclass(slots=True)
class _Returned:
    nack: str
    """The ack id that was nacked for the first message."""
    since: float
    heard: bool = False
    places: dict[str, int] = field(default_factory=dict)
    """Of each message seen, by its id: how many were before it."""
    again: list[int] = field(default_factory=list)
    """Places of what was nacked since 2 and may come for the second time, in order."""

    def place(self, message_id: str) -> int:
        return self.places.setdefault(message_id, len(self.places))


class ReturnedKeys:
    """The keys in 1 and 2. Empty almost always, which is what `__bool__` tells."""

    def __init__(self) -> None:
        self._keys: dict[str, _Returned] = {}
        """By age, the oldest first."""

    def __bool__(self) -> bool:
        return bool(self._keys)

    def gave_back(self, messages: Iterable[tuple[str, str, str]], now: float) -> None:
        """Notes held messages that go back together: the key of each, its id, and the ack id nacked for it. An empty key has no
        order."""
        messages = list(messages)
        before = {key: self._keys.pop(key) for key, _, _ in messages if key in self._keys}
        self.refused(messages, now)
        for key, returned in before.items():
            for message_id in returned.places:  # in their order, which is after what was held
                self._keys[key].place(message_id)

    def refused(self, messages: Iterable[tuple[str, str, str]], now: float) -> None:
        """Notes delivered messages that go back without having been held."""
        while self._keys and now - next(iter(self._keys.values())).since > FORGET_SECONDS:
            del self._keys[next(iter(self._keys))]
        for key, message_id, ack_id in messages:
            if key:
                returned = self._keys.pop(key, None) or _Returned(ack_id, now)
                returned.since = now
                self._keys[key] = returned
                self.nacked(key, message_id)

    def nacked(self, key: str, message_id: str) -> None:
        """Notes a message of a key in 1 or 2 that was not taken in."""
        returned = self._keys[key]
        place = returned.place(message_id)
        if returned.heard:
            del returned.again[bisect_left(returned.again, place) :]
            returned.again.append(place)

    def goes_with(self, key: str, message_id: str, other: str) -> bool:
        """Whether a message that is not taken in is after another one of the key, so that it is redelivered with that."""
        returned = self._keys[key]
        return returned.place(message_id) > returned.place(other)

    def heard(self, ack_ids: Container[str]) -> None:
        """Notes that the service has answered these nacks, or that they were given up, after the end of their leases."""
        for returned in self._keys.values():
            returned.heard = returned.heard or returned.nack in ack_ids

    def admits(self, key: str, message_id: str, now: float) -> bool:
        """Whether a delivered message that is not held may be taken in; if not, it is to be given back."""
        returned = self._keys.get(key)
        if returned is None:
            return True
        place = returned.place(message_id)
        at = bisect_left(returned.again, place)
        if place == 0 or returned.again[at : at + 1] == [place] or now - returned.since > FORGET_SECONDS:
            del self._keys[key]
            return True
        return False
