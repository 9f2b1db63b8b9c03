"""Forwarding what could not be processed to a dead-letter topic.

The service does so on behalf of the project's service agent, which needs the right to publish to the dead-letter topic and
to acknowledge on the subscription. Without it, or without the topic, nothing is forwarded and the delivery attempts just
go on rising. Attributes are those of https://cloud.google.com/pubsub/docs/handling-failures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone

from flink_pubsub.emulator.messages import Message
from flink_pubsub.emulator.topics import Topic
from flink_pubsub.wire import pubsub_pb2 as wire


class DeadLetters:
    """What forwards, and which grants it lacks.

    Args:
        topics: all topics by name.
        publish: publishes to a topic at a time.
    """

    def __init__(
        self, topics: Mapping[str, Topic], publish: Callable[[Topic, list[wire.PubsubMessage], float], object]
    ) -> None:
        self._topics = topics
        self._publish = publish
        self._withheld: set[str | None] = set()

    def withhold(self, resource: str | None) -> None:
        """Take the service agent's grants on a subscription or dead-letter topic away; None: on everything."""
        self._withheld.add(resource)

    def grant(self, resource: str | None) -> None:
        """Give them back; None: all."""
        if resource is None:
            self._withheld.clear()
        self._withheld.discard(resource)

    def accepts(self, settings: wire.Subscription) -> bool:
        """Whether a subscription's dead letters can be forwarded now."""
        topic = settings.dead_letter_policy.dead_letter_topic
        return topic in self._topics and self._withheld.isdisjoint((None, settings.name, topic))

    def forward(self, settings: wire.Subscription, letters: Sequence[tuple[Message, int]], now: float) -> None:
        """Publish messages of a subscription, each with how often it was delivered."""
        forwarded = [_forwarded(settings.name, message.decode(), deliveries) for message, deliveries in letters]
        self._publish(self._topics[settings.dead_letter_policy.dead_letter_topic], forwarded, now)


def _forwarded(subscription: str, message: wire.PubsubMessage, deliveries: int) -> wire.PubsubMessage:
    _, project, _, subscription_id = subscription.split("/", 3)
    published = datetime.fromtimestamp(message.publish_time.seconds, timezone.utc)
    milliseconds = message.publish_time.nanos // 1_000_000
    copy = wire.PubsubMessage(data=message.data, attributes=message.attributes, ordering_key=message.ordering_key)
    copy.attributes["CloudPubSubDeadLetterSourceDeliveryCount"] = str(deliveries)
    copy.attributes["CloudPubSubDeadLetterSourceSubscription"] = subscription_id
    copy.attributes["CloudPubSubDeadLetterSourceSubscriptionProject"] = project
    copy.attributes["CloudPubSubDeadLetterSourceTopicPublishTime"] = f"{published:%Y-%m-%dT%H:%M:%S}.{milliseconds:03d}Z"
    return copy
