"""The sink in real jobs: what is published where, and how jobs fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pyflink.common import Types
from pyflink.common.serialization import SimpleStringSchema

from flink_pubsub import (
    PubsubMessage,
    PubSubSerializationSchema,
    PubSubSink,
    TopicDestination,
)
from flink_pubsub.emulator import Emulator
from tests.flink.jobs import environment, failure_of


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator() as emulator:
        for name in ("topic-a", "topic-b"):
            emulator.create_topic(f"projects/p/topics/{name}")
        yield emulator


def sink(emulator: Emulator, schema: PubSubSerializationSchema, resolver: Any = None) -> PubSubSink:
    builder = PubSubSink.builder().serializer(schema).emulator_endpoint(emulator.endpoint)
    builder = builder.topic(TopicDestination("p", "topic-a")) if resolver is None else builder.destination_resolver(resolver)
    return builder.build()


def data(emulator: Emulator, topic: str) -> list[bytes]:
    return sorted(message.data for message in emulator.published(f"projects/p/topics/topic-{topic}"))


@pytest.mark.feature("SNK-02")
@pytest.mark.feature("SNK-03")
def test_python_objects_are_published_with_attributes(emulator: Emulator) -> None:
    schema = PubSubSerializationSchema.payload(lambda record: json.dumps(record).encode())
    schema = schema.with_attributes(lambda record: {"n": str(record["n"])} if record["n"] else None)
    env = environment(parallelism=2)
    env.from_collection([{"n": n} for n in range(100)]).sink_to(sink(emulator, schema))
    env.execute("publish")
    published = emulator.published("projects/p/topics/topic-a")
    assert sorted(json.loads(m.data)["n"] for m in published) == list(range(100))
    assert all(dict(m.attributes) == ({"n": str(n)} if n else {}) for m in published for n in [json.loads(m.data)["n"]])


@pytest.mark.feature("SNK-02")
def test_jvm_schemas_encode_in_the_jvm(emulator: Emulator) -> None:
    env = environment()
    schema = PubSubSerializationSchema.payload(SimpleStringSchema())
    env.from_collection(["x", "späti"], Types.STRING()).sink_to(sink(emulator, schema))
    env.execute("publish")
    assert data(emulator, "a") == sorted([b"x", "späti".encode()])


@pytest.mark.feature("SNK-01")
@pytest.mark.parametrize("element_type", [None, Types.STRING()])
def test_a_resolver_chooses_the_topic_of_each_record(emulator: Emulator, element_type: Any) -> None:
    env = environment()
    schema = PubSubSerializationSchema.payload(str.encode)
    resolve = lambda word, context: TopicDestination("p", f"topic-{word[0]}")  # noqa: E731
    env.from_collection(["a1", "b1", "a2"], element_type).sink_to(sink(emulator, schema, resolve))
    env.execute("publish")
    assert (data(emulator, "a"), data(emulator, "b")) == ([b"a1", b"a2"], [b"b1"])


class Skips(PubSubSerializationSchema):
    def serialize(self, element: Any) -> PubsubMessage | None:
        return PubsubMessage(data=b"%d" % element, attributes={"whole": "message"}) if element % 2 else None


@pytest.mark.feature("SNK-02")
def test_a_serializer_gives_whole_messages_or_skips(emulator: Emulator) -> None:
    env = environment()
    env.from_collection([1, 2, 3]).sink_to(sink(emulator, Skips()))
    env.execute("publish")
    assert data(emulator, "a") == [b"1", b"3"]


def failure(built: PubSubSink) -> str:
    env = environment()
    env.from_collection(["secret-element"]).sink_to(built)
    return failure_of(env)


@pytest.mark.feature("SNK-01")
@pytest.mark.feature("SNK-02")
@pytest.mark.feature("SNK-19")
@pytest.mark.feature("BEY-04")
@pytest.mark.parametrize(
    ("function", "resolver", "said"),
    [
        (str.encode, lambda element, context: None, ["destination_resolver", "None"]),
        (lambda element: None, None, ["None"]),
        (lambda element: {"a": b""}["missing"], None, ["KeyError", "test_sink_jobs.py"]),
    ],
)
def test_a_failure_fails_the_job_clearly(emulator: Emulator, function: Any, resolver: Any, said: list[str]) -> None:
    message = failure(sink(emulator, PubSubSerializationSchema.payload(function), resolver))
    for part in said:
        assert part in message
    assert "secret-element" not in message


@pytest.mark.feature("SNK-07")
def test_a_keyed_message_without_ordering_fails_the_job_naming_the_option(emulator: Emulator) -> None:
    schema = PubSubSerializationSchema.payload(str.encode).with_ordering_key(lambda element: "k")
    assert "enable_message_ordering" in failure(sink(emulator, schema))


@pytest.mark.feature("SNK-18")
def test_an_unusable_key_file_fails_the_job_and_shows_neither_path_nor_content() -> None:
    schema = PubSubSerializationSchema.payload(str.encode)
    builder = PubSubSink.builder().topic(TopicDestination("p", "topic-a")).serializer(schema)
    message = failure(builder.service_account_key_file("/nowhere/secret-key.json").build())
    assert "service_account_key_file" in message
    assert "secret" not in message.replace("secret-element", "")
