"""Real jobs, real failures: every message arrives, keys keep their order, and duplicates are where they may be."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from grpc import StatusCode

from tests.flink.jobs import environment, running, workers
from tests.flink.pubsub_jobs import SUBSCRIPTION, pipe

MESSAGES = 50_000

pytestmark = pytest.mark.timeout(300)


@pytest.mark.feature("SRC-15")
@pytest.mark.feature("SNK-03")
def test_a_job_without_failures_delivers_everything_exactly_once() -> None:
    with pipe(MESSAGES) as it:
        env = environment(parallelism=2)
        it.build(env)
        with running(env) as job:
            job.wait_until(it.all_acked, "everything is acknowledged")
        assert sorted(it.arrived()) == list(range(MESSAGES))
        assert it.emulator.counts(SUBSCRIPTION).outstanding == 0


@pytest.mark.feature("SRC-15")
@pytest.mark.feature("SRC-14")
@pytest.mark.feature("SNK-03")
@pytest.mark.parametrize("keyed", [False, True])
def test_a_function_that_raises_once_loses_nothing(keyed: bool, tmp_path: Path) -> None:
    marker = tmp_path / "raised"

    def raise_once(record: dict[str, Any]) -> dict[str, Any]:
        if record["n"] == MESSAGES // 2 and not marker.exists():
            marker.touch()
            raise RuntimeError("raised once")
        return record

    with pipe(MESSAGES, keyed=keyed) as it:
        env = environment(restarts=2)
        it.build(env, raise_once)
        with running(env) as job:
            job.wait_until(it.all_acked, "everything is acknowledged")
        assert marker.exists()
        it.assert_nothing_lost()
        if keyed:
            it.assert_order_per_key()


@pytest.mark.feature("SRC-15")
@pytest.mark.feature("SNK-03")
@pytest.mark.feature("SNK-07")
@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("role", ["reader", "writer"])
def test_a_killed_worker_loses_nothing(role: str, keyed: bool) -> None:
    with pipe(MESSAGES, keyed=keyed) as it:
        env = environment(restarts=2)
        it.build(env)
        with running(env) as job:
            job.wait_until(it.half_arrived, "half has arrived")
            [worker] = workers(role)
            worker.kill()
            job.wait_until(it.all_acked, "everything is acknowledged")
        it.assert_nothing_lost()
        if keyed:
            it.assert_order_per_key()


@pytest.mark.feature("SRC-27")
@pytest.mark.feature("SNK-05")
@pytest.mark.feature("BEY-01")
@pytest.mark.parametrize("keyed", [False, True])
def test_dropped_streams_and_failing_publishes_lose_nothing_and_repeat_nothing(keyed: bool) -> None:
    with pipe(MESSAGES, keyed=keyed) as it:
        it.emulator.fail_rate("Publish", StatusCode.UNAVAILABLE, every=10)
        env = environment()
        it.build(env)
        over, dropped = threading.Event(), []

        def drop_every_second() -> None:
            while not over.wait(1):
                dropped.append(it.emulator.drop_streams())

        dropper = threading.Thread(target=drop_every_second)
        with running(env) as job:
            dropper.start()
            try:
                job.wait_until(it.all_acked, "everything is acknowledged")
            finally:
                over.set()
                dropper.join()
        assert sum(dropped) > 0
        assert sorted(it.arrived()) == list(range(MESSAGES))
        if keyed:
            it.assert_order_per_key()
