"""The options of tables: exactly the fixed keys, one for each setting of the Python API, the same in the jar."""

from __future__ import annotations

import json
import zipfile
from dataclasses import fields
from enum import Enum

import pytest

from flink_pubsub import (
    DeadLetterPolicy,
    PubSubPublisherOptions,
    PubSubSubscriberOptions,
    SubscriptionCreateOptions,
    TopicCreateOptions,
    _jarfile,
)
from flink_pubsub.errors import ConfigurationError
from flink_pubsub.sink import PubSubSinkBuilder
from flink_pubsub.source import PubSubSourceBuilder
from flink_pubsub.table_options import BY_KEY, OPTIONS, Direction, in_sql_words, sql_error

SHARED = "project format service-account-key-file emulator-endpoint"
SOURCE = """
    subscription scan.ordering-mode scan.deserialization-failure-policy scan.flow-control.max-outstanding-element-count
    scan.flow-control.max-outstanding-request-bytes scan.subscriber-buffer.max-messages scan.subscriber-buffer.max-bytes
    scan.paused-split-buffer.max-messages scan.paused-split-buffer.max-bytes scan.parallel-pull-count
    scan.ack.max-extension-period scan.ack.min-duration-per-extension scan.ack.max-duration-per-extension
    scan.ack.await-confirmation scan.shutdown-timeout scan.max-records-per-fetch scan.first-checkpoint-timeout
    scan.startup.mode scan.startup.timestamp-millis scan.auto-create.topics scan.auto-create.ack-deadline
    scan.auto-create.message-ordering.enabled scan.auto-create.message-retention scan.auto-create.retain-acked-messages
    scan.auto-create.expiration-ttl scan.auto-create.never-expire scan.auto-create.dead-letter.topic
    scan.auto-create.dead-letter.max-delivery-attempts scan.auto-create.filter scan.parallelism
"""
SINK = """
    topic sink.create-disposition sink.auto-create.message-retention sink.auto-create.kms-key-name
    sink.auto-create.storage-policy.allowed-regions sink.auto-create.storage-policy.enforce-in-transit
    sink.batching.element-count-threshold sink.batching.request-byte-threshold sink.batching.delay-threshold
    sink.retry.total-timeout sink.retry.initial-delay sink.retry.delay-multiplier sink.retry.max-delay
    sink.retry.initial-rpc-timeout sink.retry.rpc-timeout-multiplier sink.retry.max-rpc-timeout sink.retry.max-attempts
    sink.message-ordering.enabled sink.in-flight.max-messages sink.in-flight.max-bytes sink.max-active-publishers
    sink.destination-idle-timeout sink.max-consecutive-rejections sink.publish-progress-timeout
    sink.recovery.initial-backoff sink.recovery.max-backoff sink.recovery.max-attempts sink.shutdown-timeout
    sink.metrics.per-destination sink.parallelism
"""
OPTION_CLASSES: tuple[type, ...] = (
    PubSubSubscriberOptions,
    PubSubPublisherOptions,
    SubscriptionCreateOptions,
    DeadLetterPolicy,
    TopicCreateOptions,
)
ONLY_IN_PYTHON = {
    "PubSubSourceBuilder.subscriber_options": "its fields are options",
    "PubSubSinkBuilder.publisher_options": "its fields are options",
    "PubSubSinkBuilder.topic_create_options": "its fields are options",
    "PubSubSourceBuilder.python_executable": "python.executable of the session",
    "PubSubSinkBuilder.python_executable": "python.executable of the session",
    "PubSubSinkBuilder.destination_resolver": "a function; a table has the metadata column topic",
    "PubSubSinkBuilder.failed_message_handler": "a function",
    "PubSubSourceBuilder.build": "no setting",
    "PubSubSinkBuilder.build": "no setting",
}
ONLY_IN_SQL = {"SubscriptionDestination.project", "TopicDestination.project"}
"""Parts of what builder methods take."""


@pytest.mark.feature("SQL-11")
@pytest.mark.parametrize(("direction", "keys"), [("shared", SHARED), ("source", SOURCE), ("sink", SINK)])
def test_a_table_has_exactly_the_fixed_keys(direction: Direction, keys: str) -> None:
    assert {option.key for option in OPTIONS if option.direction == direction} == set(keys.split())
    assert len(BY_KEY) == len(OPTIONS)


@pytest.mark.feature("SQL-11")
@pytest.mark.feature("SQL-07")
@pytest.mark.feature("SQL-09")
def test_every_setting_of_the_python_api_has_an_option_and_the_reverse() -> None:
    settings = {f"{options.__name__}.{field.name}" for options in OPTION_CLASSES for field in fields(options)}
    settings |= {
        f"{builder.__name__}.{name}"
        for builder in (PubSubSourceBuilder, PubSubSinkBuilder)
        for name in vars(builder)
        if not name.startswith("_")
    }
    assert settings >= ONLY_IN_PYTHON.keys()
    stood_for = {setting for option in OPTIONS for setting in option.settings}
    assert stood_for == (settings - ONLY_IN_PYTHON.keys()) | ONLY_IN_SQL


@pytest.mark.feature("SQL-11")
def test_enum_values_are_hyphenated() -> None:
    choices = {option.key: [choice.value for choice in option.choices or ()] for option in OPTIONS if option.kind == "enum"}
    assert choices == {
        "scan.ordering-mode": ["none", "per-key"],
        "scan.deserialization-failure-policy": ["fail", "drop", "nack"],
        "scan.startup.mode": ["continue-from-subscription", "earliest-retained", "latest", "timestamp"],
        "sink.create-disposition": ["create-if-needed", "create-never"],
    }
    assert all(issubclass(option.choices, Enum) for option in OPTIONS if option.choices)


def test_sizes_and_durations_are_written_with_a_unit() -> None:
    assert {option.key for option in OPTIONS if option.kind == "size"} == {
        key for key in BY_KEY if key.endswith(("bytes", "byte-threshold"))
    }
    endings = ("timeout", "delay", "backoff", "period", "extension", "confirmation", "deadline", "retention", "ttl")
    assert {option.key for option in OPTIONS if option.kind == "duration"} == {
        key for key in BY_KEY if key.endswith((*endings, "batching.delay-threshold"))
    }


@pytest.mark.feature("SQL-11")
def test_the_jar_declares_the_same_options() -> None:
    with zipfile.ZipFile(_jarfile.jar_path()) as archive:
        exported = json.loads(archive.read("META-INF/flink-pubsub-options.json"))
    assert exported == [
        {"key": option.key, "kind": option.kind, "direction": option.direction} for option in OPTIONS if not option.of_flink
    ]


@pytest.mark.parametrize(
    ("direction", "option", "problem", "told"),
    [
        ("source", "parallel_pull_count", "is one", "'scan.parallel-pull-count' is one"),
        ("source", "shutdown_timeout", "is short", "'scan.shutdown-timeout' is short"),
        ("sink", "shutdown_timeout", "is short", "'sink.shutdown-timeout' is short"),
        ("source", "subscription", "is a path", "'subscription' is a path"),
        ("source", "scan.auto-create.topics", "is odd", "'scan.auto-create.topics' is odd"),
        ("source", "x", "needs OrderingMode.PER_KEY", "'x' needs 'scan.ordering-mode' = 'per-key'"),
        ("sink", "enforce_in_transit", "is True", "'sink.auto-create.storage-policy.enforce-in-transit' is true"),
        ("sink", "topic", "needs max_in_flight_bytes", "'topic' needs 'sink.in-flight.max-bytes'"),
        ("sink", "topic", "names a topic of a project", "'topic' names a topic of a project"),
    ],
)
def test_errors_are_told_with_the_keys_and_values_of_sql(direction: Direction, option: str, problem: str, told: str) -> None:
    assert sql_error(ConfigurationError(option, problem), direction) == told


def test_documentation_keeps_its_quotes() -> None:
    text = "With `OrderingMode.PER_KEY` twice `parallel_pull_count`. Default False."
    assert in_sql_words(text, "source", "`") == (
        "With `'scan.ordering-mode' = 'per-key'` twice `scan.parallel-pull-count`. Default false."
    )
