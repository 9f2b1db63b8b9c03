"""The user code of the rows with Python in them: the same functions run in our sink and beside the official client."""

from __future__ import annotations

import json

from benchmarks.replay import event
from flink_pubsub import SinkContext, TopicDestination

Element = dict[str, str]


def elements(size: int) -> list[Element]:
    """What the sink is given: orders that a Python function upstream might have made."""
    body = event(size).decode()
    return [{"order": f"order-{number:06}", "region": ("eu", "us", "ap")[number % 3], "body": body} for number in range(1000)]


def data_of(element: Element) -> bytes:
    """The payload of an element."""
    return element["body"].encode()


def attributes_of(element: Element) -> Element:
    """The attributes of an element."""
    return {"order": element["order"], "region": element["region"]}


class ByNumber:
    """A destination resolver that spreads elements evenly over topics."""

    def __init__(self, topics: list[TopicDestination]) -> None:
        self._topics = topics

    def __call__(self, element: Element, context: SinkContext) -> TopicDestination:
        return self._topics[int(element["order"][-6:]) % len(self._topics)]


decode = json.loads
"""The source's Python schema."""
