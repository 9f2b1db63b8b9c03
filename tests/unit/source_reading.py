"""A reader of an emulator, driven as the bridge would."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from typing import Any

from flink_pubsub.bridge.connector import Split
from flink_pubsub.bridge.frames import Block, SerializedBlock
from flink_pubsub.destinations import SubscriptionDestination
from flink_pubsub.emulator import Emulator
from flink_pubsub.options import Connection, DeserializationFailurePolicy, OrderingMode, PubSubSubscriberOptions
from flink_pubsub.schemas import PubSubDeserializationSchema
from flink_pubsub.source import SourceSpec
from flink_pubsub.wire import pubsub_pb2 as wire
from flink_pubsub.worker.reader import PubSubReader
from tests.unit.source_support import FakeContext

TOPIC = "projects/project/topics/orders"
ORDERS = SubscriptionDestination("project", "orders")
RETURNS = SubscriptionDestination("project", "returns")


class Reading:
    """A reader of the emulator, driven as the bridge would."""

    def __init__(
        self,
        endpoint: Emulator | str,
        schema: PubSubDeserializationSchema | None = None,
        *,
        mode: OrderingMode = OrderingMode.NONE,
        policy: DeserializationFailurePolicy = DeserializationFailurePolicy.FAIL,
        clock: Callable[[], float] = time.monotonic,
        checkpoint_interval: float | None = None,
        **options: Any,
    ) -> None:
        self.context = FakeContext(checkpoint_interval=checkpoint_interval)
        spec = SourceSpec(
            subscriptions=(ORDERS, RETURNS),
            deserializer=schema,
            ordering_mode=mode,
            deserialization_failure_policy=policy,
            options=PubSubSubscriberOptions(**options),
            connection=Connection(emulator_endpoint=endpoint if isinstance(endpoint, str) else endpoint.endpoint),
        )
        self.reader = PubSubReader(spec, self.context, clock)
        self.last: dict[int, int] = {}
        """Sequence number last emitted, by split."""

    def assign(self, *subscriptions: SubscriptionDestination) -> None:
        first = len(self.reader._splits)
        self.reader.assign(
            [
                (first + i, Split(f"split-{first + i}", f'{{"subscription": "{subscription.resource_path}"}}'))
                for i, subscription in enumerate(subscriptions)
            ]
        )

    def take(self, messages: int) -> list[Any]:
        """Polls until so many records came, and returns them, or the payloads of messages that nobody decoded."""
        found: list[Any] = []
        while len(found) < messages:
            blocks = self.reader.poll(10)
            assert blocks, f"{len(found)} of {messages} messages came"
            for block in blocks:
                found += self.emit(block)
        return found

    def emit(self, block: Block) -> list[Any]:
        assert block.first > self.last.get(block.ordinal, 0)
        self.last[block.ordinal] = block.first + block.messages - 1
        if isinstance(block, SerializedBlock):
            response = wire.StreamingPullResponse.FromString(block.serialized)
            return [received.message.data for received in response.received_messages]
        if self.reader._schema is not None:
            return [pickle.loads(record) for record in block.records]
        return [wire.ReceivedMessage.FromString(record).message.data for record in block.records]

    def checkpoint(self, number: int, complete: bool = True) -> None:
        self.reader.snapshot(number, {f"split-{ordinal}": last for ordinal, last in self.last.items()})
        if complete:
            self.reader.checkpoint_complete(number)

    def gauge(self, name: str) -> int:
        return self.reader.metrics().gauges[name]

    def counter(self, name: str) -> int:
        return self.reader.metrics().counters[name]


def publish(emulator: Emulator, count: int, size: int = 0) -> list[bytes]:
    payloads = [str(i).encode().ljust(size, b".") for i in range(count)]
    for low in range(0, count, 1000):
        emulator.publish_all(TOPIC, [wire.PubsubMessage(data=data) for data in payloads[low : low + 1000]])
    return payloads
