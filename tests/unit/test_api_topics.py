"""Whether and how the sink creates topics: settings, limits, contradictions."""

from __future__ import annotations

import pickle
from datetime import timedelta
from itertools import permutations
from typing import Any

import cloudpickle
import pytest

from flink_pubsub import (
    ConfigurationError,
    CreateDisposition,
    FailureHandler,
    PubSubSerializationSchema,
    PubSubSink,
    TopicCreateOptions,
    TopicDestination,
)
from flink_pubsub.rpc.topics import topic_of
from flink_pubsub.sink import PubSubSinkBuilder
from flink_pubsub.wire.pubsub_pb2 import Topic

KEY = "projects/p/locations/l/keyRings/r/cryptoKeys/k"
FULL: dict[str, Any] = {
    "message_retention": timedelta(days=7),
    "kms_key_name": KEY,
    "allowed_persistence_regions": ("europe-west1", "europe-west4"),
    "enforce_in_transit": True,
}


def sink() -> PubSubSinkBuilder:
    return PubSubSink.builder().topic(TopicDestination("p", "orders")).serializer(PubSubSerializationSchema.payload(str.encode))


def spec(built: PubSubSink) -> Any:
    return built._spec


@pytest.mark.feature("SNK-11")
def test_every_setting_is_left_to_the_service_unless_it_is_given() -> None:
    options = TopicCreateOptions()
    assert (options.message_retention, options.kms_key_name, options.allowed_persistence_regions) == (None, None, None)
    assert options.enforce_in_transit is False
    assert topic_of("projects/p/topics/t", options) == Topic(name="projects/p/topics/t")


@pytest.mark.feature("SNK-11")
def test_settings_become_those_of_the_topic() -> None:
    topic = topic_of("projects/p/topics/t", TopicCreateOptions(**FULL))
    assert topic.message_retention_duration.seconds == 7 * 86_400
    assert topic.kms_key_name == KEY
    assert list(topic.message_storage_policy.allowed_persistence_regions) == ["europe-west1", "europe-west4"]
    assert topic.message_storage_policy.enforce_in_transit


@pytest.mark.feature("VAL-02")
def test_settings_are_equal_by_value_hashable_and_picklable() -> None:
    options = TopicCreateOptions(**FULL)
    assert options == TopicCreateOptions(**{**FULL, "allowed_persistence_regions": ["europe-west1", "europe-west4"]})
    assert hash(options) == hash(TopicCreateOptions(**FULL))
    assert options != TopicCreateOptions()
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.feature("VAL-02")
@pytest.mark.feature("VAL-03")
@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("message_retention", timedelta(minutes=9, seconds=59), "must be between"),
        ("message_retention", timedelta(days=31, microseconds=1), "must be between"),
        ("message_retention", timedelta(0), "must be longer than 0"),
        ("message_retention", 600, "must be a datetime.timedelta"),
        ("kms_key_name", "", "must be a key's name"),
        ("kms_key_name", "my-key", "must be a key's name"),
        ("kms_key_name", KEY + "/cryptoKeyVersions/1", "must be a key's name"),
        ("kms_key_name", 7, "must be a key's name"),
        ("allowed_persistence_regions", [], "must name at least one region"),
        ("allowed_persistence_regions", "europe-west1", "must be a sequence of region names"),
        ("allowed_persistence_regions", {"europe-west1"}, "must be a sequence of region names"),
        ("allowed_persistence_regions", ["europe-west1", ""], "must hold names of regions"),
        ("allowed_persistence_regions", [" europe-west1"], "must hold names of regions"),
        ("allowed_persistence_regions", [7], "must hold names of regions"),
        ("allowed_persistence_regions", ["europe-west1", "europe-west1"], "must name each region once"),
        ("enforce_in_transit", 1, "must be True or False"),
        ("enforce_in_transit", True, "needs allowed_persistence_regions"),
    ],
)
def test_what_the_service_would_not_take_is_refused_by_name_and_value(option: str, value: object, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{option} {problem}") as caught:
        TopicCreateOptions(**{option: value})  # type: ignore[arg-type]
    assert caught.value.option == option
    assert caught.value.value is not None


@pytest.mark.feature("VAL-02")
@pytest.mark.parametrize("retention", [timedelta(minutes=10), timedelta(days=31)])
def test_the_ends_of_the_services_range_are_accepted(retention: timedelta) -> None:
    assert TopicCreateOptions(message_retention=retention).message_retention == retention


@pytest.mark.feature("SNK-11")
def test_missing_topics_are_created_by_default_with_the_services_own_settings() -> None:
    built = spec(sink().build())
    assert built.create_disposition is CreateDisposition.CREATE_IF_NEEDED
    assert built.topic_create_options is None


@pytest.mark.feature("SNK-11")
@pytest.mark.feature("VAL-04")
@pytest.mark.parametrize("order", list(permutations(["create_disposition", "topic_create_options"])))
def test_creation_settings_are_refused_where_nothing_is_ever_created_in_any_order_of_calls(order: tuple[str, ...]) -> None:
    values = {"create_disposition": CreateDisposition.CREATE_NEVER, "topic_create_options": TopicCreateOptions()}
    builder = sink()
    for name in order:
        getattr(builder, name)(values[name])
    with pytest.raises(ConfigurationError, match=r"topic_create_options cannot be combined with .*CREATE_NEVER"):
        builder.build()
    builder.create_disposition(CreateDisposition.CREATE_IF_NEEDED).build()


@pytest.mark.feature("VAL-04")
@pytest.mark.parametrize(
    ("method", "value", "problem"),
    [
        ("create_disposition", "CREATE_NEVER", "must be a CreateDisposition"),
        ("create_disposition", True, "must be a CreateDisposition"),
        ("topic_create_options", TopicCreateOptions, "must be a TopicCreateOptions itself"),
        ("topic_create_options", None, "must be a TopicCreateOptions"),
        ("failed_message_handler", FailureHandler.log_and_drop, "must be a FailureHandler"),
        ("failed_message_handler", print, "must be a FailureHandler"),
        ("failed_message_handler", None, "must be a FailureHandler"),
    ],
)
def test_settings_of_another_type_are_refused_where_they_are_written(method: str, value: object, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{method} {problem}"):
        getattr(sink(), method)(value)


@pytest.mark.feature("SNK-13")
@pytest.mark.feature("VAL-05")
def test_a_sinks_handler_and_creation_settings_travel_with_it() -> None:
    handler = FailureHandler.log_and_drop()
    built = sink().failed_message_handler(handler).topic_create_options(TopicCreateOptions(**FULL)).build()
    assert spec(built).failed_message_handler is handler
    travelled = spec(pickle.loads(cloudpickle.dumps(built)))
    assert travelled.topic_create_options == TopicCreateOptions(**FULL)
    assert type(travelled.failed_message_handler) is type(handler)
