"""A topic with one subscription on the bare state machine, its time moved by hand."""

from __future__ import annotations

from typing import Any

from flink_pubsub.emulator.leases import Consumer
from flink_pubsub.emulator.messages import ack_id
from flink_pubsub.emulator.service import Service
from flink_pubsub.emulator.subscription import Subscription
from flink_pubsub.wire import pubsub_pb2 as wire

TOPIC = "projects/p/topics/orders"
SUBSCRIPTION = "projects/p/subscriptions/orders"
DEAD_LETTER_TOPIC = "projects/p/topics/dead-letters"


class Bench:
    """Publishes, takes and settles by the data of messages."""

    def __init__(
        self,
        *,
        ordered: bool = False,
        batches_per_key: int = 1,
        dead_letter: bool = False,
        topic: dict[str, Any] | None = None,
        epoch: float = 0.0,
        **settings: Any,
    ) -> None:
        self.now = 0.0
        self.service = Service(epoch=epoch, batches_per_key=batches_per_key, log_deliveries=10_000)
        self.service.create_topic(wire.Topic(name=TOPIC, **(topic or {})), self.now)
        if dead_letter:
            self.service.create_topic(wire.Topic(name=DEAD_LETTER_TOPIC), self.now)
            settings["dead_letter_policy"] = wire.DeadLetterPolicy(dead_letter_topic=DEAD_LETTER_TOPIC)
        self.create_subscription(SUBSCRIPTION, enable_message_ordering=ordered, **settings)
        self.subscription = self.service.subscription(SUBSCRIPTION)
        self.woken: list[Consumer] = []

    def create_subscription(self, name: str, topic: str = TOPIC, **settings: Any) -> Subscription:
        self.service.create_subscription(wire.Subscription(name=name, topic=topic, **settings), self.now)
        return self.service.subscription(name)

    def publish(self, *data: str, key: str = "", **attributes: str) -> None:
        messages = [wire.PubsubMessage(data=item.encode(), ordering_key=key, attributes=attributes) for item in data]
        request = wire.PublishRequest(topic=TOPIC, messages=messages)
        self.service.publish(request, request.ByteSize(), self.now)

    def consumer(self, *, max_messages: int = 0, max_bytes: int = 0, ack_deadline: int | None = None) -> Consumer:
        consumer = Consumer(
            lambda: self.woken.append(consumer), max_messages=max_messages, max_bytes=max_bytes, ack_deadline=ack_deadline
        )
        self.subscription.open(consumer, self.now)
        return consumer

    def take(self, consumer: Consumer, limit: int = 1000) -> dict[str, str]:
        """Ack id by data, in order of delivery."""
        batch = self.subscription.take(consumer, self.now, limit)
        if batch is None:
            return {}
        numbers = range(batch.first_number, batch.first_number + len(batch.messages))
        return {m.decode().data.decode(): ack_id(n) for n, m in zip(numbers, batch.messages, strict=True)}

    def attempts(self, consumer: Consumer) -> list[int] | None:
        batch = self.subscription.take(consumer, self.now)
        assert batch is not None
        return None if batch.attempts is None else list(batch.attempts)

    def ack(self, *ack_ids: str) -> None:
        self.subscription.acknowledge(ack_ids)

    def nack(self, *ack_ids: str) -> None:
        self.subscription.modify_ack_deadline(ack_ids, 0, self.now)

    def extend(self, seconds: int, *ack_ids: str) -> None:
        self.subscription.modify_ack_deadline(ack_ids, seconds, self.now)

    def seek(self, seconds: float, subscription: str = SUBSCRIPTION) -> None:
        """To that time of the bench's clock, whose zero is 1970."""
        request = wire.SeekRequest(subscription=subscription)
        request.time.seconds = int(seconds)
        request.time.nanos = round(seconds % 1 * 10**9)
        self.service.seek(request, self.now)

    def snapshot(self, name: str, subscription: str = SUBSCRIPTION) -> wire.Snapshot:
        request = wire.CreateSnapshotRequest(name=f"projects/p/snapshots/{name}", subscription=subscription)
        return self.service.snapshots.create(request, self.now)

    def seek_to(self, snapshot: str, subscription: str = SUBSCRIPTION) -> None:
        request = wire.SeekRequest(subscription=subscription, snapshot=f"projects/p/snapshots/{snapshot}")
        self.service.seek(request, self.now)

    def waiting(self, subscription: Subscription | None = None) -> list[str]:
        """The data of what is not acked, in the order of publishing."""
        return [m.decode().data.decode() for m in (subscription or self.subscription).unacked()]

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.service.timers.run(self.now)
