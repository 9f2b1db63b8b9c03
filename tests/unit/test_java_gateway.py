"""The tests' own way to Java finds each class once, on whichever connection it asks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.unit.java import jvm


def test_a_class_is_the_same_on_two_connections() -> None:
    both_ask = jvm().java.util.concurrent.CyclicBarrier(2)

    def of_a_new_object() -> Any:
        jvm().io.github.flinkpubsub.bridge.PythonSplit("s", "")
        getattr(both_ask, "await")(60, jvm().java.util.concurrent.TimeUnit.SECONDS)
        return jvm().io.github.flinkpubsub.bridge.PythonSplit("s", "").getClass()

    with ThreadPoolExecutor(2) as threads:
        first, second = (thread.result(60) for thread in [threads.submit(of_a_new_object) for _ in range(2)])
    assert first.equals(second)
