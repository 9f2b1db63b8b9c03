"""An embedded Pub/Sub service to develop and test against: no JVM, no container, no network.

    with Emulator() as emulator:
        emulator.create_topic("projects/p/topics/orders")
        emulator.create_subscription("projects/p/subscriptions/orders", "projects/p/topics/orders")
        ...  # point clients to emulator.endpoint

Inside, a state machine that knows neither threads nor gRPC (`service`, `subscription`, `ordering`, `leases`, `timers`) decides
what the service does; `engine` runs it under one lock, `shell` and `streams` speak gRPC.
"""

from flink_pubsub.emulator.clock import ManualClock
from flink_pubsub.emulator.emulator import Emulator
from flink_pubsub.emulator.errors import ServiceError
from flink_pubsub.emulator.inspection import Delivery, SubscriptionCounts

__all__ = ["Delivery", "Emulator", "ManualClock", "ServiceError", "SubscriptionCounts"]
