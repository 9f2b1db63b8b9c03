"""Google's own Python client against the emulator."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import pytest

from flink_pubsub.emulator import Emulator

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)
    pubsub_v1: Any = pytest.importorskip("google.cloud.pubsub_v1")

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::ResourceWarning")


def test_it_publishes_and_subscribes(monkeypatch: pytest.MonkeyPatch) -> None:
    with Emulator() as emulator:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", emulator.endpoint)
        publisher, subscriber = pubsub_v1.PublisherClient(), pubsub_v1.SubscriberClient()
        topic = publisher.topic_path("project", "orders")
        subscription = subscriber.subscription_path("project", "orders")
        publisher.create_topic(name=topic)
        subscriber.create_subscription(name=subscription, topic=topic)
        futures = [publisher.publish(topic, b"%d" % n, number=str(n)) for n in range(500)]
        ids = {future.result(20) for future in futures}
        received: dict[str, bytes] = {}
        complete = threading.Event()

        def receive(message: Any) -> None:
            assert message.attributes["number"].encode() == message.data
            received[message.message_id] = message.data
            message.ack()
            if len(received) == 500:
                complete.set()

        pulling = subscriber.subscribe(subscription, receive)
        assert complete.wait(20)
        emulator.wait_until(lambda: emulator.counts(subscription).acked == 500)
        pulling.cancel()
        pulling.result(20)
        assert set(received) == ids
        assert len(set(received.values())) == 500
        subscriber.delete_subscription(subscription=subscription)
        publisher.delete_topic(topic=topic)
        assert emulator.topics() == emulator.subscriptions() == []
        subscriber.close()
        publisher.transport.close()
