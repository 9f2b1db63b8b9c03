"""Why a request was not published, in the terms that decide what happens next.

Every failure has one class, found in this order:

1. `MISSING_TOPIC`: the topic is not there; it may be created.
2. `PASSING`: the same request may succeed later.
3. `INVALID`: the service refuses the content. It refuses a request whole and does not say for which message, so this is a
   verdict only on a request of a single message.
4. `FATAL`: everything else; trying again or leaving a message out would not help.

The messages that queue behind a failure of their ordering key have no failure of their own: they were never sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """The class of a failure."""

    MISSING_TOPIC = "missing topic"
    PASSING = "passing"
    INVALID = "invalid"
    FATAL = "fatal"


@dataclass(frozen=True, slots=True)
class Refusal:
    """What the service answered instead of publishing."""

    verdict: Verdict
    code: str
    """Name of the gRPC status, such as `NOT_FOUND`."""
    details: str = ""

    @property
    def reason(self) -> str:
        """What the service said."""
        return self.details or "no details given"

    def __str__(self) -> str:
        return f"{self.code}: {self.details}" if self.details else self.code
