"""What the tests of failed records share: a handler that keeps a journal, and a writer that has it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import grpc

from flink_pubsub.bridge.connector import SinkWriter
from flink_pubsub.destinations import TopicDestination
from flink_pubsub.failures import FailedElement, FailureHandler, FailureHandlerContext
from flink_pubsub.options import Connection, PubSubPublisherOptions
from flink_pubsub.schemas import PubSubSerializationSchema
from flink_pubsub.sink import SinkSpec
from flink_pubsub.wire import pubsub_pb2 as wire
from flink_pubsub.worker.sink import PubSubSinkConnector
from flink_pubsub.worker.writer import PubSubSinkWriter
from tests.unit.sink_support import Listener, PublishServer, Verdict

TOPIC = TopicDestination("p", "orders")

PATH = TOPIC.resource_path

INVALID = (grpc.StatusCode.INVALID_ARGUMENT, "not like this")

LONG = timedelta(hours=1)


class Journal(FailureHandler[FailedElement]):
    """Remembers its life, and drops."""

    shutdown_timeout = timedelta(seconds=7)

    def __init__(self, on_handle: Callable[[FailedElement], None] = lambda element: None) -> None:
        self.on_handle = on_handle
        self.calls: list[str] = []
        self.elements: list[FailedElement] = []
        self.threads: set[int] = set()
        self.raising: set[str] = set()

    def _call(self, name: str) -> None:
        self.calls.append(name)
        self.threads.add(threading.get_ident())
        if name in self.raising:
            raise ValueError(f"{name} raised")

    def open(self, context: FailureHandlerContext) -> None:
        context.metrics.counter("handled", lambda: len(self.elements))
        context.metrics.gauge("subtaskOfHandler", lambda: context.subtask)
        context.metrics.counter("numRecordsSend", lambda: -1)
        self._call("open")

    def handle(self, element: FailedElement) -> None:
        self.elements.append(element)
        self.on_handle(element)
        self._call("handle")

    def flush(self) -> None:
        self._call("flush")

    def close(self) -> None:
        self._call("close")


def refusing_bad(request: wire.PublishRequest) -> Verdict:
    return INVALID if any(message.data.startswith(b"bad") for message in request.messages) else None


def open_writer(
    server: PublishServer, listener: Listener, handler: FailureHandler[Any], serializer: Any = None, **settings: Any
) -> PubSubSinkWriter:
    names = {"destination_resolver", "element_coding", "payload_coding", "topic"}
    spec = SinkSpec(
        **{
            "topic": None if "destination_resolver" in settings else TOPIC,
            "destination_resolver": None,
            "element_coding": "bytes",
            **{name: value for name, value in settings.items() if name in names},
        },
        serializer=serializer or PubSubSerializationSchema.payload(bytes),
        options=PubSubPublisherOptions(**{name: value for name, value in settings.items() if name not in names}),
        connection=Connection(emulator_endpoint=server.endpoint),
        failed_message_handler=handler,
    )
    writer: SinkWriter = PubSubSinkConnector(spec).open_writer(listener)
    assert isinstance(writer, PubSubSinkWriter)
    return writer


def keyed(function: Callable[[bytes], str] = lambda element: "k") -> PubSubSerializationSchema:
    return PubSubSerializationSchema.payload(bytes).with_ordering_key(function)


def published(server: PublishServer) -> list[bytes]:
    return [message.data for message in server.published.get(PATH, ())]
