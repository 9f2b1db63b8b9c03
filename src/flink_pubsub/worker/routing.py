"""Reads where a table's rows go, and sorts their messages by it without looking at them.

The JVM puts the messages together, and beside each says in the element column where it goes: the length of the topic id in
four bytes, -1 when the row names none, then the topic id, and the rest is the ordering key, in UTF-8.
"""

from __future__ import annotations

from itertools import accumulate

from flink_pubsub.bridge.frames import WriteBatch
from flink_pubsub.core.batching import Lane
from flink_pubsub.destinations import TopicDestination
from flink_pubsub.errors import ConfigurationError, DestinationError
from flink_pubsub.rpc.publisher import Entries
from flink_pubsub.sink import SinkSpec

_LENGTH_BYTES = 4
_SOURCE = "the metadata column 'topic'"


class Router:
    """Sorts the batches of one sink."""

    def __init__(self, spec: SinkSpec) -> None:
        self._default = None if spec.topic is None else spec.topic.resource_path
        self._project = spec.topic_project
        self._ordering = spec.options.enable_message_ordering

    def sort(self, batch: WriteBatch) -> list[Entries]:
        """The batch's messages by topic and ordering key, those of each in the order of the batch.

        Raises:
            DestinationError: a row names no topic that can exist, or none at all and the table has none.
            ConfigurationError: a row has an ordering key and the sink no message ordering.
        """
        assert batch.elements is not None
        assert batch.payloads is not None
        routes = batch.elements.values()
        if routes.count(routes[0]) == len(routes):
            return [(self.lane(routes[0]), batch.payloads.data, batch.payloads.ends)]
        # Two routes may lead to one lane: to the table's topic, and to the same topic by name.
        lanes: dict[Lane, list[bytes]] = {}
        by_route: dict[bytes, list[bytes]] = {}
        for route, entry in zip(routes, batch.payloads.values(), strict=True):
            entries = by_route.get(route)
            if entries is None:
                entries = by_route[route] = lanes.setdefault(self.lane(route), [])
            entries.append(entry)
        return [(lane, b"".join(entries), list(accumulate(map(len, entries)))) for lane, entries in lanes.items()]

    def lane(self, route: bytes) -> Lane:
        """Topic and ordering key of one row."""
        length = int.from_bytes(route[:_LENGTH_BYTES], "big", signed=True)
        end = _LENGTH_BYTES + max(0, length)
        topic = self._default if length < 0 else self._topic(route[_LENGTH_BYTES:end].decode())
        if topic is None:
            raise DestinationError("it is NULL, and the table has no option 'topic' to fall back on", _SOURCE)
        key = route[end:].decode()
        if key and not self._ordering:
            problem = f"must be True for messages with an ordering key, and one for {topic} has one"
            raise ConfigurationError("enable_message_ordering", problem)
        return topic, key

    def _topic(self, name: str) -> str:
        assert self._project is not None
        try:
            return TopicDestination(self._project, name).resource_path
        except ConfigurationError as error:
            raise DestinationError(str(error), _SOURCE) from error
