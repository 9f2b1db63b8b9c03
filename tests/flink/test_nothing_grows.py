"""Reader and writer opened and closed thirty times in one JVM leave nothing behind."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyflink.common import WatermarkStrategy
from pyflink.java_gateway import get_gateway

from flink_pubsub import PubSubSerializationSchema, PubSubSink, TopicDestination
from tests.flink.jobs import environment, eventually, gateway_process, running, workers
from tests.flink.pubsub_jobs import pipe

CYCLES = 30


@dataclass(frozen=True)
class Held:
    """What the bridge holds in the JVM's process."""

    threads: int
    workers: int
    pipes: int

    def within(self, other: Held) -> bool:
        return self.threads <= other.threads and self.workers <= other.workers and self.pipes <= other.pipes


def held() -> Held:
    threads = [thread.getName() for thread in get_gateway().jvm.java.lang.Thread.getAllStackTraces().keySet()]
    pipes = 0
    for descriptor in Path(f"/proc/{gateway_process().pid}/fd").iterdir():
        try:
            pipes += os.readlink(descriptor).startswith("pipe:")
        except FileNotFoundError:
            continue
    return Held(sum(" worker std" in name for name in threads), len(workers()), pipes)


@pytest.mark.timeout(300)
def test_thirty_cycles_of_reader_and_writer_leave_no_thread_process_descriptor_or_file(tmp_path: Path) -> None:
    journal = tmp_path / "raised"

    def raise_thirty_times(record: Any) -> bytes:
        raised = len(journal.read_bytes()) if journal.exists() else 0
        if raised < CYCLES:
            with journal.open("ab") as file:
                file.write(b"x")
            raise RuntimeError("once more")
        return json.dumps(record).encode()

    gateway = get_gateway()
    assert gateway is not None
    eventually(lambda: held().workers == 0, "the job before this one is gone")
    before, files = held(), set(os.listdir(tempfile.gettempdir()))
    with pipe(100) as it:
        env = environment(restarts=CYCLES + 1)
        schema = PubSubSerializationSchema.payload(raise_thirty_times)
        sink = PubSubSink.builder().topic(TopicDestination("p", "output")).serializer(schema)
        stream = env.from_source(it.source(), WatermarkStrategy.no_watermarks(), "input")
        stream.sink_to(sink.emulator_endpoint(it.emulator.endpoint).build())
        with running(env) as job:
            job.wait_until(it.all_acked, "everything is acknowledged")
            assert len(journal.read_bytes()) == CYCLES
            assert len(workers("reader")) == len(workers("writer")) == 1
        it.assert_nothing_lost()
    eventually(lambda: held().within(before), f"the bridge holds no more than {before} again, not {held()}", 20)
    # The mini-cluster has a few folders of its own; what grew with the cycles would be more than those.
    assert len(set(os.listdir(tempfile.gettempdir())) - files) < CYCLES
