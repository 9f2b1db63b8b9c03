"""Dead letters in real jobs: from a sink of another kind, from a process function's side output, and from `PubSubSink`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyflink.common import Types, WatermarkStrategy
from pyflink.datastream import OutputTag, ProcessFunction, RuntimeContext

from flink_pubsub import (
    FailedElement,
    FailureHandler,
    PubSubDeadLetterQueue,
    PubSubSink,
    TopicDestination,
    dead_letter_serializer,
)
from flink_pubsub.emulator import Emulator
from flink_pubsub.wire import pubsub_pb2 as wire
from tests.bridge_connectors import CountingSource
from tests.flink.jobs import bridge_sink, bridge_source, environment, failure_of
from tests.ledger_sink import LedgerSink

DEAD = TopicDestination("p", "dead-letters")
FAILED = OutputTag("failed", Types.PICKLED_BYTE_ARRAY())


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator() as emulator:
        emulator.create_topic(DEAD.resource_path)
        emulator.create_topic("projects/p/topics/orders")
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
    env = environment()
    stream = env.from_source(bridge_source(CountingSource(count=8)), WatermarkStrategy.no_watermarks(), "count")
    stream.sink_to(bridge_sink(LedgerSink(str(tmp_path / "ledger"), dead_letter_queue(emulator, **times))))
    message = failure_of(env)
    assert "2 dead letters were not confirmed within flush_timeout, 1 s" in message
    assert DEAD.resource_path in message


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
