"""The dead-letter queue over its own publisher, against the emulator; a plain host of handlers stands for the sink."""

from __future__ import annotations

import logging
import pickle
import re
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import cloudpickle
import grpc
import pytest

from flink_pubsub import (
    FailedElement,
    FailedMessage,
    FailureHandler,
    FailureHandlerContext,
    PublishError,
    PubSubDeadLetterQueue,
    PubsubMessage,
    TopicDestination,
)
from flink_pubsub.emulator import Emulator
from flink_pubsub.wire import pubsub_pb2 as wire
from tests.growth import GRPC_THREADS, assert_settles_to, footprint

TOPIC = TopicDestination("p", "dead-letters")
PATH = TOPIC.resource_path
ELEMENT = FailedElement(connector="ledger", destination="table/orders", payload=b"payload", error="no such column")


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator() as running:
        yield running


class Host:
    """What a sink does with a handler: opens a copy that travelled, and closes it at the end."""

    def __init__(self, emulator: Emulator, subtask: int = 0, **options: Any) -> None:
        queue = PubSubDeadLetterQueue(topic=TOPIC, emulator_endpoint=emulator.endpoint, **options)
        handler = FailureHandler.send_to_dead_letter_queue(queue)
        self.handler: FailureHandler[FailedElement] = pickle.loads(cloudpickle.dumps(handler))
        self.context = FailureHandlerContext(subtask=subtask)

    def __enter__(self) -> Host:
        self.handler.open(self.context)
        return self

    def __exit__(self, *exception: object) -> None:
        self.handler.close()

    def metric(self, name: str) -> int:
        counters, gauges, lasting = self.context.metrics.read()
        return {**counters, **gauges, **lasting}[name]


@pytest.mark.feature("DLQ-01")
@pytest.mark.feature("DLQ-02")
@pytest.mark.feature("DLQ-06")
def test_a_rejected_message_can_be_read_back_whole_from_its_envelope(emulator: Emulator) -> None:
    emulator.create_topic(PATH)
    rejected = wire.PubsubMessage(data=b"order", attributes={"source": "web"}, ordering_key="customer-7")
    failed = FailedMessage(
        connector="pubsub",
        destination="projects/p/topics/orders",
        payload=rejected.SerializeToString(),
        error="INVALID_ARGUMENT: the attribute is too long",
        message=PubsubMessage(b"order", {"source": "web"}, "customer-7"),
    )
    before = datetime.now(timezone.utc)
    with Host(emulator, subtask=5) as host:
        host.handler.handle(failed)
        host.handler.flush()
        assert host.metric("deadLettersPublished") == 1
        assert host.metric("inFlightDeadLetters") == 0
    [message] = emulator.published(PATH)
    attributes = dict(message.attributes)
    stamped = attributes.pop("dlq-timestamp")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", stamped)
    assert abs(datetime.fromisoformat(stamped.replace("Z", "+00:00")) - before) < timedelta(minutes=1)
    assert attributes == {
        "dlq-connector": "pubsub",
        "dlq-destination": "projects/p/topics/orders",
        "dlq-error": "INVALID_ARGUMENT: the attribute is too long",
        "dlq-subtask": "5",
    }
    assert wire.PubsubMessage.FromString(message.data) == rejected


@pytest.mark.feature("DLQ-02")
def test_the_service_takes_an_error_of_any_length(emulator: Emulator) -> None:
    emulator.create_topic(PATH)
    with Host(emulator) as host:
        host.handler.handle(FailedElement(connector="c", destination="d", payload=None, error="€" * 5000))
        host.handler.flush()
    [message] = emulator.published(PATH)
    assert message.attributes["dlq-error"] == "€" * 341
    assert message.data == b""


@pytest.mark.feature("DLQ-04")
def test_thousands_of_dead_letters_pass_the_default_bound_in_batches(emulator: Emulator) -> None:
    emulator.create_topic(PATH)
    with Host(emulator) as host:
        for number in range(3500):
            host.handler.handle(FailedElement(connector="c", destination="d", payload=b"%d" % number, error="e"))
        host.handler.flush()
        assert host.metric("deadLettersPublished") == 3500
    assert sorted(int(message.data) for message in emulator.published(PATH)) == list(range(3500))
    assert emulator.calls("Publish") < 350


@pytest.mark.feature("DLQ-04")
def test_write_through_has_stored_an_element_when_the_handler_returns(emulator: Emulator) -> None:
    emulator.create_topic(PATH)
    with Host(emulator, max_in_flight_messages=PubSubDeadLetterQueue.WRITE_THROUGH) as host:
        for count in range(1, 4):
            host.handler.handle(ELEMENT)
            assert emulator.published_count(PATH) == count


@pytest.mark.feature("DLQ-04")
def test_what_can_pass_is_retried_until_it_has_passed(emulator: Emulator) -> None:
    emulator.create_topic(PATH)
    emulator.fail_next("Publish", grpc.StatusCode.UNAVAILABLE, times=2)
    with Host(emulator) as host:
        host.handler.handle(ELEMENT)
        host.handler.flush()
    assert emulator.published_count(PATH) == 1


@pytest.mark.feature("DLQ-03")
@pytest.mark.feature("DLQ-05")
def test_a_topic_that_does_not_exist_fails_the_flush_and_is_not_created(emulator: Emulator) -> None:
    with Host(emulator) as host:
        host.handler.handle(ELEMENT)
        with pytest.raises(PublishError, match=r"NOT_FOUND.*create the topic") as caught:
            host.handler.flush()
        assert caught.value.topic == PATH
        with pytest.raises(PublishError, match="NOT_FOUND"):
            host.handler.handle(ELEMENT)
    assert emulator.topics() == []


@pytest.mark.feature("DLQ-05")
def test_an_element_that_does_not_fit_with_its_envelope_fails_the_flush(emulator: Emulator) -> None:
    emulator.create_topic(PATH)
    with Host(emulator) as host:
        host.handler.handle(FailedElement(connector="c", destination="d", payload=bytes(10_000_000 - 100), error="e"))
        with pytest.raises(PublishError, match=r"INVALID_ARGUMENT.*below 10 MB"):
            host.handler.flush()


@pytest.mark.feature("DLQ-04")
@pytest.mark.feature("DLQ-05")
@pytest.mark.feature("DLQ-06")
def test_a_topic_that_does_not_answer_fails_the_flush_in_its_time_and_the_close_in_its_own(emulator: Emulator) -> None:
    emulator.create_topic(PATH)
    emulator.stop_answering("Publish")
    times: Any = {"flush_timeout": timedelta(milliseconds=300), "shutdown_timeout": timedelta(milliseconds=200)}
    with Host(emulator, **times) as host:
        host.handler.handle(ELEMENT)
        host.handler.handle(ELEMENT)
        with pytest.raises(PublishError, match=r"2 dead letters were not confirmed within flush_timeout, 0\.3 s"):
            host.handler.flush()
        assert host.metric("longestDeadLetterFlushMillis") >= 300
    assert host.metric("deadLetterPublisherShutdownsAbandoned") == 1
    assert host.metric("inFlightDeadLetters") == 2


@pytest.mark.feature("DLQ-04")
def test_closing_waits_for_an_answer_that_is_on_its_way(emulator: Emulator) -> None:
    emulator.create_topic(PATH)
    emulator.delay("Publish", 0.2)
    with Host(emulator) as host:
        host.handler.handle(ELEMENT)
    assert host.metric("deadLettersPublished") == 1
    assert host.metric("deadLetterPublisherShutdownsAbandoned") == 0


@pytest.mark.feature("DLQ-06")
def test_debug_logs_the_whole_error_with_what_user_code_raised(emulator: Emulator, caplog: pytest.LogCaptureFixture) -> None:
    emulator.create_topic(PATH)
    try:
        raise KeyError("customer") from ValueError("the root of it")
    except KeyError as error:
        element = FailedElement(connector="c", destination="d", payload=b"secret", error="long " * 1000, cause=error)
    with caplog.at_level(logging.INFO, "flink_pubsub"), Host(emulator) as host:
        host.handler.handle(element)
    assert caplog.text == ""
    with caplog.at_level(logging.DEBUG, "flink_pubsub.dead_letters"), Host(emulator) as host:
        host.handler.handle(element)
    assert "long " * 1000 in caplog.text
    assert "the root of it" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.feature("DLQ-03")
def test_opening_and_closing_leaves_nothing_behind_and_asks_the_service_for_nothing(emulator: Emulator) -> None:
    with Host(emulator):
        pass
    assert emulator.calls("Publish") == emulator.calls("GetTopic") == 0
    threads = threading.active_count()
    before = footprint()
    for _ in range(20):
        with Host(emulator):
            pass
    assert_settles_to(before, threads=GRPC_THREADS)
    assert threading.active_count() <= threads
