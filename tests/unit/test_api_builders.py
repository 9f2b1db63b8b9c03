"""Builders: what is required, what contradicts, in any order of calls, and what travels."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any, TypeAlias

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flink_pubsub import (
    ConfigurationError,
    OrderingMode,
    PubSubDeserializationSchema,
    PubSubPublisherOptions,
    PubSubSerializationSchema,
    PubSubSink,
    PubSubSource,
    PubSubSubscriberOptions,
    SubscriptionDestination,
    TopicDestination,
)
from flink_pubsub.sink import PubSubSinkBuilder
from flink_pubsub.source import PubSubSourceBuilder

ORDERS = SubscriptionDestination("my-project", "orders")
RETURNS = SubscriptionDestination("my-project", "returns")
TOPIC = TopicDestination("my-project", "orders")

Builder: TypeAlias = PubSubSourceBuilder | PubSubSinkBuilder
BOTH = pytest.mark.parametrize("start", [lambda: source(), lambda: sink()], ids=["source", "sink"])


def source() -> PubSubSourceBuilder:
    return PubSubSource.builder().subscriptions(ORDERS).deserializer(PubSubDeserializationSchema.payload(json.loads))


def sink() -> PubSubSinkBuilder:
    return PubSubSink.builder().topic(TOPIC).serializer(PubSubSerializationSchema.payload(str.encode))


def resolver(element: Any, context: object) -> TopicDestination:
    return TOPIC


def spec(built: PubSubSource | PubSubSink) -> Any:
    return built._spec


@pytest.mark.feature("SRC-01")
def test_a_source_reads_one_or_many_subscriptions_added_in_any_number_of_calls() -> None:
    assert spec(source().build()).subscriptions == (ORDERS,)
    assert spec(source().subscriptions(RETURNS).build()).subscriptions == (ORDERS, RETURNS)


@pytest.mark.feature("SRC-01")
@pytest.mark.feature("VAL-04")
@pytest.mark.parametrize("none", [False, True])
def test_a_source_without_subscriptions_is_refused(none: bool) -> None:
    builder = PubSubSource.builder().deserializer(PubSubDeserializationSchema.message())
    with pytest.raises(ConfigurationError, match="subscriptions is missing: name at least one SubscriptionDestination"):
        (builder.subscriptions() if none else builder).build()


@pytest.mark.feature("SRC-01")
@pytest.mark.feature("VAL-04")
def test_a_repeated_subscription_is_refused_by_its_path() -> None:
    builder = source().subscriptions(RETURNS, SubscriptionDestination("my-project", "orders"))
    with pytest.raises(ConfigurationError, match="must not name a subscription twice") as caught:
        builder.build()
    assert "projects/my-project/subscriptions/orders" in str(caught.value)


@pytest.mark.feature("VAL-04")
def test_what_is_missing_is_named() -> None:
    with pytest.raises(ConfigurationError, match="deserializer is missing"):
        PubSubSource.builder().subscriptions(ORDERS).build()
    with pytest.raises(ConfigurationError, match="serializer is missing"):
        PubSubSink.builder().topic(TOPIC).build()
    with pytest.raises(ConfigurationError, match="topic is missing"):
        PubSubSink.builder().serializer(PubSubSerializationSchema.payload(str.encode)).build()


@pytest.mark.feature("SNK-01")
@pytest.mark.feature("VAL-04")
def test_the_last_destination_call_wins() -> None:
    fixed = spec(sink().destination_resolver(resolver).topic(TOPIC).build())
    assert (fixed.topic, fixed.destination_resolver) == (TOPIC, None)
    dynamic = spec(sink().topic(TOPIC).destination_resolver(resolver).build())
    assert (dynamic.topic, dynamic.destination_resolver) == (None, resolver)


WRONG: list[tuple[Callable[[], Builder], str, Any, str]] = [
    (source, "subscriptions", "projects/p/subscriptions/orders", "must be a SubscriptionDestination, such as"),
    (source, "subscriptions", TOPIC, "must be a SubscriptionDestination"),
    (source, "subscriptions", [ORDERS], "must be a SubscriptionDestination"),
    (source, "subscriptions", None, "must be a SubscriptionDestination"),
    (source, "deserializer", json.loads, "must be a PubSubDeserializationSchema"),
    (source, "deserializer", PubSubDeserializationSchema, "must be a PubSubDeserializationSchema itself, not the class"),
    (source, "deserializer", None, "must be a PubSubDeserializationSchema"),
    (source, "ordering_mode", "per-key", "must be a OrderingMode"),
    (source, "ordering_mode", True, "must be a OrderingMode"),
    (source, "subscriber_options", {}, "must be a PubSubSubscriberOptions"),
    (source, "subscriber_options", PubSubPublisherOptions(), "must be a PubSubSubscriberOptions"),
    (sink, "topic", "orders", "must be a TopicDestination"),
    (sink, "topic", ORDERS, "must be a TopicDestination"),
    (sink, "topic", resolver, "must be a TopicDestination"),
    (sink, "destination_resolver", "orders", r"must be a function \(record, context\) -> TopicDestination"),
    (sink, "destination_resolver", TOPIC, r"a fixed topic is set with \.topic"),
    (sink, "destination_resolver", None, "must be a function"),
    (sink, "serializer", str.encode, "must be a PubSubSerializationSchema"),
    (sink, "serializer", PubSubDeserializationSchema.message(), "must be a PubSubSerializationSchema"),
    (sink, "publisher_options", PubSubSubscriberOptions(), "must be a PubSubPublisherOptions"),
    *(
        (start, "python_executable", value, "must be a path")
        for start in (source, sink)
        for value in (None, "", " ", 3, b"x", Path("/x"))
    ),
    *(
        (start, "service_account_key_file", v, "must be a path")
        for start in (source, sink)
        for v in (None, "", " a", 3, Path("/x"))
    ),
]


@pytest.mark.feature("VAL-04")
@pytest.mark.parametrize(("start", "setter", "value", "text"), WRONG, ids=lambda part: getattr(part, "__name__", None))
def test_a_setter_refuses_the_wrong_kind_of_value(start: Callable[[], Builder], setter: str, value: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{setter} .*{text}") as caught:
        getattr(start(), setter)(value)
    assert caught.value.option == setter


@pytest.mark.feature("SRC-12")
@pytest.mark.feature("VAL-04")
def test_several_pulls_with_order_per_key_are_refused_in_any_order_of_calls() -> None:
    several = PubSubSubscriberOptions(parallel_pull_count=2)
    for builder in (
        source().ordering_mode(OrderingMode.PER_KEY).subscriber_options(several),
        source().subscriber_options(several).ordering_mode(OrderingMode.PER_KEY),
    ):
        with pytest.raises(ConfigurationError, match=r"parallel_pull_count must be 1 with OrderingMode\.PER_KEY") as caught:
            builder.build()
        assert caught.value.value == "2"
    assert source().subscriber_options(several).build()
    assert source().ordering_mode(OrderingMode.PER_KEY).build()


@pytest.mark.feature("SRC-05")
@pytest.mark.feature("SNK-18")
@pytest.mark.feature("VAL-04")
@BOTH
def test_a_key_file_beside_an_emulator_is_refused_in_any_order_of_calls(start: Callable[[], Builder]) -> None:
    calls: list[Callable[[Any], Any]] = [
        lambda builder: builder.service_account_key_file("/secrets/key.json"),
        lambda builder: builder.emulator_endpoint("localhost:8085"),
        lambda builder: builder.python_executable("/opt/worker/bin/python"),
    ]
    for order in permutations(calls):
        builder = start()
        for call in order:
            builder = call(builder)
        with pytest.raises(ConfigurationError, match="cannot be combined with emulator_endpoint") as caught:
            builder.build()
        assert "secrets" not in str(caught.value)


@pytest.mark.feature("SRC-06")
@pytest.mark.feature("SNK-18")
@BOTH
@pytest.mark.parametrize(
    "value", ["localhost:8085", "127.0.0.1:1", "[::1]:65535", "[fe80::1%eth0]:80", "pubsub_emulator:80", "a.b-c.d:8085"]
)
def test_an_endpoint_of_host_and_port_is_accepted(start: Callable[[], Builder], value: str) -> None:
    assert spec(start().emulator_endpoint(value).build()).connection.emulator_endpoint == value


MALFORMED: list[Any] = [
    None,
    8085,
    b"localhost:8085",
    "",
    "localhost",
    ":8085",
    "localhost:",
    "localhost:0",
    "localhost:65536",
    "localhost:-1",
    "localhost:port",
    "http://localhost:8085",
    "localhost:8085/",
    " localhost:8085",
    "localhost:8085\n",
    "local host:8085",
    "::1:8085",
    "[::1]",
    "[::1]8085",
    "[not-ipv6]:8085",
    "[127.0.0.1]:8085",
    "user@host:80",
    "localhost:8085:8086",
    "localhost:\u0668\u0660",
    "-host:80",
]


@pytest.mark.feature("SRC-06")
@pytest.mark.feature("SNK-18")
@pytest.mark.feature("VAL-04")
@BOTH
@pytest.mark.parametrize("value", MALFORMED)
def test_a_malformed_endpoint_is_refused_by_the_setter(start: Callable[[], Builder], value: Any) -> None:
    with pytest.raises(ConfigurationError, match="emulator_endpoint must be 'host:port' without a scheme") as caught:
        start().emulator_endpoint(value)
    assert repr(value) in str(caught.value)


@pytest.mark.feature("SRC-06")
@given(st.from_regex(r"[a-z0-9][a-z0-9.-]{0,30}", fullmatch=True), st.integers(-10, 70_000))
def test_exactly_the_ports_of_tcp_are_accepted(host: str, port: int) -> None:
    if 1 <= port <= 65535:
        source().emulator_endpoint(f"{host}:{port}")
    else:
        with pytest.raises(ConfigurationError):
            source().emulator_endpoint(f"{host}:{port}")


@pytest.mark.feature("SRC-06")
def test_any_text_is_either_accepted_as_it_is_or_refused_clearly() -> None:
    @given(st.text(max_size=40))
    def check(text: str) -> None:
        try:
            built = source().emulator_endpoint(text).build()
        except ConfigurationError:
            return
        assert spec(built).connection.emulator_endpoint == text

    check()


@pytest.mark.feature("SRC-05")
@pytest.mark.feature("SNK-18")
@pytest.mark.feature("VAL-05")
@BOTH
@pytest.mark.parametrize("content", ['{"private_key": "s3cret"}', "-----BEGIN KEY-----\ns3cret", "a\0s3cret"])
def test_key_content_given_in_place_of_a_path_is_refused_without_showing_it(start: Callable[[], Builder], content: str) -> None:
    with pytest.raises(ConfigurationError, match="takes the path of a file, not its content") as caught:
        start().service_account_key_file(content)
    assert "s3cret" not in f"{caught.value!r} {caught.value} {vars(caught.value)}"


@pytest.mark.feature("SRC-05")
@pytest.mark.feature("SNK-18")
@pytest.mark.feature("VAL-05")
@BOTH
def test_what_is_built_pickles_with_the_key_files_path_but_not_its_content(
    start: Callable[[], Builder], tmp_path: Path
) -> None:
    key = tmp_path / "key.json"
    key.write_text('{"private_key": "s3cret"}')
    built = start().service_account_key_file(str(key)).build()
    for pickled in (pickle.dumps(built), cloudpickle.dumps(spec(built))):
        assert str(key).encode() in pickled
        assert b"s3cret" not in pickled
        assert b"private_key" not in pickled


@pytest.mark.feature("VAL-05")
@BOTH
def test_building_does_not_touch_the_key_file(start: Callable[[], Builder]) -> None:
    assert start().service_account_key_file("/no/such/file.json").build()


@pytest.mark.feature("VAL-05")
def test_specs_travel_by_value_and_keep_every_setting() -> None:
    built = (
        source()
        .subscriptions(RETURNS)
        .ordering_mode(OrderingMode.PER_KEY)
        .subscriber_options(PubSubSubscriberOptions(max_records_per_fetch=7))
        .emulator_endpoint("localhost:8085")
        .build()
    )
    copy = pickle.loads(pickle.dumps(spec(built)))
    assert copy.subscriptions == (ORDERS, RETURNS)
    assert copy.ordering_mode is OrderingMode.PER_KEY
    assert copy.options.max_records_per_fetch == 7
    assert copy.connection.emulator_endpoint == "localhost:8085"
    assert copy.deserializer.function is json.loads


@pytest.mark.feature("SRC-03")
@pytest.mark.feature("BEY-14")
def test_workers_get_no_deserializer_when_the_jvm_decodes() -> None:
    built = PubSubSource.builder().subscriptions(ORDERS).deserializer(PubSubDeserializationSchema.message()).build()
    assert spec(built).deserializer is None


@pytest.mark.feature("SRC-06")
@pytest.mark.feature("SNK-18")
@BOTH
def test_the_environment_variable_of_googles_clients_is_ignored(
    start: Callable[[], Builder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "localhost:8085")
    assert spec(start().build()).connection.emulator_endpoint is None


@pytest.mark.feature("VAL-04")
def test_a_builder_can_go_on_after_build_without_changing_what_it_built() -> None:
    builder = source()
    first = builder.build()
    second = builder.subscriptions(RETURNS).build()
    assert spec(first).subscriptions == (ORDERS,)
    assert spec(second).subscriptions == (ORDERS, RETURNS)
