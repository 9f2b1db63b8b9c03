"""Ordering keys of which messages were given back: what else of such a key must go back until they come again.

The service redelivers a key from the first message it got back. What it had sent before it heard of that is still on its
way: emitted, it would overtake. The life of a key:

1. *Returned*: messages of it were given back; their ids are known.
2. Another message arrives: it was under way, so it goes back too and its id joins the others.
3. One of the ids arrives: from here on the service delivers the key in order, and the key is forgotten.

When held messages are given back in 1, the ids known before count for nothing any more: what they stand for may be under way
once more already, behind the messages that go back now.

Step 3 comes even when the messages given back never do, since the service dead-lettered or dropped them: what step 2 gave
back then comes instead. A key that nothing ever arrives for again is forgotten when no delivery can be that late.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

FORGET_SECONDS = 1200.0
"""Twice the longest lease: by then the lease of every message given back is over, whatever became of the nack."""


@dataclass(slots=True)
class _Returned:
    since: float
    ids: set[str] = field(default_factory=set)


class ReturnedKeys:
    """The keys in 1. Empty almost always, which is what `__bool__` tells."""

    def __init__(self) -> None:
        self._keys: dict[str, _Returned] = {}
        """By age, the oldest first."""

    def __bool__(self) -> bool:
        return bool(self._keys)

    def gave_back(self, messages: Iterable[tuple[str, str]], now: float) -> None:
        """Notes keys and ids of held messages that go back together. An empty key has no order."""
        messages = list(messages)
        for key, _ in messages:
            self._keys.pop(key, None)
        self.refused(messages, now)

    def refused(self, messages: Iterable[tuple[str, str]], now: float) -> None:
        """Notes keys and ids of delivered messages that go back without having been held."""
        while self._keys and now - next(iter(self._keys.values())).since > FORGET_SECONDS:
            del self._keys[next(iter(self._keys))]
        for key, message_id in messages:
            if key:
                returned = self._keys.pop(key, None) or _Returned(now)
                returned.since = now
                returned.ids.add(message_id)
                self._keys[key] = returned

    def admits(self, key: str, message_id: str, now: float) -> bool:
        """Whether a delivered message that is not held may be taken in; if not, it is to be given back."""
        returned = self._keys.get(key)
        if returned is None:
            return True
        if message_id in returned.ids or now - returned.since > FORGET_SECONDS:
            del self._keys[key]
            return True
        returned.ids.add(message_id)
        return False
