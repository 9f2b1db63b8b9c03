"""The message, as deserializers get it and serializers make it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from flink_pubsub._checks import refuse


@dataclass(frozen=True, slots=True)
class PubsubMessage:
    """A Pub/Sub message.

    To publish, give `data`, `attributes` and `ordering_key`; the service sets the rest, and what is given for it is not
    sent. Attributes are not copied: do not change them afterwards.

    Raises:
        ConfigurationError: data is not bytes, or the ordering key is not str.
    """

    data: bytes = b""
    """The payload."""
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)
    """At most 100; keys of 1 to 256 bytes that do not start with `goog`, values of at most 1024 bytes."""
    ordering_key: str = ""
    """Messages of one key are delivered in order to subscriptions that ask for it; empty for none."""
    message_id: str = ""
    """The service's id, unique within the topic."""
    publish_time: datetime | None = None
    """When the service received the message, in UTC."""
    delivery_attempt: int = 0
    """1 at the first delivery; 0 when the subscription has no dead-letter policy."""

    def __post_init__(self) -> None:
        # Only what is cheap: the source makes one per message.
        if not isinstance(self.data, bytes):
            refuse("PubsubMessage.data", "must be bytes; encode text first, such as text.encode()", self.data)
        if not isinstance(self.ordering_key, str):
            refuse("PubsubMessage.ordering_key", "must be str", self.ordering_key)
