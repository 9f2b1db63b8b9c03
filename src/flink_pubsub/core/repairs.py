"""Bringing back a topic that the service says is missing.

The life of a repair, which begins with the first request that is answered NOT_FOUND:

1. creating: the caller is asked to create the topic, which may exist already. Until the repair is over, whatever is to go to
   the topic is parked.
2. waiting: a new topic may take a while to be known everywhere, so each attempt waits, longer every time and not at the same
   moment as the other writers that found it missing.
3. probing: the first parked batch goes, alone, once no other request to the topic is out. NOT_FOUND leads back to 1 until the
   attempts are spent, as the topic may have been deleted again; a refusal of its content says nothing about the topic, so the
   next one goes; success ends the repair, and so does the end of all that waited for it.

Parked batches go in the order in which they were written. An ordering key's later batches are not among them: they
queue behind the parked one, as they do behind one that is out.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

from flink_pubsub.core.batching import Batch
from flink_pubsub.core.refusals import Refusal
from flink_pubsub.core.topics import Topic
from flink_pubsub.errors import PublishError


@dataclass(frozen=True, slots=True)
class RecoveryPolicy:
    """Bounds of a repair, in seconds."""

    initial_backoff: float = 0.5
    max_backoff: float = 10
    max_attempts: int = 10
    jitter: float = 0.25
    """Part of a backoff by which it may be longer or shorter."""


class TopicRepair:
    """One missing topic. `jitter` values are drawn evenly from 0 to 1."""

    def __init__(self, topic: Topic, policy: RecoveryPolicy) -> None:
        self._topic = topic
        self._policy = policy
        self._parked: list[tuple[tuple[int, int], Batch]] = []
        self._exists = False
        self._next_at: float | None = 0.0
        """When to create or to probe; None while either is on its way."""
        self._backoff = policy.initial_backoff
        self._waits = 0
        self.probe: Batch | None = None
        self.created_once = False
        """Whether the creation succeeded at least once."""
        self.rejected = 0
        """Messages of the topic that the service refused for themselves meanwhile."""

    @property
    def unsettled(self) -> int:
        """Messages that wait for the topic."""
        return self._topic.unsettled

    def park(self, batch: Batch) -> None:
        """Keeps a batch until the topic is back; it starts with a retry budget of its own then."""
        batch.attempts = None
        heappush(self._parked, (batch.order, batch))

    def parked(self) -> list[Batch]:
        """What waits for the topic, in no order. Ends the repair."""
        return [batch for _, batch in self._parked]

    def create(self, now: float) -> bool:
        """Whether the topic is to be created now; once it is, `created` or `attempt_failed` follows."""
        if self._exists or self._next_at is None or self._next_at > now:
            return False
        self._next_at = None
        return True

    def created(self, now: float, jitter: float) -> None:
        """The topic is there, by whoever's doing."""
        self._exists = self.created_once = True
        self._wait(now, jitter)

    def due(self, now: float) -> Batch | None:
        """The batch that is to be tried now, if any."""
        if not self._ready() or self._next_at is None or self._next_at > now:
            return None
        self._next_at = None
        self.probe = heappop(self._parked)[1]
        return self.probe

    def wake_at(self) -> float | None:
        """When `create` or `due` has to be called although nothing else happens."""
        return self._next_at if not self._exists or self._ready() else None

    def attempt_failed(self, refusal: Refusal, now: float, jitter: float) -> PublishError | None:
        """The creation or the probe failed in a way that may pass: returns what fails the job if it was the last attempt."""
        self.probe = None
        if self._waits >= self._policy.max_attempts:
            return self._exhausted(refusal)
        if self._exists:
            self._exists, self._next_at = False, now
        else:
            self._wait(now, jitter)
        return None

    def probe_refused(self, now: float) -> None:
        """The content of the probe was refused: the next one goes at once."""
        self.probe = None
        self._next_at = now

    def _ready(self) -> bool:
        return self._exists and bool(self._parked) and not self._topic.out

    def _wait(self, now: float, jitter: float) -> None:
        self._waits += 1
        self._next_at = now + self._backoff * (1 + self._policy.jitter * (2 * jitter - 1))
        self._backoff = min(self._backoff * 2, self._policy.max_backoff)

    def _exhausted(self, refusal: Refusal) -> PublishError:
        parts = []
        if self.rejected:
            parts.append(
                "could not drain its parked messages within the recovery budget; "
                f"{self.rejected} of them were handed to failed_message_handler"
            )
        else:
            parts.append("kept failing")
        parts.append("the sink has created the topic" if self.created_once else "the topic could not be created")
        problem = (
            f"republishing {'; '.join(parts)}. All {self._policy.max_attempts} attempts of recovery_max_attempts are spent, "
            f"{self.unsettled} messages wait, and the last one ended with {refusal}"
        )
        return PublishError(self._topic.path, refusal.code, problem)
