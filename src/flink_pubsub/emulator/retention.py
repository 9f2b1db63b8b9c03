"""Messages kept after they were acknowledged, so that a seek can bring them back.

A topic with a retention keeps all its messages, a subscription that retains acknowledged ones keeps all it received, each
for its duration from publishing on. Nothing is lost by looking late: what is too old is dropped whenever the log is touched.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from google.protobuf.duration_pb2 import Duration

from flink_pubsub.emulator.messages import Message
from flink_pubsub.wire import pubsub_pb2 as wire


def seconds_of(duration: Duration) -> float:
    """A duration in seconds."""
    return duration.seconds + duration.nanos / 1e9


class MessageLog:
    """Messages in the order of publishing, none older than `seconds`; 0 keeps none."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self._messages: deque[Message] = deque()

    def extend(self, messages: Iterable[Message], now: float) -> None:
        """Messages published now."""
        if self.seconds:
            self._messages.extend(messages)
            self._trim(now)

    def keep_for(self, seconds: float, now: float) -> None:
        """Another duration from now on; what is too old by it is gone, also when the duration grows again."""
        self.seconds = seconds
        self._trim(now)

    def messages(self, now: float) -> Sequence[Message]:
        """What is kept."""
        self._trim(now)
        return self._messages

    def _trim(self, now: float) -> None:
        messages, oldest = self._messages, now - self.seconds
        while messages and messages[0].published_at <= oldest:
            messages.popleft()


class Snapshot:
    """What a snapshot retains: the backlog of its subscription when it was made, and all that was published since.

    Attributes:
        settings: as the API shows them.
        topic_log: that of the topic, by which it is told from another topic of the same name.
        messages: what is retained.
    """

    def __init__(self, settings: wire.Snapshot, topic_log: MessageLog, backlog: Sequence[Message]) -> None:
        self.settings = settings
        self.topic_log = topic_log
        self.messages = list(backlog)
