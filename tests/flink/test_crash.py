"""The whole JVM is killed: the workers notice, give everything back and go."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from flink_pubsub.emulator import Emulator
from flink_pubsub.wire.pubsub_pb2 import PubsubMessage
from tests.flink.jobs import PATIENCE, eventually
from tests.flink.pubsub_jobs import IN_TOPIC, SUBSCRIPTION

HELD = 5000


def descendants(process: psutil.Process, name: str) -> list[psutil.Process]:
    return [p for p in process.children(recursive=True) if name in " ".join(p.cmdline())]


@pytest.mark.feature("BEY-03")
@pytest.mark.feature("SRC-14")
def test_after_a_killed_jvm_no_worker_is_left_and_everything_is_redelivered_at_once(tmp_path: Path) -> None:
    with Emulator() as emulator:
        emulator.create_topic(IN_TOPIC)
        emulator.create_subscription(SUBSCRIPTION, IN_TOPIC, ack_deadline_seconds=600)
        for first in range(0, HELD, 1000):
            emulator.publish_all(IN_TOPIC, [PubsubMessage(data=b"%d" % n) for n in range(first, first + 1000)])
        with (tmp_path / "out").open("wb") as out:
            command = [sys.executable, "-m", "tests.flink.holding_job", emulator.endpoint]
            # PyFlink sets this variable in a process that has run a job with Python functions.
            env = {name: value for name, value in os.environ.items() if name != "PYFLINK_GATEWAY_DISABLED"}
            job = subprocess.Popen(command, stdout=out, stderr=out, cwd=Path(__file__).parents[2], env=env)
        try:
            emulator.wait_until(lambda: emulator.counts(SUBSCRIPTION).outstanding == HELD, PATIENCE)
            client = psutil.Process(job.pid)
            [java] = descendants(client, "PythonGatewayServer")
            held_by = descendants(java, "flink_pubsub.bridge")
            assert held_by
            killed = time.monotonic()
            java.kill()
            eventually(lambda: not any(worker.is_running() for worker in held_by), "the workers are gone", 5)
            assert emulator.counts(SUBSCRIPTION).nacks == HELD
            assert emulator.counts(SUBSCRIPTION).backlog == HELD
            assert time.monotonic() - killed < 5
        finally:
            for process in psutil.Process(job.pid).children(recursive=True):
                process.kill()
            job.kill()
            job.wait(PATIENCE)
