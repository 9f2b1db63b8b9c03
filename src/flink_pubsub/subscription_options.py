"""How a source may create a subscription, and where it begins to read one.

Neither touches a subscription that is in use: creation settings are no update, and a start position is sought only at a job's
first start.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from enum import Enum

from flink_pubsub import _checks
from flink_pubsub.destinations import TopicDestination
from flink_pubsub.errors import ConfigurationError
from flink_pubsub.options import Option

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_LAST_MILLISECOND = 253_402_300_799_999
"""The end of the year 9999, where datetime and the service's timestamps end."""
_A_TOPIC = 'TopicDestination("my-project", "orders")'


@dataclass(frozen=True, kw_only=True)
class DeadLetterPolicy:
    """Where the service forwards a message that was delivered often enough in vain. Immutable; equal by value.

    The service's own account needs the right to publish to that topic and to acknowledge on the subscription; without, it
    forwards nothing and goes on delivering.

    Raises:
        ConfigurationError: a value has the wrong type or is out of range.
    """

    topic: TopicDestination
    """The topic that takes such messages. It must exist."""

    max_delivery_attempts: Option[int] = Option(5, _checks.whole(5, 100), "scan.auto-create.dead-letter.max-delivery-attempts")
    """Deliveries before a message is forwarded, 5 to 100. Restarts of the job count too, so leave room for them. Default 5,
    the service's."""

    def __post_init__(self) -> None:
        _checks.instance("topic", self.topic, TopicDestination, _A_TOPIC)


@dataclass(frozen=True, kw_only=True)
class SubscriptionCreateOptions:
    """Settings of a subscription that the source creates when it is missing. Immutable; equal by value.

    Passing them to `subscription(...)` of the builder is what allows its creation. One that exists keeps its own settings. What
    is not set is left to the service.

    Raises:
        ConfigurationError: a value has the wrong type or is outside what the service accepts, or two contradict each other.
    """

    topic: TopicDestination
    """The topic to subscribe to. It must exist."""

    ack_deadline: Option[timedelta | None] = Option(
        None,
        _checks.duration(timedelta(seconds=10), timedelta(seconds=600), whole_seconds=True),
        "scan.auto-create.ack-deadline",
    )
    """How long a consumer has to acknowledge before the message comes again: whole seconds, 10 to 600. The source extends it
    for what it holds. Default: the service's, 10 s."""

    enable_message_ordering: Option[bool] = Option(False, _checks.flag, "scan.auto-create.message-ordering.enabled")
    """Delivers the messages of an ordering key in order. Needed by `OrderingMode.PER_KEY`, and fixed at creation. Default
    False."""

    message_retention: Option[timedelta | None] = Option(
        None, _checks.duration(timedelta(minutes=10), timedelta(days=31)), "scan.auto-create.message-retention"
    )
    """How long a message is kept for delivery, 10 minutes to 31 days. Default: the service's, 7 days."""

    retain_acked_messages: Option[bool] = Option(False, _checks.flag, "scan.auto-create.retain-acked-messages")
    """Keeps acknowledged messages as well, so that a start position in the past replays them. Default False."""

    expiration_ttl: Option[timedelta | None] = Option(
        None, _checks.duration(timedelta(days=1)), "scan.auto-create.expiration-ttl"
    )
    """How long the subscription may have no consumer before the service deletes it, at least 1 day. Default: the service's,
    31 days."""

    never_expire: Option[bool] = Option(False, _checks.flag, "scan.auto-create.never-expire")
    """Keeps the subscription however long it has no consumer. Default False."""

    dead_letter_policy: DeadLetterPolicy | None = None
    """Forwards messages that cannot be processed. Needed by `DeserializationFailurePolicy.NACK`. Default: none, messages come
    again for ever."""

    filter: Option[str | None] = Option(None, _checks.text(256), "scan.auto-create.filter")
    """Delivers only messages whose attributes match, such as `attributes.region = "eu"`; the service acknowledges the others.
    At most 256 bytes, and fixed at creation. Default: all messages."""

    def __post_init__(self) -> None:
        _checks.instance("topic", self.topic, TopicDestination, _A_TOPIC)
        policy = self.dead_letter_policy
        if policy is not None:
            example = "DeadLetterPolicy(topic=TopicDestination(...))"
            _checks.instance("dead_letter_policy", policy, DeadLetterPolicy, example)
            if policy.topic == self.topic:
                problem = "must not forward to the topic that is subscribed to, from where messages would come back"
                _checks.refuse("dead_letter_policy", problem, policy.topic.resource_path)
        if self.never_expire and self.expiration_ttl is not None:
            _checks.refuse("expiration_ttl", "cannot be combined with never_expire: set one of them", self.expiration_ttl)


class StartMode(Enum):
    """The kinds of start positions. The value is the one SQL uses."""

    CONTINUE_FROM_SUBSCRIPTION = "continue-from-subscription"
    EARLIEST_RETAINED = "earliest-retained"
    LATEST = "latest"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, kw_only=True)
class StartPosition:
    """Where the source begins to read, at the first start of a job. Made by the four functions. Immutable; equal by value.

    Every position but `continue_from_subscription` seeks the subscriptions, which changes them for all their consumers: use it
    with subscriptions that the job owns. A job that restores a checkpoint or savepoint never seeks.

    Raises:
        ConfigurationError: there is a timestamp without the timestamp mode, or the mode without one.
    """

    mode: StartMode
    timestamp: datetime | None = None
    """In UTC; with `StartMode.TIMESTAMP` only."""

    def __post_init__(self) -> None:
        _checks.instance("mode", self.mode, StartMode, "StartMode.LATEST")
        if self.mode is not StartMode.TIMESTAMP:
            if self.timestamp is not None:
                problem = f"goes with {StartMode.TIMESTAMP} only, not with {self.mode}"
                _checks.refuse("timestamp", problem, str(self.timestamp))
        elif self.timestamp is None:
            raise ConfigurationError("timestamp", f"is missing: {StartMode.TIMESTAMP} needs one")
        else:
            object.__setattr__(self, "timestamp", _instant(self.timestamp))

    @staticmethod
    def continue_from_subscription() -> StartPosition:
        """What is not acknowledged yet. The default, and the only position that seeks nothing."""
        return StartPosition(mode=StartMode.CONTINUE_FROM_SUBSCRIPTION)

    @staticmethod
    def earliest_retained() -> StartPosition:
        """Everything that is retained, also acknowledged messages if the subscription or its topic retains those."""
        return StartPosition(mode=StartMode.EARLIEST_RETAINED)

    @staticmethod
    def latest() -> StartPosition:
        """What is published after the moment at which the job's startup check begins."""
        return StartPosition(mode=StartMode.LATEST)

    @staticmethod
    def from_timestamp(timestamp: datetime | int) -> StartPosition:
        """What was published at or after this time and is retained.

        Args:
            timestamp: a datetime with a time zone, or milliseconds since 1970.

        Raises:
            ConfigurationError: the datetime has no time zone, or the time is before 1970 or after 9999.
        """
        return StartPosition(mode=StartMode.TIMESTAMP, timestamp=_instant(timestamp))


def _instant(value: object) -> datetime:
    if isinstance(value, datetime):
        if value.tzinfo is None or value.utcoffset() is None:
            problem = (
                "needs a time zone, such as datetime(2024, 5, 1, tzinfo=timezone.utc): without, its meaning changes by host"
            )
            _checks.refuse("timestamp", problem, value)
        try:
            instant = value.astimezone(timezone.utc)
        except OverflowError:
            _checks.refuse("timestamp", "must not lie outside the years 1970 to 9999", value)
        if instant < _EPOCH:
            _checks.refuse("timestamp", "must not lie before 1970", value)
        return instant
    if not isinstance(value, int) or isinstance(value, bool):
        _checks.refuse("timestamp", "must be a datetime with a time zone, or milliseconds since 1970 as an int", value)
    if not 0 <= value <= _LAST_MILLISECOND:
        _checks.refuse("timestamp", "must be 0 or more milliseconds since 1970, up to the end of the year 9999", value)
    return _EPOCH + timedelta(milliseconds=value)
