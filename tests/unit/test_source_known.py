"""What a subscription's trackers know of its messages costs little, and keeps nothing alive that nobody needs."""

from __future__ import annotations

import weakref

import pytest

from flink_pubsub.core.acks import AckTracker
from flink_pubsub.core.chunks import Delivery
from flink_pubsub.core.known import KnownMessages
from flink_pubsub.core.positions import TrackerError


class Key(str):
    """A key that tells whether what holds it is alive."""


def delivery(*ids: str, key: str = "") -> Delivery[str]:
    return Delivery([f"ack-{i}" for i in ids], [*ids], [1] * len(ids), [*ids], [key] * len(ids))


@pytest.mark.feature("SRC-15")
def test_after_a_redelivery_as_many_new_messages_make_it_forget_where_each_is_held() -> None:
    known: KnownMessages[str] = KnownMessages()
    tracker = AckTracker(known)
    key = Key("k")
    tracker.receive(delivery("a", "b", key=key), 0)
    assert tracker.receive(delivery("b"), 0).redelivered is not None
    alive = weakref.ref(key)
    del key
    tracker.drain(2, 100)
    tracker.snapshot(1, 2)
    acks = tracker.complete(1, 0)
    assert tracker.receive(delivery("a"), 0).acknowledge == ["ack-a"], "its acknowledgement is under way"
    assert alive() is not None
    for n in range(3):
        tracker.receive(delivery(f"new-{n}"), 0)
    assert alive() is None
    tracker.forget(acks.message_ids)
    assert len(known) == 3


def test_a_message_is_forgotten_once() -> None:
    known: KnownMessages[str] = KnownMessages()
    known.remember("a")
    known.forget(["a"])
    with pytest.raises(TrackerError, match="a message was forgotten before"):
        known.forget(["a"])
