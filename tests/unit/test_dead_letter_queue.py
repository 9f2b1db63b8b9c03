"""The dead-letter queue's waits, on a clock that the test moves."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flink_pubsub import (
    PublishError,
    PubSubDeadLetterQueue,
    PubsubMessage,
    TopicDestination,
)
from flink_pubsub.core.batching import Batch, Thresholds
from flink_pubsub.core.outbox import Rejection
from flink_pubsub.core.refusals import Refusal, Verdict
from flink_pubsub.failures import HandlerMetrics
from flink_pubsub.rpc.publisher import Entries, PublishListener
from flink_pubsub.wire import pubsub_pb2 as wire
from flink_pubsub.worker.dead_letters import DeadLetterPublisher, Limits, rules_of

TOPIC = TopicDestination("p", "dead-letters")
PATH = TOPIC.resource_path


class Time(threading.Condition):
    """A clock and the condition that waits on it: a wait runs what the script says, or lets its whole time pass."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.script: list[Callable[[], None]] = []

    def clock(self) -> float:
        return self.now

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None, "an endless wait"
        if not self.script:
            self.now += timeout
            return False
        self.script.pop(0)()
        return True


class Publishing:
    """A publisher that confirms what the test tells it to."""

    def __init__(self, listener: PublishListener) -> None:
        self.listener = listener
        self.calls: list[Any] = []
        self.unconfirmed: list[int] = []
        self.failures: dict[str, int] = {}

    def add(self, entries: Iterable[Entries]) -> None:
        for lane, data, ends in entries:
            assert list(ends) == [len(data)]
            self.calls.append((lane, wire.PublishRequest.FromString(bytes(data)).messages[0].data))
            self.unconfirmed.append(len(data))

    def send_now(self) -> None:
        self.calls.append("send_now")

    def close(self, seconds: float) -> None:
        self.calls.append(("close", seconds))

    def confirm(self, messages: int) -> None:
        confirmed, self.unconfirmed = self.unconfirmed[:messages], self.unconfirmed[messages:]
        self.listener.settled(messages, sum(confirmed))


class Queue:
    """A queue whose time, publisher and metrics the test holds."""

    def __init__(self, bound: int = 1000, flush_timeout: float = 60, shutdown_timeout: float = 30) -> None:
        self.time = Time()
        self.made: list[Publishing] = []
        limits = Limits(bound, flush_timeout, shutdown_timeout)
        self.letters = DeadLetterPublisher(PATH, limits, self._make, self.time.clock, self.time)
        [self.publishing] = self.made
        self.registered = HandlerMetrics()
        self.letters.register(self.registered)

    def _make(self, listener: PublishListener) -> Publishing:
        self.made.append(Publishing(listener))
        return self.made[-1]

    def offer(self, data: bytes = b"x") -> None:
        self.letters.offer(PubsubMessage(data))

    def metrics(self) -> dict[str, int]:
        counters, gauges, lasting = self.registered.read()
        assert set(counters) == {"deadLettersPublished"}
        assert set(lasting) == {"deadLetterPublisherShutdownsAbandoned"}
        return {**counters, **gauges, **lasting}

    def passes(self, seconds: float, confirmed: int = 0) -> None:
        """The next wait ends after so long, with so many messages confirmed."""

        def step() -> None:
            self.time.now += seconds
            if confirmed:
                self.publishing.confirm(confirmed)

        self.time.script.append(step)


@pytest.mark.feature("DLQ-04")
def test_offers_below_the_bound_do_not_wait_and_a_flush_waits_for_all_of_them() -> None:
    queue = Queue(bound=3)
    for data in (b"a", b"b", b"c"):
        queue.offer(data)
    lane = (PATH, "")
    assert queue.publishing.calls == [(lane, b"a"), (lane, b"b"), (lane, b"c")]
    queue.passes(1, confirmed=1)
    queue.passes(1, confirmed=2)
    queue.letters.flush()
    assert queue.publishing.calls[3:] == ["send_now"]
    assert queue.time.now == 1002


@pytest.mark.feature("DLQ-04")
def test_an_offer_at_the_bound_waits_until_everything_before_it_is_confirmed() -> None:
    queue = Queue(bound=2)
    queue.offer(b"a")
    queue.offer(b"b")
    queue.passes(5, confirmed=1)
    queue.passes(5, confirmed=1)
    queue.offer(b"c")
    assert queue.time.now == 1010
    assert queue.publishing.calls[2:] == ["send_now", ((PATH, ""), b"c")]


@pytest.mark.feature("DLQ-04")
def test_an_offer_also_waits_when_what_is_in_flight_is_large() -> None:
    queue = Queue(bound=1000)
    for _ in range(8):
        queue.offer(b"x" * 8 * 1024 * 1024)
    queue.passes(1, confirmed=8)
    queue.offer(b"y")
    assert queue.time.now == 1001
    queue.offer(b"z")
    assert queue.metrics()["inFlightDeadLetters"] == 2


@pytest.mark.feature("DLQ-04")
def test_write_through_confirms_each_element_before_the_offer_returns() -> None:
    queue = Queue(bound=PubSubDeadLetterQueue.WRITE_THROUGH)
    for _ in range(3):
        queue.passes(2, confirmed=1)
        queue.offer()
        assert queue.metrics()["inFlightDeadLetters"] == 0
    assert queue.time.now == 1006


@pytest.mark.feature("DLQ-04")
def test_an_unbounded_queue_waits_in_the_flush_only() -> None:
    queue = Queue(bound=PubSubDeadLetterQueue.UNBOUNDED)
    for _ in range(70):
        queue.offer(b"x" * 1024 * 1024)
    assert queue.metrics()["inFlightDeadLetters"] == 70
    queue.passes(1, confirmed=70)
    queue.letters.flush()
    assert queue.metrics()["inFlightDeadLetters"] == 0


@pytest.mark.feature("DLQ-04")
@pytest.mark.feature("DLQ-05")
def test_a_flush_raises_at_its_one_deadline_however_much_is_confirmed_on_the_way() -> None:
    queue = Queue()
    for _ in range(10):
        queue.offer()
    for _ in range(7):
        queue.passes(9, confirmed=1)
    with pytest.raises(PublishError, match="3 dead letters were not confirmed within flush_timeout, 60 s") as caught:
        queue.letters.flush()
    assert "without a single failed request" in str(caught.value)
    assert (caught.value.topic, caught.value.status) == (PATH, "DEADLINE_EXCEEDED")
    assert queue.time.now == 1063


@pytest.mark.feature("DLQ-05")
def test_a_job_that_is_ending_interrupts_a_wait_and_every_later_one_and_closing_still_waits_in_its_own_time() -> None:
    queue = Queue()
    queue.offer()
    queue.time.script.append(queue.letters.interrupt)
    for _ in range(2):
        with pytest.raises(PublishError, match="the job ends while 1 dead letters are unconfirmed"):
            queue.letters.flush()
    assert queue.time.now == 1000
    queue.passes(2, confirmed=1)
    queue.letters.close()
    assert queue.time.now == 1002
    assert queue.metrics()["deadLetterPublisherShutdownsAbandoned"] == 0


@pytest.mark.feature("DLQ-03")
@pytest.mark.feature("DLQ-04")
@pytest.mark.parametrize(("flush_timeout", "seconds"), [(60, 600), (1200, 1200)])
def test_retries_last_as_long_as_a_wait_and_the_topic_is_never_created(flush_timeout: float, seconds: float) -> None:
    rules = rules_of(Limits(1000, flush_timeout, 30))
    assert (rules.retry.total_timeout, rules.progress_timeout) == (seconds, seconds)
    assert rules.never_create is not None


@pytest.mark.feature("DLQ-05")
def test_an_expired_wait_tells_how_requests_failed_meanwhile() -> None:
    queue = Queue()
    queue.offer()
    queue.publishing.failures = {"UNAVAILABLE": 7, "RESOURCE_EXHAUSTED": 2}
    with pytest.raises(PublishError, match="with failed requests: 2 RESOURCE_EXHAUSTED, 7 UNAVAILABLE;"):
        queue.letters.flush()


@pytest.mark.feature("DLQ-05")
def test_an_offer_that_waits_too_long_raises_and_a_later_wait_starts_anew() -> None:
    queue = Queue(bound=1)
    queue.offer(b"a")
    with pytest.raises(PublishError, match="flush_timeout"):
        queue.offer(b"b")
    assert queue.time.now == 1060
    assert [call[1] for call in queue.publishing.calls if call != "send_now"] == [b"a"], "the second was not taken over"
    queue.passes(59, confirmed=1)
    queue.letters.flush()


@pytest.mark.feature("DLQ-05")
@pytest.mark.parametrize(
    ("status", "mend"), [("NOT_FOUND", "create the topic"), ("PERMISSION_DENIED", "own credentials"), ("ABORTED", "no")]
)
def test_a_failed_publish_ends_the_wait_and_every_later_call(status: str, mend: str) -> None:
    queue = Queue(bound=2)
    queue.offer()
    failure = PublishError(PATH, status, "no")
    queue.time.script.append(lambda: queue.publishing.listener.fail(failure))
    for call in (queue.letters.flush, queue.letters.flush, queue.offer, queue.offer):
        with pytest.raises(PublishError, match="a dead letter was not stored: no") as caught:
            call()
        assert mend in str(caught.value)
        assert caught.value.__cause__ is failure
    assert queue.time.now == 1000


@pytest.mark.feature("DLQ-05")
def test_a_message_that_the_service_refuses_ends_the_wait_too() -> None:
    queue = Queue()
    queue.offer()
    batch = Batch((PATH, ""), (0, 0), 0, 0, Thresholds(messages=1, size=1, delay=0))
    refused = Rejection(batch, Refusal(Verdict.INVALID, "INVALID_ARGUMENT", "large"), too_many=False)
    queue.time.script.append(lambda: queue.publishing.listener.rejected([refused]))
    with pytest.raises(PublishError, match=r"INVALID_ARGUMENT: a dead letter was not stored: large; .*below 10 MB"):
        queue.letters.flush()


@pytest.mark.feature("DLQ-05")
def test_a_defect_of_the_publisher_comes_through_as_it_is() -> None:
    queue = Queue()
    queue.offer()
    queue.publishing.listener.fail(AssertionError("defect"))
    with pytest.raises(AssertionError, match="defect"):
        queue.offer()


@pytest.mark.feature("DLQ-06")
def test_metrics_tell_the_last_wait_and_the_longest() -> None:
    queue = Queue()
    zero = {
        "deadLettersPublished": 0,
        "deadLetterPublisherShutdownsAbandoned": 0,
        "inFlightDeadLetters": 0,
        "deadLetterFlushMillis": 0,
        "longestDeadLetterFlushMillis": 0,
    }
    assert queue.metrics() == zero
    queue.offer()
    queue.offer()
    assert queue.metrics() == {**zero, "inFlightDeadLetters": 2}
    queue.passes(2.5, confirmed=2)
    queue.letters.flush()
    queue.offer()
    queue.passes(0.25, confirmed=1)
    queue.letters.flush()
    waited = {**zero, "deadLettersPublished": 3, "deadLetterFlushMillis": 250, "longestDeadLetterFlushMillis": 2500}
    assert queue.metrics() == waited
    queue.letters.flush()
    assert queue.metrics() == waited, "a flush of nothing is no wait"


@pytest.mark.feature("DLQ-06")
def test_an_expired_wait_shows_in_the_metrics_too() -> None:
    queue = Queue(flush_timeout=3)
    queue.offer()
    with pytest.raises(PublishError):
        queue.letters.flush()
    assert queue.metrics()["longestDeadLetterFlushMillis"] == 3000


@pytest.mark.feature("DLQ-04")
def test_closing_waits_for_what_is_in_flight_and_ends_the_publisher_within_the_rest() -> None:
    queue = Queue()
    queue.offer()
    queue.passes(12, confirmed=1)
    queue.letters.close()
    assert queue.publishing.calls[1:] == ["send_now", ("close", 18.0)]
    assert queue.metrics()["deadLetterPublisherShutdownsAbandoned"] == 0


@pytest.mark.feature("DLQ-04")
@pytest.mark.feature("DLQ-06")
def test_closing_gives_up_after_its_time_says_so_and_counts_it(caplog: pytest.LogCaptureFixture) -> None:
    queue = Queue(flush_timeout=600)
    queue.offer()
    with caplog.at_level(logging.WARNING):
        queue.letters.close()
    assert queue.time.now == 1030
    assert queue.publishing.calls[1:] == ["send_now", ("close", 0.0)]
    assert queue.metrics()["deadLetterPublisherShutdownsAbandoned"] == 1
    assert caplog.messages == [
        f"the dead-letter queue for {PATH} closes with 1 messages unconfirmed after shutdown_timeout, 30 s"
    ]


@pytest.mark.feature("DLQ-04")
def test_closing_after_a_failure_does_not_wait() -> None:
    queue = Queue()
    queue.offer()
    queue.publishing.listener.fail(PublishError(PATH, "NOT_FOUND", "no"))
    queue.letters.close()
    assert queue.publishing.calls[1:] == [("close", 30.0)]
    assert queue.metrics()["deadLetterPublisherShutdownsAbandoned"] == 0


@given(
    bound=st.sampled_from([0, 1, 2, 5, -1]),
    steps=st.lists(st.one_of(st.just("offer"), st.just("flush"), st.integers(1, 3)), max_size=40),
)
@pytest.mark.feature("DLQ-04")
@pytest.mark.feature("DLQ-05")
def test_nothing_is_lost_and_the_bound_holds_in_any_order_of_offers_flushes_and_confirmations(
    bound: int, steps: list[str | int]
) -> None:
    queue, offered = Queue(bound=bound), 0
    for step in steps:
        in_flight = queue.metrics()["inFlightDeadLetters"]
        assert bound < 1 or in_flight <= bound
        assert bound or not in_flight
        if isinstance(step, int):
            queue.publishing.confirm(min(step, in_flight))
            continue
        queue.time.script = [lambda: queue.publishing.confirm(1)] * 50
        if step == "flush":
            queue.letters.flush()
            assert queue.metrics()["inFlightDeadLetters"] == 0
        else:
            queue.offer()
            offered += 1
    assert queue.metrics()["deadLettersPublished"] + queue.metrics()["inFlightDeadLetters"] == offered


def test_the_status_names_of_the_mends_are_those_of_grpc() -> None:
    from flink_pubsub.worker.dead_letters import _MENDS

    assert set(_MENDS) <= {code.name for code in grpc.StatusCode}
