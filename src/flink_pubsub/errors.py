"""Every error this package raises on purpose.

One class per decision the caller can make::

    PubSubConnectorError
    ├── ConfigurationError (ValueError)   correct the code that builds the source or sink
    │   └── JarNotLoadedError             call env.add_jars(jar()) first
    ├── CredentialsError                  mend the key file, or the machine's application default credentials
    ├── SubscriptionError                 mend the subscription, or the permissions on it
    ├── SubscriberBufferError             raise the source's buffer, or publish smaller messages
    ├── CheckpointError                   mend the job's checkpoints, or wait longer for them
    ├── StartupCheckError                 mend what it lists: subscriptions, settings, permissions
    ├── PublishError                      mend the topic, or the permissions on it
    └── RecordError                       mend the data, or the user code that handles it
        ├── DeserializationError
        ├── SerializationError
        └── DestinationError

Errors cross processes, so each one pickles: what a class takes is exactly `args`, all of it text or numbers, and the
sentence is built from them. What user code raised is the `__cause__`.
"""

from __future__ import annotations


class PubSubConnectorError(Exception):
    """The root. Raised itself only where the sole thing to do is what its message says."""


class ConfigurationError(PubSubConnectorError, ValueError):
    """A setting is wrong, missing, or contradicts another. Raised where it is written, before a job is submitted."""

    def __init__(self, option: str, problem: str, value: str | None = None) -> None:
        """Makes the error.

        Args:
            option: the setting's name, as the user writes it.
            problem: what is wrong and how to mend it, continuing a sentence that begins with the option.
            value: the refused value's `repr`; None when nothing was given, or when the value could be a secret.
        """
        super().__init__(option, problem, value)
        self.option = option
        self.problem = problem
        self.value = value

    def __str__(self) -> str:
        given = "" if self.value is None else f" (got {self.value})"
        return f"{self.option} {self.problem}{given}"


class JarNotLoadedError(ConfigurationError):
    """Flink's JVM does not know this package's Java classes."""

    def __init__(self, java_class: str) -> None:
        """Makes the error for the class that was looked for."""
        super().__init__("env.add_jars(jar())", f"must be called before the source or sink is used: no class {java_class}")
        self.args = (java_class,)
        self.java_class = java_class


class CredentialsError(PubSubConnectorError):
    """There are no usable credentials. Tells neither the path nor any of the content of a key file."""


class SubscriptionError(PubSubConnectorError):
    """The service will not let a subscription be read, and trying again does not help."""

    def __init__(self, subscription: str, status: str, problem: str) -> None:
        """Makes the error.

        Args:
            subscription: full resource path.
            status: name of the gRPC status, such as `NOT_FOUND`.
            problem: what the service said, and the mend if there is one.
        """
        super().__init__(subscription, status, problem)
        self.subscription = subscription
        self.status = status
        self.problem = problem

    def __str__(self) -> str:
        return f"subscription {self.subscription} cannot be read: {self.status}: {self.problem}"


class StartupCheckError(PubSubConnectorError):
    """Subscriptions do not suit the source's settings, or the service refused what the start needs of them."""

    def __init__(self, *rejections: str) -> None:
        """Makes the error. Each rejection is a sentence that names the subscription, the option and the mend."""
        super().__init__(*rejections)
        self.rejections = rejections

    def __str__(self) -> str:
        if len(self.rejections) == 1:
            return f"the source cannot start: {self.rejections[0]}"
        return "\n- ".join((f"the source cannot start for {len(self.rejections)} reasons:", *self.rejections))


class SubscriberBufferError(PubSubConnectorError):
    """A message cannot be buffered, however long is waited for room."""

    def __init__(self, subscription: str, message_bytes: int, problem: str) -> None:
        """Makes the error.

        Args:
            subscription: full resource path.
            message_bytes: size of the serialized message.
            problem: why it does not fit, and the mend.
        """
        super().__init__(subscription, message_bytes, problem)
        self.subscription = subscription
        self.message_bytes = message_bytes
        self.problem = problem

    def __str__(self) -> str:
        return f"a message of {self.subscription} with {self.message_bytes} bytes cannot be buffered: {self.problem}"


class CheckpointError(PubSubConnectorError):
    """The job's checkpoints, or the acknowledgements that follow them, do not come in time."""

    def __init__(self, option: str, problem: str) -> None:
        """Makes the error.

        Args:
            option: the setting that says what is in time, as the user writes it.
            problem: what did not come, and the mend.
        """
        super().__init__(option, problem)
        self.option = option
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.problem} ({self.option})"


class PublishError(PubSubConnectorError):
    """Messages could not be published: the service refused them for good, or the retry budget ran out."""

    def __init__(self, topic: str, status: str, problem: str) -> None:
        """Makes the error.

        Args:
            topic: full resource path.
            status: name of the last gRPC status, such as `PERMISSION_DENIED`.
            problem: what the service said or which budget ran out, and the mend if there is one.
        """
        super().__init__(topic, status, problem)
        self.topic = topic
        self.status = status
        self.problem = problem

    def __str__(self) -> str:
        return f"publishing to {self.topic} failed: {self.status}: {self.problem}"


class RecordError(PubSubConnectorError):
    """User code could not handle one record."""


class DeserializationError(RecordError):
    """A deserializer raised, or broke its contract, on a message."""

    def __init__(self, subscription: str, message_id: str, problem: str) -> None:
        """Makes the error.

        Args:
            subscription: full resource path of where the message came from.
            message_id: the service's id of the message.
            problem: what happened, and the mend if there is one.
        """
        super().__init__(subscription, message_id, problem)
        self.subscription = subscription
        self.message_id = message_id
        self.problem = problem

    def __str__(self) -> str:
        return f"message {self.message_id} of {self.subscription} cannot be deserialized: {self.problem}"


class SerializationError(RecordError):
    """A serializer or an extractor raised, or made something that cannot be a message."""

    def __init__(self, problem: str) -> None:
        """Makes the error. `problem` says what happened, and the mend if there is one."""
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return f"a record cannot be serialized: {self.problem}"


class DestinationError(RecordError):
    """There is no telling which topic a record goes to."""

    def __init__(self, problem: str, source: str = "destination_resolver") -> None:
        """Makes the error.

        Args:
            problem: what happened, and the mend if there is one.
            source: what should have told the topic.
        """
        super().__init__(problem, source)
        self.problem = problem
        self.source = source

    def __str__(self) -> str:
        return f"{self.source} gave no topic for a record: {self.problem}"
