"""Makes the connector of a `pubsub` table from the options of its WITH clause, when a statement is planned.

Runs in a worker that Flink's planner starts, and builds the very objects that the builders of DataStream jobs build, so each
rule exists once. What only a WITH clause can get wrong is checked here. Every refusal names the keys as SQL has them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from flink_pubsub import _checks
from flink_pubsub._lineage import table_lineage
from flink_pubsub._pyflink import worker_spec
from flink_pubsub.bridge.connector import Built, RequestRefusedError
from flink_pubsub.destinations import SubscriptionDestination, TopicDestination
from flink_pubsub.errors import ConfigurationError
from flink_pubsub.options import (
    Connection,
    DeserializationFailurePolicy,
    OrderingMode,
    PubSubPublisherOptions,
    PubSubSubscriberOptions,
    declared,
)
from flink_pubsub.schemas import JvmPayloadEncoding
from flink_pubsub.sink import SinkSpec
from flink_pubsub.source import SourceSpec
from flink_pubsub.subscription_options import DeadLetterPolicy, StartMode, StartPosition, SubscriptionCreateOptions
from flink_pubsub.table_options import BY_KEY, TableOption, sql_error
from flink_pubsub.topic_options import CreateDisposition, TopicCreateOptions
from flink_pubsub.worker.table_connectors import TableSink, TableSource

T = TypeVar("T")
Values = Mapping[str, Any]
"""What is set, by key, as the options' own types have it."""

_TOPICS = "scan.auto-create.topics"
_ROUTES = frozenset(("ordering-key", "topic"))
"""Metadata columns that say where a row goes."""
_DEAD_LETTERS = ("scan.auto-create.dead-letter.topic", "scan.auto-create.dead-letter.max-delivery-attempts")


def build(request: Mapping[str, Any]) -> Built:
    """A `bridge.connector.ConnectorBuilder` for tables.

    The request has `direction` (source or sink), `options` by key (durations in microseconds, sizes in bytes, enums as text),
    `metadata` (the keys of metadata columns that are written) and `python_executable`, null or what runs the workers.

    Raises:
        RequestRefusedError: the options are incomplete, wrong, or contradict each other.
    """
    direction = request["direction"]
    connector: TableSource | TableSink
    try:
        values = {key: _typed(BY_KEY[key], value) for key, value in request["options"].items()}
        connector = TableSource(_source(values)) if direction == "source" else TableSink(_sink(values, request["metadata"]))
    except ConfigurationError as error:
        raise RequestRefusedError(sql_error(error, direction)) from None
    spec = json.loads(worker_spec(request["python_executable"]))
    return Built(connector, {"worker_spec": spec, "lineage": _lineage(connector, request["metadata"])})


def _lineage(connector: TableSource | TableSink, metadata: Sequence[str]) -> Mapping[str, object]:
    if isinstance(connector, TableSource):
        return table_lineage(connector.spec.subscriptions)
    topic = connector.spec.topic
    return table_lineage([] if topic is None else [topic], dynamic="topic" in metadata)


def _typed(option: TableOption, value: Any) -> Any:
    if option.kind == "duration":
        return timedelta(microseconds=value)
    if option.choices is None:
        return value
    by_value = {choice.value: choice for choice in option.choices}
    if value.lower() not in by_value:
        _checks.refuse(option.key, f"must be one of {', '.join(map(repr, by_value))}", value)
    return by_value[value.lower()]


def _options(kind: type[T], values: Values, **others: Any) -> T:
    """Options whose fields are set as their keys say."""
    return kind(**{name: values[option.sql] for name, option in declared(kind).items() if option.sql in values}, **others)


def _connection(values: Values) -> Connection:
    return Connection(
        service_account_key_file=values.get("service-account-key-file"), emulator_endpoint=values.get("emulator-endpoint")
    )


def _topic(key: str, project: str, name: str) -> TopicDestination:
    """The topic that an option names; errors name that option."""
    try:
        return TopicDestination(project, name)
    except ConfigurationError as error:
        raise ConfigurationError(key if error.option == "topic" else error.option, error.problem, error.value) from None


def _source(values: Values) -> SourceSpec:
    if "subscription" not in values:
        raise ConfigurationError("subscription", "is missing: a table that is read needs the ids of its subscriptions")
    names: Sequence[str] = values["subscription"]
    subscriptions = tuple(SubscriptionDestination(values["project"], name) for name in names)
    return SourceSpec(
        subscriptions=subscriptions,
        create_options=_creations(values, subscriptions),
        deserializer=None,
        ordering_mode=values.get("scan.ordering-mode", OrderingMode.NONE),
        deserialization_failure_policy=values.get("scan.deserialization-failure-policy", DeserializationFailurePolicy.FAIL),
        start_position=_start_position(values),
        options=_options(PubSubSubscriberOptions, values),
        connection=_connection(values),
    )


def _start_position(values: Values) -> StartPosition:
    mode = values.get("scan.startup.mode", StartMode.CONTINUE_FROM_SUBSCRIPTION)
    millis = values.get("scan.startup.timestamp-millis")
    if millis is None:
        return StartPosition(mode=mode)
    return StartPosition(mode=mode, timestamp=StartPosition.from_timestamp(millis).timestamp)


def _creations(
    values: Values, subscriptions: Sequence[SubscriptionDestination]
) -> Mapping[SubscriptionDestination, SubscriptionCreateOptions]:
    given = [key for key in values if key.startswith("scan.auto-create.")]
    if not given:
        return {}
    if _TOPICS not in values:
        problem = f"needs '{_TOPICS}', which binds each subscription to a topic: without it none is created"
        raise ConfigurationError(given[0], problem)
    topics: Mapping[str, str] = values[_TOPICS]
    _check_keys(topics, subscriptions)
    policy = _dead_letter_policy(values)
    return {
        each: _options(
            SubscriptionCreateOptions,
            values,
            topic=_topic(_TOPICS, each.project, topics[each.subscription]),
            dead_letter_policy=policy,
        )
        for each in subscriptions
    }


def _check_keys(topics: Mapping[str, str], subscriptions: Sequence[SubscriptionDestination]) -> None:
    names = [each.subscription for each in subscriptions]
    missing = [name for name in names if name not in topics]
    if missing:
        problem = "must name a topic for each subscription in 'subscription', and has none for"
        raise ConfigurationError(_TOPICS, f"{problem} {', '.join(map(repr, missing))}")
    unread = sorted(topics.keys() - names)
    if unread:
        problem = "must have the names in 'subscription' for keys, which does not have"
        raise ConfigurationError(_TOPICS, f"{problem} {', '.join(map(repr, unread))}")


def _dead_letter_policy(values: Values) -> DeadLetterPolicy | None:
    given = [key for key in _DEAD_LETTERS if key in values]
    if not given:
        return None
    for key in _DEAD_LETTERS:
        if key not in values:
            raise ConfigurationError(key, f"is missing: '{given[0]}' needs it")
    return _options(DeadLetterPolicy, values, topic=_topic(_DEAD_LETTERS[0], values["project"], values[_DEAD_LETTERS[0]]))


def _sink(values: Values, metadata: Sequence[str]) -> SinkSpec:
    project, topic = values["project"], values.get("topic")
    if topic is None and "topic" not in metadata:
        needs = "a table that is written needs the id of its topic, or a metadata column 'topic' with that of each row"
        raise ConfigurationError("topic", f"is missing: {needs}")
    options, creation = _options(PubSubPublisherOptions, values), _options(TopicCreateOptions, values)
    if "ordering-key" in metadata and not options.enable_message_ordering:
        problem = "must be 'true' for a table with the metadata column 'ordering-key': Pub/Sub keeps no order otherwise"
        raise ConfigurationError("sink.message-ordering.enabled", problem)
    # Made even where only the rows name topics, for the project to be checked.
    destination = _topic("topic", project, "any-topic" if topic is None else topic)
    return SinkSpec(
        topic=None if topic is None else destination,
        topic_project=project,
        destination_resolver=None,
        serializer=JvmPayloadEncoding(None),
        element_coding="none" if _ROUTES.isdisjoint(metadata) else "route",
        payload_coding="message",
        options=options,
        connection=_connection(values),
        create_disposition=values.get("sink.create-disposition", CreateDisposition.CREATE_IF_NEEDED),
        topic_create_options=creation if any(key.startswith("sink.auto-create.") for key in values) else None,
    )
