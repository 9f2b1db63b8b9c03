"""The contract between sinks and failure handlers, and the handlers that are built in."""

from __future__ import annotations

import logging
import pickle
import threading
from dataclasses import FrozenInstanceError
from typing import Any

import cloudpickle
import pytest

from flink_pubsub import (
    ConfigurationError,
    DeadLetterQueue,
    FailedElement,
    FailedMessage,
    FailureHandler,
    FailureHandlerContext,
    PublishError,
    PubsubMessage,
    RecordError,
)
from flink_pubsub.failures import HandlerMetrics

TOPIC = "projects/p/topics/orders"
REJECTED = PublishError(TOPIC, "INVALID_ARGUMENT", "the attribute is too long")
MESSAGE = FailedMessage(
    connector="pubsub",
    destination=TOPIC,
    payload=b"\x0a\x06secret",
    error=str(REJECTED),
    cause=REJECTED,
    message=PubsubMessage(b"secret"),
)
ELEMENT = FailedElement(connector="ledger", destination="table/orders", payload=b"secret", error="no such column")


class UnpicklableError(Exception):
    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.lock = threading.Lock()


@pytest.mark.feature("SNK-13")
def test_fail_job_raises_the_cause_itself() -> None:
    with pytest.raises(PublishError) as caught:
        FailureHandler.fail_job().handle(MESSAGE)
    assert caught.value is REJECTED


@pytest.mark.feature("SNK-13")
def test_fail_job_tells_what_is_known_of_an_element_without_a_cause() -> None:
    with pytest.raises(RecordError, match=r"^ledger cannot write an element for table/orders: no such column$"):
        FailureHandler.fail_job().handle(ELEMENT)


@pytest.mark.feature("SNK-13")
def test_log_and_drop_warns_of_each_element_and_never_shows_a_payload(caplog: pytest.LogCaptureFixture) -> None:
    handler = FailureHandler.log_and_drop()
    with caplog.at_level(logging.WARNING, "flink_pubsub.failures"):
        handler.open(FailureHandlerContext(subtask=0))
        handler.handle(MESSAGE)
        handler.handle(ELEMENT)
        handler.flush()
        handler.close()
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    first, second = caplog.messages
    assert TOPIC in first
    assert "INVALID_ARGUMENT" in first
    assert second == "dropped an element of ledger for table/orders: no such column"
    assert "secret" not in caplog.text


class RememberingQueue(DeadLetterQueue):
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def open(self, context: FailureHandlerContext) -> None:
        self.calls.append(("open", context.subtask))

    def offer(self, element: FailedElement) -> None:
        self.calls.append(("offer", element))

    def flush(self) -> None:
        self.calls.append("flush")

    def close(self) -> None:
        self.calls.append("close")


@pytest.mark.feature("SNK-13")
@pytest.mark.feature("DLQ-01")
def test_a_queue_gets_every_call_of_its_handler_and_the_element_as_it_is() -> None:
    queue = RememberingQueue()
    handler = FailureHandler.send_to_dead_letter_queue(queue)
    handler.open(FailureHandlerContext(subtask=3))
    handler.handle(MESSAGE)
    handler.flush()
    handler.handle(ELEMENT)
    handler.close()
    assert queue.calls == [("open", 3), ("offer", MESSAGE), "flush", ("offer", ELEMENT), "close"]


@pytest.mark.feature("SNK-13")
def test_the_closing_time_of_a_queue_is_that_of_its_handler() -> None:
    queue = RememberingQueue()
    queue.shutdown_timeout *= 7
    handler = FailureHandler.send_to_dead_letter_queue(queue)
    assert handler.shutdown_timeout == queue.shutdown_timeout
    assert handler.shutdown_timeout != FailureHandler.log_and_drop().shutdown_timeout


@pytest.mark.feature("VAL-02")
@pytest.mark.parametrize("queue", [None, "dead-letters", RememberingQueue])
def test_only_a_dead_letter_queue_can_be_sent_to(queue: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^queue must be a DeadLetterQueue.*PubSubDeadLetterQueue\("):
        FailureHandler.send_to_dead_letter_queue(queue)


@pytest.mark.feature("VAL-05")
@pytest.mark.parametrize("make", [FailureHandler.fail_job, FailureHandler.log_and_drop])
def test_built_in_handlers_travel_with_the_job(make: Any) -> None:
    assert type(pickle.loads(cloudpickle.dumps(make()))) is type(make())


@pytest.mark.feature("SNK-13")
def test_one_handler_written_against_the_shared_contract_sees_the_elements_of_every_connector() -> None:
    seen = []

    class Shared(FailureHandler[FailedElement]):
        def handle(self, element: FailedElement) -> None:
            seen.append((element.connector, element.destination, element.payload, element.error, element.cause))

    def a_pubsub_sink(handler: FailureHandler[FailedMessage]) -> None:
        handler.handle(MESSAGE)

    handler = Shared()
    a_pubsub_sink(handler)
    handler.handle(ELEMENT)
    assert seen == [
        ("pubsub", TOPIC, b"\x0a\x06secret", str(REJECTED), REJECTED),
        ("ledger", "table/orders", b"secret", "no such column", None),
    ]


@pytest.mark.feature("DLQ-01")
def test_a_failed_element_is_immutable_and_its_text_shows_no_payload() -> None:
    with pytest.raises(FrozenInstanceError):
        MESSAGE.error = "another"  # type: ignore[misc]
    assert "secret" not in repr(MESSAGE)
    assert "secret" not in repr(ELEMENT)


@pytest.mark.feature("DLQ-01")
@pytest.mark.parametrize("element", [MESSAGE, ELEMENT])
def test_a_failed_element_travels_without_its_cause(element: FailedElement) -> None:
    with_cause = type(element)(**{**element.__dict__, "cause": UnpicklableError("no")})
    copy = pickle.loads(pickle.dumps(with_cause))
    assert copy == element
    assert copy.cause is None
    assert isinstance(with_cause.cause, UnpicklableError)


def test_registered_metrics_are_read_as_they_are_at_that_time() -> None:
    metrics, counts = HandlerMetrics(), {"a": 1, "b": 2}
    metrics.counter("handled", lambda: counts["a"])
    metrics.gauge("kinds.decimal.waiting", lambda: counts["b"])
    metrics.lasting("givenUp", lambda: counts["a"])
    assert metrics.read() == ({"handled": 1}, {"kinds.decimal.waiting": 2}, {"givenUp": 1})
    counts["a"] = 5
    assert metrics.read() == ({"handled": 5}, {"kinds.decimal.waiting": 2}, {"givenUp": 5})


@pytest.mark.parametrize("name", ["", "a b", ".a", "a.", "a..b", "a\n", 7, None])
def test_a_malformed_metric_name_is_refused(name: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^a metric's name must be text"):
        HandlerMetrics().gauge(name, lambda: 1)


def test_a_metric_is_registered_once_only_and_with_a_function() -> None:
    metrics = HandlerMetrics()
    metrics.counter("handled", lambda: 1)
    with pytest.raises(ConfigurationError, match=r"must be registered once only \(got 'handled'\)"):
        metrics.gauge("handled", lambda: 1)
    with pytest.raises(ConfigurationError, match=r"^metric waiting must be a function \(\) -> int"):
        metrics.gauge("waiting", 1)  # type: ignore[arg-type]
