"""Every example runs as it stands, against an emulator."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

import pytest

from flink_pubsub.emulator import Emulator

_EXAMPLES = Path(__file__).parent.parent.parent / "examples"
_PROJECT = "projects/my-project"
_START = 60.0

pytestmark = [pytest.mark.timeout(120), pytest.mark.feature("EXM-01")]


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator() as running:
        for name in ("orders", "ordered-orders", "orders-eu", "orders-us", "dead-letters"):
            running.create_topic(f"{_PROJECT}/topics/{name}")
        running.create_subscription(
            f"{_PROJECT}/subscriptions/orders", f"{_PROJECT}/topics/orders", enable_message_ordering=True
        )
        yield running


@contextmanager
def _running(name: str, emulator: Emulator) -> Iterator[subprocess.Popen[str]]:
    """An example in a session of its own, which is killed at the end with all that it started."""
    command = [sys.executable, str(_EXAMPLES / f"{name}.py"), "--emulator-endpoint", emulator.endpoint]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _run(name: str, emulator: Emulator) -> None:
    with _running(name, emulator) as process:
        output, _ = process.communicate(timeout=_START)
        assert process.returncode == 0, output


def _orders(emulator: Emulator, topic: str) -> list[int]:
    return sorted(json.loads(message.data)["order"] for message in emulator.published(f"{_PROJECT}/topics/{topic}"))


def test_publish_publishes_orders_with_their_region(emulator: Emulator) -> None:
    _run("publish", emulator)

    assert _orders(emulator, "orders") == list(range(10))
    regions = {message.attributes["region"] for message in emulator.published(f"{_PROJECT}/topics/orders")}
    assert regions == {"eu", "us"}


def test_topic_per_record_publishes_each_order_to_its_region(emulator: Emulator) -> None:
    _run("topic_per_record", emulator)

    assert _orders(emulator, "orders-eu") == [0, 2, 4, 6, 8]
    assert _orders(emulator, "orders-us") == [1, 3, 5, 7, 9]


def test_dead_letters_keeps_what_cannot_be_parsed_and_what_cannot_be_serialized(emulator: Emulator) -> None:
    _run("dead_letters", emulator)

    assert _orders(emulator, "orders") == [1, 4]
    kept = {m.attributes["dlq-connector"]: m for m in emulator.published(f"{_PROJECT}/topics/dead-letters")}
    assert set(kept) == {"parser", "pubsub"}
    assert kept["parser"].data == b'{"order": 3'
    assert "worth less than nothing" in kept["pubsub"].attributes["dlq-error"]


def test_consume_prints_orders_and_acknowledges_them(emulator: Emulator) -> None:
    for number in range(3):
        emulator.publish(f"{_PROJECT}/topics/orders", json.dumps({"order": number}).encode())

    with _running("consume", emulator) as process:
        assert process.stdout is not None
        printed = list(islice((line.strip() for line in process.stdout if line.startswith("{")), 3))
        emulator.wait_until(lambda: emulator.counts(f"{_PROJECT}/subscriptions/orders").acked == 3, timeout=_START)

    assert printed == ["{'order': 0}", "{'order': 1}", "{'order': 2}"]


def test_ordered_copies_messages_in_the_order_of_their_key(emulator: Emulator) -> None:
    published = [(f"customer-{number % 3}", str(number).encode()) for number in range(60)]
    for key, data in published:
        emulator.publish(f"{_PROJECT}/topics/orders", data, ordering_key=key)

    with _running("ordered", emulator):
        topic = f"{_PROJECT}/topics/ordered-orders"
        emulator.wait_until(lambda: emulator.published_count(topic) == 60, timeout=_START)

    for key in ("customer-0", "customer-1", "customer-2"):
        copied = [message.data for message in emulator.published(topic) if message.ordering_key == key]
        assert copied == [data for their_key, data in published if their_key == key]
