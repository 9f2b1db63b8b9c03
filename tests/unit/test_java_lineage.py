"""The lineage of sources and sinks, read from the Java objects as Flink does when it makes a job's graph."""

from __future__ import annotations

import json
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyflink.common import Types, WatermarkStrategy
from pyflink.datastream import DataStream, StreamExecutionEnvironment

import flink_pubsub
from flink_pubsub import (
    DeadLetterPolicy,
    FailureHandler,
    PubSubDeadLetterQueue,
    PubSubDeserializationSchema,
    PubSubSerializationSchema,
    PubSubSink,
    PubSubSource,
    SubscriptionCreateOptions,
    SubscriptionDestination,
    TopicDestination,
    _lineage,
)
from flink_pubsub.worker.tables import build
from tests.flink.jobs import gateway_process
from tests.unit.java import jvm

ORDERS, RETURNS = SubscriptionDestination("my-project", "orders"), SubscriptionDestination("other-project", "returns")
TOPIC = TopicDestination("my-project", "orders")
NOWHERE = "/nowhere/key.json"
"""A key file that cannot be read: what reads it fails."""

pytestmark = pytest.mark.feature("LIN-01")


@pytest.fixture(scope="module")
def stream() -> DataStream:
    environment = StreamExecutionEnvironment.get_execution_environment()
    environment.add_jars(flink_pubsub.jar())
    return environment.from_collection(["a"], Types.STRING())


def datasets(provider: Any) -> list[tuple[str, str, str, dict[str, str]]]:
    """Namespace, name, facet and its content of each dataset."""
    found = []
    for dataset in provider.getLineageVertex().datasets():
        [facet] = dataset.facets().values()
        found.append((dataset.namespace(), dataset.name(), facet.name(), dict(facet.config())))
    return found


def java_sink(stream: DataStream, sink: PubSubSink) -> Any:
    sink.get_transformer().apply(stream)
    return sink.get_java_function()


def parsed(lineage: str) -> Any:
    return jvm().io.github.flinkpubsub.lineage.Lineage.parse(lineage)


def known(name: str) -> tuple[str, str, str, dict[str, str]]:
    return "pubsub", name, "gcp", {"resources": name, "dynamic": "false"}


def test_a_source_shows_each_of_its_subscriptions_and_nothing_it_creates_or_dead_letters_to(stream: DataStream) -> None:
    dead = DeadLetterPolicy(topic=TopicDestination("my-project", "dead"), max_delivery_attempts=5)
    creation = SubscriptionCreateOptions(topic=TOPIC, dead_letter_policy=dead)
    builder = PubSubSource.builder().subscription(ORDERS, creation).subscriptions(RETURNS)
    source = builder.deserializer(PubSubDeserializationSchema.message()).build().get_java_function()
    assert datasets(source) == [
        known("subscription:my-project:orders"),
        known("subscription:other-project:returns"),
    ]
    assert source.getLineageVertex().boundedness().toString() == "CONTINUOUS_UNBOUNDED"


def test_a_sink_shows_its_topic_and_not_its_dead_letter_topic(stream: DataStream) -> None:
    queue = PubSubDeadLetterQueue(topic=TopicDestination("my-project", "dead"))
    builder = PubSubSink.builder().topic(TOPIC).serializer(PubSubSerializationSchema.payload(str.encode))
    sink = builder.failed_message_handler(FailureHandler.send_to_dead_letter_queue(queue)).build()
    assert datasets(java_sink(stream, sink)) == [known("topic:my-project:orders")]


def test_a_sink_whose_records_name_the_topics_shows_none_and_does_not_ask_the_resolver(stream: DataStream) -> None:
    def resolve(record: str, context: object) -> TopicDestination:
        raise AssertionError("the resolver was asked")

    builder = PubSubSink.builder().destination_resolver(resolve)
    sink = builder.serializer(PubSubSerializationSchema.payload(str.encode)).build()
    assert datasets(java_sink(stream, sink)) == []


def test_to_show_lineage_reads_no_credentials_and_starts_no_process(stream: DataStream) -> None:
    key = NOWHERE
    source = PubSubSource.builder().subscriptions(ORDERS).deserializer(PubSubDeserializationSchema.message())
    sink = PubSubSink.builder().topic(TOPIC).serializer(PubSubSerializationSchema.payload(str.encode))
    before = gateway_process().children(recursive=True)
    assert datasets(source.service_account_key_file(key).python_executable("/nowhere/python").build().get_java_function())
    assert datasets(java_sink(stream, sink.service_account_key_file(key).python_executable("/nowhere/python").build()))
    assert gateway_process().children(recursive=True) == before


def test_a_graph_has_the_lineage_before_anything_runs(stream: DataStream) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    source = PubSubSource.builder().subscriptions(ORDERS).deserializer(PubSubDeserializationSchema.payload(bytes.decode))
    sink = PubSubSink.builder().topic(TOPIC).serializer(PubSubSerializationSchema.payload(str.encode)).build()
    orders = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "orders")
    orders.map(str.upper).sink_to(sink)
    graph = env._generate_stream_graph().getLineageGraph()
    [edge] = graph.relations()
    assert [dataset.name() for dataset in edge.source().datasets()] == ["subscription:my-project:orders"]
    assert [dataset.name() for dataset in edge.sink().datasets()] == ["topic:my-project:orders"]


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_table_has_one_dataset_with_all_resources_and_says_whether_rows_name_more(stream: DataStream, dynamic: bool) -> None:
    lineage = parsed(json.dumps(_lineage.table_lineage([ORDERS, RETURNS], dynamic=dynamic)))
    [dataset] = lineage.named("catalog.database.orders").ofSink().datasets()
    assert dataset.name() == "catalog.database.orders"
    facet = dataset.facets()["gcp"]
    assert dataset.namespace() == "pubsub"
    assert list(facet.resources()) == ["subscription:my-project:orders", "subscription:other-project:returns"]
    assert facet.dynamic() is dynamic
    assert dict(facet.config()) == {
        "resources": "subscription:my-project:orders;subscription:other-project:returns",
        "dynamic": str(dynamic).lower(),
    }


@pytest.mark.parametrize(
    ("options", "metadata", "resources", "dynamic"),
    [
        ({"topic": "orders"}, ["ordering-key"], ["topic:my-project:orders"], False),
        ({"topic": "orders"}, ["topic"], ["topic:my-project:orders"], True),
        ({}, ["topic"], [], True),
    ],
)
def test_a_table_with_a_topic_column_says_that_rows_name_topics(
    options: dict[str, object], metadata: list[str], resources: list[str], dynamic: bool
) -> None:
    options = {"project": "my-project", "sink.message-ordering.enabled": True, **options}
    facts = build({"direction": "sink", "options": options, "metadata": metadata, "python_executable": None}).facts
    assert facts["lineage"] == {
        "namespace": "pubsub",
        "facet": "gcp",
        "dynamic": dynamic,
        "datasets": [{"name": "table", "resources": resources}],
    }


@pytest.mark.parametrize("wrong", ["", "{", "[]", '{"datasets": [{"name": "a", "resources": []}]}'])
def test_lineage_that_is_malformed_is_refused_where_the_job_is_built(stream: DataStream, wrong: str) -> None:
    with pytest.raises(Py4JJavaError, match="the lineage"):
        parsed(wrong)
