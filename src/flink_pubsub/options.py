"""Tuning of the source and the sink: what can be set, within which limits, and what holds when it is not.

Each option is declared once, as a field whose `Option` holds the default, the check and the SQL key; the docstring under
it is its documentation. Reading a field gives the effective value, so nobody else knows a default, and None, when given,
means the default. `declared()` lists a class's options for whoever makes a table of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Generic, TypeVar

from flink_pubsub import _checks
from flink_pubsub.errors import ConfigurationError

T = TypeVar("T")

_MIB = 1024 * 1024
_LEASE = _checks.duration(timedelta(seconds=10), timedelta(seconds=600))
"""What the service accepts as an acknowledgement deadline."""


class OrderingMode(Enum):
    """Whether the source keeps the order of messages that share an ordering key. The value is the one SQL uses."""

    NONE = "none"
    """No promise; subscriptions are read by as many subtasks as there are."""
    PER_KEY = "per-key"
    """Records of a key are emitted in the order of the messages; each subscription is read by one subtask on one stream."""


class DeserializationFailurePolicy(Enum):
    """What the source does with a message that its deserializer cannot convert. The value is the one SQL uses."""

    FAIL = "fail"
    """Fails the job. The message comes again after the restart, so nothing is lost and nothing goes on either."""
    DROP = "drop"
    """Acknowledges the message at the next checkpoint, emits no more for it than was emitted before it failed, and logs."""
    NACK = "nack"
    """Gives the message back at once, so that the subscription's dead-letter policy, which it must have, takes it away after
    enough attempts."""


class Option(Generic[T]):
    """One option of a frozen dataclass, as a descriptor: checks what is given, and gives the default when nothing is."""

    name: str

    def __init__(self, default: T, check: _checks.Check, sql: str, *, in_bytes: bool = False) -> None:
        """Declares an option.

        Args:
            default: the value that holds when none, or None, is given.
            check: applied to every other value.
            sql: the option's key in the WITH clause of a table.
            in_bytes: whether a number is a size in bytes, which SQL writes with a unit.
        """
        self.default = default
        self.check = check
        self.sql = sql
        self.in_bytes = in_bytes

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: object | None, owner: type) -> T:
        value: T = self.default if instance is None else instance.__dict__[self.name]
        return value

    def __set__(self, instance: object, value: T | None) -> None:
        instance.__dict__[self.name] = self.default if value is None else self.check(self.name, value)


def declared(options: type) -> Mapping[str, Option[object]]:
    """The options of a class, by name, in the order of declaration."""
    return {name: value for name, value in vars(options).items() if isinstance(value, Option)}


@dataclass(frozen=True, kw_only=True)
class PubSubSubscriberOptions:
    """Tuning of a source. Immutable; equal by value.

    Raises:
        ConfigurationError: a value has the wrong type or is out of range, or two contradict each other.
    """

    flow_control_max_outstanding_element_count: Option[int] = Option(
        1000, _checks.whole(1), "scan.flow-control.max-outstanding-element-count"
    )
    """Messages one subscriber may hold before it stops pulling. A message counts until it is acknowledged or given back,
    which waits for a checkpoint: allow for the messages of two checkpoint intervals. Default 1000, the official clients'."""

    flow_control_max_outstanding_request_bytes: Option[int] = Option(
        100 * _MIB, _checks.whole(1), "scan.flow-control.max-outstanding-request-bytes", in_bytes=True
    )
    """The same in bytes of serialized messages. Default 100 MiB, the official clients'."""

    subscriber_buffer_max_messages: Option[int] = Option(10_000, _checks.whole(1), "scan.subscriber-buffer.max-messages")
    """Messages that all splits of one reader may buffer: received, and not yet handed to Flink. Never exceeded. A reader stops
    pulling well before, so it is reached only in tight corners. Default 10,000."""

    subscriber_buffer_max_bytes: Option[int] = Option(
        64 * _MIB, _checks.whole(1), "scan.subscriber-buffer.max-bytes", in_bytes=True
    )
    """The same in bytes of serialized messages. A message larger than this fails the job. Default 64 MiB."""

    paused_split_buffer_max_messages: Option[int | None] = Option(
        None, _checks.whole(1), "scan.paused-split-buffer.max-messages"
    )
    """Messages that a split paused by watermark alignment may buffer. Beyond that its messages are given back and its
    connections closed until it is resumed. Default: twice `flow_control_max_outstanding_element_count`, which a split does not
    reach."""

    paused_split_buffer_max_bytes: Option[int | None] = Option(
        None, _checks.whole(1), "scan.paused-split-buffer.max-bytes", in_bytes=True
    )
    """The same in bytes of serialized messages. Default: twice `flow_control_max_outstanding_request_bytes`."""

    max_records_per_fetch: Option[int] = Option(1000, _checks.whole(1), "scan.max-records-per-fetch")
    """Messages one fetch takes from one split, so that splits take turns. Not a bound on memory. Default 1000."""

    parallel_pull_count: Option[int] = Option(1, _checks.whole(1), "scan.parallel-pull-count")
    """Streaming-pull connections per subscriber; the service delivers about 10 MB/s on each. Default 1, and no more than
    that with `OrderingMode.PER_KEY`, since order holds within one connection only."""

    max_ack_extension_period: Option[timedelta] = Option(
        timedelta(hours=1), _checks.duration(zero=True), "scan.ack.max-extension-period"
    )
    """How long after its receipt the lease of a held message is extended; after that the service may deliver it again. Keep
    it well above the checkpoint interval. 0 extends nothing. Default 1 hour, the official clients'."""

    min_duration_per_ack_extension: Option[timedelta | None] = Option(None, _LEASE, "scan.ack.min-duration-per-extension")
    """Shortest extension asked for at a time, 10 to 600 s, which is what the service accepts. Default: adapts to how long
    messages are held."""

    max_duration_per_ack_extension: Option[timedelta | None] = Option(None, _LEASE, "scan.ack.max-duration-per-extension")
    """Longest extension asked for at a time, 10 to 600 s. A short one makes redelivery after a lost machine prompt, at the
    price of more calls. Default: adapts to how long messages are held."""

    await_ack_confirmation: Option[timedelta | None] = Option(None, _checks.duration(), "scan.ack.await-confirmation")
    """Lets each completed checkpoint wait, on the task's thread, until the service has confirmed its acknowledgements, and
    fails the job when that takes longer than this. Default: nothing waits, and what is not confirmed is delivered again."""

    first_checkpoint_timeout: Option[timedelta] = Option(
        timedelta(minutes=10), _checks.duration(zero=True), "scan.first-checkpoint-timeout"
    )
    """How long after its first split a reader that holds messages waits for the job's first checkpoint before it fails the job:
    without checkpoints nothing is ever acknowledged. 0 waits for ever. Default 10 minutes."""

    shutdown_timeout: Option[timedelta] = Option(timedelta(seconds=5), _checks.duration(), "scan.shutdown-timeout")
    """How long closing a reader may take, however many splits it has: giving back what is held and ending the streams. Keep
    it below Flink's `source.reader.close.timeout`. Default 5 s."""

    @property
    def paused_split_buffer(self) -> tuple[int, int]:
        """Messages and bytes that a paused split may buffer: what is set, or twice the flow control."""
        return (
            self.paused_split_buffer_max_messages or 2 * self.flow_control_max_outstanding_element_count,
            self.paused_split_buffer_max_bytes or 2 * self.flow_control_max_outstanding_request_bytes,
        )

    def __post_init__(self) -> None:
        shortest, longest = (self.min_duration_per_ack_extension, self.max_duration_per_ack_extension)
        if shortest is not None and longest is not None and shortest > longest:
            problem = f"must not exceed max_duration_per_ack_extension, which is {longest}"
            _checks.refuse("min_duration_per_ack_extension", problem, shortest)


@dataclass(frozen=True, kw_only=True)
class PubSubPublisherOptions:
    """Tuning of a sink. Immutable; equal by value. Defaults of batching and retries are those of the official Java client.

    Raises:
        ConfigurationError: a value has the wrong type or is out of range, or two contradict each other.
    """

    batch_element_count_threshold: Option[int] = Option(100, _checks.whole(1, 1000), "sink.batching.element-count-threshold")
    """Messages that make a batch ready to go; at most 1000, the service's limit for a request. Default 100."""

    batch_request_byte_threshold: Option[int] = Option(
        1000, _checks.whole(1, 10_000_000), "sink.batching.request-byte-threshold", in_bytes=True
    )
    """Bytes that make a batch ready to go; at most 10,000,000, the service's limit for a request. Default 1000."""

    batch_delay_threshold: Option[timedelta] = Option(
        timedelta(milliseconds=1), _checks.duration(), "sink.batching.delay-threshold"
    )
    """How long the first message of a batch waits for others. Default 1 ms."""

    retry_total_timeout: Option[timedelta] = Option(
        timedelta(seconds=600), _checks.duration(zero=True), "sink.retry.total-timeout"
    )
    """Budget of one publish, all its attempts included; running out fails the job, with message ordering too. 0 means that
    `retry_max_attempts` alone bounds it, and needs that. Default 600 s."""

    retry_initial_delay: Option[timedelta] = Option(
        timedelta(milliseconds=100), _checks.duration(zero=True), "sink.retry.initial-delay"
    )
    """Delay before the first retry; 0 retries at once. Default 100 ms."""

    retry_delay_multiplier: Option[float] = Option(4.0, _checks.factor, "sink.retry.delay-multiplier")
    """What the delay grows by from retry to retry, at least 1. Default 4."""

    retry_max_delay: Option[timedelta] = Option(timedelta(seconds=60), _checks.duration(zero=True), "sink.retry.max-delay")
    """Longest delay between retries; 0 makes every delay 0. Default 60 s."""

    retry_initial_rpc_timeout: Option[timedelta] = Option(
        timedelta(seconds=5), _checks.duration(zero=True), "sink.retry.initial-rpc-timeout"
    )
    """How long the first attempt may take; 0 leaves attempts without a timeout of their own. Default 5 s."""

    retry_rpc_timeout_multiplier: Option[float] = Option(4.0, _checks.factor, "sink.retry.rpc-timeout-multiplier")
    """What an attempt's timeout grows by from attempt to attempt, at least 1. Default 4."""

    retry_max_rpc_timeout: Option[timedelta] = Option(
        timedelta(seconds=60), _checks.duration(zero=True), "sink.retry.max-rpc-timeout"
    )
    """Longest timeout of an attempt; 0 leaves attempts without a timeout of their own. Default 60 s."""

    retry_max_attempts: Option[int | None] = Option(None, _checks.whole(1), "sink.retry.max-attempts")
    """Attempts of one publish, the first included. Default: only `retry_total_timeout` bounds them."""

    enable_message_ordering: Option[bool] = Option(False, _checks.flag, "sink.message-ordering.enabled")
    """Publishes the messages of an ordering key in order, one batch of a key at a time, within a topic and a subtask. Without
    it a message that has an ordering key fails the job. Default False."""

    max_in_flight_messages: Option[int] = Option(1000, _checks.whole(1), "sink.in-flight.max-messages")
    """Messages of one writer that wait for the service's answer. At the cap the job is held back. Default 1000."""

    max_in_flight_bytes: Option[int] = Option(64 * _MIB, _checks.whole(1), "sink.in-flight.max-bytes", in_bytes=True)
    """Their total size. A larger message is admitted when nothing else is in flight. Default 64 MiB."""

    max_active_publishers: Option[int] = Option(100, _checks.whole(1), "sink.max-active-publishers")
    """Topics one writer publishes to at a time. A record for one more takes the place of the topic that is settled and has been
    unused for longest; while none is settled, writing waits until one is. Default 100."""

    destination_idle_timeout: Option[timedelta] = Option(
        timedelta(hours=1), _checks.duration(), "sink.destination-idle-timeout"
    )
    """How long a topic may be unused before a checkpoint lets go of it. Using it again costs nothing. Default 1 hour."""

    publish_progress_timeout: Option[timedelta] = Option(
        timedelta(seconds=600), _checks.duration(), "sink.publish-progress-timeout"
    )
    """How long no publish may complete, while some are out, before the job fails; a tenth of it is worth a warning. Every
    completion starts it over, so a slow topic never spends it. It bounds each call of the failure handler as well. Keep it
    below Flink's `execution.checkpointing.timeout` to see Pub/Sub named as the cause. Default 600 s."""

    recovery_initial_backoff: Option[timedelta] = Option(
        timedelta(milliseconds=500), _checks.duration(), "sink.recovery.initial-backoff"
    )
    """How long the first attempt to publish to a topic that was just created waits, up to a quarter more or less. It doubles
    from attempt to attempt. Default 500 ms."""

    recovery_max_backoff: Option[timedelta] = Option(timedelta(seconds=10), _checks.duration(), "sink.recovery.max-backoff")
    """Longest such wait, before the quarter. At least `recovery_initial_backoff`. Default 10 s."""

    recovery_max_attempts: Option[int] = Option(10, _checks.whole(1), "sink.recovery.max-attempts")
    """Attempts to reach a missing topic without any success before the job fails. Default 10, about a minute."""

    max_consecutive_rejections: Option[int] = Option(100, _checks.count_or_unlimited, "sink.max-consecutive-rejections")
    """Messages in a row that the service refuses for themselves, with none published in between, before the job fails although
    the failure handler took them. -1 for no limit. Default 100."""

    shutdown_timeout: Option[timedelta] = Option(timedelta(seconds=30), _checks.duration(), "sink.shutdown-timeout")
    """How long closing a writer's publishers may take; a failure handler's own budget comes on top. Keep both together below
    Flink's `task.cancellation.timeout`, 180 s. Default 30 s."""

    per_destination_metrics: Option[bool] = Option(False, _checks.flag, "sink.metrics.per-destination")
    """Counts `recordsSend` and `sendErrors` for each topic too. Flink keeps every metric for a task's lifetime, so this is for
    topics that are few and known. Default False."""

    def __post_init__(self) -> None:
        if self.recovery_max_backoff < self.recovery_initial_backoff:
            problem = f"must be at least recovery_initial_backoff, which is {self.recovery_initial_backoff}"
            _checks.refuse("recovery_max_backoff", problem, self.recovery_max_backoff)
        if not self.retry_total_timeout and self.retry_max_attempts is None:
            problem = "of 0 leaves retries to retry_max_attempts, which is not set: set it, or give a timeout"
            _checks.refuse("retry_total_timeout", problem, self.retry_total_timeout)


@dataclass(frozen=True, kw_only=True)
class Connection:
    """How to reach the service: with a key file, as an emulator, or, when neither is set, with application default credentials.

    Raises:
        ConfigurationError: a value is malformed, or both are set.
    """

    service_account_key_file: str | None = field(default=None, repr=False)
    """Path of a service account's key in JSON, read where planners, readers and writers start. Never its content."""
    emulator_endpoint: str | None = None
    """`host:port` of an emulator, reached in plain text and without credentials."""

    def __post_init__(self) -> None:
        if self.service_account_key_file is not None:
            _checks.path("service_account_key_file", self.service_account_key_file, secret=True)
        if self.emulator_endpoint is not None:
            _checks.endpoint("emulator_endpoint", self.emulator_endpoint)
        if self.service_account_key_file is not None and self.emulator_endpoint is not None:
            raise ConfigurationError(
                "service_account_key_file",
                "cannot be combined with emulator_endpoint, whose connection carries no credentials: set one of them",
            )
