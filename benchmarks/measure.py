"""Rates from the load server's own counters."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

import grpc

from benchmarks.server import CONTROL

_INTERVAL = 0.05


@dataclass(frozen=True)
class Sample:
    """One reading of a resource's counters, with the server's monotonic clock and the CPU seconds it has used."""

    time: float
    cpu: float
    counts: dict[str, int]


@dataclass(frozen=True)
class Rate:
    """What a window showed."""

    per_second: float
    server_load: float
    """CPU seconds the server used per second; at 1 it is the bottleneck."""
    cost: float
    """CPU microseconds the client's processes used per message."""


class Counters:
    """Reads the server's counters of one subscription or topic."""

    def __init__(self, port: int, resource: str) -> None:
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self._call: Callable[..., bytes] = self._channel.unary_unary(CONTROL)
        self._resource = resource.encode()

    def __enter__(self) -> Counters:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._channel.close()

    def read(self) -> Sample:
        """The counters now."""
        values = json.loads(self._call(self._resource, timeout=10, wait_for_ready=True))
        return Sample(values.pop("time"), values.pop("cpu"), values)

    def wait(self, counter: str, count: int, seconds: float, check: Callable[[], None], interval: float = _INTERVAL) -> Sample:
        """Waits until a counter has reached a count; `check` raises when it never will."""
        deadline = time.monotonic() + seconds
        while (sample := self.read()).counts[counter] < count:
            check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{counter} of {self._resource.decode()} is {sample.counts[counter]} after {seconds:g} s")
            time.sleep(interval)
        return sample

    def rate(self, counter: str, seconds: float, check: Callable[[], None], cpu: Callable[[], float]) -> Rate:
        """The slope of a counter over a window, by least squares; `cpu` tells the CPU seconds used so far.

        A source that acknowledges at checkpoints makes the counter a staircase; its slope does not depend on where the
        window cuts the first and the last step, as the difference of two readings would.
        """
        used = cpu()
        samples = [self.read()]
        while samples[-1].time - samples[0].time < seconds:
            time.sleep(_INTERVAL)
            check()
            samples.append(self.read())
        slope, _ = statistics.linear_regression([s.time for s in samples], [float(s.counts[counter]) for s in samples])
        first, last = samples[0], samples[-1]
        seconds = last.time - first.time
        return Rate(slope, (last.cpu - first.cpu) / seconds, 1e6 * (cpu() - used) / (slope * seconds))
