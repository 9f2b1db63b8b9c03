"""The one lock around the state machine, the thread that lets time pass, and waiting for a state to come about.

Every access to the service goes through `Engine.run`: first what has fallen due happens, then the operation, then whoever
waits for a condition looks again. So a state is never seen half changed, and never later than its time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from flink_pubsub.emulator.clock import Clock, ManualClock
from flink_pubsub.emulator.service import Service

T = TypeVar("T")


class Engine:
    """Runs operations on the service one at a time.

    Attributes:
        lock: the lock; reentrant, so that a wait's predicate may ask the emulator.
        changed: notified after every operation.
    """

    def __init__(self, service: Service, clock: Clock) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.service = service
        self.clock = clock
        self._due_changed = threading.Condition(self.lock)
        self._driver_sleeps_until: float | None = None
        self._stopped = True
        self._driver: threading.Thread | None = None

    def start(self) -> None:
        """Let time pass; what fell due while it did not happens now."""
        self._stopped = False
        if isinstance(self.clock, ManualClock):
            self.clock.on_advance(self.tick)
            self.tick()
        else:
            self._driver = threading.Thread(target=self._drive, name="pubsub-emulator-clock", daemon=True)
            self._driver.start()

    def stop(self) -> None:
        """Let nothing fall due any more by itself; ends the thread."""
        with self.lock:
            self._stopped = True
            self._due_changed.notify_all()
            self.changed.notify_all()
        if isinstance(self.clock, ManualClock):
            self.clock.remove_listener(self.tick)
        elif self._driver is not None:
            self._driver.join()

    def run(self, operation: Callable[[float], T]) -> T:
        """The result of `operation(now)`."""
        with self.lock:
            now = self.clock()
            due = self.service.timers.next_due
            if due is not None and due <= now:
                self.service.timers.run(now)
            try:
                return operation(now)
            finally:
                self._after_change()

    def tick(self) -> None:
        """Let everything happen that is due now."""
        self.run(lambda now: None)

    def wait_until(self, predicate: Callable[[], bool], timeout: float) -> bool:
        """Wait until `predicate`, looked at after every change, is true; False when `timeout` seconds passed first."""
        give_up_at = time.monotonic() + timeout
        with self.lock:
            while not predicate():
                remaining = give_up_at - time.monotonic()
                if remaining <= 0:
                    return False
                self.changed.wait(remaining)
            return True

    def _after_change(self) -> None:
        self.changed.notify_all()
        due = self.service.timers.next_due
        if due is not None and (self._driver_sleeps_until is None or due < self._driver_sleeps_until):
            self._due_changed.notify_all()

    def _drive(self) -> None:
        with self.lock:
            while not self._stopped:
                due = self.service.timers.next_due
                now = self.clock()
                if due is not None and due <= now:
                    self.tick()
                    continue
                self._driver_sleeps_until = due
                self._due_changed.wait(None if due is None else min(due - now, threading.TIMEOUT_MAX))
