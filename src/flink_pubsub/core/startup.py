"""The startup check's rules: what a subscription must be to be read as configured, and where reading begins.

The rules take what the service says of subscriptions and give sentences: rejections, which keep the job from starting, and
warnings. A rejection names the subscription, the option and the mend. All of them are found before anything is sought, so a
start that fails has not moved any subscription.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from flink_pubsub.destinations import SubscriptionDestination
from flink_pubsub.options import DeserializationFailurePolicy, OrderingMode
from flink_pubsub.subscription_options import StartMode, StartPosition, SubscriptionCreateOptions

DELETED_TOPIC = "_deleted-topic_"
"""What the service calls the topic of a subscription whose topic was deleted."""

_BEFORE_ALL_RETENTION = timedelta(days=32)
"""Neither a subscription nor a topic retains messages for more than 31 days."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionFacts:
    """What the service says of a subscription, as far as the rules need it."""

    path: str
    topic: str
    ordered: bool = False
    exactly_once: bool = False
    detached: bool = False
    pushed: bool = False
    dead_letters: bool = False
    retains_acked: bool = False
    topic_retains: bool = False
    filtered: bool = False


def rejections(facts: SubscriptionFacts, mode: OrderingMode, policy: DeserializationFailurePolicy) -> list[str]:
    """Why this subscription cannot be read with these settings; empty if it can."""
    name = f"subscription {facts.path}"
    if facts.detached:
        return [f"{name} is detached from its topic and delivers nothing any more: name another one in subscriptions(...)"]
    found = []
    if facts.pushed:
        found.append(f"{name} pushes to an endpoint and cannot be pulled: remove its push_config, or name another one")
    if facts.exactly_once:
        found.append(
            f"{name} has exactly-once delivery, whose acknowledgement ids end with their deadline, and the source acknowledges"
            " at checkpoints: turn enable_exactly_once_delivery off, or name another one"
        )
    if mode is OrderingMode.PER_KEY and not facts.ordered:
        found.append(
            f"{name} delivers without order, which ordering_mode(OrderingMode.PER_KEY) cannot mend: name one that was created"
            " with enable_message_ordering, or leave ordering_mode out"
        )
    if policy is DeserializationFailurePolicy.NACK and not facts.dead_letters:
        found.append(
            f"{name} has no dead-letter policy, so with deserialization_failure_policy(DeserializationFailurePolicy.NACK) a"
            " message that cannot be converted would come again for ever: give it a dead_letter_policy, or choose DROP or FAIL"
        )
    return found


@dataclass(frozen=True, slots=True)
class Refused:
    """A call that the service refused, by the name of the gRPC status and its words."""

    status: str
    details: str

    def __str__(self) -> str:
        return f"{self.status}: {self.details}" if self.details else self.status


def not_described(subscription: SubscriptionDestination, refused: Refused) -> str:
    """The rejection for a subscription that cannot be described."""
    path = subscription.resource_path
    if refused.status == "NOT_FOUND":
        return (
            f"subscription {path} does not exist ({refused.details}): create it, correct the name given to subscriptions(...),"
            " or let the source create it with subscription(..., create_options=SubscriptionCreateOptions(...))"
        )
    return f"subscription {path} cannot be described ({refused})" + _mend(
        refused, "grant pubsub.subscriptions.get on it, such as by roles/pubsub.viewer"
    )


def not_created(subscription: SubscriptionDestination, options: SubscriptionCreateOptions, refused: Refused) -> str:
    """The rejection for a subscription that cannot be created."""
    topic = options.topic.resource_path
    problem = f"subscription {subscription.resource_path} cannot be created on {topic} ({refused})"
    if refused.status == "NOT_FOUND":
        missing = topic if options.dead_letter_policy is None else f"{topic} and the topic of its dead_letter_policy"
        return f"{problem}: create {missing}, or correct the name in create_options"
    if refused.status == "INVALID_ARGUMENT":
        return f"{problem}: correct its create_options"
    grant = (
        f"grant pubsub.subscriptions.create on project {subscription.project} and pubsub.topics.attachSubscription on {topic},"
        " such as by roles/pubsub.editor"
    )
    return problem + _mend(refused, grant)


def not_sought(subscription: SubscriptionDestination, position: StartPosition, refused: Refused) -> str:
    """The rejection for a subscription whose start position cannot be sought."""
    return (
        f"subscription {subscription.resource_path} cannot be sought to start_position {position.mode.value} ({refused})"
        + _mend(refused, "grant pubsub.subscriptions.consume on it, such as by roles/pubsub.subscriber")
    )


def _mend(refused: Refused, grant: str) -> str:
    if refused.status == "PERMISSION_DENIED":
        return f": {grant}, to the account of the JobManager"
    if refused.status == "UNAUTHENTICATED":
        return ": mend the credentials of the JobManager, or name a service_account_key_file"
    return ""


def seek_time(position: StartPosition, started: datetime) -> datetime | None:
    """What to seek to, given the instant at which the check began; None to leave the subscriptions where they stand."""
    if position.mode is StartMode.EARLIEST_RETAINED:
        return started - _BEFORE_ALL_RETENTION
    if position.mode is StartMode.LATEST:
        return started
    return position.timestamp


def warnings(subscriptions: Sequence[SubscriptionFacts], target: datetime | None, started: datetime) -> list[str]:
    """What will work, but hardly as meant.

    Args:
        subscriptions: all that the source reads.
        target: what will be sought; None for nothing.
        started: the instant at which the check began.
    """
    found = [
        f"the topic of subscription {facts.path} was deleted: what the subscription still holds is all that will come"
        for facts in subscriptions
        if facts.topic == DELETED_TOPIC
    ]
    if target is not None and target > started:
        found.append(f"start_position {target.isoformat()} lies in the future: all that is published before it is discarded")
    elif target is not None and target < started:
        found += [
            f"subscription {facts.path} retains no acknowledged messages, and neither does its topic: start_position brings"
            " back only what was never acknowledged. Set retain_acked_messages on the subscription, or a retention on the topic"
            for facts in subscriptions
            if not facts.retains_acked and not facts.topic_retains
        ]
    by_topic: dict[str, list[str]] = defaultdict(list)
    for facts in subscriptions:
        if not facts.filtered and facts.topic != DELETED_TOPIC:
            by_topic[facts.topic].append(facts.path)
    found += [
        f"{' and '.join(paths)} subscribe to the same topic, {topic}: the source emits each message once per subscription"
        for topic, paths in by_topic.items()
        if len(paths) > 1
    ]
    return found
