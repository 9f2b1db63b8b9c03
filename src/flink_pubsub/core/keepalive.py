"""When to ping a streaming-pull connection, and when its silence means that it is dead.

From protocol version 1 on the service answers an empty request with an empty response; a client that gets no response of any
kind for 15 s after one reopens the stream (the service's documentation of `StreamingPullRequest.protocol_version`). Older
emulators never answer, so silence counts only at a server that was heard to answer a ping before.
"""

from __future__ import annotations

from enum import Enum


class Step(Enum):
    """What to do with the connection now."""

    WAIT = "wait"
    PING = "ping"
    REOPEN = "reopen"


class Keepalive:
    """The state of one connection to one server; survives the streams it is made of.

    1. *Quiet*: no ping is open; the next is due `ping` seconds after the last.
    2. *Asked*: a ping is open. Any response ends that. Time during which nobody reads responses does not count.
    3. *Dead*: `liveness` seconds without a response, at a server that answers pings. Only a new stream ends that.
    """

    def __init__(self, ping: float = 30.0, liveness: float = 15.0) -> None:
        self._ping = ping
        self._liveness = liveness
        self._server_answers = False
        self._ping_at = 0.0
        self._dead_at: float | None = None
        self._reading = True

    def opened(self, now: float) -> None:
        """A new stream begins."""
        self._ping_at = now + self._ping
        self._dead_at = None

    def heard(self, empty: bool) -> None:
        """A response came; an empty one, while a ping is open, is its answer."""
        self._server_answers |= empty and self._dead_at is not None
        self._dead_at = None

    def reading(self, reading: bool, now: float) -> None:
        """Responses are read from now on, or are not."""
        self._reading = reading
        if reading and self._dead_at is not None:
            self._dead_at = now + self._liveness

    def step(self, now: float) -> tuple[Step, float]:
        """What is to be done now, and in how many seconds to ask again at the latest."""
        if self._dead_at is not None and now >= self._dead_at:
            if self._reading and self._server_answers:
                return Step.REOPEN, self._ping
            self._dead_at = now + self._liveness
        if now >= self._ping_at:
            self._ping_at = now + self._ping
            if self._dead_at is None:
                self._dead_at = now + self._liveness
            return Step.PING, min(self._ping, self._liveness)
        wakes = self._ping_at if self._dead_at is None else min(self._ping_at, self._dead_at)
        return Step.WAIT, wakes - now
