"""Exactly-once delivery: which ack ids of a request are good, and the error that names those that are not.

Only the id of a delivery whose lease lasts is good. The others are named one by one in the error's `google.rpc.ErrorInfo`,
which travels in the trailer `grpc-status-details-bin`; ids that are not named succeeded. The two messages are written out
here, for they are all that is needed of `google.rpc`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from grpc import StatusCode

from flink_pubsub.emulator.errors import ServiceError, invalid
from flink_pubsub.emulator.messages import delivery_number, varint

PERMANENT_FAILURE = "PERMANENT_FAILURE_INVALID_ACK_ID"

_TEXT = (
    "Some acknowledgement ids in the request were invalid. This could be because the acknowledgement ids have expired or the "
    "acknowledgement ids were malformed."
)


class AckIds:
    """Sorts the ack ids of one subscription's requests, and lets good ones fail when told to."""

    def __init__(self) -> None:
        self._failing = 0
        self._failure = ""

    def fail_next(self, times: int, failure: str) -> None:
        """Let the next so many good ids fail for this reason."""
        self._failing, self._failure = times, failure

    def sort(self, ack_ids: Sequence[str], is_live: Callable[[int], bool]) -> tuple[list[int], dict[str, str]]:
        """The good ones, as delivery numbers, and why the others fail."""
        if not ack_ids:
            raise invalid("You have not specified an ack ID in the request.")
        good: dict[int, None] = {}
        failures: dict[str, str] = {}
        for ack_id in ack_ids:
            number = delivery_number(ack_id)
            if number is None or not is_live(number):
                failures[ack_id] = PERMANENT_FAILURE
            elif self._failing and number not in good:
                self._failing -= 1
                failures[ack_id] = self._failure
            else:
                good[number] = None
        return list(good), failures


def failed(failures: Mapping[str, str]) -> ServiceError:
    """The error of a request some of whose ids failed."""
    metadata = b"".join(_field(3, _field(1, ack_id.encode()) + _field(2, why.encode())) for ack_id, why in failures.items())
    info = _field(1, b"EXACTLY_ONCE_ACKID_FAILURE") + _field(2, b"pubsub.googleapis.com") + metadata
    packed = _field(1, b"type.googleapis.com/google.rpc.ErrorInfo") + _field(2, info)
    code: int = StatusCode.INVALID_ARGUMENT.value[0]
    status = b"\x08" + varint(code) + _field(2, _TEXT.encode()) + _field(3, packed)
    return ServiceError(StatusCode.INVALID_ARGUMENT, _TEXT, trailers=(("grpc-status-details-bin", status),))


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited field of a protobuf message."""
    return varint(number << 3 | 2) + varint(len(content)) + content
