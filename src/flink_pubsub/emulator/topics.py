"""A topic: its settings, its subscriptions, and the messages it still knows."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from flink_pubsub.emulator.limits import DELETED_TOPIC
from flink_pubsub.emulator.messages import Message
from flink_pubsub.emulator.retention import MessageLog, Snapshot, seconds_of
from flink_pubsub.emulator.subscription import Subscription
from flink_pubsub.wire import pubsub_pb2 as wire


class Topic:
    """A topic.

    Attributes:
        settings: as the API shows them.
        usable_from: until then the service has not heard everywhere of the topic, and publishing to it fails.
        subscriptions: those attached, by name.
        snapshots: those of its subscriptions, by name.
        log: what its retention keeps.
        published: the latest messages, for whoever inspects them.
        published_count: how many there were.
    """

    def __init__(self, settings: wire.Topic, usable_from: float, now: float) -> None:
        self.settings = settings
        self.usable_from = usable_from
        self.subscriptions: dict[str, Subscription] = {}
        self.snapshots: dict[str, Snapshot] = {}
        self.log = MessageLog()
        self.published: deque[Message] = deque()
        self.published_count = 0
        self._published_bytes = 0
        self.update(settings, now)

    def update(self, settings: wire.Topic, now: float) -> None:
        """Take other settings."""
        self.settings = settings
        self.log.keep_for(seconds_of(settings.message_retention_duration), now)
        for subscription in self.subscriptions.values():
            self.show_retention(subscription.settings)
            subscription.apply_settings(now)

    def show_retention(self, settings: wire.Subscription) -> None:
        """Have a subscription's settings show this topic's retention."""
        settings.ClearField("topic_message_retention_duration")
        if self.settings.HasField("message_retention_duration"):
            settings.topic_message_retention_duration.CopyFrom(self.settings.message_retention_duration)

    def add(self, messages: Sequence[Message], originals: Sequence[wire.PubsubMessage], keep_bytes: int, now: float) -> None:
        """Messages published now, also as the publisher sent them; inspection remembers at most `keep_bytes`."""
        self.published_count += len(messages)
        for message in messages:
            self.published.append(message)
            self._published_bytes += message.size
        while self._published_bytes > keep_bytes:
            self._published_bytes -= self.published.popleft().size
        self.log.extend(messages, now)
        for snapshot in self.snapshots.values():
            snapshot.messages.extend(messages)
        for subscription in self.subscriptions.values():
            matches = subscription.matches
            if matches is None:
                subscription.add(messages, now)
            else:
                both = zip(messages, originals, strict=True)
                subscription.add([message for message, original in both if matches(original.attributes)], now)

    def delete(self, now: float) -> None:
        """Leave the subscriptions with what they have."""
        self.log.keep_for(0, now)
        for snapshot in self.snapshots.values():
            snapshot.settings.topic = DELETED_TOPIC
        for subscription in self.subscriptions.values():
            subscription.settings.topic = DELETED_TOPIC
            subscription.settings.ClearField("topic_message_retention_duration")
            subscription.apply_settings(now)
