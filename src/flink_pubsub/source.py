"""The source: its builder, and what of it travels to the workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flink_pubsub import _checks
from flink_pubsub.destinations import SubscriptionDestination
from flink_pubsub.errors import ConfigurationError
from flink_pubsub.options import Connection, DeserializationFailurePolicy, OrderingMode, PubSubSubscriberOptions
from flink_pubsub.schemas import PubSubDeserializationSchema
from flink_pubsub.subscription_options import StartPosition, SubscriptionCreateOptions

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

_A_SUBSCRIPTION = 'SubscriptionDestination("my-project", "orders")'


@dataclass(frozen=True, kw_only=True)
class SourceSpec:
    """What planners and readers need to know. Carries the path of a key file, never its content.

    Raises:
        ConfigurationError: settings contradict each other.
    """

    subscriptions: tuple[SubscriptionDestination, ...]
    """At least one, none twice."""
    create_options: Mapping[SubscriptionDestination, SubscriptionCreateOptions] = field(default_factory=dict)
    """For those of the subscriptions that may be created."""
    deserializer: PubSubDeserializationSchema | None
    """None when the JVM decodes: records are serialized messages then."""
    type_info_proto: bytes | None = None
    """Serialized `TypeInfo` of PyFlink's coder to encode records with; None to pickle them."""
    ordering_mode: OrderingMode = OrderingMode.NONE
    deserialization_failure_policy: DeserializationFailurePolicy = DeserializationFailurePolicy.FAIL
    start_position: StartPosition = field(default_factory=StartPosition.continue_from_subscription)
    options: PubSubSubscriberOptions = field(default_factory=PubSubSubscriberOptions)
    connection: Connection = field(default_factory=Connection)

    def __post_init__(self) -> None:
        if not self.subscriptions:
            raise ConfigurationError("subscriptions", "is missing: name at least one SubscriptionDestination")
        repeated = {s for s in self.subscriptions if self.subscriptions.count(s) > 1}
        if repeated:
            _checks.refuse("subscriptions", "must not name a subscription twice", min(repeated).resource_path)
        if self.ordering_mode is OrderingMode.PER_KEY and self.options.parallel_pull_count > 1:
            problem = "must be 1 with OrderingMode.PER_KEY, since order holds within one connection only"
            _checks.refuse("parallel_pull_count", problem, self.options.parallel_pull_count)
        for subscription, options in self.create_options.items():
            self._check_creation(subscription.resource_path, options)

    def _check_creation(self, subscription: str, options: SubscriptionCreateOptions) -> None:
        """Refuses settings with which the startup check would refuse the subscription that they make."""
        if self.ordering_mode is OrderingMode.PER_KEY and not options.enable_message_ordering:
            raise ConfigurationError(
                "enable_message_ordering",
                f"must be True in the create_options of {subscription}: OrderingMode.PER_KEY needs a subscription with order,"
                " which is fixed at its creation",
            )
        if self.deserialization_failure_policy is DeserializationFailurePolicy.NACK and options.dead_letter_policy is None:
            raise ConfigurationError(
                "dead_letter_policy",
                f"is missing in the create_options of {subscription}: DeserializationFailurePolicy.NACK needs it, or a message"
                " that cannot be converted would come again for ever",
            )


class PubSubSource:
    """Reads subscriptions into a DataStream: `env.from_source(source, watermark_strategy, name)`. Made by `builder()`.

    At-least-once: a message is acknowledged when a checkpoint that covers it completes, so checkpoints must be enabled.
    """

    def __init__(
        self, spec: SourceSpec, deserializer: PubSubDeserializationSchema, python_executable: str | None = None
    ) -> None:
        """For the builder."""
        self._spec = spec
        self._deserializer = deserializer
        self._python_executable = python_executable

    @staticmethod
    def builder() -> PubSubSourceBuilder:
        """A new builder."""
        return PubSubSourceBuilder()

    def get_java_function(self) -> JavaObject:
        """The Flink source. Called by `from_source`, where the job is built.

        Raises:
            JarNotLoadedError: `env.add_jars(jar())` was not called.
            ConfigurationError: the deserializer cannot be pickled.
        """
        from flink_pubsub import _pyflink

        return _pyflink.java_source(self._spec, self._deserializer, self._python_executable)


class PubSubSourceBuilder:
    """Collects the settings of a source. Each call checks what it is given; `build` checks how it all fits together."""

    def __init__(self) -> None:
        self._subscriptions: tuple[SubscriptionDestination, ...] = ()
        self._create_options: dict[SubscriptionDestination, SubscriptionCreateOptions] = {}
        self._deserializer: PubSubDeserializationSchema | None = None
        self._ordering_mode = OrderingMode.NONE
        self._failure_policy = DeserializationFailurePolicy.FAIL
        self._start_position = StartPosition.continue_from_subscription()
        self._options = PubSubSubscriberOptions()
        self._key_file: str | None = None
        self._emulator: str | None = None
        self._python_executable: str | None = None

    def subscriptions(self, *subscriptions: SubscriptionDestination) -> PubSubSourceBuilder:
        """Adds subscriptions to read, which must exist. At least one is required; may be called more than once."""
        for subscription in subscriptions:
            _checks.instance("subscriptions", subscription, SubscriptionDestination, _A_SUBSCRIPTION)
        self._subscriptions += subscriptions
        return self

    def subscription(
        self, subscription: SubscriptionDestination, create_options: SubscriptionCreateOptions | None = None
    ) -> PubSubSourceBuilder:
        """Adds one subscription to read; may be called more than once, also beside `subscriptions`.

        Args:
            subscription: what to read.
            create_options: makes the source create it, with these settings, if it does not exist when the job starts. Without,
                it must exist. An existing subscription keeps its own settings.
        """
        _checks.instance("subscription", subscription, SubscriptionDestination, _A_SUBSCRIPTION)
        if create_options is not None:
            example = "SubscriptionCreateOptions(topic=TopicDestination(...))"
            _checks.instance("create_options", create_options, SubscriptionCreateOptions, example)
            self._create_options[subscription] = create_options
        self._subscriptions += (subscription,)
        return self

    def deserializer(self, deserializer: PubSubDeserializationSchema) -> PubSubSourceBuilder:
        """Sets what turns messages into records. Required."""
        self._deserializer = _checks.instance(
            "deserializer", deserializer, PubSubDeserializationSchema, "PubSubDeserializationSchema.payload(json.loads)"
        )
        return self

    def ordering_mode(self, mode: OrderingMode) -> PubSubSourceBuilder:
        """Sets whether the order of messages with a key is kept. Default `OrderingMode.NONE`."""
        self._ordering_mode = _checks.instance("ordering_mode", mode, OrderingMode, "OrderingMode.PER_KEY")
        return self

    def start_position(self, position: StartPosition) -> PubSubSourceBuilder:
        """Sets where the job begins to read at its first start. Default `StartPosition.continue_from_subscription()`."""
        self._start_position = _checks.instance("start_position", position, StartPosition, "StartPosition.earliest_retained()")
        return self

    def deserialization_failure_policy(self, policy: DeserializationFailurePolicy) -> PubSubSourceBuilder:
        """Sets what happens to a message that the deserializer cannot convert. Default `DeserializationFailurePolicy.FAIL`."""
        self._failure_policy = _checks.instance(
            "deserialization_failure_policy", policy, DeserializationFailurePolicy, "DeserializationFailurePolicy.DROP"
        )
        return self

    def subscriber_options(self, options: PubSubSubscriberOptions) -> PubSubSourceBuilder:
        """Sets the tuning."""
        self._options = _checks.instance(
            "subscriber_options", options, PubSubSubscriberOptions, "PubSubSubscriberOptions(parallel_pull_count=2)"
        )
        return self

    def service_account_key_file(self, path: str) -> PubSubSourceBuilder:
        """Authenticates with a service account's key, read from this path on every machine where a planner or reader starts.

        Default: application default credentials.
        """
        self._key_file = _checks.path("service_account_key_file", path, secret=True)
        return self

    def emulator_endpoint(self, endpoint: str) -> PubSubSourceBuilder:
        """Reads from an emulator at `host:port`, in plain text and without credentials."""
        self._emulator = _checks.endpoint("emulator_endpoint", endpoint)
        return self

    def python_executable(self, path: str) -> PubSubSourceBuilder:
        """Runs the workers with this interpreter, which may be that of a virtual environment of their own.

        Default: the TaskManager's `python.executable`, else this interpreter if that host has it, else `python3`.
        """
        self._python_executable = _checks.path("python_executable", path)
        return self

    def build(self) -> PubSubSource:
        """The source.

        Raises:
            ConfigurationError: something required is missing, or settings contradict each other.
        """
        if self._deserializer is None:
            raise ConfigurationError("deserializer", "is missing: say how messages become records with .deserializer(...)")
        spec = SourceSpec(
            subscriptions=self._subscriptions,
            create_options=dict(self._create_options),
            deserializer=None if self._deserializer.decodes_in_jvm else self._deserializer,
            ordering_mode=self._ordering_mode,
            deserialization_failure_policy=self._failure_policy,
            start_position=self._start_position,
            options=self._options,
            connection=Connection(service_account_key_file=self._key_file, emulator_endpoint=self._emulator),
        )
        return PubSubSource(spec, self._deserializer, self._python_executable)
