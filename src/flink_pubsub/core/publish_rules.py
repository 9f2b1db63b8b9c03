"""What the options of a sink come to, for the decisions about its publishes."""

from __future__ import annotations

from dataclasses import dataclass, field

from flink_pubsub.core.batching import Thresholds
from flink_pubsub.core.repairs import RecoveryPolicy
from flink_pubsub.core.retry import RetryPolicy


@dataclass(frozen=True, slots=True)
class PublishRules:
    """Bounds and permissions of one writer."""

    thresholds: Thresholds
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    recovery: RecoveryPolicy = field(default_factory=RecoveryPolicy)
    never_create: str | None = None
    """What to say of a missing topic, which fails the job then; None lets it be created."""
    max_calls: int = 200
    """Publish calls out at a time. Servers cancel calls beyond about 1,000 pending ones, and a channel gets no faster with
    more."""
    max_messages: int = 1000
    """Messages in flight at a time, as far as the writer's credit allows."""
    max_size: int = 64 * 1024 * 1024
    """Their bytes."""
    max_topics: int = 100
    """Topics in use at a time."""
    max_consecutive_rejections: int | None = 100
    """Messages in a row that may be refused for themselves; None for any number."""
    progress_timeout: float = 600
    """Seconds without a completed publish after which the job fails."""
