"""Google Cloud Pub/Sub for PyFlink: a source and a sink whose connector logic runs in Python."""

from __future__ import annotations

from flink_pubsub._jarfile import jar
from flink_pubsub.dead_letters import PubSubDeadLetterQueue, dead_letter_serializer
from flink_pubsub.destinations import SubscriptionDestination, TopicDestination
from flink_pubsub.errors import (
    CheckpointError,
    ConfigurationError,
    CredentialsError,
    DeserializationError,
    DestinationError,
    JarNotLoadedError,
    PublishError,
    PubSubConnectorError,
    RecordError,
    SerializationError,
    StartupCheckError,
    SubscriberBufferError,
    SubscriptionError,
)
from flink_pubsub.failures import (
    DeadLetterQueue,
    FailedElement,
    FailedMessage,
    FailureHandler,
    FailureHandlerContext,
)
from flink_pubsub.messages import PubsubMessage
from flink_pubsub.options import (
    DeserializationFailurePolicy,
    OrderingMode,
    PubSubPublisherOptions,
    PubSubSubscriberOptions,
)
from flink_pubsub.schemas import (
    Collector,
    PubSubDeserializationSchema,
    PubSubSerializationSchema,
)
from flink_pubsub.sink import PubSubSink, SinkContext
from flink_pubsub.source import PubSubSource
from flink_pubsub.subscription_options import DeadLetterPolicy, StartPosition, SubscriptionCreateOptions
from flink_pubsub.topic_options import CreateDisposition, TopicCreateOptions

__all__ = [
    "CheckpointError",
    "Collector",
    "ConfigurationError",
    "CreateDisposition",
    "CredentialsError",
    "DeadLetterPolicy",
    "DeadLetterQueue",
    "DeserializationError",
    "DeserializationFailurePolicy",
    "DestinationError",
    "FailedElement",
    "FailedMessage",
    "FailureHandler",
    "FailureHandlerContext",
    "JarNotLoadedError",
    "OrderingMode",
    "PubSubConnectorError",
    "PubSubDeadLetterQueue",
    "PubSubDeserializationSchema",
    "PubSubPublisherOptions",
    "PubSubSerializationSchema",
    "PubSubSink",
    "PubSubSource",
    "PubSubSubscriberOptions",
    "PublishError",
    "PubsubMessage",
    "RecordError",
    "SerializationError",
    "SinkContext",
    "StartPosition",
    "StartupCheckError",
    "SubscriberBufferError",
    "SubscriptionCreateOptions",
    "SubscriptionDestination",
    "SubscriptionError",
    "TopicCreateOptions",
    "TopicDestination",
    "dead_letter_serializer",
    "jar",
]


def __getattr__(name: str) -> str:
    # Reading the distribution's metadata takes longer than all imports above, and few ask for the version.
    if name == "__version__":
        from importlib.metadata import version

        return version("flink-pubsub")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
