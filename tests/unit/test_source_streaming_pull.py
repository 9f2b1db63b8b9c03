"""A streaming-pull connection against a server that follows a script."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence

import grpc
import pytest

from flink_pubsub.core.chunks import Delivery
from flink_pubsub.rpc import streaming_pull
from flink_pubsub.rpc.status import Status
from flink_pubsub.rpc.streaming_pull import Limits, StreamingPull, Timing
from flink_pubsub.worker.decoding import Payload, RawDecoding
from tests.unit.source_support import WAIT, ScriptedServer, response

SUBSCRIPTION = "projects/project/subscriptions/orders"
FAST = Timing(backoff=0.001, longest_backoff=0.01)


class Receiver:
    """Takes responses, as long as its gate is open."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.at_gate: queue.Queue[None] = queue.Queue()
        self.full = False
        self.takes_all = True
        self.rests: queue.Queue[bool] = queue.Queue()
        self.refusals: queue.Queue[list[str]] = queue.Queue()
        self.deadline = 10
        self.responses: queue.Queue[tuple[list[str], int]] = queue.Queue()
        self.statuses: queue.Queue[Status] = queue.Queue()
        self.errors: queue.Queue[Exception] = queue.Queue()
        self.poison: Exception | None = None

    def wait_to_open(self, rested: bool) -> None:
        self.rests.put(rested)

    def opened(self) -> None: ...

    def wait_for_room(self, seconds: float) -> bool:
        assert seconds == 5
        self.at_gate.put(None)
        assert self.gate.wait(WAIT)
        return not self.full

    def stream_deadline(self) -> int:
        return self.deadline

    def parse(self, response: bytes) -> Delivery[Payload]:
        return RawDecoding().take(response)

    def received(self, delivery: Delivery[Payload], deadline: int, waited: float) -> bool:
        if self.poison is not None:
            raise self.poison
        self.responses.put((delivery.ack_ids, deadline))
        return self.takes_all

    def refused(self, deliveries: Sequence[Delivery[Payload]]) -> None:
        self.full, self.takes_all = False, True
        self.refusals.put([ack_id for delivery in deliveries for ack_id in delivery.ack_ids])

    def ended(self, status: Status) -> None:
        self.statuses.put(status)

    def broke(self, error: Exception) -> None:
        self.errors.put(error)

    def next(self) -> list[str]:
        return self.responses.get(timeout=WAIT)[0]


class Setting:
    """A server, a receiver, and a connection between them."""

    def __init__(self, server: ScriptedServer, timing: Timing = FAST) -> None:
        self.server = server
        self.receiver = Receiver()
        self.channel = server.channel()
        self.connection = StreamingPull(self.channel, SUBSCRIPTION, Limits(500, 9000), self.receiver, timing)
        self.connection.start()

    def close(self) -> None:
        self.receiver.gate.set()
        self.connection.stop()
        assert self.connection.join(WAIT)
        self.channel.close()


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


@pytest.fixture
def setting(server: ScriptedServer) -> Iterator[Setting]:
    setting = Setting(server)
    yield setting
    setting.close()


@pytest.mark.feature("SRC-09")
def test_the_first_request_names_the_subscription_the_client_and_the_limits(setting: Setting) -> None:
    stream = setting.server.stream()
    first = stream.first
    assert (first.subscription, first.protocol_version, first.stream_ack_deadline_seconds) == (SUBSCRIPTION, 1, 10)
    assert (first.max_outstanding_messages, first.max_outstanding_bytes) == (500, 9000)
    assert first.client_id
    assert stream.metadata["x-goog-request-params"] == f"subscription={SUBSCRIPTION}"


@pytest.mark.feature("SRC-27")
@pytest.mark.parametrize(
    "code",
    [
        grpc.StatusCode.OK,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNKNOWN,
    ],
)
def test_a_stream_that_may_come_back_is_opened_again_by_the_same_client(setting: Setting, code: grpc.StatusCode) -> None:
    one = setting.server.stream()
    one.send(response("a"))
    assert setting.receiver.next() == ["ack-a"]
    one.end(code, "later")
    two = setting.server.stream()
    two.send(response("b"))
    assert setting.receiver.next() == ["ack-b"]
    assert two.first == one.first
    assert setting.receiver.statuses.empty()


@pytest.mark.feature("SRC-27")
@pytest.mark.parametrize(
    "code",
    [
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
    ],
)
def test_a_permanent_status_is_reported_once_and_ends_the_connection(setting: Setting, code: grpc.StatusCode) -> None:
    setting.server.stream().end(code, "no way")
    assert setting.receiver.statuses.get(timeout=WAIT) == Status(code, "no way")
    assert setting.connection.join(WAIT)
    assert setting.server.streams.empty()


def test_pings_are_sent_and_a_stream_whose_server_stops_answering_them_is_reopened(server: ScriptedServer) -> None:
    setting = Setting(server, Timing(ping=0.02, liveness=0.3, backoff=0.001))
    one = server.stream()
    ping = one.request()
    assert ping is not None
    assert ping.ByteSize() == 0
    one.send(response(empty=True))
    two = server.stream()
    assert two.first.client_id == one.first.client_id
    setting.close()


def test_a_server_that_never_answers_pings_keeps_its_stream(server: ScriptedServer) -> None:
    setting = Setting(server, Timing(ping=0.01, liveness=0.01))
    stream = server.stream()
    for _ in range(20):
        assert stream.request() is not None
    stream.send(response("a"))
    assert setting.receiver.next() == ["ack-a"]
    assert server.streams.empty()
    setting.close()


def test_a_changed_deadline_is_told_to_the_server_without_passing_for_a_ping(server: ScriptedServer) -> None:
    setting = Setting(server, Timing(ping=0.05))
    stream = server.stream()
    setting.receiver.deadline = 60
    requests = [stream.request() for _ in range(4)]
    deadlines = [each.stream_ack_deadline_seconds for each in requests if each is not None]
    assert deadlines.count(60) == 1
    assert deadlines.count(0) == 3
    assert all(not each.subscription and not each.client_id and not each.protocol_version for each in requests if each)
    stream.send(response("a"))
    assert setting.receiver.responses.get(timeout=WAIT) == (["ack-a"], 10)
    setting.close()


@pytest.mark.feature("SRC-09")
def test_nothing_is_read_while_the_receiver_has_no_room(setting: Setting) -> None:
    stream = setting.server.stream()
    setting.receiver.at_gate.get(timeout=WAIT)
    setting.receiver.gate.clear()
    stream.send(response("a"), response("b"))
    assert setting.receiver.next() == ["ack-a"]
    setting.receiver.at_gate.get(timeout=WAIT)
    assert setting.receiver.responses.empty()
    setting.receiver.gate.set()
    assert setting.receiver.next() == ["ack-b"]


@pytest.mark.feature("BEY-02")
@pytest.mark.parametrize("within", ["waiting", "taking"])
def test_a_stream_that_cannot_be_read_for_half_a_deadline_ends_and_what_it_still_brings_is_refused(
    setting: Setting, within: str
) -> None:
    stream = setting.server.stream()
    setting.receiver.at_gate.get(timeout=WAIT)
    setting.receiver.full, setting.receiver.takes_all = within == "waiting", within == "waiting"
    stream.send(response("a"))
    assert setting.receiver.next() == ["ack-a"]
    assert stream.request() is None
    stream.send(response("b"), response("c"))
    stream.end()
    assert setting.receiver.refusals.get(timeout=WAIT) == ["ack-b", "ack-c"]
    assert [setting.receiver.rests.get(timeout=WAIT) for _ in range(2)] == [False, True]
    two = setting.server.stream()
    assert two.first.client_id == stream.first.client_id
    two.send(response("b"))
    assert setting.receiver.next() == ["ack-b"]


@pytest.mark.feature("BEY-02")
def test_a_server_that_does_not_end_such_a_stream_is_left(setting: Setting) -> None:
    stream = setting.server.stream()
    setting.receiver.at_gate.get(timeout=WAIT)
    setting.receiver.full = True
    stream.send(response("a"))
    assert setting.receiver.next() == ["ack-a"]
    assert setting.receiver.refusals.get(timeout=WAIT) == []
    setting.server.stream().send(response("b"))
    assert setting.receiver.next() == ["ack-b"]


@pytest.mark.feature("BEY-02")
def test_a_server_that_goes_on_sending_on_such_a_stream_is_cut_off(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming_pull, "LINGER_SECONDS", WAIT)
    monkeypatch.setattr(streaming_pull, "_MOST_REFUSED", 3 * len(response("x")) - 1)
    stream = setting.server.stream()
    setting.receiver.at_gate.get(timeout=WAIT)
    setting.receiver.full = True
    stream.send(response("a"))
    assert setting.receiver.next() == ["ack-a"]
    assert stream.request() is None
    stream.send(*(response("x") for _ in range(1000)))
    refused = setting.receiver.refusals.get(timeout=WAIT / 2)
    assert 3 <= len(refused) < 1000
    assert setting.server.stream().first.client_id == stream.first.client_id


@pytest.mark.feature("SRC-27")
def test_a_final_status_at_the_end_of_such_a_stream_is_reported(setting: Setting) -> None:
    stream = setting.server.stream()
    setting.receiver.at_gate.get(timeout=WAIT)
    setting.receiver.full = True
    stream.send(response("a"))
    assert stream.request() is None
    stream.end(grpc.StatusCode.NOT_FOUND, "gone")
    assert setting.receiver.statuses.get(timeout=WAIT) == Status(grpc.StatusCode.NOT_FOUND, "gone")
    assert setting.connection.join(WAIT)


def test_a_silent_stream_is_not_reopened_while_nobody_reads_it(server: ScriptedServer) -> None:
    setting = Setting(server, Timing(ping=0.02, liveness=0.05))
    stream = server.stream()
    setting.receiver.at_gate.get(timeout=WAIT)
    assert stream.request() is not None
    setting.receiver.gate.clear()
    stream.send(response(empty=True))
    setting.receiver.at_gate.get(timeout=WAIT)
    for _ in range(10):
        assert stream.request() is not None
    assert server.streams.empty()
    setting.close()


@pytest.mark.feature("SRC-14")
def test_finishing_ends_the_requests_and_hands_over_what_the_server_still_sends(setting: Setting) -> None:
    stream = setting.server.stream()
    setting.connection.finish()
    assert stream.request() is None
    stream.send(response("late"))
    stream.end()
    assert setting.receiver.next() == ["ack-late"]
    assert setting.connection.join(WAIT)
    assert setting.server.streams.empty()


@pytest.mark.feature("SRC-14")
def test_stopping_ends_a_stream_that_the_server_holds_open_and_reports_nothing(setting: Setting) -> None:
    setting.server.stream()
    setting.connection.stop()
    assert setting.connection.join(WAIT)
    assert setting.receiver.statuses.empty()
    assert setting.receiver.errors.empty()


def test_stopping_ends_the_wait_for_a_server_that_is_not_there() -> None:
    receiver = Receiver()
    channel = grpc.insecure_channel("127.0.0.1:1")
    connection = StreamingPull(channel, SUBSCRIPTION, Limits(1, 1), receiver, Timing(backoff=60))
    connection.start()
    connection.stop()
    assert connection.join(WAIT)
    channel.close()


def test_a_receiver_that_breaks_is_told_so_and_the_connection_ends(setting: Setting) -> None:
    setting.receiver.poison = ValueError("broken")
    setting.server.stream().send(response("a"))
    assert setting.receiver.errors.get(timeout=WAIT) is setting.receiver.poison
    assert setting.connection.join(WAIT)
