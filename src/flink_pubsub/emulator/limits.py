"""The service's limits on names, settings and publish requests, with its error texts.

Figures are those of https://cloud.google.com/pubsub/quotas and of the API reference.
"""

from __future__ import annotations

import re

from google.protobuf.duration_pb2 import Duration

from flink_pubsub.emulator import filters
from flink_pubsub.emulator.errors import bad_ack_deadline, invalid, out_of_range, too_large, too_small
from flink_pubsub.emulator.retention import seconds_of
from flink_pubsub.wire import pubsub_pb2 as wire

MAX_PUBLISH_MESSAGES = 1000
MAX_PUBLISH_BYTES = 10_000_000
MAX_ACK_REQUEST_BYTES = 524_288
MAX_ATTRIBUTES = 100
MAX_ATTRIBUTE_KEY_BYTES = 256
MAX_ATTRIBUTE_VALUE_BYTES = 1024
MAX_ORDERING_KEY_BYTES = 1024

DELETED_TOPIC = "_deleted-topic_"
"""The topic of a subscription whose topic is gone."""

_DAY = 86_400
_ID = r"(?!goog)[A-Za-z][A-Za-z0-9\-_.~+%]{2,254}"
_NAMES = {kind: re.compile(rf"projects/[^/]+/{kind}/{_ID}") for kind in ("topics", "subscriptions", "snapshots")}


def check_name(name: str, kind: str) -> str:
    """`name` if it is one of `kind` ("topics", "subscriptions", "snapshots")."""
    if _NAMES[kind].fullmatch(name) is None:
        raise invalid(
            f"Invalid resource name given (name={name}). Refer to "
            "https://cloud.google.com/pubsub/docs/pubsub-basics#resource_names for more information."
        )
    return name


def check_request_size(size: int, maximum: int) -> None:
    """Refuse a request whose encoded bytes are too many."""
    if size > maximum:
        raise too_large("request_size", size, maximum)


def check_publish(request: wire.PublishRequest, size: int) -> None:
    """Refuse a publish request, whole, for anything wrong with it or any of its messages."""
    count = len(request.messages)
    if count > MAX_PUBLISH_MESSAGES:
        raise too_large("message_count", count, MAX_PUBLISH_MESSAGES)
    if count < 1:
        raise too_small("message_count", count, 1)
    check_request_size(size, MAX_PUBLISH_BYTES)
    ordering_key = request.messages[0].ordering_key
    for message in request.messages:
        attributes = message.attributes
        if attributes:
            _check_attributes(message)
        elif not message.data:
            raise invalid(
                "One or more messages in the publish request is empty. Each message must contain either non-empty data, "
                "or at least one attribute."
            )
        if message.ordering_key != ordering_key:
            raise invalid(
                "In a single publish request, all messages must have no ordering key or they must all have the same "
                "ordering key."
            )
    if len(ordering_key.encode()) > MAX_ORDERING_KEY_BYTES:
        raise too_large("ordering_key_length", len(ordering_key.encode()), MAX_ORDERING_KEY_BYTES)


def _check_attributes(message: wire.PubsubMessage) -> None:
    if len(message.attributes) > MAX_ATTRIBUTES:
        raise too_large("attribute_count", len(message.attributes), MAX_ATTRIBUTES)
    for key, value in message.attributes.items():
        key_bytes, value_bytes = len(key.encode()), len(value.encode())
        if key_bytes < 1:
            raise too_small("attribute_key_length", key_bytes, 1)
        if key_bytes > MAX_ATTRIBUTE_KEY_BYTES:
            raise too_large("attribute_key_length", key_bytes, MAX_ATTRIBUTE_KEY_BYTES)
        if key.startswith("goog"):
            raise invalid(f"Attribute keys must not start with 'goog' (key={key}).")
        if value_bytes > MAX_ATTRIBUTE_VALUE_BYTES:
            raise too_large("attribute_value_length", value_bytes, MAX_ATTRIBUTE_VALUE_BYTES)


def check_topic(settings: wire.Topic) -> None:
    """Refuse settings of a topic."""
    if settings.HasField("message_retention_duration"):
        _check_duration("message_retention_duration", settings.message_retention_duration, 600, 31 * _DAY)


def check_subscription(settings: wire.Subscription) -> None:
    """Refuse settings of a subscription, or fill in what the service fills in."""
    if settings.filter:
        filters.parse(settings.filter)
    if settings.ack_deadline_seconds == 0:
        settings.ack_deadline_seconds = 10
    if not 10 <= settings.ack_deadline_seconds <= 600:
        raise bad_ack_deadline(settings.ack_deadline_seconds)
    if not settings.HasField("message_retention_duration"):
        settings.message_retention_duration.seconds = 7 * _DAY
    _check_duration("message_retention_duration", settings.message_retention_duration, 600, 31 * _DAY)
    if not settings.HasField("expiration_policy"):
        settings.expiration_policy.ttl.seconds = 31 * _DAY
    if settings.expiration_policy.HasField("ttl"):
        _check_duration("expiration_policy.ttl", settings.expiration_policy.ttl, _DAY, None)
    if settings.HasField("retry_policy"):
        _complete_retry_policy(settings.retry_policy)
    if settings.HasField("dead_letter_policy"):
        check_name(settings.dead_letter_policy.dead_letter_topic, "topics")
        attempts = settings.dead_letter_policy.max_delivery_attempts or 5
        if not 5 <= attempts <= 100:
            raise out_of_range("max_delivery_attempts", attempts, 5, 100)
        settings.dead_letter_policy.max_delivery_attempts = attempts


def _complete_retry_policy(policy: wire.RetryPolicy) -> None:
    if not policy.HasField("minimum_backoff"):
        policy.minimum_backoff.seconds = 10
    if not policy.HasField("maximum_backoff"):
        policy.maximum_backoff.seconds = 600
    minimum, maximum = seconds_of(policy.minimum_backoff), seconds_of(policy.maximum_backoff)
    for field, seconds in (("minimum_backoff", minimum), ("maximum_backoff", maximum)):
        if not 0 <= seconds <= 600:
            raise invalid(
                f"The value for {field} is out of bounds. You passed {seconds:g}s in the request, but the value must be "
                "between 0s and 600s."
            )
    if minimum > maximum:
        raise invalid(
            f"The value for maximum_backoff is too small. You passed {maximum:g}s in the request, but the minimum value is "
            f"{minimum:g}s."
        )


def check_stream_ack_deadline(seconds: int) -> None:
    """Refuse a stream's ack deadline; 0 is "not given"."""
    if seconds and not 10 <= seconds <= 600:
        raise invalid(f"Invalid stream ack deadline given ({seconds}). It must be between 10 and 600 seconds.")


def _check_duration(field: str, value: Duration, minimum: int, maximum: int | None) -> None:
    seconds = seconds_of(value)
    if seconds < minimum or (maximum is not None and seconds > maximum):
        upper = f" and at most {maximum} s" if maximum is not None else ""
        raise invalid(f"Invalid {field} given ({seconds:g} s). It must be at least {minimum} s{upper}.")
