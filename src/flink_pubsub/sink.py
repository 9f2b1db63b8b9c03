"""The sink: its builder, and what of it travels to the workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from flink_pubsub import _checks
from flink_pubsub.destinations import TopicDestination
from flink_pubsub.errors import ConfigurationError
from flink_pubsub.failures import FailedElement, FailedMessage, FailJob, FailureHandler
from flink_pubsub.options import Connection, PubSubPublisherOptions
from flink_pubsub.schemas import PubSubSerializationSchema
from flink_pubsub.topic_options import CreateDisposition, TopicCreateOptions

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

    from flink_pubsub._pyflink import StreamTypeProbe


@dataclass(frozen=True, slots=True)
class SinkContext:
    """What a destination resolver learns besides the record. Times are in milliseconds since the epoch."""

    timestamp: int | None
    """Event time of the record, if it has one."""
    watermark: int | None
    """Watermark of the stream when the record came, if there has been one."""


DestinationResolver: TypeAlias = Callable[[Any, SinkContext], TopicDestination]
ElementCoding: TypeAlias = Literal["none", "pickle", "bytes", "proto", "route"]
PayloadCoding: TypeAlias = Literal["none", "payload", "message"]


@dataclass(frozen=True, kw_only=True)
class SinkSpec:
    """What writers need to know. Carries the path of a key file, never its content.

    Raises:
        ConfigurationError: there is not exactly one of topic and resolver.
    """

    topic: TopicDestination | None
    """Where everything goes; with the coding `route`, what names no topic of its own."""
    destination_resolver: DestinationResolver | None
    serializer: PubSubSerializationSchema
    element_coding: ElementCoding = "none"
    """How the element column is to be read: not there, pickled, as it is, by PyFlink's coder for `type_info_proto`, or as the
    topic and the ordering key that a table's row names, beside a payload column of messages."""
    type_info_proto: bytes | None = None
    """Serialized `TypeInfo` of the elements, with the coding `proto`."""
    payload_coding: PayloadCoding = "none"
    """What the payload column holds: nothing, payloads, or complete entries of `PublishRequest.messages`. The last only with
    a topic that is fixed or named beside it, and nothing to be extracted in Python."""
    topic_project: str | None = None
    """Project of the topics that rows name, with the coding `route`."""
    options: PubSubPublisherOptions = field(default_factory=PubSubPublisherOptions)
    connection: Connection = field(default_factory=Connection)
    create_disposition: CreateDisposition = CreateDisposition.CREATE_IF_NEEDED
    topic_create_options: TopicCreateOptions | None = None
    """None leaves everything about new topics to the service."""
    failed_message_handler: FailureHandler[FailedMessage] | FailureHandler[FailedElement] = field(default_factory=FailJob)

    def __post_init__(self) -> None:
        if self.element_coding != "route" and (self.topic is None) == (self.destination_resolver is None):
            raise ConfigurationError("topic", "is missing: name the topic with .topic(...) or .destination_resolver(...)")
        if self.create_disposition is CreateDisposition.CREATE_NEVER and self.topic_create_options is not None:
            problem = "cannot be combined with CreateDisposition.CREATE_NEVER: no topic would ever be created with them"
            raise ConfigurationError("topic_create_options", problem)


class PubSubSink:
    """Publishes the records of a DataStream: `stream.sink_to(sink)`. Made by `builder()`.

    At-least-once: a checkpoint completes only once the service has answered for everything before it, so checkpoints must
    be enabled in streaming jobs. One sink may serve several streams.
    """

    def __init__(self, spec: SinkSpec, python_executable: str | None = None) -> None:
        """For the builder."""
        self._spec = spec
        self._python_executable = python_executable
        self._stream_type: Any = None

    @staticmethod
    def builder() -> PubSubSinkBuilder:
        """A new builder."""
        return PubSubSinkBuilder()

    def get_transformer(self) -> StreamTypeProbe:
        """What `sink_to` applies to the stream first: it leaves the stream alone and learns its type."""
        from flink_pubsub._pyflink import StreamTypeProbe

        return StreamTypeProbe(self._learn_type)

    def get_java_function(self) -> JavaObject:
        """The Flink sink, for the stream that the transformer saw last. Called by `sink_to`, where the job is built.

        Raises:
            JarNotLoadedError: `env.add_jars(jar())` was not called.
            ConfigurationError: the stream's type is not known or does not suit, or user code cannot be pickled.
        """
        from flink_pubsub import _pyflink

        # Used up, so that a type never serves another stream of the same sink.
        j_type, self._stream_type = self._stream_type, None
        return _pyflink.java_sink(self._spec, j_type, self._python_executable)

    def _learn_type(self, j_type: JavaObject) -> None:
        self._stream_type = j_type

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_stream_type": None}


class PubSubSinkBuilder:
    """Collects the settings of a sink. Each call checks what it is given; `build` checks how it all fits together."""

    def __init__(self) -> None:
        self._topic: TopicDestination | None = None
        self._resolver: DestinationResolver | None = None
        self._serializer: PubSubSerializationSchema | None = None
        self._options = PubSubPublisherOptions()
        self._disposition = CreateDisposition.CREATE_IF_NEEDED
        self._creation: TopicCreateOptions | None = None
        self._handler: FailureHandler[FailedMessage] | FailureHandler[FailedElement] = FailureHandler.fail_job()
        self._key_file: str | None = None
        self._emulator: str | None = None
        self._python_executable: str | None = None

    def topic(self, topic: TopicDestination) -> PubSubSinkBuilder:
        """Publishes everything to this topic. This or `destination_resolver` is required; the last call of either wins."""
        self._topic = _checks.instance("topic", topic, TopicDestination, 'TopicDestination("my-project", "orders")')
        self._resolver = None
        return self

    def destination_resolver(self, resolver: DestinationResolver) -> PubSubSinkBuilder:
        """Publishes each record to the topic that this function returns for it; None fails the job.

        It is called before the serializer, so also for records that are skipped then.
        """
        if isinstance(resolver, TopicDestination):
            _checks.refuse("destination_resolver", "must be a function; a fixed topic is set with .topic(...)", resolver)
        self._resolver = _checks.function("destination_resolver", resolver, "(record, context) -> TopicDestination")
        self._topic = None
        return self

    def serializer(self, serializer: PubSubSerializationSchema) -> PubSubSinkBuilder:
        """Sets what turns records into messages. Required."""
        self._serializer = _checks.instance(
            "serializer", serializer, PubSubSerializationSchema, "PubSubSerializationSchema.payload(str.encode)"
        )
        return self

    def publisher_options(self, options: PubSubPublisherOptions) -> PubSubSinkBuilder:
        """Sets the tuning."""
        self._options = _checks.instance(
            "publisher_options", options, PubSubPublisherOptions, "PubSubPublisherOptions(enable_message_ordering=True)"
        )
        return self

    def create_disposition(self, disposition: CreateDisposition) -> PubSubSinkBuilder:
        """Sets whether a missing topic is created, which is the default, or fails the job."""
        self._disposition = _checks.instance(
            "create_disposition", disposition, CreateDisposition, "CreateDisposition.CREATE_NEVER"
        )
        return self

    def topic_create_options(self, options: TopicCreateOptions) -> PubSubSinkBuilder:
        """Sets how missing topics are created. Default: as the service does it."""
        example = "TopicCreateOptions(message_retention=timedelta(days=7))"
        self._creation = _checks.instance("topic_create_options", options, TopicCreateOptions, example)
        return self

    def failed_message_handler(
        self, handler: FailureHandler[FailedMessage] | FailureHandler[FailedElement]
    ) -> PubSubSinkBuilder:
        """Sets what becomes of a record that the serializer, or the service by itself, refuses. Default: the job fails.

        Handlers that drop leave a gap that nobody sees in the messages of an ordering key; the others keep their order.
        """
        self._handler = _checks.instance("failed_message_handler", handler, FailureHandler, "FailureHandler.log_and_drop()")
        return self

    def service_account_key_file(self, path: str) -> PubSubSinkBuilder:
        """Authenticates with a service account's key, read from this path on every machine where a writer starts.

        Default: application default credentials.
        """
        self._key_file = _checks.path("service_account_key_file", path, secret=True)
        return self

    def emulator_endpoint(self, endpoint: str) -> PubSubSinkBuilder:
        """Publishes to an emulator at `host:port`, in plain text and without credentials."""
        self._emulator = _checks.endpoint("emulator_endpoint", endpoint)
        return self

    def python_executable(self, path: str) -> PubSubSinkBuilder:
        """Runs the workers with this interpreter, which may be that of a virtual environment of their own.

        Default: the TaskManager's `python.executable`, else this interpreter if that host has it, else `python3`.
        """
        self._python_executable = _checks.path("python_executable", path)
        return self

    def build(self) -> PubSubSink:
        """The sink.

        Raises:
            ConfigurationError: something required is missing, or settings contradict each other.
        """
        from flink_pubsub import _pyflink

        if self._serializer is None:
            raise ConfigurationError("serializer", "is missing: say how records become messages with .serializer(...)")
        spec = SinkSpec(
            topic=self._topic,
            destination_resolver=self._resolver,
            serializer=self._serializer,
            options=self._options,
            connection=Connection(service_account_key_file=self._key_file, emulator_endpoint=self._emulator),
            create_disposition=self._disposition,
            topic_create_options=self._creation,
            failed_message_handler=self._handler,
        )
        _pyflink.register_as_preprocessing(PubSubSink)
        return PubSubSink(spec, self._python_executable)
