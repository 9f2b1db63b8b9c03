"""The package's front: exactly the public names, and nothing heavy behind an import."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import flink_pubsub

PUBLIC = {
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
}
HEAVY = ("pyflink", "py4j", "grpc", "google", "cloudpickle", "apache_beam", "flink_pubsub.worker", "flink_pubsub.rpc")


def in_a_fresh_interpreter(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60).stdout


def test_the_exports_are_exactly_the_public_names() -> None:
    assert set(flink_pubsub.__all__) == PUBLIC
    names = "n for n, v in vars(flink_pubsub).items() if not n.startswith('_') and type(v) is not type(flink_pubsub)"
    exported = in_a_fresh_interpreter(f"import flink_pubsub; print(*({names}))").split()
    assert set(exported) - {"annotations"} == PUBLIC


def test_importing_the_package_loads_neither_pyflink_nor_grpc_nor_protobuf_nor_cloudpickle() -> None:
    loaded = in_a_fresh_interpreter("import flink_pubsub, sys; print(*sys.modules)").split()
    assert "flink_pubsub.source" in loaded
    assert [name for name in loaded if name.startswith(HEAVY)] == []


def test_the_version_is_that_of_the_distribution() -> None:
    assert flink_pubsub.__version__ == version("flink-pubsub")


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(flink_pubsub, "no_such_name")
