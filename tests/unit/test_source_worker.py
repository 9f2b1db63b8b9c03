"""The source in a real worker process, with the test in the JVM's place."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from flink_pubsub.bridge.frames import Kind, decode_json
from flink_pubsub.destinations import SubscriptionDestination
from flink_pubsub.emulator import Emulator
from flink_pubsub.options import Connection
from flink_pubsub.schemas import PubSubDeserializationSchema
from flink_pubsub.source import SourceSpec
from flink_pubsub.worker.source import PubSubSourceConnector
from tests.bridge_driver import WorkerDriver
from tests.unit.source_support import eventually

TOPIC = "projects/project/topics/orders"
ORDERS = SubscriptionDestination("project", "orders")


def connector(emulator: Emulator, schema: PubSubDeserializationSchema | None = None) -> PubSubSourceConnector:
    connection = Connection(emulator_endpoint=emulator.endpoint)
    return PubSubSourceConnector(SourceSpec(subscriptions=(ORDERS,), deserializer=schema, connection=connection))


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator() as emulator:
        emulator.create_topic(TOPIC)
        emulator.create_subscription(ORDERS.resource_path, TOPIC, ack_deadline_seconds=600)
        for i in range(50):
            emulator.publish(TOPIC, str(i).encode())
        yield emulator


def assign(worker: WorkerDriver, emulator: Emulator) -> None:
    with WorkerDriver() as planner:
        planner.open(connector(emulator), "planner")
        planner.send_json(Kind.PLAN, state=None)
        splits = planner.expect_json(Kind.PLANNED)["splits"]
    assert [split["owner"] for split in splits] == [0]
    worker.send_json(Kind.ASSIGN, splits=[{"id": split["id"], "data": split["data"]} for split in splits])


@pytest.mark.feature("BEY-03")
def test_a_worker_whose_jvm_is_gone_gives_everything_back_and_exits_within_five_seconds(emulator: Emulator) -> None:
    with WorkerDriver() as worker:
        worker.open(connector(emulator), "reader")
        assert worker.expect_json(Kind.READY)["close_seconds"] == 5
        assign(worker, emulator)
        worker.send(Kind.FETCH)
        worker.expect(Kind.RECORDS)
        emulator.wait_until(lambda: emulator.counts(ORDERS.resource_path).outstanding == 50)
        began = time.monotonic()
        worker.stdin.close()
        assert worker.ended() == 0
        assert time.monotonic() - began < 5
    counts = emulator.counts(ORDERS.resource_path)
    assert (counts.nacks, counts.outstanding, counts.backlog) == (50, 0, 50)


@pytest.mark.feature("BEY-04")
@pytest.mark.feature("SRC-02")
def test_a_schemas_traceback_reaches_the_jvm(emulator: Emulator) -> None:
    def parse(data: bytes) -> object:
        raise ValueError("not an order")

    with WorkerDriver() as worker:
        worker.open(connector(emulator, PubSubDeserializationSchema.payload(parse)), "reader")
        worker.expect(Kind.READY)
        assign(worker, emulator)
        worker.send(Kind.FETCH)
        failed = worker.expect_json(Kind.FAILED)
    assert failed["type"] == "flink_pubsub.errors.DeserializationError"
    assert ORDERS.resource_path in failed["message"]
    assert "ValueError: not an order" in failed["traceback"]
    assert "in parse" in failed["traceback"]


@pytest.mark.feature("SRC-28")
def test_metrics_change_while_nobody_fetches(emulator: Emulator) -> None:
    with WorkerDriver() as worker:
        worker.open(connector(emulator), "reader")
        worker.expect(Kind.READY)
        assign(worker, emulator)

        def buffered() -> bool:
            return bool(decode_json(Kind.METRICS, worker.expect(Kind.METRICS))["gauges"]["bufferedMessages"] == 50)

        eventually(buffered)
