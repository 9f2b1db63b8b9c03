"""The clock that is moved by hand."""

from __future__ import annotations

import pytest

from flink_pubsub.emulator import ManualClock


def test_it_stands_still_until_advanced_and_tells_its_listeners() -> None:
    clock = ManualClock(5)
    seen: list[float] = []

    def listener() -> None:
        seen.append(clock())

    clock.on_advance(listener)
    clock.advance(1.5)
    clock.remove_listener(listener)
    clock.advance(1)
    assert (clock(), seen) == (7.5, [6.5])


def test_it_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="cannot go back"):
        ManualClock().advance(-1)
