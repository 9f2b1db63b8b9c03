"""Which failures of a call may be tried again: one table for every purpose, so that no call decides for itself.

The codes are those Google documents for its own clients (Pub/Sub "Retry requests" and "StreamingPull API"), and nothing
outside this file compares status codes to decide about a retry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import grpc

from flink_pubsub.core.refusals import Refusal, Verdict

_Code = grpc.StatusCode


class Purpose(Enum):
    """What a call is for; the same code may be final for one purpose and passing for another."""

    ADMIN = "admin"
    """Describing and changing resources."""
    ACK = "ack"
    """Acknowledge and ModifyAckDeadline."""
    STREAM = "stream"
    """StreamingPull: whether to open the stream again."""
    PUBLISH = "publish"
    """Publish: a repetition may store a message twice, which at-least-once allows."""


RETRYABLE: Mapping[Purpose, frozenset[grpc.StatusCode]] = {
    Purpose.ADMIN: frozenset({_Code.UNAVAILABLE, _Code.DEADLINE_EXCEEDED, _Code.ABORTED, _Code.INTERNAL, _Code.UNKNOWN}),
    # All of these may be repeated: acknowledging twice, or extending twice, does nothing the first time did not do.
    Purpose.ACK: frozenset(
        {_Code.UNAVAILABLE, _Code.DEADLINE_EXCEEDED, _Code.ABORTED, _Code.INTERNAL, _Code.RESOURCE_EXHAUSTED, _Code.UNKNOWN}
    ),
    # OK is a server that ended the stream in good order; CANCELLED here is never our own, which is not asked about.
    Purpose.STREAM: frozenset(
        {
            _Code.OK,
            _Code.UNAVAILABLE,
            _Code.DEADLINE_EXCEEDED,
            _Code.INTERNAL,
            _Code.ABORTED,
            _Code.RESOURCE_EXHAUSTED,
            _Code.UNKNOWN,
            _Code.CANCELLED,
        }
    ),
    Purpose.PUBLISH: frozenset(
        {
            _Code.ABORTED,
            _Code.CANCELLED,
            _Code.DEADLINE_EXCEEDED,
            _Code.INTERNAL,
            _Code.RESOURCE_EXHAUSTED,
            _Code.UNKNOWN,
            _Code.UNAVAILABLE,
        }
    ),
}


_USELESS = frozenset({_Code.NOT_FOUND, _Code.PERMISSION_DENIED, _Code.UNAUTHENTICATED})


@dataclass(frozen=True, slots=True)
class Status:
    """How a call ended, in a form that survives the call's object."""

    code: grpc.StatusCode
    details: str

    def retryable(self, purpose: Purpose) -> bool:
        """Whether trying again may help."""
        return self.code in RETRYABLE[purpose]

    def refusal(self) -> Refusal:
        """What this status means as the answer to a publish, or to the creation of its topic."""
        verdict = _OF_PUBLISH.get(self.code, Verdict.FATAL)
        return Refusal(Verdict.PASSING if self.retryable(Purpose.PUBLISH) else verdict, self.code.name, self.details)

    @property
    def useless(self) -> bool:
        """Whether it is about the resource or the caller and not about the request: no other call will fare better."""
        return self.code in _USELESS

    def __str__(self) -> str:
        return f"{self.code.name}: {self.details}" if self.details else self.code.name


_OF_PUBLISH = {_Code.NOT_FOUND: Verdict.MISSING_TOPIC, _Code.INVALID_ARGUMENT: Verdict.INVALID}


def status_of(error: BaseException) -> Status:
    """The status in what a gRPC call raised; UNKNOWN with the exception's text for anything that is no status."""
    code = getattr(error, "code", None)
    details = getattr(error, "details", None)
    if isinstance(error, grpc.RpcError) and callable(code) and callable(details):
        found = code()
        if isinstance(found, grpc.StatusCode):
            return Status(found, details() or "")
    return Status(grpc.StatusCode.UNKNOWN, f"{type(error).__name__}: {error}")
