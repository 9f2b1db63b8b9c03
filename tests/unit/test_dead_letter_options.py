"""The dead-letter queue's envelope and options, and the serializer that makes the same envelope."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, replace
from datetime import datetime, timedelta, timezone
from typing import Any

import cloudpickle
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flink_pubsub import (
    ConfigurationError,
    CredentialsError,
    FailedElement,
    FailureHandlerContext,
    PubSubConnectorError,
    PubSubDeadLetterQueue,
    PubsubMessage,
    SerializationError,
    TopicDestination,
    dead_letter_serializer,
)
from flink_pubsub.dead_letters import envelope

TOPIC = TopicDestination("p", "dead-letters")
AT = datetime(2026, 3, 1, 12, 30, 5, 67_890, timezone(timedelta(hours=2)))
ELEMENT = FailedElement(connector="ledger", destination="table/orders", payload=b"payload", error="no such column")


@pytest.mark.feature("DLQ-02")
def test_the_envelope_has_the_payload_and_says_what_failed_where_why_when_and_in_which_subtask() -> None:
    assert envelope(ELEMENT, 3, AT) == PubsubMessage(
        b"payload",
        {
            "dlq-connector": "ledger",
            "dlq-destination": "table/orders",
            "dlq-error": "no such column",
            "dlq-timestamp": "2026-03-01T10:30:05.067Z",
            "dlq-subtask": "3",
        },
    )


@pytest.mark.feature("DLQ-02")
@pytest.mark.parametrize("payload", [None, b""])
def test_the_envelope_of_no_payload_has_no_data_but_all_its_attributes(payload: bytes | None) -> None:
    message = envelope(replace(ELEMENT, payload=payload), 0, AT)
    assert message.data == b""
    assert len(message.attributes) == 5


@pytest.mark.feature("DLQ-02")
@given(st.text(st.characters() | st.sampled_from("aß€😀"), max_size=1100))
@example("€" * 342)
@example("a" * 1024)
@example("a" * 1023 + "ß")
@example("ok \ud800 half a pair")
def test_an_error_is_cut_at_1024_bytes_between_two_characters_and_never_earlier(error: str) -> None:
    cut = envelope(replace(ELEMENT, error=error), 0, AT).attributes["dlq-error"]
    whole = error.encode("utf-8", "replace").decode()
    assert whole.startswith(cut)
    size = len(cut.encode())
    following = whole[len(cut) : len(cut) + 1]
    assert size <= 1024
    assert not following or size + len(following.encode()) > 1024


@pytest.mark.feature("DLQ-02")
def test_an_error_is_followed_by_the_text_of_what_user_code_raised() -> None:
    def error_of(raised: BaseException | None) -> str:
        cause = SerializationError("the serializer raised")
        cause.__cause__ = raised
        return envelope(replace(ELEMENT, error=str(cause), cause=cause), 0, AT).attributes["dlq-error"]

    assert error_of(KeyError("amount")) == "a record cannot be serialized: the serializer raised: 'amount'"
    assert error_of(AssertionError()) == error_of(None) == "a record cannot be serialized: the serializer raised"


@pytest.mark.feature("DLQ-02")
def test_names_longer_than_an_attribute_are_cut_too() -> None:
    attributes = envelope(replace(ELEMENT, connector="c" * 2000, destination="d" * 2000), 0, AT).attributes
    assert (attributes["dlq-connector"], attributes["dlq-destination"]) == ("c" * 1024, "d" * 1024)


@pytest.mark.feature("DLQ-02")
def test_the_serializer_makes_the_same_envelope_of_elements_that_know_their_subtask() -> None:
    before = datetime.now(timezone.utc) - timedelta(milliseconds=1)
    message = dead_letter_serializer().serialize(replace(ELEMENT, subtask=7))
    assert message is not None
    stamped = message.attributes["dlq-timestamp"]
    assert message == envelope(ELEMENT, 7, datetime.fromisoformat(stamped.replace("Z", "+00:00")))
    assert before <= datetime.fromisoformat(stamped.replace("Z", "+00:00")) <= datetime.now(timezone.utc)


@pytest.mark.feature("DLQ-02")
def test_the_serializer_leaves_out_a_subtask_that_nobody_knows() -> None:
    message = dead_letter_serializer().serialize(ELEMENT)
    assert message is not None
    assert "dlq-subtask" not in message.attributes


def test_the_serializer_takes_failed_elements_only() -> None:
    with pytest.raises(SerializationError, match="takes FailedElement, not tuple"):
        dead_letter_serializer().serialize((b"payload", "error"))


# Options


@pytest.mark.feature("DLQ-03")
@pytest.mark.feature("DLQ-04")
def test_the_defaults() -> None:
    queue = PubSubDeadLetterQueue(topic=TOPIC)
    assert (queue.service_account_key_file, queue.emulator_endpoint) == (None, None)
    assert queue.max_in_flight_messages == 1000
    assert queue.flush_timeout == timedelta(seconds=60)
    assert queue.shutdown_timeout == timedelta(seconds=30)
    assert queue == PubSubDeadLetterQueue(topic=TOPIC, max_in_flight_messages=None, flush_timeout=None, shutdown_timeout=None)
    assert (PubSubDeadLetterQueue.WRITE_THROUGH, PubSubDeadLetterQueue.UNBOUNDED) == (0, -1)


@pytest.mark.feature("VAL-02")
@pytest.mark.feature("DLQ-04")
@pytest.mark.parametrize("value", [0, -1, 1, 5])
def test_the_bound_may_be_a_sentinel_or_positive(value: int) -> None:
    assert PubSubDeadLetterQueue(topic=TOPIC, max_in_flight_messages=value).max_in_flight_messages == value


@pytest.mark.feature("VAL-01")
@pytest.mark.feature("VAL-02")
@pytest.mark.feature("DLQ-04")
@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("max_in_flight_messages", [-2, True, 1.0, "5", 2**63]),
        ("flush_timeout", [timedelta(0), timedelta(seconds=-1), 60, float("inf")]),
        ("shutdown_timeout", [timedelta(0), timedelta(seconds=-1), 30]),
        ("topic", ["projects/p/topics/dead-letters", None, TopicDestination]),
        ("emulator_endpoint", ["localhost", "http://localhost:8085", 8085]),
        ("service_account_key_file", ["", " key.json", '{"private_key": 1}']),
    ],
)
def test_what_an_option_cannot_be_is_refused_by_name(option: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ConfigurationError, match=f"^{option} ") as caught:
            PubSubDeadLetterQueue(**{"topic": TOPIC, option: value})
        assert "private_key" not in str(caught.value)


@pytest.mark.feature("VAL-04")
@pytest.mark.feature("DLQ-03")
def test_a_key_file_contradicts_an_emulator() -> None:
    with pytest.raises(ConfigurationError, match="service_account_key_file cannot be combined with emulator_endpoint"):
        PubSubDeadLetterQueue(topic=TOPIC, service_account_key_file="/key.json", emulator_endpoint="localhost:8085")


@pytest.mark.feature("VAL-02")
def test_the_topic_is_required_and_everything_is_given_by_keyword() -> None:
    make: Any = PubSubDeadLetterQueue
    with pytest.raises(TypeError, match="topic"):
        make()
    with pytest.raises(TypeError):
        make(TOPIC)


@pytest.mark.feature("VAL-02")
@pytest.mark.feature("VAL-05")
def test_a_queue_is_immutable_travels_with_the_job_and_shows_no_key_file() -> None:
    queue = PubSubDeadLetterQueue(topic=TOPIC, service_account_key_file="/secret/key.json", flush_timeout=timedelta(1))
    assert pickle.loads(cloudpickle.dumps(queue)) == queue
    assert hash(queue) == hash(replace(queue))
    assert "secret" not in repr(queue)
    with pytest.raises(FrozenInstanceError):
        queue.flush_timeout = timedelta(2)  # type: ignore[misc]


@pytest.mark.feature("VAL-05")
@pytest.mark.feature("DLQ-03")
def test_an_open_queue_travels_without_its_publisher() -> None:
    queue = PubSubDeadLetterQueue(topic=TOPIC, emulator_endpoint="127.0.0.1:1")
    queue.open(FailureHandlerContext(subtask=0))
    try:
        copy = pickle.loads(cloudpickle.dumps(queue))
        with pytest.raises(PubSubConnectorError, match="open the PubSubDeadLetterQueue"):
            copy.offer(ELEMENT)
    finally:
        queue.close()


@pytest.mark.feature("DLQ-03")
def test_an_unreadable_key_file_fails_the_opening_and_the_queue_can_still_be_closed() -> None:
    queue = PubSubDeadLetterQueue(topic=TOPIC, service_account_key_file="/nowhere/secret.json")
    with pytest.raises(CredentialsError) as caught:
        queue.open(FailureHandlerContext(subtask=0))
    assert "secret" not in str(caught.value)
    queue.close()
