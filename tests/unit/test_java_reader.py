"""The reader in the JVM, in real jobs over a counting source: failed and withdrawn messages, what is buffered, and metrics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from pyflink.common import WatermarkStrategy

from flink_pubsub.bridge.frames import RecordBlock
from tests.bridge_connectors import CountingSource, LongsSource
from tests.flink.jobs import JavaObject, bridge_source, environment, failure_of, running, worker_spec
from tests.unit.java import java_class, jvm
from tests.unit.java_connectors import JournalSink


def longs() -> Any:
    """Flink's serializer of Java's longs."""
    serializers = java_class("org.apache.flink.api.common.typeutils.base.LongSerializer")
    return serializers.getField("INSTANCE").get(None)


def source(connector: LongsSource) -> JavaObject:
    bridge = jvm().io.github.flinkpubsub.bridge
    decoder = bridge.SerializerDecoder(longs())
    type_of = jvm().org.apache.flink.api.common.typeinfo.Types.LONG
    return JavaObject(bridge.PythonSource(cloudpickle.dumps(connector), worker_spec(), decoder, type_of, False))


def sink(connector: JournalSink) -> JavaObject:
    bridge = jvm().io.github.flinkpubsub.bridge
    return JavaObject(bridge.PythonSink(cloudpickle.dumps(connector), worker_spec(), bridge.SerializerEncoder(longs()), None))


def written(journal: Path) -> list[int]:
    entries = [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []
    return [element for entry in entries for element in entry.get("write", ())]


@pytest.mark.feature("SRC-22")
@pytest.mark.feature("SRC-24")
def test_withdrawn_messages_are_passed_over_and_the_position_goes_on_beyond_them(tmp_path: Path) -> None:
    out, said = tmp_path / "out", tmp_path / "said"
    env = environment(checkpoint_millis=50)
    connector = LongsSource(
        count=20, batch=7, journal=str(said), quirk="never ends", broken=(5, 12, 19), withdrawn={5: (6, 8, 18), 12: (13,)}
    )
    env.from_source(source(connector), WatermarkStrategy.no_watermarks(), "count").sink_to(sink(JournalSink(str(out))))
    with running(env) as job:
        job.wait_until(lambda: said.exists() and "{'s0': 19}" in said.read_text(), "a checkpoint covers the last message")
        job.wait_until(lambda: job.metrics("count").get("numRecordsInErrors") == "3", "failures are counted")
    assert written(out) == [n for n in range(20) if n not in (5, 6, 8, 12, 13, 18, 19)]
    failed = [line for line in said.read_text().splitlines() if line.startswith("failed")]
    assert failed == ["failed s0 5 False", "failed s0 12 False", "failed s0 19 False"]


@pytest.mark.feature("SRC-24")
def test_where_the_worker_wants_it_a_message_that_cannot_be_decoded_fails_the_job_by_its_number() -> None:
    env = environment()
    connector = LongsSource(count=20, quirk="never ends", broken=(5,), tolerant=False)
    env.from_source(source(connector), WatermarkStrategy.no_watermarks(), "count").print()
    message = failure_of(env)
    assert "Message 5 of split s0 cannot be decoded" in message
    assert "EOFException" in message


@pytest.mark.feature("SRC-28")
def test_the_fetchers_gauges_count_whole_batches_from_their_arrival_until_the_job_is_done_with_them(tmp_path: Path) -> None:
    """Of a blocked job: one batch that waits for the fetcher, one in its hands, two in Flink's queue, one with the task."""
    env = environment()
    connector = LongsSource(count=100, batch=10, quirk="never ends")
    stuck = JournalSink(str(tmp_path / "out"), max_in_flight_records=3, settle="never")
    env.from_source(source(connector), WatermarkStrategy.no_watermarks(), "count").sink_to(sink(stuck))
    with running(env) as job:
        batch = RecordBlock(0, 0, [bytes(8)] * 10, timestamps=list(range(10)))
        size = 5 * sum(map(len, batch.parts()))
        buffered = {"fetcherBufferedMessages": "50", "fetcherBufferedBytes": str(size)}
        job.shown(lambda: job.metrics("count"), buffered)
    free = JournalSink(str(tmp_path / "free"))
    env = environment()
    env.from_source(source(connector), WatermarkStrategy.no_watermarks(), "count").sink_to(sink(free))
    with running(env) as job:
        job.wait_until(lambda: len(written(tmp_path / "free")) == 100, "everything is through")
        job.shown(lambda: job.metrics("count"), dict.fromkeys(buffered, "0"))


@pytest.mark.feature("SRC-28")
def test_a_lasting_metric_still_shows_what_a_worker_said_at_its_end(tmp_path: Path) -> None:
    env = environment(restarts=1)
    connector = CountingSource(count=10, journal=str(tmp_path / "said"), quirk="fails once")
    env.from_source(bridge_source(connector, bounded=False), WatermarkStrategy.no_watermarks(), "count").print()
    with running(env) as job:
        job.wait_until(lambda: job.metrics("count").get("endings") == "1", "the second reader shows the first one's end")
        job.wait_until(lambda: job.metrics("count").get("counted") == "10", "while other totals are its own")


@pytest.mark.feature("SRC-17")
def test_a_worker_is_told_the_checkpoint_interval_where_the_cluster_has_one(tmp_path: Path) -> None:
    env, said = environment(checkpoint_millis=750), tmp_path / "said"
    env.from_source(bridge_source(CountingSource(journal=str(said))), WatermarkStrategy.no_watermarks(), "count").print()
    env.execute("interval")
    assert said.read_text().splitlines()[0] == "open 0.75"
