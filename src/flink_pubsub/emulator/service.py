"""The service as a state machine: topics, subscriptions, and what each call does to them at a given time.

Nothing here blocks, reads a clock or knows gRPC calls; methods take the request and the time, return the response and
raise `ServiceError`. Whoever calls makes sure that only one method runs at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.empty_pb2 import Empty

from flink_pubsub.emulator import exactly_once, limits
from flink_pubsub.emulator.dead_letters import DeadLetters
from flink_pubsub.emulator.errors import already_exists, failed_precondition, invalid, not_found
from flink_pubsub.emulator.leases import DeliveryNumbers
from flink_pubsub.emulator.messages import FIRST_MESSAGE_NUMBER, Message, publish_milliseconds, store
from flink_pubsub.emulator.resources import in_project, page, updated
from flink_pubsub.emulator.snapshots import Snapshots
from flink_pubsub.emulator.subscription import Subscription
from flink_pubsub.emulator.timers import Timers
from flink_pubsub.emulator.topics import Topic
from flink_pubsub.wire import pubsub_pb2 as wire

TOPIC_FIELDS = frozenset({"labels", "message_storage_policy", "kms_key_name", "message_retention_duration", "tags"})
SUBSCRIPTION_FIELDS = frozenset(
    {
        "ack_deadline_seconds",
        "dead_letter_policy",
        "enable_exactly_once_delivery",
        "expiration_policy",
        "labels",
        "message_retention_duration",
        "push_config",
        "retain_acked_messages",
        "retry_policy",
        "tags",
    }
)
"""What an update may change."""


class Service:
    """Topics and subscriptions of all projects.

    Args:
        epoch: what to add to a time to get seconds since 1970, for publish times.
        batches_per_key: how many batches of an ordering key may be outstanding at once.
        keep_published_bytes: how many bytes of published messages each topic remembers for inspection.
        log_deliveries: how many deliveries each subscription remembers for inspection.
        topic_propagation: for how many seconds publishing to a topic that a call created fails as if it did not exist.
    """

    def __init__(
        self,
        *,
        epoch: float = 0.0,
        batches_per_key: int = 1,
        keep_published_bytes: int = 64 << 20,
        log_deliveries: int = 0,
        topic_propagation: float = 0.0,
    ) -> None:
        self.timers = Timers()
        self.topics: dict[str, Topic] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.topic_propagation = topic_propagation
        self.dead_letters = DeadLetters(self.topics, self._publish)
        self.snapshots = Snapshots(self.timers, epoch, self.subscription, self.topic)
        self._epoch = epoch
        self._batches_per_key = batches_per_key
        self._keep_published_bytes = keep_published_bytes
        self._log_deliveries = log_deliveries
        self._delivery_numbers = DeliveryNumbers()
        self._next_message = FIRST_MESSAGE_NUMBER

    def topic(self, name: str) -> Topic:
        """The topic, or NOT_FOUND."""
        topic = self.topics.get(name)
        if topic is None:
            limits.check_name(name, "topics")
            raise not_found(name)
        return topic

    def subscription(self, name: str) -> Subscription:
        """The subscription, or NOT_FOUND."""
        subscription = self.subscriptions.get(name)
        if subscription is None:
            limits.check_name(name, "subscriptions")
            raise not_found(name)
        return subscription

    # Publisher

    def create_topic(self, request: wire.Topic, now: float, *, usable_at_once: bool = False) -> wire.Topic:
        limits.check_name(request.name, "topics")
        limits.check_topic(request)
        if request.name in self.topics:
            raise already_exists(request.name)
        request.state = wire.Topic.ACTIVE
        usable_from = now if usable_at_once else now + self.topic_propagation
        self.topics[request.name] = Topic(request, usable_from, now)
        return request

    def get_topic(self, request: wire.GetTopicRequest, now: float) -> wire.Topic:
        return self.topic(request.topic).settings

    def update_topic(self, request: wire.UpdateTopicRequest, now: float) -> wire.Topic:
        topic = self.topic(request.topic.name)
        settings = updated(topic.settings, request.topic, request.update_mask, TOPIC_FIELDS, limits.check_topic)
        topic.update(settings, now)
        return settings

    def list_topics(self, request: wire.ListTopicsRequest, now: float) -> wire.ListTopicsResponse:
        names, token = page(in_project(self.topics, request.project), request)
        return wire.ListTopicsResponse(topics=[self.topics[name].settings for name in names], next_page_token=token)

    def list_topic_subscriptions(
        self, request: wire.ListTopicSubscriptionsRequest, now: float
    ) -> wire.ListTopicSubscriptionsResponse:
        names, token = page(self.topic(request.topic).subscriptions, request)
        return wire.ListTopicSubscriptionsResponse(subscriptions=names, next_page_token=token)

    def delete_topic(self, request: wire.DeleteTopicRequest, now: float) -> Empty:
        topic = self.topic(request.topic)
        del self.topics[request.topic]
        topic.delete(now)
        return Empty()

    def publish(self, request: wire.PublishRequest, size: int, now: float) -> wire.PublishResponse:
        """Publish; `size` is that of the request on the wire."""
        if self.topic(request.topic).usable_from > now:
            raise not_found(request.topic)
        return self.publish_past_propagation(request, size, now)

    def publish_past_propagation(self, request: wire.PublishRequest, size: int, now: float) -> wire.PublishResponse:
        """Publish, also to a topic that the service has not heard everywhere of."""
        topic = self.topic(request.topic)
        limits.check_publish(request, size)
        numbers = self._publish(topic, request.messages, now)
        return wire.PublishResponse(message_ids=[str(number) for number in numbers])

    def _publish(self, topic: Topic, messages: Sequence[wire.PubsubMessage], now: float) -> range:
        first = self._next_message
        self._next_message += len(messages)
        topic.add(store(messages, first, self._epoch, now), messages, self._keep_published_bytes, now)
        return range(first, self._next_message)

    # Subscriber

    def create_subscription(self, request: wire.Subscription, now: float) -> wire.Subscription:
        limits.check_name(request.name, "subscriptions")
        limits.check_name(request.topic, "topics")
        limits.check_subscription(request)
        topic = self.topic(request.topic)
        if request.name in self.subscriptions:
            raise already_exists(request.name)
        self._check_dead_letter_topic(request)
        request.state = wire.Subscription.ACTIVE
        request.detached = False
        topic.show_retention(request)
        subscription = Subscription(
            request,
            self.timers,
            self._delivery_numbers,
            self.dead_letters,
            self._delete,
            topic_log=topic.log,
            first_message=self._next_message,
            batches_per_key=self._batches_per_key,
            log_limit=self._log_deliveries,
        )
        subscription.apply_settings(now)
        self.subscriptions[request.name] = topic.subscriptions[request.name] = subscription
        return request

    def get_subscription(self, request: wire.GetSubscriptionRequest, now: float) -> wire.Subscription:
        return self.subscription(request.subscription).settings

    def update_subscription(self, request: wire.UpdateSubscriptionRequest, now: float) -> wire.Subscription:
        subscription = self.subscription(request.subscription.name)
        settings = updated(
            subscription.settings, request.subscription, request.update_mask, SUBSCRIPTION_FIELDS, limits.check_subscription
        )
        if "dead_letter_policy" in {path.split(".", 1)[0] for path in request.update_mask.paths}:
            self._check_dead_letter_topic(settings)
        subscription.settings = settings
        subscription.apply_settings(now)
        return settings

    def list_subscriptions(self, request: wire.ListSubscriptionsRequest, now: float) -> wire.ListSubscriptionsResponse:
        names, token = page(in_project(self.subscriptions, request.project), request)
        settings = [self.subscriptions[name].settings for name in names]
        return wire.ListSubscriptionsResponse(subscriptions=settings, next_page_token=token)

    def delete_subscription(self, request: wire.DeleteSubscriptionRequest, now: float) -> Empty:
        self._delete(self.subscription(request.subscription), now)
        return Empty()

    def detach_subscription(self, request: wire.DetachSubscriptionRequest, now: float) -> wire.DetachSubscriptionResponse:
        subscription = self.subscription(request.subscription)
        topic = self.topics.get(subscription.settings.topic)
        if topic is not None:
            topic.subscriptions.pop(request.subscription, None)
        subscription.detach(now)
        return wire.DetachSubscriptionResponse()

    def acknowledge(self, request: wire.AcknowledgeRequest, size: int, now: float) -> Empty:
        limits.check_request_size(size, limits.MAX_ACK_REQUEST_BYTES)
        failed = self.subscription(request.subscription).acknowledge(request.ack_ids)
        if failed:
            raise exactly_once.failed(failed)
        return Empty()

    def modify_ack_deadline(self, request: wire.ModifyAckDeadlineRequest, size: int, now: float) -> Empty:
        limits.check_request_size(size, limits.MAX_ACK_REQUEST_BYTES)
        subscription = self.subscription(request.subscription)
        failed = subscription.modify_ack_deadline(request.ack_ids, request.ack_deadline_seconds, now)
        if failed:
            raise exactly_once.failed(failed)
        return Empty()

    def seek(self, request: wire.SeekRequest, now: float) -> wire.SeekResponse:
        subscription = self.subscription(request.subscription)
        if request.HasField("snapshot"):
            self._seek_to_snapshot(subscription, request.snapshot, now)
        elif request.HasField("time"):
            nanoseconds = request.time.seconds * 10**9 + request.time.nanos

            def unacked(message: Message) -> bool:
                return publish_milliseconds(self._epoch, message.published_at) * 10**6 >= nanoseconds

            subscription.seek(unacked, (), now, now)
        else:
            raise invalid("No target was specified in the SeekRequest. Must specify either a time or a snapshot")
        return wire.SeekResponse()

    def _seek_to_snapshot(self, subscription: Subscription, name: str, now: float) -> None:
        snapshot = self.snapshots.find(name)
        if snapshot.topic_log is not subscription.topic_log:
            raise failed_precondition(
                f"The subscription's topic {subscription.settings.topic} is different from that of the snapshot "
                f"{snapshot.settings.topic}; they must match in order for Seek to work. Note that if a topic is deleted and "
                "then re-created with the same name, it is considered a distinct topic for these purposes."
            )
        retained = {message.number for message in snapshot.messages}
        until = self.snapshots.expires_at(snapshot)
        subscription.seek(lambda message: message.number in retained, snapshot.messages, until, now)

    def _check_dead_letter_topic(self, settings: wire.Subscription) -> None:
        if settings.HasField("dead_letter_policy"):
            self.topic(settings.dead_letter_policy.dead_letter_topic)

    def _delete(self, subscription: Subscription, now: float) -> None:
        name = subscription.settings.name
        del self.subscriptions[name]
        topic = self.topics.get(subscription.settings.topic)
        if topic is not None:
            topic.subscriptions.pop(name, None)
        subscription.delete(not_found(name), now)
