"""A writer against a Publish service that does as it is told."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import cloudpickle
import grpc
import pytest

from flink_pubsub.bridge.connector import SinkWriter, WriterSettings
from flink_pubsub.destinations import TopicDestination
from flink_pubsub.errors import ConfigurationError, DestinationError, PublishError
from flink_pubsub.messages import PubsubMessage
from flink_pubsub.options import Connection, PubSubPublisherOptions
from flink_pubsub.schemas import JvmPayloadEncoding, PubSubSerializationSchema
from flink_pubsub.sink import SinkSpec
from flink_pubsub.wire import pubsub_pb2 as wire
from flink_pubsub.worker.sink import PubSubSinkConnector
from tests.growth import GRPC_THREADS, assert_settles_to, footprint
from tests.unit.sink_support import Listener, PublishServer, Verdict, entries, write_batch

TOPIC = TopicDestination("p", "orders")
PATH = "projects/p/topics/orders"
LONG = timedelta(hours=1)
QUICK = {"retry_initial_delay": timedelta(0), "batch_delay_threshold": timedelta(milliseconds=1)}


@pytest.fixture
def server() -> Iterator[PublishServer]:
    with PublishServer() as running:
        yield running


@pytest.fixture
def listener() -> Listener:
    return Listener()


class Opened:
    """A writer that is closed at the end of the test."""

    def __init__(self, server: PublishServer, listener: Listener, options: dict[str, Any], **spec: Any) -> None:
        spec.setdefault("topic", None if "destination_resolver" in spec else TOPIC)
        spec.setdefault("destination_resolver", None)
        spec.setdefault("serializer", PubSubSerializationSchema.payload(bytes))
        spec.setdefault("element_coding", "bytes")
        spec.setdefault("connection", Connection(emulator_endpoint=server.endpoint))
        connector = PubSubSinkConnector(SinkSpec(options=PubSubPublisherOptions(**options), **spec))
        self._writer = pickle.loads(cloudpickle.dumps(connector)).open_writer(listener)

    def __enter__(self) -> SinkWriter:
        writer: SinkWriter = self._writer
        return writer

    def __exit__(self, *exception: object) -> None:
        self._writer.close(10)


def gauges(writer: SinkWriter) -> tuple[int, int]:
    """Messages and bytes in flight."""
    values = writer.metrics().gauges
    return values["inFlightMessages"], values["inFlightBytes"]


def payloads(server: PublishServer, topic: str = PATH) -> list[bytes]:
    return [message.data for message in server.published.get(topic, ())]


@pytest.mark.feature("SNK-03")
@pytest.mark.feature("SNK-18")
def test_everything_written_is_published_before_a_flush_is_answered(server: PublishServer, listener: Listener) -> None:
    written = [b"%d" % number for number in range(2500)]
    with Opened(server, listener, {"batch_delay_threshold": LONG, "batch_request_byte_threshold": 10**6}) as writer:
        for start in range(0, 2500, 500):
            writer.write(write_batch(written[start : start + 500]))
        writer.flush(1, end_of_input=True)
        listener.wait_for_flush(1)
        assert sorted(payloads(server)) == sorted(written)
        assert listener.records == 2500
        assert max(len(request.messages) for request in server.requests) == 100


@pytest.mark.feature("SNK-03")
def test_a_flush_waits_for_the_answers(server: PublishServer, listener: Listener) -> None:
    server.gate.clear()
    with Opened(server, listener, {}) as writer:
        writer.write(write_batch([b"a"]))
        writer.flush(1, end_of_input=False)
        assert server.arrived.acquire(timeout=30)
        assert listener.events == []
        server.gate.set()
        listener.wait_for_flush(1)
        assert listener.events == [("settled", 1), ("flushed", 1)]


@pytest.mark.feature("SNK-03")
def test_several_flushes_may_be_outstanding(server: PublishServer, listener: Listener) -> None:
    server.gate.clear()
    with Opened(server, listener, {}) as writer:
        writer.write(write_batch([b"a"]))
        writer.flush(1, end_of_input=False)
        writer.write(write_batch([b"b"]))
        writer.flush(2, end_of_input=False)
        server.gate.set()
        listener.wait_for_flush(2)
        assert [value for name, value in listener.events if name == "flushed"] == [1, 2]


@pytest.mark.feature("SNK-03")
def test_a_flush_of_nothing_is_answered_at_once(server: PublishServer, listener: Listener) -> None:
    with Opened(server, listener, {}) as writer:
        writer.flush(1, end_of_input=False)
        listener.wait_for_flush(1)
        assert listener.events == [("flushed", 1)]


@pytest.mark.feature("SNK-04")
def test_a_partial_batch_goes_by_itself_after_its_delay(server: PublishServer, listener: Listener) -> None:
    with Opened(server, listener, {"batch_delay_threshold": timedelta(milliseconds=5)}) as writer:
        writer.write(write_batch([b"a"]))
        listener.wait(lambda: listener.records == 1)
        assert payloads(server) == [b"a"]


@pytest.mark.feature("SNK-06")
def test_send_now_lets_a_partial_batch_go(server: PublishServer, listener: Listener) -> None:
    with Opened(server, listener, {"batch_delay_threshold": LONG}) as writer:
        writer.write(write_batch([b"a"]))
        writer.send_now()
        listener.wait(lambda: listener.records == 1)


def test_requests_name_their_topic_for_routing_and_carry_a_deadline(server: PublishServer, listener: Listener) -> None:
    with Opened(
        server, listener, {"retry_initial_rpc_timeout": timedelta(seconds=50)}, topic=TopicDestination("p", "a%b")
    ) as writer:
        writer.write(write_batch([b"a"]))
        writer.flush(1, end_of_input=False)
        listener.wait_for_flush(1)
    assert server.metadata[0]["x-goog-request-params"] == "topic=projects/p/topics/a%25b"
    assert 40 < server.timeouts[0] < 51


@pytest.mark.feature("SNK-06")
def test_the_jvm_is_told_the_caps_and_whether_times_are_wanted(server: PublishServer, listener: Listener) -> None:
    options = {"max_in_flight_messages": 7, "max_in_flight_bytes": 5_000, "shutdown_timeout": timedelta(seconds=3)}
    with Opened(server, listener, options) as writer:
        assert writer.settings == WriterSettings(8, 7, 5_000, timestamps=False)
    with Opened(server, listener, {}, destination_resolver=lambda element, context: TOPIC) as writer:
        assert writer.settings == WriterSettings(35, 1000, 64 * 1024 * 1024, timestamps=True)


@pytest.mark.feature("SNK-02")
def test_entries_made_by_the_jvm_are_published_as_they_are(server: PublishServer, listener: Listener) -> None:
    made = entries([wire.PubsubMessage(data=b"x" * size) for size in range(300)])
    spec = {"serializer": JvmPayloadEncoding(None), "element_coding": "none", "payload_coding": "message"}
    with Opened(server, listener, {}, **spec) as writer:
        writer.write(write_batch(payloads=made))
        writer.flush(1, end_of_input=False)
        listener.wait_for_flush(1)
    assert sorted(map(len, payloads(server))) == list(range(300))
    assert (listener.records, listener.size) == (300, sum(map(len, made)))
    assert max(sum(map(len, entries(request.messages))) for request in server.requests if len(request.messages) > 1) <= 1000


@pytest.mark.feature("SNK-06")
def test_credit_in_flight_is_that_of_the_messages_and_comes_back_whole(server: PublishServer, listener: Listener) -> None:
    serializer = PubSubSerializationSchema.payload(lambda element: b"x" * int(element))
    elements = [b"1000", b"0", b"1"]
    charged, message_bytes = (
        sum(map(len, elements)),
        len(b"".join(entries([wire.PubsubMessage(data=b"x" * n) for n in (1000, 0, 1)]))),
    )
    server.gate.clear()
    with Opened(server, listener, {}, serializer=serializer) as writer:
        writer.write(write_batch(elements))
        assert (listener.records, listener.size) == (0, charged - message_bytes)
        assert gauges(writer) == (3, message_bytes)
        server.gate.set()
        writer.flush(1, end_of_input=False)
        listener.wait_for_flush(1)
        assert (listener.records, listener.size) == (3, charged)
        assert gauges(writer) == (0, 0)


@pytest.mark.feature("SNK-02")
@pytest.mark.feature("SNK-17")
def test_skipped_records_are_counted_and_settled(server: PublishServer, listener: Listener) -> None:
    class Odd(PubSubSerializationSchema):
        def serialize(self, element: Any) -> PubsubMessage | None:
            return PubsubMessage(element) if int(element) % 2 else None

    with Opened(server, listener, {}, serializer=Odd()) as writer:
        writer.write(write_batch([b"1", b"2", b"3"]))
        writer.write(write_batch([b"4"]))
        writer.flush(1, end_of_input=False)
        listener.wait_for_flush(1)
        assert sorted(payloads(server)) == [b"1", b"3"]
        assert (listener.records, listener.size) == (4, 4)
        counters = writer.metrics().counters
        assert (counters["numRecordsSend"], counters["numBytesSend"], counters["recordsSkipped"]) == (2, 10, 2)
        assert counters["numRecordsSendErrors"] == 0


@pytest.mark.feature("SNK-01")
def test_each_record_goes_to_the_topic_its_resolver_names(server: PublishServer, listener: Listener) -> None:
    def resolve(element: Any, context: Any) -> TopicDestination:
        return TopicDestination("p", f"topic-{element[:1].decode()}")

    with Opened(server, listener, {}, destination_resolver=resolve) as writer:
        writer.write(write_batch([b"a1", b"b1", b"a2"]))
        writer.flush(1, end_of_input=False)
        listener.wait_for_flush(1)
    assert payloads(server, "projects/p/topics/topic-a") == [b"a1", b"a2"]
    assert payloads(server, "projects/p/topics/topic-b") == [b"b1"]


@pytest.mark.feature("SNK-01")
def test_a_resolver_that_returns_none_fails_the_write(server: PublishServer, listener: Listener) -> None:
    with (
        Opened(server, listener, {}, destination_resolver=lambda element, context: None) as writer,
        pytest.raises(DestinationError, match="returned None"),
    ):
        writer.write(write_batch([b"a"]))
    assert server.requests == []


@pytest.mark.feature("SNK-07")
def test_a_keyed_message_without_ordering_fails_the_write(server: PublishServer, listener: Listener) -> None:
    serializer = PubSubSerializationSchema.payload(bytes).with_ordering_key(lambda element: "k")
    with (
        Opened(server, listener, {}, serializer=serializer) as writer,
        pytest.raises(ConfigurationError, match="enable_message_ordering"),
    ):
        writer.write(write_batch([b"a"]))
    assert server.requests == []


@pytest.mark.feature("SNK-05")
@pytest.mark.feature("SNK-07")
def test_keys_keep_their_order_though_a_third_of_the_calls_fail_at_first(server: PublishServer, listener: Listener) -> None:
    attempts: dict[bytes, int] = defaultdict(int)

    def verdict(request: wire.PublishRequest) -> Verdict:
        assert len({message.ordering_key for message in request.messages}) == 1
        first = request.messages[0].data
        attempts[first] += 1
        return (grpc.StatusCode.UNAVAILABLE, "later") if int(first) % 3 == 0 and attempts[first] < 3 else None

    server.verdict = verdict
    serializer = PubSubSerializationSchema.payload(bytes).with_ordering_key(lambda element: f"key-{int(element) % 7}")
    options = {**QUICK, "enable_message_ordering": True, "batch_element_count_threshold": 5}
    with Opened(server, listener, options, serializer=serializer) as writer:
        for start in range(0, 1000, 50):
            writer.write(write_batch([b"%d" % number for number in range(start, start + 50)]))
        writer.flush(1, end_of_input=False)
        listener.wait_for_flush(1)
    assert len(payloads(server)) == listener.records == 1000
    by_key: dict[str, list[int]] = defaultdict(list)
    for message in server.published[PATH]:
        by_key[message.ordering_key].append(int(message.data))
    assert by_key == {f"key-{key}": list(range(key, 1000, 7)) for key in range(7)}


@pytest.mark.feature("SNK-05")
@pytest.mark.parametrize(
    "code", ["ABORTED", "CANCELLED", "DEADLINE_EXCEEDED", "INTERNAL", "RESOURCE_EXHAUSTED", "UNKNOWN", "UNAVAILABLE"]
)
def test_a_passing_failure_is_retried(server: PublishServer, listener: Listener, code: str) -> None:
    answers: list[Verdict] = [(grpc.StatusCode[code], "later")]
    server.verdict = lambda request: answers.pop() if answers else None
    with Opened(server, listener, QUICK) as writer:
        writer.write(write_batch([b"a"]))
        writer.flush(1, end_of_input=False)
        listener.wait_for_flush(1)
    assert payloads(server) == [b"a"]
    assert len(server.requests) == 2


@pytest.mark.feature("SNK-19")
@pytest.mark.parametrize(
    "code", ["PERMISSION_DENIED", "FAILED_PRECONDITION", "UNAUTHENTICATED", "OUT_OF_RANGE", "DATA_LOSS", "UNIMPLEMENTED"]
)
def test_a_terminal_failure_fails_the_job_and_nothing_is_settled_after_it(
    server: PublishServer, listener: Listener, code: str
) -> None:
    server.verdict = lambda request: (grpc.StatusCode[code], "not like this")
    with Opened(server, listener, {"batch_delay_threshold": LONG, "batch_request_byte_threshold": 10**6}) as writer:
        writer.write(write_batch([b"secret", b"b"]))
        writer.flush(1, end_of_input=False)
        error = listener.wait_for_failure()
        writer.write(write_batch([b"c"]))
        writer.flush(2, end_of_input=False)
        assert isinstance(error, PublishError)
        assert (error.topic, error.status) == (PATH, code)
        assert str(error) == f"publishing to {PATH} failed: {code}: not like this (after 1 attempt)"
    assert listener.events == [("failed", 0)]


@pytest.mark.feature("SNK-07")
@pytest.mark.feature("SNK-19")
def test_no_later_message_of_a_key_is_published_after_a_terminal_failure(server: PublishServer, listener: Listener) -> None:
    def verdict(request: wire.PublishRequest) -> Verdict:
        return (grpc.StatusCode.PERMISSION_DENIED, "no") if request.messages[0].data == b"2" else None

    server.verdict = verdict
    serializer = PubSubSerializationSchema.payload(bytes).with_ordering_key(lambda element: "k")
    options = {"enable_message_ordering": True, "batch_element_count_threshold": 1}
    with Opened(server, listener, options, serializer=serializer) as writer:
        writer.write(write_batch([b"1", b"2", b"3"]))
        writer.flush(1, end_of_input=False)
        listener.wait_for_failure()
    assert payloads(server) == [b"1"]
    assert ("flushed", 1) not in listener.events


@pytest.mark.feature("SNK-05")
def test_a_spent_budget_fails_the_job_naming_pubsub_the_wait_and_the_last_status(
    server: PublishServer, listener: Listener
) -> None:
    server.verdict = lambda request: (grpc.StatusCode.RESOURCE_EXHAUSTED, "quota")
    with Opened(server, listener, {**QUICK, "retry_max_attempts": 3}) as writer:
        writer.write(write_batch([b"a", b"b"]))
        error = listener.wait_for_failure()
    assert isinstance(error, PublishError)
    assert error.status == "RESOURCE_EXHAUSTED"
    assert "Pub/Sub did not take 2 messages within the retry budget: 3 attempts in" in str(error)
    assert str(error).endswith("the last one ended with RESOURCE_EXHAUSTED: quota")
    assert len(server.requests) == 3


@pytest.mark.feature("SNK-05")
def test_a_service_that_does_not_answer_costs_the_total_timeout(server: PublishServer, listener: Listener) -> None:
    server.gate.clear()
    options = {"retry_total_timeout": timedelta(milliseconds=300), "retry_initial_rpc_timeout": timedelta(milliseconds=100)}
    with Opened(server, listener, {**QUICK, **options}) as writer:
        writer.write(write_batch([b"a"]))
        error = listener.wait_for_failure()
    assert isinstance(error, PublishError)
    assert error.status == "DEADLINE_EXCEEDED"


def test_an_endpoint_where_nobody_listens_costs_the_retry_budget(listener: Listener) -> None:
    with PublishServer() as gone:
        pass
    with Opened(gone, listener, {**QUICK, "retry_max_attempts": 2}) as writer:
        writer.write(write_batch([b"a"]))
        error = listener.wait_for_failure()
    assert isinstance(error, PublishError)
    assert error.status == "UNAVAILABLE"


def test_an_answer_for_fewer_messages_than_were_sent_fails_the_job(server: PublishServer, listener: Listener) -> None:
    server.ids = lambda messages: messages - 1
    with Opened(server, listener, {}) as writer:
        writer.write(write_batch([b"a", b"b"]))
        error = listener.wait_for_failure()
    assert isinstance(error, PublishError)
    assert "1 message ids for 2 messages" in str(error)
    assert listener.records == 0


def test_closing_cancels_what_is_in_flight_and_settles_nothing(server: PublishServer, listener: Listener) -> None:
    server.gate.clear()
    with Opened(server, listener, {}) as writer:
        writer.write(write_batch([b"a"]))
        writer.flush(1, end_of_input=False)
        assert server.arrived.acquire(timeout=30)
        settled = listener.records
    server.gate.set()
    assert listener.records == settled == 0
    assert listener.error is None
    assert listener.events == []


def test_opening_and_closing_leaves_no_thread_and_no_descriptor(server: PublishServer) -> None:
    def cycle() -> None:
        listener = Listener()
        with Opened(server, listener, {"batch_element_count_threshold": 1}) as writer:
            writer.write(write_batch([b"a"] * 20))
            for _ in range(0 if server.gate.is_set() else PublishServer.THREADS):
                assert server.arrived.acquire(timeout=30)
            server.gate.set()
            writer.flush(1, end_of_input=False)
            listener.wait_for_flush(1)
            writer.write(write_batch([b"b"]))

    server.gate.clear()  # so that the first cycle starts all of the service's own threads
    cycle()
    before = footprint()
    for _ in range(30):
        cycle()
    assert_settles_to(before, threads=GRPC_THREADS)
