from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ResponseView(_message.Message):
    __slots__ = ["received_messages"]
    class Message(_message.Message):
        __slots__ = ["data", "message_id", "ordering_key", "publish_time"]
        DATA_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
        ORDERING_KEY_FIELD_NUMBER: _ClassVar[int]
        PUBLISH_TIME_FIELD_NUMBER: _ClassVar[int]
        data: bytes
        message_id: str
        ordering_key: str
        publish_time: bytes
        def __init__(self, data: _Optional[bytes] = ..., message_id: _Optional[str] = ..., publish_time: _Optional[bytes] = ..., ordering_key: _Optional[str] = ...) -> None: ...
    class Received(_message.Message):
        __slots__ = ["ack_id", "message"]
        ACK_ID_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        ack_id: str
        message: ResponseView.Message
        def __init__(self, ack_id: _Optional[str] = ..., message: _Optional[_Union[ResponseView.Message, _Mapping]] = ...) -> None: ...
    RECEIVED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    received_messages: _containers.RepeatedCompositeFieldContainer[ResponseView.Received]
    def __init__(self, received_messages: _Optional[_Iterable[_Union[ResponseView.Received, _Mapping]]] = ...) -> None: ...

class TextResponseView(_message.Message):
    __slots__ = ["received_messages"]
    class Message(_message.Message):
        __slots__ = ["data", "message_id", "ordering_key", "publish_time"]
        DATA_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
        ORDERING_KEY_FIELD_NUMBER: _ClassVar[int]
        PUBLISH_TIME_FIELD_NUMBER: _ClassVar[int]
        data: str
        message_id: str
        ordering_key: str
        publish_time: bytes
        def __init__(self, data: _Optional[str] = ..., message_id: _Optional[str] = ..., publish_time: _Optional[bytes] = ..., ordering_key: _Optional[str] = ...) -> None: ...
    class Received(_message.Message):
        __slots__ = ["ack_id", "message"]
        ACK_ID_FIELD_NUMBER: _ClassVar[int]
        MESSAGE_FIELD_NUMBER: _ClassVar[int]
        ack_id: str
        message: TextResponseView.Message
        def __init__(self, ack_id: _Optional[str] = ..., message: _Optional[_Union[TextResponseView.Message, _Mapping]] = ...) -> None: ...
    RECEIVED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    received_messages: _containers.RepeatedCompositeFieldContainer[TextResponseView.Received]
    def __init__(self, received_messages: _Optional[_Iterable[_Union[TextResponseView.Received, _Mapping]]] = ...) -> None: ...

class TimeColumns(_message.Message):
    __slots__ = ["nanos", "seconds"]
    NANOS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    nanos: _containers.RepeatedScalarFieldContainer[int]
    seconds: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, seconds: _Optional[_Iterable[int]] = ..., nanos: _Optional[_Iterable[int]] = ...) -> None: ...
