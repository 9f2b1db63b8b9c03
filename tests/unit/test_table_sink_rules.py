"""What the metadata columns of a table that is written ask of its options, and what its writers get to know of them."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from flink_pubsub.bridge.connector import RequestRefusedError
from flink_pubsub.core.startup import SubscriptionFacts, rejections
from flink_pubsub.destinations import TopicDestination
from flink_pubsub.options import DeserializationFailurePolicy, OrderingMode
from flink_pubsub.sink import SinkSpec
from flink_pubsub.worker.sink import PubSubSinkConnector
from flink_pubsub.worker.table_connectors import TableSink, TableSource
from flink_pubsub.worker.tables import build
from flink_pubsub.worker.writer import NEVER_CREATE
from tests.unit.table_support import source


def sink(*metadata: str, **options: Any) -> SinkSpec:
    """The spec of a table with these metadata columns; in keywords `__` stands for a dot."""
    given = {"project": "p", **{key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}}
    request = {"direction": "sink", "options": given, "metadata": list(metadata), "python_executable": None}
    connector = pickle.loads(pickle.dumps(build(request).connector))
    assert isinstance(connector, PubSubSinkConnector)
    return connector.spec


def refusal(*metadata: str, **options: Any) -> str:
    with pytest.raises(RequestRefusedError) as caught:
        sink(*metadata, **options)
    return str(caught.value)


@pytest.mark.feature("SQL-04")
@pytest.mark.parametrize("metadata", [(), ("attributes",)])
def test_without_columns_that_route_whole_batches_are_passed_on(metadata: tuple[str, ...]) -> None:
    spec = sink(*metadata, topic="orders")
    assert (spec.element_coding, spec.payload_coding) == ("none", "message")
    assert spec.topic == TopicDestination("p", "orders")


@pytest.mark.feature("SQL-04")
@pytest.mark.parametrize("given", [{}, {"sink__message_ordering__enabled": False}])
def test_a_key_column_needs_message_ordering(given: dict[str, Any]) -> None:
    problem = "'sink.message-ordering.enabled' must be 'true' for a table with the metadata column 'ordering-key'"
    assert refusal("attributes", "ordering-key", topic="orders", **given).startswith(problem)
    assert sink("ordering-key", topic="orders", sink__message_ordering__enabled=True).element_coding == "route"
    assert sink("attributes", topic="orders", **given).topic is not None


@pytest.mark.feature("SQL-01")
@pytest.mark.feature("BEY-11")
def test_a_table_needs_a_topic_or_a_column_of_topics() -> None:
    problem = "'topic' is missing: a table that is written needs the id of its topic, or a metadata column 'topic'"
    assert refusal("attributes").startswith(problem)
    assert sink("topic").topic is None
    assert sink("topic", topic="orders").topic == TopicDestination("p", "orders")
    for spec in (sink("topic"), sink("topic", topic="orders")):
        assert (spec.element_coding, spec.topic_project) == ("route", "p")


@pytest.mark.feature("SQL-01")
@pytest.mark.feature("BEY-11")
def test_the_project_and_the_topic_to_fall_back_on_are_bare_names_too() -> None:
    assert refusal("topic", topic="projects/p/topics/orders").startswith("'topic' must be the bare topic id, not a path")
    assert refusal("topic", topic="").startswith("'topic' must be 3 to 255 of letters")
    assert refusal("topic", project="projects/p").startswith("'project' must be a bare project id")


@pytest.mark.feature("SQL-01")
def test_failures_of_running_jobs_are_told_in_sql_too() -> None:
    said = TableSink(sink(topic="orders")).reworded
    assert said(NEVER_CREATE) == ". The sink does not create it, as 'sink.create-disposition' = 'create-never' says"
    assert said("max_consecutive_rejections allows no more") == "'sink.max-consecutive-rejections' allows no more"
    facts = SubscriptionFacts(path="projects/p/subscriptions/orders-sub", topic="projects/p/topics/orders")
    [rejection] = rejections(facts, OrderingMode.PER_KEY, DeserializationFailurePolicy.FAIL)
    assert "which 'scan.ordering-mode' = 'per-key' cannot mend" in TableSource(source({})).reworded(rejection)
