from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import field_mask_pb2 as _field_mask_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AcknowledgeRequest(_message.Message):
    __slots__ = ["ack_ids", "subscription"]
    ACK_IDS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    ack_ids: _containers.RepeatedScalarFieldContainer[str]
    subscription: str
    def __init__(self, subscription: _Optional[str] = ..., ack_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class CreateSnapshotRequest(_message.Message):
    __slots__ = ["labels", "name", "subscription", "tags"]
    class LabelsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class TagsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    LABELS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    labels: _containers.ScalarMap[str, str]
    name: str
    subscription: str
    tags: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., subscription: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., tags: _Optional[_Mapping[str, str]] = ...) -> None: ...

class DeadLetterPolicy(_message.Message):
    __slots__ = ["dead_letter_topic", "max_delivery_attempts"]
    DEAD_LETTER_TOPIC_FIELD_NUMBER: _ClassVar[int]
    MAX_DELIVERY_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    dead_letter_topic: str
    max_delivery_attempts: int
    def __init__(self, dead_letter_topic: _Optional[str] = ..., max_delivery_attempts: _Optional[int] = ...) -> None: ...

class DeleteSnapshotRequest(_message.Message):
    __slots__ = ["snapshot"]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    snapshot: str
    def __init__(self, snapshot: _Optional[str] = ...) -> None: ...

class DeleteSubscriptionRequest(_message.Message):
    __slots__ = ["subscription"]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    subscription: str
    def __init__(self, subscription: _Optional[str] = ...) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ["topic"]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class DetachSubscriptionRequest(_message.Message):
    __slots__ = ["subscription"]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    subscription: str
    def __init__(self, subscription: _Optional[str] = ...) -> None: ...

class DetachSubscriptionResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class ExpirationPolicy(_message.Message):
    __slots__ = ["ttl"]
    TTL_FIELD_NUMBER: _ClassVar[int]
    ttl: _duration_pb2.Duration
    def __init__(self, ttl: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class GetSnapshotRequest(_message.Message):
    __slots__ = ["snapshot"]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    snapshot: str
    def __init__(self, snapshot: _Optional[str] = ...) -> None: ...

class GetSubscriptionRequest(_message.Message):
    __slots__ = ["subscription"]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    subscription: str
    def __init__(self, subscription: _Optional[str] = ...) -> None: ...

class GetTopicRequest(_message.Message):
    __slots__ = ["topic"]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class ListSnapshotsRequest(_message.Message):
    __slots__ = ["page_size", "page_token", "project"]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    project: str
    def __init__(self, project: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListSnapshotsResponse(_message.Message):
    __slots__ = ["next_page_token", "snapshots"]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOTS_FIELD_NUMBER: _ClassVar[int]
    next_page_token: str
    snapshots: _containers.RepeatedCompositeFieldContainer[Snapshot]
    def __init__(self, snapshots: _Optional[_Iterable[_Union[Snapshot, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListSubscriptionsRequest(_message.Message):
    __slots__ = ["page_size", "page_token", "project"]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    project: str
    def __init__(self, project: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListSubscriptionsResponse(_message.Message):
    __slots__ = ["next_page_token", "subscriptions"]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    next_page_token: str
    subscriptions: _containers.RepeatedCompositeFieldContainer[Subscription]
    def __init__(self, subscriptions: _Optional[_Iterable[_Union[Subscription, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListTopicSnapshotsRequest(_message.Message):
    __slots__ = ["page_size", "page_token", "topic"]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    topic: str
    def __init__(self, topic: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListTopicSnapshotsResponse(_message.Message):
    __slots__ = ["next_page_token", "snapshots"]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOTS_FIELD_NUMBER: _ClassVar[int]
    next_page_token: str
    snapshots: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, snapshots: _Optional[_Iterable[str]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListTopicSubscriptionsRequest(_message.Message):
    __slots__ = ["page_size", "page_token", "topic"]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    topic: str
    def __init__(self, topic: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListTopicSubscriptionsResponse(_message.Message):
    __slots__ = ["next_page_token", "subscriptions"]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    next_page_token: str
    subscriptions: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, subscriptions: _Optional[_Iterable[str]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ["page_size", "page_token", "project"]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    project: str
    def __init__(self, project: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ["next_page_token", "topics"]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    next_page_token: str
    topics: _containers.RepeatedCompositeFieldContainer[Topic]
    def __init__(self, topics: _Optional[_Iterable[_Union[Topic, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class MessageStoragePolicy(_message.Message):
    __slots__ = ["allowed_persistence_regions", "enforce_in_transit"]
    ALLOWED_PERSISTENCE_REGIONS_FIELD_NUMBER: _ClassVar[int]
    ENFORCE_IN_TRANSIT_FIELD_NUMBER: _ClassVar[int]
    allowed_persistence_regions: _containers.RepeatedScalarFieldContainer[str]
    enforce_in_transit: bool
    def __init__(self, allowed_persistence_regions: _Optional[_Iterable[str]] = ..., enforce_in_transit: bool = ...) -> None: ...

class ModifyAckDeadlineRequest(_message.Message):
    __slots__ = ["ack_deadline_seconds", "ack_ids", "subscription"]
    ACK_DEADLINE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ACK_IDS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    ack_deadline_seconds: int
    ack_ids: _containers.RepeatedScalarFieldContainer[str]
    subscription: str
    def __init__(self, subscription: _Optional[str] = ..., ack_ids: _Optional[_Iterable[str]] = ..., ack_deadline_seconds: _Optional[int] = ...) -> None: ...

class PublishRequest(_message.Message):
    __slots__ = ["messages", "topic"]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[PubsubMessage]
    topic: str
    def __init__(self, topic: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[PubsubMessage, _Mapping]]] = ...) -> None: ...

class PublishResponse(_message.Message):
    __slots__ = ["message_ids"]
    MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    message_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, message_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class PubsubMessage(_message.Message):
    __slots__ = ["attributes", "data", "message_id", "ordering_key", "publish_time"]
    class AttributesEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    ORDERING_KEY_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_TIME_FIELD_NUMBER: _ClassVar[int]
    attributes: _containers.ScalarMap[str, str]
    data: bytes
    message_id: str
    ordering_key: str
    publish_time: _timestamp_pb2.Timestamp
    def __init__(self, data: _Optional[bytes] = ..., attributes: _Optional[_Mapping[str, str]] = ..., message_id: _Optional[str] = ..., publish_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., ordering_key: _Optional[str] = ...) -> None: ...

class PullRequest(_message.Message):
    __slots__ = ["max_messages", "return_immediately", "subscription"]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    RETURN_IMMEDIATELY_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    max_messages: int
    return_immediately: bool
    subscription: str
    def __init__(self, subscription: _Optional[str] = ..., return_immediately: bool = ..., max_messages: _Optional[int] = ...) -> None: ...

class PullResponse(_message.Message):
    __slots__ = ["received_messages"]
    RECEIVED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    received_messages: _containers.RepeatedCompositeFieldContainer[ReceivedMessage]
    def __init__(self, received_messages: _Optional[_Iterable[_Union[ReceivedMessage, _Mapping]]] = ...) -> None: ...

class PushConfig(_message.Message):
    __slots__ = ["attributes", "push_endpoint"]
    class AttributesEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    PUSH_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    attributes: _containers.ScalarMap[str, str]
    push_endpoint: str
    def __init__(self, push_endpoint: _Optional[str] = ..., attributes: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ReceivedMessage(_message.Message):
    __slots__ = ["ack_id", "delivery_attempt", "message"]
    ACK_ID_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ack_id: str
    delivery_attempt: int
    message: PubsubMessage
    def __init__(self, ack_id: _Optional[str] = ..., message: _Optional[_Union[PubsubMessage, _Mapping]] = ..., delivery_attempt: _Optional[int] = ...) -> None: ...

class RetryPolicy(_message.Message):
    __slots__ = ["maximum_backoff", "minimum_backoff"]
    MAXIMUM_BACKOFF_FIELD_NUMBER: _ClassVar[int]
    MINIMUM_BACKOFF_FIELD_NUMBER: _ClassVar[int]
    maximum_backoff: _duration_pb2.Duration
    minimum_backoff: _duration_pb2.Duration
    def __init__(self, minimum_backoff: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., maximum_backoff: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class SeekRequest(_message.Message):
    __slots__ = ["snapshot", "subscription", "time"]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    snapshot: str
    subscription: str
    time: _timestamp_pb2.Timestamp
    def __init__(self, subscription: _Optional[str] = ..., time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., snapshot: _Optional[str] = ...) -> None: ...

class SeekResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class Snapshot(_message.Message):
    __slots__ = ["expire_time", "labels", "name", "topic"]
    class LabelsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    expire_time: _timestamp_pb2.Timestamp
    labels: _containers.ScalarMap[str, str]
    name: str
    topic: str
    def __init__(self, name: _Optional[str] = ..., topic: _Optional[str] = ..., expire_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class StreamingPullRequest(_message.Message):
    __slots__ = ["ack_ids", "client_id", "max_outstanding_bytes", "max_outstanding_messages", "modify_deadline_ack_ids", "modify_deadline_seconds", "protocol_version", "stream_ack_deadline_seconds", "subscription"]
    ACK_IDS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    MAX_OUTSTANDING_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_OUTSTANDING_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MODIFY_DEADLINE_ACK_IDS_FIELD_NUMBER: _ClassVar[int]
    MODIFY_DEADLINE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    STREAM_ACK_DEADLINE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    ack_ids: _containers.RepeatedScalarFieldContainer[str]
    client_id: str
    max_outstanding_bytes: int
    max_outstanding_messages: int
    modify_deadline_ack_ids: _containers.RepeatedScalarFieldContainer[str]
    modify_deadline_seconds: _containers.RepeatedScalarFieldContainer[int]
    protocol_version: int
    stream_ack_deadline_seconds: int
    subscription: str
    def __init__(self, subscription: _Optional[str] = ..., ack_ids: _Optional[_Iterable[str]] = ..., modify_deadline_seconds: _Optional[_Iterable[int]] = ..., modify_deadline_ack_ids: _Optional[_Iterable[str]] = ..., stream_ack_deadline_seconds: _Optional[int] = ..., client_id: _Optional[str] = ..., max_outstanding_messages: _Optional[int] = ..., max_outstanding_bytes: _Optional[int] = ..., protocol_version: _Optional[int] = ...) -> None: ...

class StreamingPullResponse(_message.Message):
    __slots__ = ["acknowledge_confirmation", "modify_ack_deadline_confirmation", "received_messages", "subscription_properties"]
    class AcknowledgeConfirmation(_message.Message):
        __slots__ = ["ack_ids", "invalid_ack_ids", "temporary_failed_ack_ids", "unordered_ack_ids"]
        ACK_IDS_FIELD_NUMBER: _ClassVar[int]
        INVALID_ACK_IDS_FIELD_NUMBER: _ClassVar[int]
        TEMPORARY_FAILED_ACK_IDS_FIELD_NUMBER: _ClassVar[int]
        UNORDERED_ACK_IDS_FIELD_NUMBER: _ClassVar[int]
        ack_ids: _containers.RepeatedScalarFieldContainer[str]
        invalid_ack_ids: _containers.RepeatedScalarFieldContainer[str]
        temporary_failed_ack_ids: _containers.RepeatedScalarFieldContainer[str]
        unordered_ack_ids: _containers.RepeatedScalarFieldContainer[str]
        def __init__(self, ack_ids: _Optional[_Iterable[str]] = ..., invalid_ack_ids: _Optional[_Iterable[str]] = ..., unordered_ack_ids: _Optional[_Iterable[str]] = ..., temporary_failed_ack_ids: _Optional[_Iterable[str]] = ...) -> None: ...
    class ModifyAckDeadlineConfirmation(_message.Message):
        __slots__ = ["ack_ids", "invalid_ack_ids", "temporary_failed_ack_ids"]
        ACK_IDS_FIELD_NUMBER: _ClassVar[int]
        INVALID_ACK_IDS_FIELD_NUMBER: _ClassVar[int]
        TEMPORARY_FAILED_ACK_IDS_FIELD_NUMBER: _ClassVar[int]
        ack_ids: _containers.RepeatedScalarFieldContainer[str]
        invalid_ack_ids: _containers.RepeatedScalarFieldContainer[str]
        temporary_failed_ack_ids: _containers.RepeatedScalarFieldContainer[str]
        def __init__(self, ack_ids: _Optional[_Iterable[str]] = ..., invalid_ack_ids: _Optional[_Iterable[str]] = ..., temporary_failed_ack_ids: _Optional[_Iterable[str]] = ...) -> None: ...
    class SubscriptionProperties(_message.Message):
        __slots__ = ["exactly_once_delivery_enabled", "message_ordering_enabled"]
        EXACTLY_ONCE_DELIVERY_ENABLED_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_ORDERING_ENABLED_FIELD_NUMBER: _ClassVar[int]
        exactly_once_delivery_enabled: bool
        message_ordering_enabled: bool
        def __init__(self, exactly_once_delivery_enabled: bool = ..., message_ordering_enabled: bool = ...) -> None: ...
    ACKNOWLEDGE_CONFIRMATION_FIELD_NUMBER: _ClassVar[int]
    MODIFY_ACK_DEADLINE_CONFIRMATION_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    acknowledge_confirmation: StreamingPullResponse.AcknowledgeConfirmation
    modify_ack_deadline_confirmation: StreamingPullResponse.ModifyAckDeadlineConfirmation
    received_messages: _containers.RepeatedCompositeFieldContainer[ReceivedMessage]
    subscription_properties: StreamingPullResponse.SubscriptionProperties
    def __init__(self, received_messages: _Optional[_Iterable[_Union[ReceivedMessage, _Mapping]]] = ..., acknowledge_confirmation: _Optional[_Union[StreamingPullResponse.AcknowledgeConfirmation, _Mapping]] = ..., modify_ack_deadline_confirmation: _Optional[_Union[StreamingPullResponse.ModifyAckDeadlineConfirmation, _Mapping]] = ..., subscription_properties: _Optional[_Union[StreamingPullResponse.SubscriptionProperties, _Mapping]] = ...) -> None: ...

class Subscription(_message.Message):
    __slots__ = ["ack_deadline_seconds", "dead_letter_policy", "detached", "enable_exactly_once_delivery", "enable_message_ordering", "expiration_policy", "filter", "labels", "message_retention_duration", "name", "push_config", "retain_acked_messages", "retry_policy", "state", "tags", "topic", "topic_message_retention_duration"]
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    class LabelsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class TagsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ACK_DEADLINE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ACTIVE: Subscription.State
    DEAD_LETTER_POLICY_FIELD_NUMBER: _ClassVar[int]
    DETACHED_FIELD_NUMBER: _ClassVar[int]
    ENABLE_EXACTLY_ONCE_DELIVERY_FIELD_NUMBER: _ClassVar[int]
    ENABLE_MESSAGE_ORDERING_FIELD_NUMBER: _ClassVar[int]
    EXPIRATION_POLICY_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_RETENTION_DURATION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PUSH_CONFIG_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_ERROR: Subscription.State
    RETAIN_ACKED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    RETRY_POLICY_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STATE_UNSPECIFIED: Subscription.State
    TAGS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_MESSAGE_RETENTION_DURATION_FIELD_NUMBER: _ClassVar[int]
    ack_deadline_seconds: int
    dead_letter_policy: DeadLetterPolicy
    detached: bool
    enable_exactly_once_delivery: bool
    enable_message_ordering: bool
    expiration_policy: ExpirationPolicy
    filter: str
    labels: _containers.ScalarMap[str, str]
    message_retention_duration: _duration_pb2.Duration
    name: str
    push_config: PushConfig
    retain_acked_messages: bool
    retry_policy: RetryPolicy
    state: Subscription.State
    tags: _containers.ScalarMap[str, str]
    topic: str
    topic_message_retention_duration: _duration_pb2.Duration
    def __init__(self, name: _Optional[str] = ..., topic: _Optional[str] = ..., push_config: _Optional[_Union[PushConfig, _Mapping]] = ..., ack_deadline_seconds: _Optional[int] = ..., retain_acked_messages: bool = ..., message_retention_duration: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ..., enable_message_ordering: bool = ..., expiration_policy: _Optional[_Union[ExpirationPolicy, _Mapping]] = ..., filter: _Optional[str] = ..., dead_letter_policy: _Optional[_Union[DeadLetterPolicy, _Mapping]] = ..., retry_policy: _Optional[_Union[RetryPolicy, _Mapping]] = ..., detached: bool = ..., enable_exactly_once_delivery: bool = ..., topic_message_retention_duration: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., state: _Optional[_Union[Subscription.State, str]] = ..., tags: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Topic(_message.Message):
    __slots__ = ["kms_key_name", "labels", "message_retention_duration", "message_storage_policy", "name", "satisfies_pzs", "state", "tags"]
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    class LabelsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class TagsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ACTIVE: Topic.State
    INGESTION_RESOURCE_ERROR: Topic.State
    KMS_KEY_NAME_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_RETENTION_DURATION_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_STORAGE_POLICY_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SATISFIES_PZS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STATE_UNSPECIFIED: Topic.State
    TAGS_FIELD_NUMBER: _ClassVar[int]
    kms_key_name: str
    labels: _containers.ScalarMap[str, str]
    message_retention_duration: _duration_pb2.Duration
    message_storage_policy: MessageStoragePolicy
    name: str
    satisfies_pzs: bool
    state: Topic.State
    tags: _containers.ScalarMap[str, str]
    def __init__(self, name: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., message_storage_policy: _Optional[_Union[MessageStoragePolicy, _Mapping]] = ..., kms_key_name: _Optional[str] = ..., satisfies_pzs: bool = ..., message_retention_duration: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., state: _Optional[_Union[Topic.State, str]] = ..., tags: _Optional[_Mapping[str, str]] = ...) -> None: ...

class UpdateSnapshotRequest(_message.Message):
    __slots__ = ["snapshot", "update_mask"]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    UPDATE_MASK_FIELD_NUMBER: _ClassVar[int]
    snapshot: Snapshot
    update_mask: _field_mask_pb2.FieldMask
    def __init__(self, snapshot: _Optional[_Union[Snapshot, _Mapping]] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ...) -> None: ...

class UpdateSubscriptionRequest(_message.Message):
    __slots__ = ["subscription", "update_mask"]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    UPDATE_MASK_FIELD_NUMBER: _ClassVar[int]
    subscription: Subscription
    update_mask: _field_mask_pb2.FieldMask
    def __init__(self, subscription: _Optional[_Union[Subscription, _Mapping]] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ...) -> None: ...

class UpdateTopicRequest(_message.Message):
    __slots__ = ["topic", "update_mask"]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    UPDATE_MASK_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    update_mask: _field_mask_pb2.FieldMask
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ...) -> None: ...
