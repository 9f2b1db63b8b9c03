"""The CreateTopic call, for topics that turn out to be missing."""

from __future__ import annotations

from typing import cast

import grpc

from flink_pubsub.rpc.publish import Call
from flink_pubsub.topic_options import TopicCreateOptions
from flink_pubsub.wire.pubsub_pb2 import Topic

METHOD = "/google.pubsub.v1.Publisher/CreateTopic"

_CALL_SECONDS = 60.0
"""What Google's clients give this call."""


class TopicCreator:
    """Creates topics with the same settings each."""

    def __init__(self, channel: grpc.Channel, options: TopicCreateOptions) -> None:
        self._create: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHOD)
        self._options = options

    def start(self, path: str) -> Call:
        """Sends the request. Never blocks; the call ends on a thread of gRPC's, within a minute."""
        metadata = (("x-goog-request-params", f"name={path}"),)
        request = topic_of(path, self._options).SerializeToString()
        return cast("Call", self._create.future(request, timeout=_CALL_SECONDS, metadata=metadata))


def topic_of(path: str, options: TopicCreateOptions) -> Topic:
    """The topic as it is to be created."""
    topic = Topic(name=path)
    if options.message_retention is not None:
        topic.message_retention_duration.FromTimedelta(options.message_retention)
    if options.kms_key_name is not None:
        topic.kms_key_name = options.kms_key_name
    if options.allowed_persistence_regions is not None:
        topic.message_storage_policy.allowed_persistence_regions.extend(options.allowed_persistence_regions)
        topic.message_storage_policy.enforce_in_transit = options.enforce_in_transit
    return topic
