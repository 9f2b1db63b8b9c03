"""The writer in the JVM, in real jobs over a sink that keeps a journal: caps, batches, flushes, and failures."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import cloudpickle
import pytest
from pyflink.common import WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.java_gateway import get_gateway

from flink_pubsub.bridge.frames import MAX_FRAME_BYTES, WriteBatch
from tests.bridge_connectors import CountingSource
from tests.flink.jobs import JavaObject, bridge_source, environment, eventually, failure_of, running, worker_spec
from tests.unit.java import JavaError, Reflected, boxed_long, java_class, jvm, make
from tests.unit.java_connectors import JournalSink

LONG_BYTES = 8


def without_checkpoints() -> StreamExecutionEnvironment:
    """An environment in which nothing but the end of input flushes. Any interval would begin with a checkpoint."""
    env = environment()
    env.get_checkpoint_config()._j_checkpoint_config.disableCheckpointing()
    return env


def numbers(env: StreamExecutionEnvironment, count: int) -> Any:
    """A bounded stream of Java longs from 0."""
    return env.from_source(bounded(count), WatermarkStrategy.no_watermarks(), "numbers")


def bounded(count: int) -> Any:
    return JavaObject(jvm().org.apache.flink.api.connector.source.lib.NumberSequenceSource(0, count - 1))


def endless(env: StreamExecutionEnvironment, count: int) -> Any:
    """So many byte strings, then nothing, without an end; element n has n as event time."""
    source = bridge_source(CountingSource(count=count, quirk="never ends"), bounded=False)
    return env.from_source(source, WatermarkStrategy.for_monotonous_timestamps(), "endless")


def longs(sink: JournalSink) -> JavaObject:
    """The sink for Java longs, each of 8 bytes."""
    bridge, serializers = (
        jvm().io.github.flinkpubsub.bridge,
        java_class("org.apache.flink.api.common.typeutils.base.LongSerializer"),
    )
    encoder = bridge.SerializerEncoder(serializers.getField("INSTANCE").get(None))
    return JavaObject(bridge.PythonSink(cloudpickle.dumps(sink), worker_spec(), encoder, None))


def raw(sink: JournalSink) -> JavaObject:
    """The sink for Java byte arrays."""
    bridge = jvm().io.github.flinkpubsub.bridge
    return JavaObject(bridge.PythonSink(cloudpickle.dumps(sink), worker_spec(), bridge.BytesEncoder(), None))


def entries(journal: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []


def writes(journal: Path) -> list[dict[str, Any]]:
    return [entry for entry in entries(journal) if "write" in entry]


def written(journal: Path) -> list[int]:
    return [element for entry in writes(journal) for element in entry["write"]]


@pytest.mark.feature("SNK-06")
@pytest.mark.parametrize(
    ("limits", "most"),
    [
        ({"max_in_flight_records": 10}, 10),
        ({"max_in_flight_bytes": 3 * LONG_BYTES + 1}, 3),
        ({"max_in_flight_records": 1}, 1),
        pytest.param({"max_in_flight_bytes": 1}, 1, id="every element is oversized"),
    ],
)
def test_what_is_in_flight_stays_at_its_cap_and_the_worker_is_asked_to_send(
    limits: dict[str, Any], most: int, tmp_path: Path
) -> None:
    env, journal = without_checkpoints(), tmp_path / "journal"
    numbers(env, 100).sink_to(longs(replace(JournalSink(str(journal), settle="when asked"), **limits)))
    env.execute("caps")
    assert written(journal) == list(range(100))
    assert max(entry["records"] for entry in writes(journal)) == most
    assert sum("send_now" in entry for entry in entries(journal)) == 99 // most


@pytest.mark.feature("SNK-03")
def test_every_checkpoint_and_the_end_of_input_flush_what_was_written(tmp_path: Path) -> None:
    env, journal = environment(checkpoint_millis=50), tmp_path / "journal"
    numbers(env, 50).sink_to(longs(JournalSink(str(journal), settle="when asked")))
    env.execute("flush")
    assert written(journal) == list(range(50))
    flushes = [entry for entry in entries(journal) if "flush" in entry]
    assert [entry["flush"] for entry in flushes] == list(range(1, len(flushes) + 1))
    assert True in [entry["end"] for entry in flushes]
    assert "close" in entries(journal)[-1]


def test_batches_are_of_many_elements_and_a_quarter_of_the_cap_at_most(tmp_path: Path) -> None:
    env, journal = environment(), tmp_path / "journal"
    numbers(env, 20_000).sink_to(longs(JournalSink(str(journal), max_in_flight_records=400)))
    env.execute("batches")
    assert written(journal) == list(range(20_000))
    sizes = [len(entry["write"]) for entry in writes(journal)]
    assert max(sizes) == 100
    assert len(sizes) < 20_000 / 20


def test_at_the_cap_room_for_a_whole_batch_is_awaited_however_small_the_steps_in_which_it_comes(tmp_path: Path) -> None:
    env, journal = without_checkpoints(), tmp_path / "journal"
    sink = JournalSink(str(journal), max_in_flight_records=400, settle="one by one")
    numbers(env, 20_000).sink_to(longs(sink))
    env.execute("steps")
    assert written(journal) == list(range(20_000))
    assert len(writes(journal)) < 20_000 / 50


def test_a_partial_batch_leaves_without_a_flush(tmp_path: Path) -> None:
    env, journal = without_checkpoints(), tmp_path / "journal"
    endless(env, 5).sink_to(raw(JournalSink(str(journal))))
    with running(env):
        eventually(lambda: len(written(journal)) == 5, "all elements left")
        assert not any("flush" in entry for entry in entries(journal))


def test_event_times_and_watermarks_come_along_when_they_are_wanted(tmp_path: Path) -> None:
    env, journal = environment(), tmp_path / "journal"
    env.get_config().set_auto_watermark_interval(1)
    endless(env, 200).sink_to(raw(JournalSink(str(journal), timestamps=True)))
    with running(env):
        eventually(lambda: len(written(journal)) == 200, "all elements left")
    times = [time for entry in writes(journal) for time in entry["timestamps"]]
    assert times == list(range(200))
    for entry in writes(journal):
        assert entry["watermark"] < min(entry["timestamps"])


def test_event_times_stay_away_when_nobody_wants_them(tmp_path: Path) -> None:
    env, journal = environment(), tmp_path / "journal"
    endless(env, 20).sink_to(raw(JournalSink(str(journal))))
    with running(env):
        eventually(lambda: len(written(journal)) == 20, "all elements left")
    assert all(entry["timestamps"] is None and entry["watermark"] == -(2**63) for entry in writes(journal))


@pytest.mark.feature("SNK-19")
@pytest.mark.parametrize(("settle", "fail"), [("never", 10), ("at once", 60)], ids=["waiting for credit", "while writing"])
def test_a_failure_of_the_writer_fails_the_job(settle: str, fail: int, tmp_path: Path) -> None:
    env, journal = without_checkpoints(), tmp_path / "journal"
    sink = JournalSink(str(journal), max_in_flight_records=10, settle=settle, fail=fail)
    numbers(env, 100).sink_to(longs(sink))
    assert "ValueError: the disk is full" in failure_of(env)


@pytest.mark.feature("SNK-19")
def test_a_failure_is_seen_by_a_writer_that_has_nothing_to_write(tmp_path: Path) -> None:
    env, journal = without_checkpoints(), tmp_path / "journal"
    endless(env, 5).sink_to(raw(JournalSink(str(journal), fail=5)))
    assert "ValueError: the disk is full" in failure_of(env)


@pytest.mark.feature("SNK-19")
def test_a_failure_while_a_flush_waits_fails_the_job(tmp_path: Path) -> None:
    env, journal = environment(), tmp_path / "journal"
    numbers(env, 5).sink_to(longs(JournalSink(str(journal), fail=0)))
    assert "ValueError: the disk is full" in failure_of(env)


def test_an_element_its_serializer_refuses_is_reported_with_the_serializer(tmp_path: Path) -> None:
    env = environment()
    bridge = jvm().io.github.flinkpubsub.bridge
    strings = java_class("org.apache.flink.api.common.serialization.SimpleStringSchema").newInstance()
    encoder = jvm().io.github.flinkpubsub.message.PayloadEncoder(strings)
    sink = bridge.PythonSink(cloudpickle.dumps(JournalSink(str(tmp_path / "journal"))), worker_spec(), None, encoder)
    numbers(env, 5).sink_to(JavaObject(sink))
    message = failure_of(env)
    assert "An element cannot be written: the serialization schema org.apache.flink" in message
    assert "ClassCastException" in message


@pytest.mark.feature("SNK-13")
def test_what_a_payload_encoder_fails_on_goes_in_batches_of_its_own_with_the_stack_trace() -> None:
    batch = make("bridge.WriteBatch", None, jvm().io.github.flinkpubsub.bridge.BytesEncoder())
    with pytest.raises(JavaError, match="An element cannot be written"):
        batch.encode(None)
    batch.withFailures()
    batches = []
    for element in (b"a", b"b", None, None, b"c"):
        batch.encode(element)
        if not batch.fits():
            batches.append(WriteBatch.decode(batch.take(boxed_long(7))))
        batch.add(boxed_long(0))
    batches.append(WriteBatch.decode(batch.take(boxed_long(7))))
    assert [(each.size, each.failures) for each in batches] == [(2, False), (2, True), (1, False)]
    good, failed, after = (list(each.payloads.values()) for each in batches if each.payloads is not None)
    assert (good, after) == ([b"a", b"b"], [b"c"])
    assert all(trace.startswith(b"java.lang.NullPointerException") and b"BytesEncoder" in trace for trace in failed)


@pytest.mark.feature("SNK-13")
def test_a_payload_too_large_for_a_frame_is_a_failure_of_its_record_and_an_element_too_large_is_one_of_the_job() -> None:
    jvm_bytes = jvm().io.github.flinkpubsub.bridge.BytesEncoder
    too_large = get_gateway().new_array(jvm().byte, MAX_FRAME_BYTES)
    batch = make("bridge.WriteBatch", None, jvm_bytes())
    with pytest.raises(JavaError, match="An element of 67108864 bytes cannot be written: its frame to the worker would have"):
        batch.encode(too_large)
    batch.withFailures()
    batch.encode(too_large)
    assert batch.fits()
    batch.add(boxed_long(0))
    failed = WriteBatch.decode(batch.take(boxed_long(7)))
    assert failed.failures
    assert failed.payloads is not None
    [trace] = failed.payloads.values()
    assert b"ElementTooLargeException: An element of 67108864 bytes" in trace

    of_elements = make("bridge.WriteBatch", jvm_bytes(), None)
    of_elements.withFailures()
    with pytest.raises(JavaError, match="An element of 67108864 bytes cannot be written"):
        of_elements.encode(too_large)


class Timers:
    """A `ProcessingTimeService` whose timers the test fires."""

    class Java:
        implements: ClassVar = ["org.apache.flink.api.common.operators.ProcessingTimeService"]

    def __init__(self) -> None:
        self.registered: list[Any] = []

    def getCurrentProcessingTime(self) -> int:  # noqa: N802
        return 0

    def registerTimer(self, time: int, callback: Any) -> None:  # noqa: N802
        self.registered.append(callback)


class Mail:
    """A `ThrowingRunnable` for the mailbox."""

    class Java:
        implements: ClassVar = ["org.apache.flink.util.function.ThrowingRunnable"]

    def __init__(self, action: Callable[[], None]) -> None:
        self.run = action


@pytest.mark.feature("SNK-06")
def test_a_timer_is_handled_while_a_write_waits_at_its_cap(tmp_path: Path) -> None:
    journal, timers, bridge = tmp_path / "journal", Timers(), jvm().io.github.flinkpubsub.bridge
    processor = "org.apache.flink.streaming.runtime.tasks"
    mailbox = jvm().org.apache.flink.streaming.runtime.tasks.mailbox.TaskMailboxImpl(jvm().Thread.currentThread())
    immediate = java_class(f"{processor}.StreamTaskActionExecutor").getField("IMMEDIATE").get(None)
    executor = jvm().org.apache.flink.streaming.runtime.tasks.mailbox.MailboxExecutorImpl(mailbox, 0, immediate)
    group = java_class("org.apache.flink.metrics.groups.UnregisteredMetricsGroup").newInstance()
    writer = make("bridge.PythonSinkWriter", make("bridge.WriteBatch", bridge.BytesEncoder(), None).instance, executor, timers)
    connector = cloudpickle.dumps(JournalSink(str(journal), max_in_flight_records=8, settle="never"))
    spec = bridge.WorkerSpec.parse(worker_spec())
    worker = Reflected("bridge.WorkerProcess").start(spec, "writer", 0, 1, connector, group, writer.instance)
    writer.start(worker)
    events: list[str] = []

    def fire() -> None:
        timers.registered[0].onProcessingTime(3)
        events.append("the timer fired")

    def end() -> None:
        raise InterruptedError("the task is cancelled")

    for number in range(8):
        writer.write(bytes([number]), None)
    executor.execute(Mail(fire), "a timer")
    executor.execute(Mail(end), "the end of the wait, which nothing is ever settled in")
    events.append("one more is written")
    with pytest.raises(JavaError, match="the task is cancelled"):
        writer.write(b"\10", None)
    assert events == ["one more is written", "the timer fired"]
    writer.close()
    assert written(journal) == list(range(8))
