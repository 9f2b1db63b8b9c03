"""Refused requests: how the writer's core finds the message, and what becomes of it and of its key."""

from __future__ import annotations

import grpc
import pytest

from flink_pubsub.core.outbox import Settled
from flink_pubsub.core.refusals import Refusal, Verdict
from flink_pubsub.rpc.status import RETRYABLE, Purpose, Status
from flink_pubsub.wire.pubsub_pb2 import PubsubMessage
from tests.unit.outbox_support import (
    DENIED,
    INVALID,
    MISSING,
    ONE,
    PASSING,
    THREE,
    TWO,
    add,
    make,
    reject,
    take,
    texts,
)


@pytest.mark.feature("SNK-20")
@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK])
def test_every_status_has_one_class(code: grpc.StatusCode) -> None:
    expected = {
        grpc.StatusCode.NOT_FOUND: Verdict.MISSING_TOPIC,
        grpc.StatusCode.INVALID_ARGUMENT: Verdict.INVALID,
        **dict.fromkeys(RETRYABLE[Purpose.PUBLISH], Verdict.PASSING),
    }.get(code, Verdict.FATAL)
    assert Status(code, "said").refusal() == Refusal(expected, code.name, "said")


@pytest.mark.feature("SNK-20")
@pytest.mark.parametrize("refusal", [MISSING, PASSING, INVALID])
def test_what_queues_behind_a_failure_of_its_key_is_no_failure_of_its_own(refusal: Refusal) -> None:
    outbox = make()
    add(outbox, ["a", "b", "c"], key="k")
    (first,) = take(outbox)
    assert outbox.failed(first, refusal, 0) is None
    assert take(outbox) == []
    assert outbox.failures == {refusal.code: 1}
    assert outbox.records == 3


@pytest.mark.feature("SNK-20")
def test_a_fatal_failure_names_topic_and_status_and_ends_everything() -> None:
    outbox = make()
    add(outbox, ["a"])
    add(outbox, ["b"], TWO)
    first, second = take(outbox)
    error = outbox.failed(first, DENIED, 0)
    assert str(error) == f"publishing to {ONE} failed: PERMISSION_DENIED: no (after 1 attempt)"
    outbox.succeeded(second, 0)
    assert outbox.take_settled() is None


@pytest.mark.feature("SNK-12")
def test_a_refused_batch_is_sent_again_message_by_message_and_only_a_message_alone_is_judged() -> None:
    outbox = make(messages=3)
    add(outbox, ["a", "bad", "c"])
    add(outbox, ["d"], key="k")
    outbox.send_now()
    refused, other = take(outbox)
    assert outbox.failed(refused, INVALID, 0) is None
    assert outbox.take_rejected() == []
    assert outbox.failures == {}
    singles = take(outbox)
    assert texts(*singles) == [["a"], ["bad"], ["c"]]
    outbox.succeeded(singles[0], 0)
    outbox.failed(singles[1], INVALID, 0)
    outbox.succeeded(singles[2], 0)
    outbox.succeeded(other, 0)
    assert outbox.failures == {"INVALID_ARGUMENT": 1}
    (rejection,) = outbox.take_rejected()
    assert PubsubMessage.FromString(rejection.batch.message()).data == b"bad"
    settled = outbox.take_settled()
    assert settled is not None
    assert settled.records == 3
    outbox.flush(1)
    assert outbox.take_settled() is None, "the handler has not returned"
    assert outbox.dropped(rejection) is None
    assert outbox.take_settled() == Settled(1, rejection.batch.size, [1])


@pytest.mark.feature("SNK-14")
def test_a_key_waits_for_the_handler_and_goes_on_after_a_drop() -> None:
    outbox = make()
    add(outbox, ["bad", "b", "c"], key="k")
    (bad,) = take(outbox)
    outbox.failed(bad, INVALID, 0)
    (rejection,) = outbox.take_rejected()
    assert take(outbox) == []
    outbox.dropped(rejection)
    (following,) = take(outbox)
    assert texts(following) == [["b"]]


@pytest.mark.feature("SNK-15")
def test_rejections_in_a_row_fail_the_job_across_topics_after_the_last_one_was_handed_over() -> None:
    outbox = make(max_consecutive_rejections=3)
    assert outbox.dropped(reject(outbox, "a", ONE)) is None
    assert outbox.dropped(reject(outbox, "b", TWO)) is None
    third = reject(outbox, "c", THREE)
    error = outbox.dropped(third)
    assert error is not None
    assert (error.topic, error.status) == (THREE, "INVALID_ARGUMENT")
    assert error.problem == (
        "3 messages in a row were refused for themselves, none published in between, and max_consecutive_rejections allows "
        "no more; the last one with INVALID_ARGUMENT: not like this"
    )


@pytest.mark.feature("SNK-15")
@pytest.mark.parametrize("most", [2, None])
def test_any_success_starts_the_count_of_rejections_over_and_none_is_without_end(most: int | None) -> None:
    outbox = make(max_consecutive_rejections=most)
    for number in range(1000):
        assert outbox.dropped(reject(outbox, "bad")) is None
        if most is not None:
            add(outbox, [str(number)], TWO)
            (batch,) = take(outbox)
            outbox.succeeded(batch, 0)
