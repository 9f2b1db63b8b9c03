"""The reader in real jobs: failure policies, checkpoints that do not come, budgets, blocked jobs, and metrics over REST."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import cloudpickle
import pytest
from pyflink.common import Types, WatermarkStrategy
from pyflink.datastream.formats.json import JsonRowDeserializationSchema
from pyflink.java_gateway import get_gateway

from flink_pubsub import (
    DeserializationFailurePolicy,
    OrderingMode,
    PubSubDeserializationSchema,
    PubSubSerializationSchema,
    PubSubSink,
    TopicDestination,
)
from flink_pubsub.emulator import Emulator
from tests.bridge_connectors import CollectingSink, CountingSource
from tests.flink.jobs import JavaObject, bridge_source, environment, eventually, failure_of, running, worker_spec, workers
from tests.flink.reader_jobs import LETTERS, OUT_TOPIC, PATH, arrived, emulator_of_a_pipe, publish, source, to_output

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with emulator_of_a_pipe() as emulator:
        yield emulator


@pytest.mark.feature("SRC-24")
@pytest.mark.feature("SRC-30")
def test_drop_goes_on_and_acknowledges_what_cannot_be_decoded(emulator: Emulator) -> None:
    publish(emulator, b"1", b"two", b"3")
    env = environment()
    to_output(
        emulator, env, source(emulator, PubSubDeserializationSchema.payload(json.loads), DeserializationFailurePolicy.DROP)
    )
    with running(env) as job:
        job.wait_until(lambda: emulator.counts(PATH).acked == 3, "all three are acknowledged")
    assert sorted(arrived(emulator)) == [1, 3]


@pytest.mark.feature("SRC-24")
@pytest.mark.feature("SRC-22")
@pytest.mark.parametrize("decoded_in", ["worker", "jvm"])
def test_nack_sends_what_cannot_be_decoded_to_the_dead_letter_topic_and_keeps_the_order_of_its_key(
    emulator: Emulator, decoded_in: str
) -> None:
    numbers = [json.dumps({"n": n}).encode() for n in range(20)]
    publish(emulator, *numbers[:3], b"{broken", *numbers[3:], key="k")
    row = Types.ROW_NAMED(["n"], [Types.LONG()])
    schema = PubSubDeserializationSchema.payload(
        json.loads if decoded_in == "worker" else JsonRowDeserializationSchema.builder().type_info(row).build()
    )
    env = environment()
    built = source(emulator, schema, DeserializationFailurePolicy.NACK, OrderingMode.PER_KEY)
    stream = env.from_source(built, WatermarkStrategy.no_watermarks(), "input")
    if decoded_in == "jvm":
        stream = stream.map(lambda record: {"n": record["n"]})
    serializer = PubSubSerializationSchema.payload(lambda record: json.dumps(record["n"]).encode())
    sink = PubSubSink.builder().topic(TopicDestination("p", "output")).serializer(serializer)
    stream.sink_to(sink.emulator_endpoint(emulator.endpoint).build())
    with running(env) as job:
        job.wait_until(lambda: emulator.published_count(OUT_TOPIC) > 3, "something behind the broken message arrives")
        assert [letter.data for letter in emulator.published(LETTERS)] == [b"{broken"], "it did not overtake"
        job.wait_until(lambda: emulator.published_count(OUT_TOPIC) == 20, "everything else arrives")
        job.wait_until(lambda: job.metrics("input").get("numRecordsInErrors") == "5", "each attempt is counted")
        job.wait_until(lambda: int(job.metrics("input").get("messagesNacked", 0)) >= 5, "so is each return")
    assert arrived(emulator) == list(range(20))


@pytest.mark.feature("SRC-16")
def test_a_job_without_checkpoints_fails_naming_the_setting(emulator: Emulator) -> None:
    publish(emulator, b"1")
    env = environment(checkpoint_millis=None)
    schema = PubSubDeserializationSchema.payload(json.loads)
    built = source(emulator, schema, first_checkpoint_timeout=timedelta(seconds=1))
    env.from_source(built, WatermarkStrategy.no_watermarks(), "input").print()
    message = failure_of(env)
    assert "execution.checkpointing.interval" in message
    assert "first_checkpoint_timeout" in message


@pytest.mark.feature("SRC-18")
def test_a_service_that_confirms_nothing_fails_the_job_naming_the_option(emulator: Emulator) -> None:
    emulator.stop_answering("Acknowledge")
    publish(emulator, b"1")
    env = environment()
    schema = PubSubDeserializationSchema.payload(json.loads)
    built = source(emulator, schema, await_ack_confirmation=timedelta(seconds=1))
    env.from_source(built, WatermarkStrategy.no_watermarks(), "input").print()
    message = failure_of(env)
    assert "await_ack_confirmation" in message
    assert "did not confirm 1 acknowledgements" in message


@pytest.mark.feature("SRC-18")
def test_confirmed_checkpoints_go_on(emulator: Emulator) -> None:
    env = environment()
    schema = PubSubDeserializationSchema.payload(json.loads)
    to_output(emulator, env, source(emulator, schema, await_ack_confirmation=timedelta(seconds=30)))
    with running(env) as job:
        for n in range(3):
            publish(emulator, json.dumps(n).encode())
            job.wait_until(lambda n=n: emulator.counts(PATH).acked == n + 1, f"message {n} is acknowledged")  # type: ignore[misc]
    assert arrived(emulator) == [0, 1, 2]


@pytest.mark.feature("SRC-10")
@pytest.mark.feature("SRC-27")
@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (lambda emulator: publish(emulator, b"1" * 30_000), "subscriber_buffer_max_bytes"),
        (lambda emulator: emulator.delete_subscription(PATH), "NOT_FOUND"),
        (lambda emulator: emulator.deny("StreamingPull", PATH), "PERMISSION_DENIED"),
        (lambda emulator: emulator.detach_subscription(PATH), "FAILED_PRECONDITION"),
    ],
    ids=["too large", "deleted", "denied", "detached"],
)
def test_a_failure_reaches_the_coordinator_while_downstream_is_blocked(
    emulator: Emulator, cause: Callable[[Emulator], None], said: str
) -> None:
    publish(emulator, *(str(n).encode() for n in range(100)))
    emulator.stop_answering("Publish")
    env = environment()
    schema = PubSubDeserializationSchema.payload(json.loads)
    built = source(emulator, schema, subscriber_buffer_max_bytes=20_000, flow_control_max_outstanding_element_count=200)
    to_output(emulator, env, built, cap=5)
    with running(env) as job:
        job.wait_until(lambda: emulator.calls("Publish") > 0 and len(workers("reader")) == 1, "the sink publishes")
        job.wait_until(lambda: job.metrics("input").get("fetcherBufferedMessages") == "100", "the job holds everything")
        cause(emulator)
        eventually(lambda: not job.alive, "the job has failed")
        message = job.failure()
    assert PATH in message
    assert said in message


@pytest.mark.feature("SRC-25")
def test_a_message_that_downstream_fails_on_is_given_back_before_the_reader_closes(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    bridge = get_gateway().jvm.io.github.flinkpubsub.bridge
    longs = get_gateway().jvm.org.apache.flink.api.common.typeinfo.Types.LONG.createSerializer(None)
    sink = bridge.PythonSink(
        cloudpickle.dumps(CollectingSink(str(tmp_path / "out"))), worker_spec(), bridge.SerializerEncoder(longs), None
    )
    env = environment()
    stream = env.from_source(bridge_source(CountingSource(journal=str(journal))), WatermarkStrategy.no_watermarks(), "count")
    stream.sink_to(JavaObject(sink))
    assert "ClassCastException" in failure_of(env)
    said = journal.read_text().splitlines()
    assert said.index("failed s0 0 True") < said.index("close")
