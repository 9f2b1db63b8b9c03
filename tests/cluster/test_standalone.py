"""A DataStream job on a standalone cluster with two TaskManagers, submitted as a user submits a Python program."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.cluster.standalone import Cluster, cluster
from tests.flink.jobs import eventually
from tests.flink.pubsub_jobs import OUT_TOPIC, pipe

SETTINGS = {
    "parallelism.default": "2",
    "taskmanager.load-balance.mode": "SLOTS",
    "execution.checkpointing.interval": "200 ms",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "5",
    "restart-strategy.fixed-delay.delay": "0 s",
    "heartbeat.interval": "500 ms",
    "heartbeat.timeout": "5 s",
}


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(tmp_path, task_managers=2, slots=2, settings=SETTINGS) as started:
        yield started


def workers(daemon: psutil.Process) -> list[psutil.Process]:
    return [child for child in daemon.children(recursive=True) if "flink_pubsub.bridge" in child.cmdline()]


@pytest.mark.feature("DEP-03")
@pytest.mark.timeout(240)
def test_a_job_on_two_taskmanagers_loses_nothing_when_one_is_killed(standalone: Cluster) -> None:
    program = str(Path(__file__).with_name("pipe_job.py"))
    with pipe(20_000) as messages:
        run = ("run", "--detached", "--pyClientExecutable", sys.executable, "--python", program)
        standalone.run("flink", *run, messages.emulator.endpoint)
        eventually(lambda: messages.emulator.published_count(OUT_TOPIC) > 0, "messages arrive")
        killed, left = standalone.daemons("taskexecutor")
        assert [len(workers(daemon)) for daemon in (killed, left)] == [2, 2]  # a reader and a writer each
        orphans = workers(killed)
        killed.kill()
        assert not messages.half_arrived()
        eventually(messages.all_acked, "everything is acknowledged")
        messages.assert_nothing_lost()
        assert psutil.wait_procs(orphans, timeout=10)[1] == []
        assert len(workers(left)) == 4
        [job] = standalone.jobs("RUNNING")
        standalone.cancel(job)
        eventually(lambda: not standalone.workers(), "no worker is left")
