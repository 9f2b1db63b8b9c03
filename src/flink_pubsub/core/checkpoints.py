"""What a source wants of checkpoints: that there is one at all, and that the acknowledgements of each are confirmed."""

from __future__ import annotations

from dataclasses import dataclass


class FirstCheckpoint:
    """Notices a job that takes no checkpoints, and so would never acknowledge anything.

    1. *Idle*: no split was assigned yet, so there is nothing to take a checkpoint of.
    2. *Waiting*: from the first split on, for the first barrier. When the time is over and messages wait to be acknowledged,
       the job is to fail; without such messages nothing is missing yet.
    3. *Over*: a barrier came, with or without positions. A job that takes checkpoints is never measured again.
    """

    def __init__(self, seconds: float) -> None:
        """Waits so many seconds; 0 waits for ever."""
        self._seconds = seconds
        self._until: float | None = None
        self._over = not seconds

    def assigned(self, now: float) -> None:
        """Splits were assigned."""
        if self._until is None:
            self._until = now + self._seconds

    def barrier(self) -> None:
        """A checkpoint is being taken."""
        self._over = True

    def missing(self, now: float, waiting: int) -> bool:
        """Whether the job is to fail now, while so many messages wait to be acknowledged. True once at most."""
        if self._over or self._until is None or now < self._until or not waiting:
            return False
        self._over = True
        return True


@dataclass(slots=True)
class _Wait:
    left: int
    until: float


class Confirmations:
    """Which completed checkpoints the service has confirmed all acknowledgements of. Only where that is waited for.

    1. *Completed*: so many acknowledgements were sent for it, and are to be confirmed in time.
    2. *Confirmed*: all of them were; the job may go on.
    3. Or *failed*: one was refused or given up, or the time is over.
    """

    def __init__(self, seconds: float) -> None:
        """Gives the service so many seconds."""
        self.seconds = seconds
        self._waits: dict[int, _Wait] = {}

    def completed(self, checkpoint: int, acknowledgements: int, now: float) -> bool:
        """A checkpoint completed. Returns whether it is confirmed already, because there was nothing to acknowledge."""
        if acknowledgements:
            self._waits[checkpoint] = _Wait(acknowledgements, now + self.seconds)
        return not acknowledgements

    def confirmed(self, checkpoint: int, acknowledgements: int) -> bool:
        """So many were confirmed. Returns whether these were the last."""
        wait = self._waits.get(checkpoint)
        if wait is None:
            return False
        wait.left -= acknowledgements
        if not wait.left:
            del self._waits[checkpoint]
        return not wait.left

    def overdue(self, now: float) -> tuple[int, int] | None:
        """A checkpoint whose time is over, and how many of its acknowledgements are not confirmed; it is forgotten then."""
        for checkpoint, wait in self._waits.items():
            if now >= wait.until:
                return checkpoint, self._waits.pop(checkpoint).left
        return None
