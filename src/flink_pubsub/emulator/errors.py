"""What the service refuses, in the service's own words.

Every refusal of the state machine is a `ServiceError`; the gRPC shell turns it into the call's status.
"""

from __future__ import annotations

from collections.abc import Sequence

from grpc import StatusCode

STREAM_CLOSED = "The service was unable to fulfill your request. Please try again. [code=8a75]"
"""What the service says when it closes a stream as a matter of routine."""


class ServiceError(Exception):
    """A call that ends with a status other than OK.

    Attributes:
        code: the gRPC status.
        message: the text sent with it.
        trailers: metadata sent with it.
    """

    def __init__(self, code: StatusCode, message: str, *, trailers: Sequence[tuple[str, bytes]] = ()) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.trailers = trailers

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"


def invalid(message: str) -> ServiceError:
    """An INVALID_ARGUMENT with this text."""
    return ServiceError(StatusCode.INVALID_ARGUMENT, message)


def not_found(name: str) -> ServiceError:
    """The resource does not exist; the service shows its short id only."""
    return ServiceError(StatusCode.NOT_FOUND, f"Resource not found (resource={name.rsplit('/', 1)[-1]}).")


def already_exists(name: str) -> ServiceError:
    """The name is taken."""
    short = name.rsplit("/", 1)[-1]
    return ServiceError(StatusCode.ALREADY_EXISTS, f"Resource already exists in the project (resource={short}).")


def denied() -> ServiceError:
    """The caller lacks a permission."""
    return ServiceError(StatusCode.PERMISSION_DENIED, "User not authorized to perform this action.")


def failed_precondition(message: str) -> ServiceError:
    """A FAILED_PRECONDITION with this text."""
    return ServiceError(StatusCode.FAILED_PRECONDITION, message)


def unsupported(what: str) -> ServiceError:
    """Something the service offers and this emulator does not."""
    return ServiceError(StatusCode.UNIMPLEMENTED, f"The emulator does not support {what}.")


def too_large(what: str, value: int, maximum: int) -> ServiceError:
    """A counted thing above its limit."""
    return invalid(f"The value for {what} is too large. You passed {value} in the request, but the maximum value is {maximum}.")


def too_small(what: str, value: int, minimum: int) -> ServiceError:
    """A counted thing below its limit."""
    return invalid(f"The value for {what} is too small. You passed {value} in the request, but the minimum value is {minimum}.")


def out_of_range(what: str, value: int, minimum: int, maximum: int) -> ServiceError:
    """A number out of its range, for which the service has a status of its own."""
    size, end, bound = ("small", "minimum", minimum) if value < minimum else ("large", "maximum", maximum)
    text = f"The value for {what} is too {size}. You passed {value} in the request, but the {end} value is {bound}."
    return ServiceError(StatusCode.OUT_OF_RANGE, text)


def bad_ack_deadline(seconds: int) -> ServiceError:
    """An ack deadline out of range."""
    return invalid(f"Invalid ack deadline given (ack_deadline={seconds}). The ack deadline must be between 0 and 600 seconds.")
