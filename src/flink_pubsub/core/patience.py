"""How long a batch that may go waits for more messages all the same.

A call costs a writer as much as dozens of messages, so one that cannot keep up must not spend its time on small ones. A
writer that does keep up never waits.
"""

from __future__ import annotations

from flink_pubsub.core.publish_rules import PublishRules

PATIENCE = 0.1
"""Seconds, the queueing time of a few thousand messages in a writer that cannot keep up: enough to fill batches of dozens of
topics, and nothing against the time such a writer lags behind anyway."""


def patience(rules: PublishRules, records: int, size: int, out: int, busy: bool) -> float:
    """Seconds that a batch waits beyond its delay.

    It does while more messages are about to be added (`busy`); and, with half of the credit used up, while most of the
    `records` in flight are `out` already, since their answers will bring more.
    """
    crowded = records * 2 > rules.max_messages or size * 2 > rules.max_size
    return PATIENCE if busy or (crowded and out * 4 >= records * 3) else 0
