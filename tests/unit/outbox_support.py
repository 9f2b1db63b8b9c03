"""What the tests of the writer's core share: an outbox, messages for it, and ways to fail."""

from __future__ import annotations

from itertools import accumulate

from flink_pubsub.core.batching import Batch, Thresholds
from flink_pubsub.core.outbox import Outbox, Rejection
from flink_pubsub.core.publish_rules import PublishRules
from flink_pubsub.core.refusals import Refusal, Verdict
from flink_pubsub.wire.pubsub_pb2 import PublishRequest, PubsubMessage
from tests.unit.sink_support import entries

ONE, TWO, THREE = (f"projects/p/topics/{name}" for name in ("one", "two", "three"))
PASSING = Refusal(Verdict.PASSING, "UNAVAILABLE", "later")
MISSING = Refusal(Verdict.MISSING_TOPIC, "NOT_FOUND", "no such topic")
INVALID = Refusal(Verdict.INVALID, "INVALID_ARGUMENT", "not like this")
DENIED = Refusal(Verdict.FATAL, "PERMISSION_DENIED", "no")


def make(messages: int = 1, jitter: float = 0.5, **rules: object) -> Outbox:
    return Outbox(PublishRules(Thresholds(messages, 10_000_000, 3600), **rules), jitter=lambda: jitter)  # type: ignore[arg-type]


def add(outbox: Outbox, texts: list[str], topic: str = ONE, key: str = "", now: float = 0) -> None:
    made = entries([PubsubMessage(data=text.encode(), ordering_key=key) for text in texts])
    outbox.add((topic, key), b"".join(made), list(accumulate(map(len, made))), now)


def take(outbox: Outbox, now: float = 0) -> list[Batch]:
    return [batch for batch, _ in outbox.take(now)]


def texts(*batches: Batch) -> list[list[str]]:
    return [[message.data.decode() for message in PublishRequest.FromString(batch.request).messages] for batch in batches]


def missing(outbox: Outbox, now: float = 0, topic: str = ONE) -> None:
    """Writes a message and finds its topic missing; the creation has been asked for."""
    add(outbox, ["first"], topic, now=now)
    (batch,) = take(outbox, now)
    assert outbox.failed(batch, MISSING, now) is None
    assert outbox.take_creations(now) == [topic]


def reject(outbox: Outbox, text: str, topic: str = ONE) -> Rejection:
    """Writes a message that the service refuses by itself."""
    add(outbox, [text], topic)
    (batch,) = take(outbox)
    assert outbox.failed(batch, INVALID, 0) is None
    (rejection,) = outbox.take_rejected()
    return rejection
