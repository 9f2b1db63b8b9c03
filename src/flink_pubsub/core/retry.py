"""How long and how often a publish is tried.

The figures and the meaning of 0 are those of Google's clients: delays grow by a factor up to a cap and are drawn evenly from
zero to that (full jitter), the first attempt's RPC timeout grows likewise, and an attempt begins only if the total timeout
leaves room for it. The budget of a batch starts with its first attempt, not with its wait for its turn.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Bounds of a publish, in seconds."""

    total_timeout: float = 600
    """From the first attempt; 0 leaves the bound to `max_attempts`."""
    initial_delay: float = 0.1
    """0 means no delay."""
    delay_multiplier: float = 4
    max_delay: float = 60
    """0 makes every delay none."""
    initial_rpc_timeout: float = 5
    """0 lets a call run for as long as the total timeout does."""
    rpc_timeout_multiplier: float = 4
    max_rpc_timeout: float = 60
    """0 lets every call run for as long as the total timeout does."""
    max_attempts: int | None = None
    """None and 0 mean no bound. Without a total timeout as well, nothing is retried, for it could go on for ever."""


@dataclass(slots=True)
class Attempts:
    """The attempts of one batch: `begin` each, then ask `next_at` after a failure that may pass."""

    policy: RetryPolicy
    count: int = 0
    began: float = 0
    """When the first attempt began."""
    _delay: float = 0
    _rpc_timeout: float = 0

    def __str__(self) -> str:
        return f"{self.count} attempt{'s' if self.count > 1 else ''}"

    def begin(self, now: float) -> float | None:
        """Counts an attempt. Returns its RPC timeout, None for no limit."""
        policy = self.policy
        if not self.count:
            self.began = now
            grown = policy.initial_rpc_timeout
        else:
            grown = self._rpc_timeout * policy.rpc_timeout_multiplier
        self._rpc_timeout = min(grown, policy.max_rpc_timeout)
        self.count += 1
        if not policy.total_timeout:
            return self._rpc_timeout or None
        # A retry that began late may find the budget gone: it gets a moment, and is the last one.
        left = max(self.began + policy.total_timeout - now, 0.001)
        return min(self._rpc_timeout or left, left)

    def next_at(self, now: float, jitter: float) -> float | None:
        """When to try again, or None when the budget is spent. `jitter` is drawn evenly from 0 to 1."""
        policy = self.policy
        if not policy.total_timeout and not policy.max_attempts:
            return None
        if policy.max_attempts and self.count >= policy.max_attempts:
            return None
        grown = policy.initial_delay if self.count == 1 else self._delay * policy.delay_multiplier
        self._delay = min(grown, policy.max_delay)
        at = now + jitter * self._delay
        return None if policy.total_timeout and at >= self.began + policy.total_timeout else at
