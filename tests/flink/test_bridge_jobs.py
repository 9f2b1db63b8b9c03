"""The bridge without Pub/Sub: real jobs over a counting source and a collecting sink, both defined in Python."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pyflink.common import WatermarkStrategy

from tests.bridge_connectors import CollectingSink, CountingSource
from tests.flink.jobs import bridge_sink, bridge_source, environment, eventually, failure_of, running, workers


def lines(path: Path) -> list[int]:
    return sorted(int(line) for part in path.parent.glob(f"{path.name}.*") for line in part.read_text().split())


def test_what_a_python_source_counts_a_python_sink_collects(tmp_path: Path) -> None:
    env, out = environment(parallelism=2), tmp_path / "out"
    source = bridge_source(CountingSource(splits=3, count=1000, batch=64))
    env.from_source(source, WatermarkStrategy.no_watermarks(), "count").sink_to(bridge_sink(CollectingSink(str(out))))
    env.execute("count")
    assert lines(out) == sorted(list(range(1000)) * 3)
    eventually(lambda: not workers(), "no worker is left")


@pytest.mark.feature("SRC-08")
def test_subtasks_without_a_split_finish_and_start_no_worker(tmp_path: Path) -> None:
    env, out, journal = environment(parallelism=4), tmp_path / "out", tmp_path / "journal"
    source = bridge_source(CountingSource(splits=1, count=50, journal=str(journal)))
    env.from_source(source, WatermarkStrategy.no_watermarks(), "count").sink_to(bridge_sink(CollectingSink(str(out))))
    env.execute("count")
    assert lines(out) == list(range(50))
    assert journal.read_text().splitlines().count("assign s0") == 1
    assert journal.read_text().splitlines().count("close") == 1


def test_a_checkpoint_tells_the_reader_the_last_emitted_sequence(tmp_path: Path) -> None:
    env, journal = environment(checkpoint_millis=50), tmp_path / "journal"
    source = bridge_source(CountingSource(count=100, batch=10, journal=str(journal), quirk="never ends"), bounded=False)
    env.from_source(source, WatermarkStrategy.no_watermarks(), "count").sink_to(
        bridge_sink(CollectingSink(str(tmp_path / "out")))
    )
    with running(env) as job:
        job.wait_until(lambda: journal.exists() and "complete 3" in journal.read_text(), "three checkpoints are complete")
        job.wait_until(lambda: "{'s0': 99}" in journal.read_text(), "a checkpoint covers the last message")
    said = journal.read_text().splitlines()
    assert any(line.endswith("{'s0': 99}") for line in said if line.startswith("snapshot"))
    assert said[-1] == "close"


@pytest.mark.feature("BEY-04")
@pytest.mark.parametrize("quirk", ["plan raises", "open raises", "poll raises"])
def test_an_exception_in_the_worker_fails_the_job_with_its_traceback(quirk: str, tmp_path: Path) -> None:
    env = environment()
    source = bridge_source(CountingSource(quirk=quirk))
    env.from_source(source, WatermarkStrategy.no_watermarks(), "count").print()
    message = failure_of(env)
    assert "ValueError" in message
    assert "bridge_connectors.py" in message


def test_an_exception_in_the_writer_fails_the_job_with_its_traceback(tmp_path: Path) -> None:
    env = environment()
    sink = bridge_sink(CollectingSink(str(tmp_path / "out"), quirk="write raises"))
    source = bridge_source(CountingSource(count=1000))
    env.from_source(source, WatermarkStrategy.no_watermarks(), "count").sink_to(sink)
    message = failure_of(env)
    assert "ValueError: the disk is full" in message
    assert "bridge_connectors.py" in message


def test_a_worker_that_dies_is_reported_with_its_exit_code() -> None:
    env = environment()
    source = bridge_source(CountingSource(quirk="plan exits"))
    env.from_source(source, WatermarkStrategy.no_watermarks(), "count").print()
    assert "exit code 7" in failure_of(env)


@pytest.mark.parametrize("role", ["reader", "writer"])
def test_a_killed_worker_restarts_the_job_with_a_new_one(role: str, tmp_path: Path) -> None:
    env, journal = environment(checkpoint_millis=50, restarts=3), tmp_path / "journal"
    source = bridge_source(CountingSource(count=100, journal=str(journal), quirk="never ends"), bounded=False)
    sink = bridge_sink(CollectingSink(str(tmp_path / "out")))
    env.from_source(source, WatermarkStrategy.no_watermarks(), "count").sink_to(sink)
    with running(env) as job:
        job.wait_until(lambda: len(workers(role)) == 1, f"the {role}'s worker runs")
        [worker] = workers(role)
        worker.kill()
        job.wait_until(lambda: [w.pid for w in workers(role)] not in ([], [worker.pid]), f"another {role} runs")
    eventually(lambda: not workers(), "no worker is left")


@pytest.mark.feature("DEP-04")
def test_an_interpreter_that_is_not_there_is_named_with_the_mend() -> None:
    env = environment()
    source = bridge_source(CountingSource(), python_executable="/nowhere/python3")
    env.from_source(source, WatermarkStrategy.no_watermarks(), "count").print()
    message = failure_of(env)
    assert "/nowhere/python3" in message
    assert "python_executable" in message


@pytest.mark.feature("DEP-04")
def test_an_interpreter_without_the_package_is_named_with_the_mend(tmp_path: Path) -> None:
    bare = tmp_path / "python3"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    env = environment()
    source = bridge_source(CountingSource(), python_executable=str(bare))
    env.from_source(source, WatermarkStrategy.no_watermarks(), "count").print()
    message = failure_of(env)
    assert str(bare) in message
    assert "pip install flink-pubsub==" in message
