"""The Publish call: a finished request in, the service's answer out.

Requests and responses stay bytes; of a response only the number of message ids is looked at, since a service that
acknowledges fewer messages than it was given has lost some.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Protocol, cast
from urllib.parse import quote

import grpc
from google.protobuf.message import DecodeError

from flink_pubsub.rpc.status import Status, status_of
from flink_pubsub.wire.pubsub_pb2 import PublishResponse

METHOD = "/google.pubsub.v1.Publisher/Publish"


class Call(Protocol):
    """A call on its way."""

    def cancel(self) -> object: ...

    def result(self) -> bytes: ...

    def add_done_callback(self, fn: Callable[[Call], None]) -> None: ...


class PublishStub:
    """Starts Publish calls on a channel."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._publish: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHOD)

    def start(self, topic: str, request: bytes, timeout: float | None) -> Call:
        """Sends a request. Never blocks; the call ends on a thread of gRPC's, and within `timeout` seconds if given."""
        return cast("Call", self._publish.future(request, timeout=timeout, metadata=_routing(topic)))


def outcome(call: Call) -> bytes | Status:
    """The response of a call that ended, or why there is none."""
    try:
        return call.result()
    except grpc.FutureCancelledError:
        return Status(grpc.StatusCode.CANCELLED, "cancelled here")
    except grpc.RpcError as error:
        return status_of(error)


def answer(call: Call, messages: int) -> Status | None:
    """Why the call that ended has not published this many messages, or None if it has."""
    response = outcome(call)
    if isinstance(response, Status):
        return response
    try:
        ids = len(PublishResponse.FromString(response).message_ids)
    except DecodeError as error:
        return Status(grpc.StatusCode.DATA_LOSS, f"the response cannot be read: {error}")
    if ids != messages:
        return Status(grpc.StatusCode.DATA_LOSS, f"the service answered with {ids} message ids for {messages} messages")
    return None


@lru_cache(maxsize=1024)
def _routing(topic: str) -> tuple[tuple[str, str]]:
    return (("x-goog-request-params", f"topic={quote(topic)}"),)
