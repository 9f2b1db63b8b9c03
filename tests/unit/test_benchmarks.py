"""What `make bench` stands in the JVM's place with still speaks the worker's language; the figures are not judged here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.processes import Process
from benchmarks.worker import bare_acks, checkpoint_acks

SUBSCRIPTION = "projects/bench/subscriptions/any"


@pytest.fixture(name="port")
def load_server(tmp_path: Path) -> Iterator[int]:
    with Process("benchmarks.server", ["--messages-per-response", "100"], tmp_path / "server.log") as server:
        yield int(server.line(20))


def test_a_checkpoint_of_the_bench_is_acknowledged_whole(port: int) -> None:
    assert checkpoint_acks(port, SUBSCRIPTION, messages=5000) > 0


def test_the_bare_acknowledgements_reach_the_server(port: int) -> None:
    assert bare_acks(port, SUBSCRIPTION) > 0
