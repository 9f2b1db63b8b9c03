"""Acknowledgements and deadlines on their way to the service: in requests it accepts, several at a time, with retries.

An `AckSender` belongs to one thread, which calls `pump` often; any thread may submit. A request's life:

1. *Submitted*: any number of ack ids.
2. *Ready*: cut to what one request may hold.
3. *In flight*: at most `MAX_IN_FLIGHT` at a time, since a gRPC server drops calls when too many are open.
4. *Waiting*: it failed in a way that may pass; back to 2 after a delay, as long as the leases it is about can still be running.
5. *Answered*: confirmed, refused, or given up. Whoever submitted it is told once, on the thread that pumps.
"""

from __future__ import annotations

import heapq
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

import grpc

from flink_pubsub.core.backoff import Backoff
from flink_pubsub.core.requests import split_ids
from flink_pubsub.core.seldom import Seldom
from flink_pubsub.rpc.status import Purpose, Status, status_of
from flink_pubsub.wire.pubsub_pb2 import AcknowledgeRequest, ModifyAckDeadlineRequest

ACKNOWLEDGE = "/google.pubsub.v1.Subscriber/Acknowledge"
MODIFY = "/google.pubsub.v1.Subscriber/ModifyAckDeadline"

MAX_IN_FLIGHT = 16
_CALL_SECONDS = 10.0
_SHORTEST_CALL_SECONDS = 0.5

Answer = Callable[[int, int, bool], None]
"""Told of a request's end: the range of the submitted ids it held, and whether the service confirmed it."""

Refusal = Callable[[str, Status], None]
"""Told that a subscription cannot be used any more: its path, and what the service said."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Request:
    subscription: str
    deadline: int | None
    """Seconds to set, 0 to nack; None to acknowledge."""
    ack_ids: Sequence[str]
    low: int
    until: float
    answer: Answer | None
    backoff: Backoff = field(default_factory=lambda: Backoff(0.1, 1.3, 60))


class AckSender:
    """Sends what readers decide about leases."""

    def __init__(
        self,
        channel: grpc.Channel,
        wake: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        refused: Refusal = lambda subscription, status: None,
    ) -> None:
        """Makes a sender.

        Args:
            channel: where to.
            wake: called from any thread when `pump` has something to do.
            clock: monotonic seconds.
            refused: called on the thread that pumps.
        """
        self._refused = refused
        self._acknowledge: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(ACKNOWLEDGE)
        self._modify: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(MODIFY)
        self._wake = wake
        self._clock = clock
        self._submitted: deque[_Request] = deque()
        self._ready: deque[_Request] = deque()
        self._waiting: list[tuple[float, int, _Request]] = []
        self._order = count()
        self._ended: deque[tuple[_Request, BaseException]] = deque()
        self._in_flight = 0
        self._warnings = Seldom(30)

    @property
    def idle(self) -> bool:
        """Whether everything submitted was answered. Exact on the thread that pumps, once nobody submits."""
        return not (self._submitted or self._ready or self._waiting or self._in_flight)

    def acknowledge(self, subscription: str, ack_ids: Sequence[str], lease: float, answer: Answer) -> None:
        """Acknowledges messages, trying for as long as their leases can last: `lease` seconds. Any thread."""
        self._submit(_Request(subscription, None, ack_ids, 0, self._clock() + lease, answer))

    def modify(self, subscription: str, ack_ids: Sequence[str], deadline: int, lease: float, answer: Answer | None) -> None:
        """Sets deadlines, 0 to nack; otherwise as `acknowledge`. Any thread."""
        self._submit(_Request(subscription, deadline, ack_ids, 0, self._clock() + lease, answer))

    def _submit(self, request: _Request) -> None:
        if request.ack_ids:
            self._submitted.append(request)
            self._wake()

    def pump(self) -> float | None:
        """Takes answers in and sends what is ready. Returns the time of the next retry, if there is one. One thread only."""
        now = self._clock()
        while self._ended:
            self._in_flight -= 1
            self._settle(*self._ended.popleft(), now)
        while self._submitted:
            whole = self._submitted[0]
            for low, high in split_ids(whole.ack_ids):
                part = _Request(whole.subscription, whole.deadline, whole.ack_ids[low:high], low, whole.until, whole.answer)
                self._ready.append(part)
            self._submitted.popleft()
        while self._waiting and self._waiting[0][0] <= now:
            self._ready.append(heapq.heappop(self._waiting)[2])
        while self._ready and self._in_flight < MAX_IN_FLIGHT:
            self._send(self._ready.popleft(), now)
        return self._waiting[0][0] if self._waiting else None

    def _send(self, request: _Request, now: float) -> None:
        if request.deadline is None:
            stub = self._acknowledge
            body = AcknowledgeRequest(subscription=request.subscription, ack_ids=request.ack_ids).SerializeToString()
        else:
            stub = self._modify
            body = ModifyAckDeadlineRequest(
                subscription=request.subscription, ack_ids=request.ack_ids, ack_deadline_seconds=request.deadline
            ).SerializeToString()
        timeout = max(_SHORTEST_CALL_SECONDS, min(_CALL_SECONDS, request.until - now))
        metadata = (("x-goog-request-params", f"subscription={request.subscription}"),)
        self._in_flight += 1
        call = stub.future(body, timeout=timeout, metadata=metadata)
        call.add_done_callback(lambda ended: self._end(request, ended))

    def _end(self, request: _Request, call: object) -> None:
        """Notes the end of a call. gRPC's thread, or the one that sends."""
        assert isinstance(call, grpc.RpcError)  # every call object of gRPC is its own error
        self._ended.append((request, call))
        self._wake()

    def _settle(self, request: _Request, call: BaseException, now: float) -> None:
        status = status_of(call)
        confirmed = status.code is grpc.StatusCode.OK
        if not confirmed and status.retryable(Purpose.ACK):
            retry_at = now + request.backoff.failed()
            if retry_at < request.until:
                heapq.heappush(self._waiting, (retry_at, next(self._order), request))
                return
        if not confirmed and (withheld := self._warnings.passes(now)) is not None:
            what = "acknowledged" if request.deadline is None else "extended" if request.deadline else "given back"
            _log.warning(
                "%d messages of %s could not be %s and will be delivered again (%s); %d such warnings withheld",
                len(request.ack_ids),
                request.subscription,
                what,
                status,
                withheld,
            )
        if request.answer is not None:
            request.answer(request.low, request.low + len(request.ack_ids), confirmed)
        if status.useless:
            self._refused(request.subscription, status)
