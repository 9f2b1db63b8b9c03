"""The budget of a publish."""

from __future__ import annotations

import pytest

from flink_pubsub.core.retry import Attempts, RetryPolicy

pytestmark = pytest.mark.feature("SNK-05")


def delays(policy: RetryPolicy, count: int, jitter: float = 1) -> list[float]:
    """Delays before the retries when every attempt fails at once."""
    attempts, now, found = Attempts(policy), 0.0, []
    for _ in range(count):
        attempts.begin(now)
        at = attempts.next_at(now, jitter)
        assert at is not None
        found.append(round(at - now, 6))
        now = at
    return found


def rpc_timeouts(policy: RetryPolicy, count: int) -> list[float | None]:
    attempts = Attempts(policy)
    found = []
    for _ in range(count):
        found.append(attempts.begin(0))
        attempts.next_at(0, 0)
    return found


def test_delays_grow_by_the_multiplier_up_to_the_largest() -> None:
    assert delays(RetryPolicy(), 7) == [0.1, 0.4, 1.6, 6.4, 25.6, 60, 60]


def test_delays_are_drawn_between_zero_and_the_full_delay() -> None:
    assert delays(RetryPolicy(), 3, jitter=0.5) == [0.05, 0.2, 0.8]
    assert delays(RetryPolicy(), 3, jitter=0) == [0, 0, 0]


def test_an_initial_delay_of_zero_means_no_delay() -> None:
    assert delays(RetryPolicy(initial_delay=0), 3) == [0, 0, 0]


def test_a_largest_delay_of_zero_means_no_delay() -> None:
    assert delays(RetryPolicy(max_delay=0), 3) == [0, 0, 0]


def test_rpc_timeouts_grow_by_their_multiplier_up_to_the_largest() -> None:
    assert rpc_timeouts(RetryPolicy(), 4) == [5, 20, 60, 60]


@pytest.mark.parametrize("policy", [RetryPolicy(initial_rpc_timeout=0), RetryPolicy(max_rpc_timeout=0)])
def test_without_an_rpc_timeout_a_call_may_take_the_whole_budget(policy: RetryPolicy) -> None:
    assert rpc_timeouts(policy, 3) == [600, 600, 600]


def test_with_neither_rpc_timeout_nor_total_timeout_a_call_has_no_limit() -> None:
    assert rpc_timeouts(RetryPolicy(initial_rpc_timeout=0, total_timeout=0, max_attempts=3), 2) == [None, None]


def test_an_attempt_never_outlasts_the_total_timeout() -> None:
    attempts = Attempts(RetryPolicy(total_timeout=30, initial_rpc_timeout=20))
    assert attempts.begin(100) == 20
    assert attempts.next_at(120, 0) == 120
    assert attempts.begin(120) == 10


def test_no_attempt_begins_after_the_total_timeout() -> None:
    attempts = Attempts(RetryPolicy(total_timeout=10, initial_delay=4))
    attempts.begin(100)
    assert attempts.next_at(105.9, 1) == 109.9
    attempts.begin(109.9)
    assert attempts.next_at(109.9, 0.9) is None
    assert attempts.next_at(110, 0) is None


def test_the_budget_begins_with_the_first_attempt() -> None:
    attempts = Attempts(RetryPolicy(total_timeout=10))
    attempts.begin(1000)
    assert attempts.next_at(1009, 0) == 1009


def test_attempts_are_bounded_by_their_number() -> None:
    attempts = Attempts(RetryPolicy(max_attempts=2))
    attempts.begin(0)
    assert attempts.next_at(0, 0) == 0
    attempts.begin(0)
    assert attempts.next_at(0, 0) is None


def test_a_total_timeout_of_zero_leaves_the_bound_to_the_attempts() -> None:
    attempts = Attempts(RetryPolicy(total_timeout=0, max_attempts=2))
    attempts.begin(0)
    assert attempts.next_at(10**6, 0) == 10**6


def test_with_neither_bound_nothing_is_retried() -> None:
    attempts = Attempts(RetryPolicy(total_timeout=0))
    attempts.begin(0)
    assert attempts.next_at(0, 0) is None


def test_thousands_of_attempts_without_delay_do_not_overflow() -> None:
    attempts = Attempts(RetryPolicy(initial_delay=0.001, max_delay=0.002))
    for _ in range(5000):
        assert attempts.begin(0)
        assert attempts.next_at(0, 1)
