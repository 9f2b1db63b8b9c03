"""Acknowledgements on their way: chunked, several in flight, retried while the lease lasts, answered once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import grpc
import pytest

from flink_pubsub.rpc import acks
from flink_pubsub.rpc.acks import AckSender
from flink_pubsub.rpc.status import Status
from flink_pubsub.wire.pubsub_pb2 import AcknowledgeRequest, ModifyAckDeadlineRequest
from tests.unit.source_support import WAIT, ScriptedServer, accept, in_turn, refuse

SUBSCRIPTION = "projects/project/subscriptions/orders"


class Pumped:
    """A sender, pumped by the test on a clock that the test moves."""

    def __init__(self, server: ScriptedServer) -> None:
        self.now = 0.0
        self.woken = threading.Event()
        self.channel = server.channel()
        self.refusals: list[tuple[str, Status]] = []
        self.sender = AckSender(self.channel, self.woken.set, lambda: self.now, lambda *refusal: self.refusals.append(refusal))
        self.answers: list[tuple[int, int, bool]] = []

    def answer(self, low: int, high: int, confirmed: bool) -> None:
        self.answers.append((low, high, confirmed))

    def settle(self) -> None:
        """Pumps until everything is answered, moving the clock to each retry."""
        while not self.sender.idle:
            self.woken.clear()
            retry_at = self.sender.pump()
            if retry_at is not None:
                self.now = max(self.now, retry_at)
            elif not self.sender.idle:
                assert self.woken.wait(WAIT)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        server.answers = {"Acknowledge": accept, "ModifyAckDeadline": accept}
        yield server


@pytest.fixture
def pumped(server: ScriptedServer) -> Iterator[Pumped]:
    pumped = Pumped(server)
    yield pumped
    pumped.channel.close()


@pytest.mark.feature("SRC-15")
def test_acknowledgements_are_sent_in_chunks_and_each_is_answered_with_its_range(
    server: ScriptedServer, pumped: Pumped
) -> None:
    ids = [f"{i:0196d}" for i in range(6000)]
    pumped.sender.acknowledge(SUBSCRIPTION, ids, 10, pumped.answer)
    pumped.settle()
    requests = [AcknowledgeRequest.FromString(server.calls.get()[1]) for _ in range(3)]
    assert sorted(ack_id for request in requests for ack_id in request.ack_ids) == ids
    assert {request.subscription for request in requests} == {SUBSCRIPTION}
    assert sorted(pumped.answers) == [(0, 2500, True), (2500, 5000, True), (5000, 6000, True)]


def test_a_deadline_is_set_by_modify_ack_deadline(server: ScriptedServer, pumped: Pumped) -> None:
    pumped.sender.modify(SUBSCRIPTION, ["a", "b"], 0, 10, pumped.answer)
    pumped.settle()
    method, request = server.calls.get()
    assert method == "ModifyAckDeadline"
    assert ModifyAckDeadlineRequest.FromString(request) == ModifyAckDeadlineRequest(
        subscription=SUBSCRIPTION, ack_ids=["a", "b"], ack_deadline_seconds=0
    )


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL, grpc.StatusCode.RESOURCE_EXHAUSTED])
def test_a_failure_that_may_pass_is_tried_again(server: ScriptedServer, pumped: Pumped, code: grpc.StatusCode) -> None:
    server.answers["Acknowledge"] = in_turn([refuse(code), refuse(code), accept])
    pumped.sender.acknowledge(SUBSCRIPTION, ["a"], 10, pumped.answer)
    pumped.settle()
    assert pumped.answers == [(0, 1, True)]
    assert pumped.now == pytest.approx(0.1 + 0.13)


def test_retries_end_with_the_lease(server: ScriptedServer, pumped: Pumped, caplog: pytest.LogCaptureFixture) -> None:
    server.answers["Acknowledge"] = refuse(grpc.StatusCode.UNAVAILABLE, "not now")
    pumped.sender.acknowledge(SUBSCRIPTION, ["a"], 10, pumped.answer)
    with caplog.at_level(logging.WARNING):
        pumped.settle()
    assert pumped.answers == [(0, 1, False)]
    assert 7 < pumped.now < 10
    assert "1 messages of projects/project/subscriptions/orders could not be acknowledged" in caplog.text
    assert "UNAVAILABLE: not now" in caplog.text


def test_a_final_refusal_is_not_tried_again_and_warned_of_once(
    server: ScriptedServer, pumped: Pumped, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers["ModifyAckDeadline"] = refuse(grpc.StatusCode.PERMISSION_DENIED, "no")
    for _ in range(5):
        pumped.sender.modify(SUBSCRIPTION, ["a"], 10, 10, pumped.answer)
    with caplog.at_level(logging.WARNING):
        pumped.settle()
    assert pumped.answers == [(0, 1, False)] * 5
    assert server.calls.qsize() == 5
    assert len(caplog.records) == 1


@pytest.mark.feature("SRC-27")
@pytest.mark.parametrize(
    ("code", "tells"),
    [
        (grpc.StatusCode.NOT_FOUND, True),
        (grpc.StatusCode.PERMISSION_DENIED, True),
        (grpc.StatusCode.UNAUTHENTICATED, True),
        (grpc.StatusCode.INVALID_ARGUMENT, False),
        (grpc.StatusCode.FAILED_PRECONDITION, False),
    ],
)
def test_a_refusal_that_is_about_the_subscription_is_told(
    server: ScriptedServer, pumped: Pumped, code: grpc.StatusCode, tells: bool
) -> None:
    server.answers["ModifyAckDeadline"] = refuse(code, "no")
    pumped.sender.modify(SUBSCRIPTION, ["a"], 10, 10, pumped.answer)
    pumped.settle()
    assert pumped.refusals == [(SUBSCRIPTION, Status(code, "no"))] * tells


def test_calls_in_flight_are_bounded(server: ScriptedServer, pumped: Pumped) -> None:
    release = threading.Event()

    def wait(request: bytes, context: grpc.ServicerContext) -> bytes:
        assert release.wait(WAIT)
        return b""

    server.answers["Acknowledge"] = wait
    for i in range(acks.MAX_IN_FLIGHT + 5):
        pumped.sender.acknowledge(SUBSCRIPTION, [str(i)], 10, pumped.answer)
    pumped.sender.pump()
    for _ in range(acks.MAX_IN_FLIGHT):
        server.calls.get(timeout=WAIT)
    assert server.calls.empty()
    release.set()
    pumped.settle()
    assert len(pumped.answers) == acks.MAX_IN_FLIGHT + 5


def test_nothing_to_acknowledge_costs_no_call(server: ScriptedServer, pumped: Pumped) -> None:
    pumped.sender.acknowledge(SUBSCRIPTION, [], 10, pumped.answer)
    assert pumped.sender.idle
    assert not pumped.woken.is_set()
