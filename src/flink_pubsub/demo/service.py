"""The emulator in a process of its own, so that it shares no interpreter lock with the job's Python functions.

The process serves until its pipe ends, so it never outlives the demo. Calls of `Emulator`'s methods go through the pipe.
"""

from __future__ import annotations

import signal
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

from flink_pubsub.demo.errors import DemoError
from flink_pubsub.emulator import Emulator, SubscriptionCounts

_START = 30.0
_ANSWER = 30.0
_END = 5.0
_BATCHES_PER_KEY = 1000
"""A carrier's flights flow as fast as the source's flow control lets them."""


class EmulatorProcess:
    """An emulator in a child process; a context manager."""

    def __init__(self) -> None:
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True, name="emulator")
        self._process.start()
        theirs.close()
        self.endpoint: str = self._answer(_START)

    def __enter__(self) -> EmulatorProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._pipe.close()
        self._process.join(_END)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def create(self, project: str, name: str, *, ordered: bool) -> None:
        """Makes a topic and a subscription of the same name."""
        topic = f"projects/{project}/topics/{name}"
        self._call("create_topic", topic)
        self._call("create_subscription", f"projects/{project}/subscriptions/{name}", topic, enable_message_ordering=ordered)

    def counts(self, project: str, name: str) -> SubscriptionCounts:
        """A subscription's numbers now."""
        counts: SubscriptionCounts = self._call("counts", f"projects/{project}/subscriptions/{name}")
        return counts

    def _call(self, method: str, *arguments: object, **settings: object) -> Any:
        self._pipe.send((method, arguments, settings))
        return self._answer(_ANSWER)

    def _answer(self, seconds: float) -> Any:
        try:
            if self._pipe.poll(seconds):
                return self._pipe.recv()
        except (EOFError, OSError):
            raise DemoError(f"the emulator's process ended with status {self._process.exitcode}") from None
        raise DemoError(f"the emulator's process did not answer within {seconds:g} s")


def _serve(pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Emulator(keep_published_bytes=0, batches_per_key=_BATCHES_PER_KEY) as emulator:
        pipe.send(emulator.endpoint)
        while True:
            try:
                method, arguments, settings = pipe.recv()
            except EOFError:
                return
            pipe.send(getattr(emulator, method)(*arguments, **settings))
