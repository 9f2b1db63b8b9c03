"""Dead letters in real jobs: from a sink of another kind, from a process function's side output, and from `PubSubSink`."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import grpc
import pytest
from pyflink.common import Types, WatermarkStrategy
from pyflink.datastream import OutputTag, ProcessFunction, RuntimeContext

from flink_pubsub import (
    FailedElement,
    FailureHandler,
    FailureHandlerContext,
    PubSubDeadLetterQueue,
    PubsubMessage,
    PubSubSerializationSchema,
    PubSubSink,
    TopicDestination,
    dead_letter_serializer,
)
from flink_pubsub.emulator import Emulator
from flink_pubsub.wire import pubsub_pb2 as wire
from tests.bridge_connectors import CountingSource
from tests.flink.jobs import bridge_sink, bridge_source, environment, failure_of, running
from tests.ledger_sink import LedgerSink

DEAD = TopicDestination("p", "dead-letters")
ORDERS_TOPIC = TopicDestination("p", "orders")
FAILED = OutputTag("failed", Types.PICKLED_BYTE_ARRAY())


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator() as emulator:
        emulator.create_topic(DEAD.resource_path)
        emulator.create_topic(ORDERS_TOPIC.resource_path)
        yield emulator


def dead_letter_queue(emulator: Emulator, **options: Any) -> FailureHandler[FailedElement]:
    queue = PubSubDeadLetterQueue(topic=DEAD, emulator_endpoint=emulator.endpoint, **options)
    return FailureHandler.send_to_dead_letter_queue(queue)


def attributes_and_age(message: wire.PubsubMessage) -> tuple[dict[str, str], timedelta]:
    """The attributes of an envelope without the timestamp, and how old that is."""
    attributes = dict(message.attributes)
    stamped = datetime.fromisoformat(attributes.pop("dlq-timestamp").replace("Z", "+00:00"))
    return attributes, datetime.now(timezone.utc) - stamped


@pytest.mark.feature("DLQ-01")
@pytest.mark.feature("DLQ-02")
@pytest.mark.feature("DLQ-03")
def test_a_sink_of_another_kind_sends_its_failures_to_the_topic(emulator: Emulator, tmp_path: Path) -> None:
    env, ledger = environment(parallelism=2), tmp_path / "ledger"
    source = bridge_source(CountingSource(splits=2, count=70, batch=10))
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "count")
    stream.sink_to(bridge_sink(LedgerSink(str(ledger), dead_letter_queue(emulator))))
    env.execute("ledger")
    entered = sorted(int(line) for part in tmp_path.glob("ledger.*") for line in part.read_text().split())
    assert entered == sorted([n for n in range(70) if n % 7] * 2)
    letters = emulator.published(DEAD.resource_path)
    assert sorted(int(message.data) for message in letters) == sorted([n for n in range(70) if not n % 7] * 2)
    for message in letters:
        attributes, age = attributes_and_age(message)
        assert attributes.pop("dlq-subtask") in {"0", "1"}
        assert timedelta(0) <= age < timedelta(minutes=5)
        assert attributes == {
            "dlq-connector": "ledger",
            "dlq-destination": "ledger/main",
            "dlq-error": f"{int(message.data)} is a multiple of seven",
        }


@pytest.mark.feature("DLQ-04")
@pytest.mark.feature("DLQ-05")
def test_a_dead_letter_topic_that_does_not_answer_fails_the_job_of_any_sink(emulator: Emulator, tmp_path: Path) -> None:
    emulator.stop_answering("Publish")
    times = {"flush_timeout": timedelta(seconds=1), "shutdown_timeout": timedelta(milliseconds=200)}
    env = environment(checkpoint_millis=None)  # a checkpoint could come between the two
    stream = env.from_source(bridge_source(CountingSource(count=8)), WatermarkStrategy.no_watermarks(), "count")
    stream.sink_to(bridge_sink(LedgerSink(str(tmp_path / "ledger"), dead_letter_queue(emulator, **times))))
    message = failure_of(env)
    assert "2 dead letters were not confirmed within flush_timeout, 1 s" in message
    assert DEAD.resource_path in message


@pytest.mark.feature("DLQ-05")
@pytest.mark.feature("DLQ-06")
def test_a_refusal_of_the_topic_restarts_the_job_which_then_loses_no_dead_letter_and_shows_them_in_its_metrics(
    emulator: Emulator, tmp_path: Path
) -> None:
    emulator.fail_next("Publish", grpc.StatusCode.PERMISSION_DENIED, "not yet")
    env = environment(restarts=1)
    source = bridge_source(CountingSource(count=70, quirk="never ends"), bounded=False)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "count")
    stream.sink_to(bridge_sink(LedgerSink(str(tmp_path / "ledger"), dead_letter_queue(emulator))))
    expected = {"numRecordsSendErrors": 10, "deadLettersPublished": 10, "inFlightDeadLetters": 0}
    with running(env) as job:
        metrics = job.shown(job.writer_metrics, expected)
        assert 0 <= metrics["deadLetterFlushMillis"] <= metrics["longestDeadLetterFlushMillis"]
    # Some may have been stored by the first attempt too.
    assert {int(m.data) for m in emulator.published(DEAD.resource_path)} == {n for n in range(70) if not n % 7}
    assert emulator.calls("Publish") > 1


class Parse(ProcessFunction):  # type: ignore[misc]
    """Parses numbers, and sends what is none to the side output."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()

    def process_element(self, value: str, ctx: ProcessFunction.Context) -> Iterator[Any]:
        try:
            yield int(value)
        except ValueError as error:
            yield (
                FAILED,
                FailedElement(
                    connector="parser",
                    destination="numbers",
                    payload=value.encode(),
                    error=str(error),
                    cause=error,
                    subtask=self.subtask,
                ),
            )


@pytest.mark.feature("DLQ-01")
@pytest.mark.feature("DLQ-02")
def test_a_process_functions_side_output_goes_to_the_topic_in_the_same_envelope(emulator: Emulator) -> None:
    env = environment()
    parsed = env.from_collection(["1", "zwei", "3"], Types.STRING()).process(Parse(), Types.INT())
    sink = PubSubSink.builder().topic(DEAD).serializer(dead_letter_serializer()).emulator_endpoint(emulator.endpoint).build()
    parsed.get_side_output(FAILED).sink_to(sink)
    env.execute("parse")
    [message] = emulator.published(DEAD.resource_path)
    assert message.data == b"zwei"
    attributes, age = attributes_and_age(message)
    assert timedelta(0) <= age < timedelta(minutes=5)
    assert attributes == {
        "dlq-connector": "parser",
        "dlq-destination": "numbers",
        "dlq-error": "invalid literal for int() with base 10: 'zwei'",
        "dlq-subtask": "0",
    }


class Orders(PubSubSerializationSchema):
    """Raises on a record without an amount; an amount above 100 gets an attribute that the service refuses."""

    def serialize(self, element: Any) -> PubsubMessage:
        amount = element["amount"]
        note = "x" * 1025 if amount > 100 else "ok"
        return PubsubMessage(str(amount).encode(), {"note": note})


ORDERS = [{"amount": n} for n in range(50)] + [{"amount": 500}, {"customer": "c"}] + [{"amount": n} for n in range(50, 100)]


def orders_sink(emulator: Emulator, handler: FailureHandler[FailedElement]) -> PubSubSink:
    builder = PubSubSink.builder().topic(ORDERS_TOPIC).serializer(Orders())
    return builder.failed_message_handler(handler).emulator_endpoint(emulator.endpoint).build()


@pytest.mark.feature("SNK-12")
@pytest.mark.feature("SNK-13")
@pytest.mark.feature("DLQ-01")
@pytest.mark.feature("DLQ-02")
def test_what_the_serializer_or_the_service_refuses_goes_to_the_topic_and_everything_else_is_published(
    emulator: Emulator,
) -> None:
    env = environment()
    env.from_collection(ORDERS).sink_to(orders_sink(emulator, dead_letter_queue(emulator)))
    env.execute("orders")
    published = [int(message.data) for message in emulator.published(ORDERS_TOPIC.resource_path)]
    assert sorted(published) == list(range(100))
    letters = {message.data == b"": message for message in emulator.published(DEAD.resource_path)}
    assert len(emulator.published(DEAD.resource_path)) == 2

    unserializable, age = attributes_and_age(letters[True])
    assert timedelta(0) <= age < timedelta(minutes=5)
    assert re.fullmatch(r".*serializ.*KeyError.*'amount'", unserializable.pop("dlq-error"))
    assert unserializable == {"dlq-connector": "pubsub", "dlq-destination": ORDERS_TOPIC.resource_path, "dlq-subtask": "0"}

    refused, _ = attributes_and_age(letters[False])
    assert "INVALID_ARGUMENT" in refused.pop("dlq-error")
    assert refused == {"dlq-connector": "pubsub", "dlq-destination": ORDERS_TOPIC.resource_path, "dlq-subtask": "0"}
    message = wire.PubsubMessage.FromString(letters[False].data)
    assert message == wire.PubsubMessage(data=b"500", attributes={"note": "x" * 1025})


@pytest.mark.feature("DLQ-04")
@pytest.mark.feature("DLQ-05")
def test_an_outage_of_the_dead_letter_topic_alone_fails_the_job_naming_the_timeout(emulator: Emulator) -> None:
    with Emulator() as elsewhere:
        elsewhere.create_topic(DEAD.resource_path)
        elsewhere.stop_answering("Publish")
        times = {"flush_timeout": timedelta(seconds=1), "shutdown_timeout": timedelta(milliseconds=200)}
        env = environment(checkpoint_millis=None)  # a checkpoint could come between the two
        env.from_collection(ORDERS).sink_to(orders_sink(emulator, dead_letter_queue(elsewhere, **times)))
        message = failure_of(env)
    assert "2 dead letters were not confirmed within flush_timeout, 1 s" in message
    assert DEAD.resource_path in message


@pytest.mark.feature("DLQ-04")
@pytest.mark.parametrize("at_bound", [True, False], ids=["an offer waits", "a flush waits"])
def test_a_job_is_cancelled_at_once_while_the_handlers_thread_waits_for_dead_letters(
    emulator: Emulator, at_bound: bool
) -> None:
    with Emulator() as elsewhere:
        elsewhere.create_topic(DEAD.resource_path)
        elsewhere.stop_answering("Publish")
        limits = {"max_in_flight_messages": 0 if at_bound else 1000, "shutdown_timeout": timedelta(milliseconds=200)}
        env = environment(checkpoint_millis=None if at_bound else 100)
        stream = env.from_source(
            bridge_source(CountingSource(count=100, quirk="never ends"), bounded=False), WatermarkStrategy.no_watermarks(), "n"
        )
        schema = PubSubSerializationSchema.payload(lambda element: b"%d" % (100 // int(element)))
        sink = PubSubSink.builder().topic(ORDERS_TOPIC).serializer(schema).emulator_endpoint(emulator.endpoint)
        stream.sink_to(sink.failed_message_handler(dead_letter_queue(elsewhere, **limits)).build())
        with running(env) as job:
            job.wait_until(lambda: elsewhere.calls("Publish") > 0, "a dead letter is under way")
            started = time.monotonic()
            job.cancel()
            assert time.monotonic() - started < 10


@pytest.mark.feature("DLQ-03")
@pytest.mark.feature("DLQ-05")
def test_a_missing_dead_letter_topic_fails_the_job_and_is_not_created(emulator: Emulator) -> None:
    emulator.delete_topic(DEAD.resource_path)
    env = environment()
    env.from_collection(ORDERS).sink_to(orders_sink(emulator, dead_letter_queue(emulator)))
    message = failure_of(env)
    assert f"publishing to {DEAD.resource_path} failed: NOT_FOUND" in message
    assert "create the topic" in message
    assert DEAD.resource_path not in emulator.topics()


class Journal(FailureHandler[FailedElement]):
    """Writes down every call, and knows the shared contract only."""

    def __init__(self, path: str) -> None:
        self._path = path

    def _note(self, call: str, **facts: Any) -> None:
        with Path(self._path).open("a") as journal:
            journal.write(json.dumps({"call": call, "thread": threading.get_ident(), **facts}) + "\n")

    def open(self, context: FailureHandlerContext) -> None:
        self._note("open", subtask=context.subtask)

    def handle(self, element: FailedElement) -> None:
        self._note(
            "handle",
            connector=element.connector,
            destination=element.destination,
            payload=element.payload and element.payload.hex(),
            error=element.error,
            cause=type(element.cause).__name__,
            raised=type(element.cause and element.cause.__cause__).__name__,
        )

    def flush(self) -> None:
        self._note("flush")

    def close(self) -> None:
        self._note("close")


@pytest.mark.feature("SNK-13")
@pytest.mark.feature("SNK-21")
def test_a_handler_of_the_shared_contract_gets_every_call_in_order_on_one_thread(emulator: Emulator, tmp_path: Path) -> None:
    env, path = environment(), tmp_path / "journal"
    env.from_collection(ORDERS).sink_to(orders_sink(emulator, Journal(str(path))))
    env.execute("orders")
    journal = [json.loads(line) for line in path.read_text().splitlines()]
    calls = [entry["call"] for entry in journal]
    assert calls[0] == "open"
    assert calls[-2:] == ["flush", "close"], "the last failure is flushed, and nothing comes after the close"
    assert sorted(set(calls[1:-1])) == ["flush", "handle"]
    assert calls.count("handle") == 2
    assert len({entry["thread"] for entry in journal}) == 1
    handled = {entry["payload"] is None: entry for entry in journal if entry["call"] == "handle"}
    assert (handled[True]["connector"], handled[True]["destination"]) == ("pubsub", ORDERS_TOPIC.resource_path)
    assert (handled[True]["cause"], handled[True]["raised"]) == ("SerializationError", "KeyError")
    assert handled[False]["cause"] == "PublishError"
    assert "INVALID_ARGUMENT" in handled[False]["error"]
    assert wire.PubsubMessage.FromString(bytes.fromhex(handled[False]["payload"])).data == b"500"
