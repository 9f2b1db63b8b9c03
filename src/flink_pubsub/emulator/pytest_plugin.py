"""A pytest fixture: `pytest_plugins = ["flink_pubsub.emulator.pytest_plugin"]` in a conftest gives `pubsub_emulator`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flink_pubsub.emulator.emulator import Emulator


@pytest.fixture
def pubsub_emulator() -> Iterator[Emulator]:
    """An emulator of its own for each test."""
    with Emulator() as emulator:
        yield emulator
