"""The options of a `pubsub` table: one list, for the factory in the JVM, the documentation and the messages of errors.

Most of it follows from the options that DataStream jobs use, whose fields say their SQL key; what only SQL has to say, or says
differently, is added here. `OPTIONS` is complete, and its keys are the only ones there are. Each entry names the settings of
the Python API that it stands for, so errors about those can be told in SQL's words: see `in_sql_words`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import Literal, TypeAlias

from flink_pubsub.errors import ConfigurationError
from flink_pubsub.options import (
    DeserializationFailurePolicy,
    Option,
    OrderingMode,
    PubSubPublisherOptions,
    PubSubSubscriberOptions,
    declared,
)
from flink_pubsub.subscription_options import DeadLetterPolicy, StartMode, SubscriptionCreateOptions
from flink_pubsub.topic_options import CreateDisposition, TopicCreateOptions

Direction: TypeAlias = Literal["shared", "source", "sink"]
Kind: TypeAlias = Literal["count", "duration", "enum", "factor", "flag", "list", "map", "size", "text"]

_KINDS: Mapping[str, Kind] = {
    "Sequence": "list",
    "bool": "flag",
    "float": "factor",
    "int": "count",
    "str": "text",
    "timedelta": "duration",
}
"""By the outermost name in the type of an option's field."""


@dataclass(frozen=True, slots=True)
class TableOption:
    """One key of a table's WITH clause."""

    key: str
    kind: Kind
    direction: Direction
    settings: tuple[str, ...]
    """What it stands for in the Python API: `Class.field`, or `Class.method` of a builder."""
    description: str | None = None
    """None when the docstring of the setting says it."""
    choices: type[Enum] | None = None
    """The values of an enum, each spelled as its member's value."""
    of_flink: bool = False
    """Whether Flink declares the option itself, and reads it."""


_ATTEMPTS = (
    "Deliveries before a message is forwarded, 5 to 100. Restarts of the job count too, so leave room for them. Required with"
    " `scan.auto-create.dead-letter.topic`."
)


def _declared(direction: Direction, options: type, *described: tuple[str, str]) -> Iterable[TableOption]:
    types = {field.name: str(field.type) for field in fields(options)}
    for name, option in declared(options).items():
        setting = f"{options.__name__}.{name}"
        yield TableOption(option.sql, _kind(types[name], option), direction, (setting,), dict(described).get(name))


def _kind(annotation: str, option: Option[object]) -> Kind:
    found = re.match(r"Option\[(\w+)", annotation)
    assert found is not None, "the annotations of options are text, such as Option[int]"
    return "size" if option.in_bytes else _KINDS[found[1]]


_SHARED = (
    TableOption(
        "project",
        "text",
        "shared",
        ("SubscriptionDestination.project", "TopicDestination.project"),
        "Id of the project that has the table's subscriptions and topics. Required.",
    ),
    TableOption(
        "format",
        "text",
        "shared",
        ("PubSubSourceBuilder.deserializer", "PubSubSinkBuilder.serializer"),
        "Flink's format for the payload of messages, such as `json`, `csv`, `avro`, `raw` or `debezium-json`. Its options have"
        " its name in front: `json.ignore-parse-errors`. Required.",
        of_flink=True,
    ),
    TableOption(
        "service-account-key-file",
        "text",
        "shared",
        ("PubSubSourceBuilder.service_account_key_file", "PubSubSinkBuilder.service_account_key_file"),
        "Path of a service account's key in JSON, read on every machine where a planner, reader or writer starts. Not together"
        " with `emulator-endpoint`. Default: application default credentials.",
    ),
    TableOption(
        "emulator-endpoint",
        "text",
        "shared",
        ("PubSubSourceBuilder.emulator_endpoint", "PubSubSinkBuilder.emulator_endpoint"),
        "`host:port` of an emulator, reached in plain text and without credentials. Default: the service.",
    ),
)

_SOURCE = (
    TableOption(
        "subscription",
        "list",
        "source",
        ("PubSubSourceBuilder.subscription", "PubSubSourceBuilder.subscriptions"),
        "Ids of the subscriptions to read, separated by `;`, none twice: bare names in `project`, not paths. Required to read.",
    ),
    TableOption(
        "scan.ordering-mode",
        "enum",
        "source",
        ("PubSubSourceBuilder.ordering_mode",),
        "Whether the order of messages that share an ordering key is kept. With `per-key` each subscription, which must have"
        " message ordering, is read by one subtask on one stream. Default `none`.",
        OrderingMode,
    ),
    TableOption(
        "scan.deserialization-failure-policy",
        "enum",
        "source",
        ("PubSubSourceBuilder.deserialization_failure_policy",),
        "What happens to a message that the format cannot decode: `fail` fails the job, `drop` acknowledges it, `nack` gives it"
        " back, for the subscription's dead-letter policy to take it away. Default `fail`.",
        DeserializationFailurePolicy,
    ),
    TableOption(
        "scan.startup.mode",
        "enum",
        "source",
        ("PubSubSourceBuilder.start_position",),
        "Where a job begins to read at its first start. All but `continue-from-subscription` seek, which moves the subscription"
        " for everybody who reads it. Default `continue-from-subscription`.",
        StartMode,
    ),
    TableOption(
        "scan.startup.timestamp-millis",
        "count",
        "source",
        ("PubSubSourceBuilder.start_position",),
        "The publish time to begin at, in milliseconds since 1970. Required with the mode `timestamp`, refused with any other."
        " Default: none.",
    ),
    *_declared("source", PubSubSubscriberOptions),
    TableOption(
        "scan.auto-create.topics",
        "map",
        "source",
        ("SubscriptionCreateOptions.topic",),
        "The topic of each subscription. Allows the source to create those of its subscriptions that are missing; the topics"
        " must exist. One option for each name in `subscription`, `'scan.auto-create.topics.orders-sub' = 'orders'`, or all in"
        " one value, `'orders-sub:orders,returns-sub:returns'`. Default: nothing is created.",
    ),
    *_declared("source", SubscriptionCreateOptions),
    TableOption(
        "scan.auto-create.dead-letter.topic",
        "text",
        "source",
        ("SubscriptionCreateOptions.dead_letter_policy", "DeadLetterPolicy.topic"),
        "The topic that takes messages which cannot be processed. It must exist. Needed by the failure policy `nack`, and needs"
        " `scan.auto-create.dead-letter.max-delivery-attempts`. Default: none, messages come again for ever.",
    ),
    *_declared("source", DeadLetterPolicy, ("max_delivery_attempts", _ATTEMPTS)),
    TableOption(
        "scan.parallelism",
        "count",
        "source",
        (),
        "Parallelism of the source. Default: the job's.",
        of_flink=True,
    ),
)

_SINK = (
    TableOption(
        "topic",
        "text",
        "sink",
        ("PubSubSinkBuilder.topic",),
        "Id of the topic to publish to: a bare name in `project`, not a path. Rows that name one in the metadata column `topic`"
        " go there instead. Required to write without such a column.",
    ),
    TableOption(
        "sink.create-disposition",
        "enum",
        "sink",
        ("PubSubSinkBuilder.create_disposition",),
        "Whether a missing topic is created, or fails the job. Default `create-if-needed`.",
        CreateDisposition,
    ),
    *_declared("sink", TopicCreateOptions),
    *_declared("sink", PubSubPublisherOptions),
    TableOption(
        "sink.parallelism",
        "count",
        "sink",
        (),
        "Parallelism of the sink. Default: that of the rows it gets.",
        of_flink=True,
    ),
)

OPTIONS: tuple[TableOption, ...] = (*_SHARED, *_SOURCE, *_SINK)
BY_KEY: Mapping[str, TableOption] = {option.key: option for option in OPTIONS}

_ENUMS = {option.choices.__name__: option for option in OPTIONS if option.choices is not None}
_MEMBER = re.compile(rf"`?\b(?P<call>[a-z_]+\()?({'|'.join(_ENUMS)})\.([A-Z_]+)\b(?(call)\))`?")
"""A member of an enum, by itself or as the only argument of a setting's method."""
_OWN_NAMES: Mapping[Direction, Mapping[str, str]] = {
    "source": {
        "subscriptions": "subscription",
        "timestamp": "scan.startup.timestamp-millis",
        "dead_letter_policy": "scan.auto-create.dead-letter.topic",
        "create_options": "scan.auto-create.*",
    },
    "sink": {"topic_create_options": "sink.auto-create.*"},
}
"""What errors about a table's options call a setting that has no key of the same meaning, or several."""


def keys_by_name(direction: Direction) -> Mapping[str, str]:
    """The SQL keys by the names that settings have in the Python API."""
    found = {
        setting.rpartition(".")[2]: option.key
        for option in OPTIONS
        if option.direction in (direction, "shared")
        for setting in option.settings
    }
    return {**found, **_OWN_NAMES.get(direction, {})}


def in_sql_words(text: str, direction: Direction, quote: str = "'") -> str:
    """A text about the Python API's settings, with the keys and values of SQL instead, between quotes of that kind."""
    names = {name: key for name, key in keys_by_name(direction).items() if "_" in name}
    text = _MEMBER.sub(lambda found: _setting(found[2], found[3], quote), text)
    text = re.sub(rf"`?\b({'|'.join(names)})\b`?", lambda found: f"{quote}{names[found[1]]}{quote}", text)
    return re.sub(r"\b(True|False)\b", lambda found: found[1].lower(), text)


def _setting(enum: str, member: str, quote: str) -> str:
    option = _ENUMS[enum]
    assert option.choices is not None
    outer = quote if quote != "'" else ""
    return f"{outer}'{option.key}' = '{option.choices[member].value}'{outer}"


def sql_error(error: ConfigurationError, direction: Direction) -> str:
    """What an error about a setting, or about a key, says to somebody who wrote a WITH clause."""
    key = error.option if error.option in BY_KEY else keys_by_name(direction).get(error.option, error.option)
    said = ConfigurationError(f"'{key}'", in_sql_words(error.problem, direction), error.value)
    return str(said)
