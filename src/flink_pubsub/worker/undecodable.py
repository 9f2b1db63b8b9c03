"""What becomes of messages that a deserializer refuses, in the worker or in the JVM: the one place where that is decided."""

from __future__ import annotations

import logging
from collections.abc import Callable

from flink_pubsub.core.seldom import Seldom
from flink_pubsub.errors import DeserializationError
from flink_pubsub.options import DeserializationFailurePolicy

_LONGEST_SILENCE = 600.0
"""Seconds between two warnings, once there were many."""

_LONGEST_CAUSE = 500
"""Characters of what the JVM says."""

_log = logging.getLogger(__name__)


class Undecodable:
    """The failure policy of a source, and how often it had to decide."""

    def __init__(self, policy: DeserializationFailurePolicy, clock: Callable[[], float]) -> None:
        self.policy = policy
        self._clock = clock
        self._warnings = Seldom(1, _LONGEST_SILENCE)
        self._noted: list[int] = []
        self.failed = 0
        """Messages a schema failed on in the worker; the JVM counts its own."""
        self.dropped = 0
        """Messages of which the rest is lost, decoded here or in the JVM."""

    def gives_back(self, path: str, message_id: str, who: str, error: Exception) -> bool:
        """Decides about a message that `who` failed on in the worker: whether it goes back, else it is dropped.

        Raises:
            DeserializationError: such a message fails the job.
        """
        self.failed += 1
        if self.policy is DeserializationFailurePolicy.FAIL:
            if isinstance(error, DeserializationError):
                raise error
            raise DeserializationError(path, message_id, f"{who} raised {type(error).__name__}") from error
        cause = error.problem if isinstance(error, DeserializationError) else f"{who} raised {type(error).__name__}"
        return self._decide(path, message_id, cause)

    def refused_in_jvm(self, path: str, message_id: str, error: str) -> bool:
        """The same for a message that the JVM could not decode.

        Raises:
            DeserializationError: such a message fails the job.
        """
        cause = f"the JVM's schema threw {error[:_LONGEST_CAUSE]}"
        if self.policy is DeserializationFailurePolicy.FAIL:
            raise DeserializationError(path, message_id, cause)
        return self._decide(path, message_id, cause)

    def _decide(self, path: str, message_id: str, cause: str) -> bool:
        back = self.policy is DeserializationFailurePolicy.NACK
        self.dropped += not back
        withheld = self._warnings.passes(self._clock())
        if withheld is not None:
            what = "given back" if back else "dropped"
            _log.warning("message %s of %s is %s: %s; %d such warnings withheld", message_id, path, what, cause, withheld)
        return back

    def note(self, sequence: int) -> None:
        """Notes a message that goes back, for whoever sees to it once its block is decoded. Fetch thread."""
        self._noted.append(sequence)

    def taken(self) -> list[int]:
        """What was noted since the last call. Fetch thread."""
        noted, self._noted = self._noted, []
        return noted
