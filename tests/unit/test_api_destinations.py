"""Names of topics and subscriptions: what exists is valid."""

from __future__ import annotations

import pickle
import re
import string
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flink_pubsub import ConfigurationError, SubscriptionDestination, TopicDestination

pytestmark = pytest.mark.feature("VAL-01")

Destination = Callable[[str, str], SubscriptionDestination | TopicDestination]
KINDS = pytest.mark.parametrize("kind", [SubscriptionDestination, TopicDestination])
VALID_IDS = st.from_regex(re.compile(r"(?!goog)[A-Za-z][A-Za-z0-9\-_.~+%]{2,254}"), fullmatch=True)
PROJECTS = st.text(string.ascii_lowercase + string.digits + "-:.", min_size=1, max_size=40)


@given(PROJECTS, VALID_IDS)
def test_a_destination_knows_its_resource_path(project: str, name: str) -> None:
    assert SubscriptionDestination(project, name).resource_path == f"projects/{project}/subscriptions/{name}"
    assert TopicDestination(project, name).resource_path == f"projects/{project}/topics/{name}"


@given(st.text(string.printable, max_size=300))
def test_exactly_the_ids_of_the_service_rule_are_accepted(name: str) -> None:
    valid = re.fullmatch(r"[A-Za-z][A-Za-z0-9\-_.~+%]{2,254}", name) is not None and not name.startswith("goog")
    if valid:
        assert TopicDestination("p", name).topic == name
    else:
        with pytest.raises(ConfigurationError, match="topic must be"):
            TopicDestination("p", name)


@KINDS
def test_destinations_are_equal_hashable_and_picklable_by_their_parts(kind: Destination) -> None:
    destination = kind("my-project", "orders")
    assert destination == kind("my-project", "orders")
    assert hash(destination) == hash(kind("my-project", "orders"))
    assert destination != kind("my-project", "returns")
    assert destination != kind("other-project", "orders")
    assert pickle.loads(pickle.dumps(destination)) == destination


def test_a_topic_never_equals_a_subscription_of_the_same_name() -> None:
    topic: object = TopicDestination("p", "orders")
    assert topic != SubscriptionDestination("p", "orders")


@KINDS
def test_destinations_cannot_be_changed(kind: Destination) -> None:
    with pytest.raises(AttributeError):
        kind("p", "orders").project = "q"  # type: ignore[misc]


@KINDS
@pytest.mark.parametrize("project", ["", " p", "p ", "a b", "projects/p", "p\n", "/", "\u00a0"])
def test_a_project_must_be_a_bare_name(kind: Destination, project: str) -> None:
    with pytest.raises(ConfigurationError, match="project must be a bare project id") as caught:
        kind(project, "orders")
    assert caught.value.option == "project"
    assert caught.value.value == repr(project)


@KINDS
@pytest.mark.parametrize("name", ["projects/p/topics/orders", "a/b", "orders/"])
def test_a_path_where_an_id_belongs_is_refused_with_the_mend(kind: Destination, name: str) -> None:
    with pytest.raises(ConfigurationError, match="not a path: give project and id separately") as caught:
        kind("p", name)
    assert repr(name) in str(caught.value)


@KINDS
@pytest.mark.parametrize(
    "name", ["", "ab", "1abc", "-abc", "googx", " orders", "orders ", "orders\n", "or ders", "ördérs", "a" * 256]
)
def test_an_id_that_breaks_the_naming_rule_is_refused(kind: Destination, name: str) -> None:
    with pytest.raises(ConfigurationError, match="must be 3 to 255 of letters, digits"):
        kind("p", name)


@KINDS
@pytest.mark.parametrize("value", [None, 5, b"orders", ["orders"], True])
def test_parts_that_are_not_text_are_refused(kind: Destination, value: object) -> None:
    with pytest.raises(ConfigurationError, match=r"(topic|subscription) must be the \1 id as str"):
        kind("p", value)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="project must be the project id as str"):
        kind(value, "orders")  # type: ignore[arg-type]


def test_a_refused_name_is_refused_again() -> None:
    for _ in range(2):
        with pytest.raises(ConfigurationError):
            TopicDestination("p", "no")
