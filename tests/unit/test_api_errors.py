"""Errors: one root, facts as attributes, and texts that survive a pickle."""

from __future__ import annotations

import pickle

import pytest

from flink_pubsub import errors
from flink_pubsub.errors import PubSubConnectorError

EXAMPLES = [
    errors.PubSubConnectorError("the jar is missing: reinstall"),
    errors.ConfigurationError("topic", "is missing"),
    errors.ConfigurationError("max_records_per_fetch", "must be an int of at least 1", "0"),
    errors.JarNotLoadedError("io.github.flinkpubsub.bridge.PythonSource"),
    errors.CredentialsError("the key file cannot be read (PermissionError)"),
    errors.SubscriptionError("projects/p/subscriptions/orders", "NOT_FOUND", "Resource not found"),
    errors.SubscriberBufferError("projects/p/subscriptions/orders", 5_000_000, "raise subscriber_buffer_max_bytes"),
    errors.CheckpointError("first_checkpoint_timeout", "no checkpoint was taken within 600 s"),
    errors.StartupCheckError("subscription projects/p/subscriptions/orders is detached"),
    errors.StartupCheckError("subscription projects/p/subscriptions/orders is detached", "another does not exist"),
    errors.PublishError("projects/p/topics/orders", "PERMISSION_DENIED", "User not authorized"),
    errors.RecordError("a record is broken"),
    errors.DeserializationError("projects/p/subscriptions/orders", "17", "ValueError: no JSON"),
    errors.SerializationError("a payload must be bytes, not str"),
    errors.DestinationError("it returned None"),
    errors.DestinationError("it is NULL", "the metadata column 'topic'"),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_errors_pickle_with_their_text_and_facts(error: PubSubConnectorError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_the_text_names_every_fact(error: PubSubConnectorError) -> None:
    for value in vars(error).values():
        for fact in value if isinstance(value, tuple) else (value,):
            assert fact is None or str(fact) in str(error)


def test_every_error_has_the_one_root_and_an_example_above() -> None:
    classes = {value for value in vars(errors).values() if isinstance(value, type)}
    assert all(issubclass(value, PubSubConnectorError) for value in classes)
    assert {type(error) for error in EXAMPLES} == classes


def test_a_wrong_setting_is_a_value_error_too() -> None:
    with pytest.raises(ValueError, match=r"max_records_per_fetch must be an int of at least 1 \(got 0\)"):
        raise EXAMPLES[2]
