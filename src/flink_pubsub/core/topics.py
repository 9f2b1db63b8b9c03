"""The topics a writer publishes to at the moment: a bounded number, however many it sees in its life.

A topic is *clean* when nothing of it is unsettled. Only a clean one is released, so room for another is never made by
dropping work: with none clean, the newcomer waits. Released topics leave nothing behind.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flink_pubsub.core.repairs import TopicRepair


class Topic:
    """One topic in use."""

    __slots__ = ("out", "path", "repair", "unsettled", "used")

    def __init__(self, path: str) -> None:
        self.path = path
        self.unsettled = 0
        """Records written and not settled."""
        self.out = 0
        """Requests sent and not answered."""
        self.used = 0.0
        """When the last record was written."""
        self.repair: TopicRepair | None = None
        """Set while the topic is missing."""


class Topics:
    """Topics by resource path, the least recently used one first; at most `most` of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._clean = 0
        self.by_path: OrderedDict[str, Topic] = OrderedDict()
        """To be read only."""

    def admit(self, path: str) -> bool:
        """Whether records of this topic may be added now; if so, it has become the most recently used one."""
        if path in self.by_path:
            self.by_path.move_to_end(path)
            return True
        if len(self.by_path) >= self._most:
            if not self._clean:
                return False
            self._release(next(topic for topic in self.by_path.values() if not topic.unsettled))
        self.by_path[path] = Topic(path)
        self._clean += 1
        return True

    def added(self, path: str, records: int, now: float) -> None:
        """Records of an admitted topic are written."""
        topic = self.by_path[path]
        if not topic.unsettled:
            self._clean -= 1
        topic.unsettled += records
        topic.used = now

    def settled(self, topic: Topic, records: int) -> None:
        """Records of the topic have come to their end."""
        topic.unsettled -= records
        if not topic.unsettled:
            self._clean += 1

    def release_idle(self, now: float, seconds: float) -> None:
        """Releases clean topics that have been unused for longer than that."""
        for topic in list(self.by_path.values()):
            if now - topic.used <= seconds:
                return
            if not topic.unsettled:
                self._release(topic)

    def _release(self, topic: Topic) -> None:
        del self.by_path[topic.path]
        self._clean -= 1
