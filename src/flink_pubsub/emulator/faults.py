"""Faults to order: which calls are to fail, be delayed, or go unanswered.

A plain table; the gRPC shell asks it once per call. Methods are named as in the API, without the service ("Publish",
"StreamingPull"). Counting is exact and deterministic: nothing here is left to chance.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from grpc import StatusCode

from flink_pubsub.emulator.errors import ServiceError, denied


@dataclass
class _Failure:
    method: str
    resource: str | None
    error: ServiceError
    times: int | None
    every: int
    after: bool
    seen: int = 0

    def strikes(self, method: str, resources: Collection[str]) -> bool:
        if self.method != method or self.times == 0 or (self.resource is not None and self.resource not in resources):
            return False
        self.seen += 1
        if self.seen % self.every:
            return False
        if self.times is not None:
            self.times -= 1
        return True


@dataclass(frozen=True)
class Verdict:
    """What is to happen to one call.

    Attributes:
        delay: seconds to wait before anything else.
        refusal: the status to end it with before it has any effect.
        lost_answer: the status to end it with after it had its effect.
    """

    delay: float = 0.0
    refusal: ServiceError | None = None
    lost_answer: ServiceError | None = None


_UNTOUCHED = Verdict()


class Faults:
    """The table; not thread-safe."""

    def __init__(self) -> None:
        self._failures: list[_Failure] = []
        self._delays: dict[str, float] = {}
        self._silent: set[str] = set()
        self._denied: set[tuple[str, str | None]] = set()

    def deny(self, method: str, resource: str | None) -> None:
        """Refuse calls for want of a permission until `allow`."""
        self._denied.add((method, resource))

    def allow(self, method: str, resource: str | None) -> None:
        """Take a denial back."""
        self._denied.discard((method, resource))

    def fail(
        self,
        method: str,
        status: StatusCode,
        message: str,
        *,
        times: int | None,
        every: int = 1,
        after: bool = False,
        resource: str | None = None,
    ) -> None:
        """Fail every `every`-th call, `times` times (None: for ever)."""
        text = message or f"The emulator was told to fail this {method} call."
        self._failures.append(_Failure(method, resource, ServiceError(status, text), times, every, after))

    def delay(self, method: str, seconds: float) -> None:
        """Delay each call; 0 ends it."""
        self._delays[method] = seconds

    def stop_answering(self, method: str) -> None:
        """Leave calls unanswered and without effect until `resume`."""
        self._silent.add(method)

    def resume(self, method: str) -> None:
        """Answer again, also what has been waiting."""
        self._silent.discard(method)

    def clear(self) -> None:
        """No faults any more."""
        self._failures.clear()
        self._delays.clear()
        self._silent.clear()
        self._denied.clear()

    def is_silent(self, method: str) -> bool:
        """Whether calls are to wait."""
        return method in self._silent

    def judge(self, method: str, resources: Collection[str]) -> Verdict:
        """What to do with this call on these resources.

        A denial goes first; otherwise the first matching failure counts the call and decides.
        """
        if not self._failures and not self._delays and not self._denied:
            return _UNTOUCHED
        delay = self._delays.get(method, 0.0)
        if not self._denied.isdisjoint((method, resource) for resource in (None, *resources)):
            return Verdict(delay, denied())
        for failure in self._failures:
            if failure.strikes(method, resources):
                if failure.times == 0:
                    self._failures.remove(failure)
                return Verdict(delay, None, failure.error) if failure.after else Verdict(delay, failure.error)
        return Verdict(delay)
