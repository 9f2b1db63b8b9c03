"""Where the package meets PyFlink: makes the Java source and sink of a job.

This runs in the client, where the job is built. PyFlink is imported inside functions only, so that workers, whose
interpreter may lack it, can import everything else. What the JVM gets is the pickled connector, a description of the
interpreter to run it with, and the Java objects that turn records into bytes and back.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from flink_pubsub import _checks, _lineage
from flink_pubsub.errors import ConfigurationError, JarNotLoadedError
from flink_pubsub.schemas import JvmPayloadDecoding, PubSubDeserializationSchema, jvm_encoding
from flink_pubsub.sink import ElementCoding, PayloadCoding, SinkSpec

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyflink.datastream import DataStream

    from flink_pubsub.source import SourceSpec

_PACKAGE = "io.github.flinkpubsub"


def java_source(spec: SourceSpec, deserializer: PubSubDeserializationSchema, python_executable: str | None) -> JavaObject:
    """The Flink source for a spec.

    Raises:
        JarNotLoadedError: the JVM does not know the connector's classes.
        ConfigurationError: the deserializer cannot be pickled, or its type is none that PyFlink can encode.
    """
    python_source = _java_class("bridge.PythonSource")
    decoder, j_type, type_info_proto = _decoding(deserializer)

    from flink_pubsub.worker.source import PubSubSourceConnector

    connector = PubSubSourceConnector(replace(spec, type_info_proto=type_info_proto))
    pickled = _pickle(connector, {"deserializer": spec.deserializer})
    lineage = _java_lineage(spec.subscriptions)
    return python_source(pickled, worker_spec(python_executable), decoder, j_type, False).withLineage(lineage)


def _decoding(deserializer: PubSubDeserializationSchema) -> tuple[JavaObject, JavaObject, bytes | None]:
    """The Java decoder, the Java type it produces, and the type that the worker encodes records with."""
    if isinstance(deserializer, JvmPayloadDecoding):
        if deserializer.j_schema is None:
            raise ConfigurationError("deserializer", "was unpickled without its JVM schema: build the source anew")
        decoder = _java_class("message.PayloadDecoder")(deserializer.j_schema)
        return decoder, deserializer.j_schema.getProducedType(), None
    if deserializer.decodes_in_jvm:
        rows = _java_class("message.MessageRowDecoder")
        return rows(), rows.type(), None
    type_info = deserializer.get_produced_type()
    if type_info is None:
        return _java_class("bridge.BytesDecoder")(), _pickled_type(), None
    if not hasattr(type_info, "get_java_type_info"):
        _checks.refuse("get_produced_type", "must return a PyFlink TypeInformation, such as Types.STRING()", type_info)
    j_type = type_info.get_java_type_info()
    if j_type.equals(_pickled_type()):
        return _java_class("bridge.BytesDecoder")(), j_type, None
    serializer, proto = _coder("get_produced_type", j_type)
    return _java_class("bridge.SerializerDecoder")(serializer), j_type, proto


class StreamTypeProbe:
    """What `sink_to` applies to a stream: leaves it as it is and reports its type.

    PyFlink asks for no more than `apply`, so this need not derive from its `StreamTransformer`.
    """

    def __init__(self, report: Callable[[JavaObject], None]) -> None:
        self._report = report

    def apply(self, stream: DataStream) -> DataStream:
        """Called by `sink_to` with the stream, before it asks for the Java sink."""
        self._report(stream._j_data_stream.getType())
        return stream


def register_as_preprocessing(sink_class: type) -> None:
    """Makes `sink_to` apply the transformer of the class's sinks. Without PyFlink there is no `sink_to`, and nothing to do."""
    try:
        from pyflink.datastream.connectors.base import SupportsPreprocessing
    except ModuleNotFoundError as error:
        if error.name != "pyflink":
            raise
        return
    SupportsPreprocessing.register(sink_class)


@dataclass(frozen=True)
class _Columns:
    """What a writer gets of each element, and the Java objects that make it."""

    elements: JavaObject | None = None
    element_coding: ElementCoding = "none"
    type_info_proto: bytes | None = None
    payloads: JavaObject | None = None
    payload_coding: PayloadCoding = "none"


def java_sink(spec: SinkSpec, j_type: JavaObject | None, python_executable: str | None) -> JavaObject:
    """The Flink sink for a spec and a stream of this Java type.

    Raises:
        JarNotLoadedError: the JVM does not know the connector's classes.
        ConfigurationError: the type is not known or does not suit, or user code cannot be pickled.
    """
    python_sink = _java_class("bridge.PythonSink")
    columns = _columns(spec, j_type)

    from flink_pubsub.worker.sink import PubSubSinkConnector

    complete = replace(
        spec,
        element_coding=columns.element_coding,
        type_info_proto=columns.type_info_proto,
        payload_coding=columns.payload_coding,
    )
    user_code = {"serializer": spec.serializer, "destination_resolver": spec.destination_resolver}
    pickled = _pickle(PubSubSinkConnector(complete), user_code)
    lineage = _java_lineage([] if spec.topic is None else [spec.topic])
    return python_sink(pickled, worker_spec(python_executable), columns.elements, columns.payloads).withLineage(lineage)


def _columns(spec: SinkSpec, j_type: JavaObject | None) -> _Columns:
    if j_type is None:
        raise ConfigurationError("PubSubSink", "needs to know the stream's type: pass it to stream.sink_to(...)")
    encoding = jvm_encoding(spec.serializer)
    if encoding is None:
        return _element_columns(j_type)
    if encoding.j_schema is None:
        raise ConfigurationError("serializer", "was unpickled without its JVM schema: build the sink anew")
    if j_type.equals(_pickled_type()):
        raise ConfigurationError(
            "serializer",
            "is a PyFlink schema, which runs in the JVM, but the stream has Python objects: give the function before the"
            " sink an output_type, such as Types.STRING(), or use PubSubSerializationSchema.payload with a Python function",
        )
    extracts = spec.serializer.attributes_function or spec.serializer.ordering_key_function
    if spec.topic is not None and extracts is None:
        return _Columns(payloads=_java_class("message.MessageEncoder")(encoding.j_schema), payload_coding="message")
    payloads = _java_class("message.PayloadEncoder")(encoding.j_schema)
    return replace(_element_columns(j_type), payloads=payloads, payload_coding="payload")


def _element_columns(j_type: JavaObject) -> _Columns:
    from pyflink.common import Types

    if j_type.equals(_pickled_type()):
        return _Columns(elements=_java_class("bridge.BytesEncoder")(), element_coding="pickle")
    if j_type.equals(Types.PRIMITIVE_ARRAY(Types.BYTE()).get_java_type_info()):
        return _Columns(elements=_java_class("bridge.BytesEncoder")(), element_coding="bytes")
    serializer, proto = _coder("sink_to", j_type)
    return _Columns(_java_class("bridge.SerializerEncoder")(serializer), "proto", proto)


def worker_spec(python_executable: str | None) -> str:
    """What the JVM has to know to start workers, as JSON."""
    from flink_pubsub._jarfile import build_info

    return json.dumps(
        {
            "python_executable": python_executable,
            "client_executable": sys.executable,
            "client_python": "{}.{}".format(*sys.version_info[:2]),
            "version": build_info().version,
            "search_path": [os.path.abspath(entry) for entry in sys.path if os.path.exists(entry or ".")],
        }
    )


def _java_lineage(destinations: Iterable[_lineage.Destination]) -> JavaObject:
    return _java_class("lineage.Lineage").parse(json.dumps(_lineage.stream_lineage(destinations)))


def _coder(option: str, j_type: JavaObject) -> tuple[JavaObject, bytes]:
    """The two ends of PyFlink's coder for a type: the Java serializer, and the message that describes it to Python."""
    from py4j.protocol import Py4JJavaError
    from pyflink.java_gateway import get_gateway

    jvm = get_gateway().jvm
    utils = jvm.org.apache.flink.streaming.api.utils.PythonTypeUtils
    class_loader = jvm.Thread.currentThread().getContextClassLoader()
    try:
        serializer = utils.TypeInfoToSerializerConverter.typeInfoSerializerConverter(j_type)
        proto = utils.TypeInfoToProtoConverter.toTypeInfoProto(j_type, class_loader).toByteArray()
    except Py4JJavaError as error:
        problem = (
            f"has a type that PyFlink cannot exchange with Python, {j_type.toString()}: {error.java_exception.getMessage()}"
        )
        raise ConfigurationError(option, problem) from None
    return serializer, bytes(proto)


def _pickled_type() -> JavaObject:
    from pyflink.common import Types

    return Types.PICKLED_BYTE_ARRAY().get_java_type_info()


def _java_class(name: str) -> Any:
    from py4j.java_gateway import JavaClass
    from pyflink.java_gateway import get_gateway

    path = f"{_PACKAGE}.{name}"
    found = get_gateway().jvm
    for part in path.split("."):
        found = getattr(found, part)
    if not isinstance(found, JavaClass):
        raise JarNotLoadedError(path)
    return found


def _pickle(connector: object, user_code: Mapping[str, object]) -> bytes:
    """The connector as the workers get it: this package's classes by reference, functions of the main program by value."""
    import cloudpickle

    try:
        pickled: bytes = cloudpickle.dumps(connector)
    except Exception as error:
        for option, part in user_code.items():
            _try_pickle(option, part)
        raise ConfigurationError("the connector", f"cannot be pickled: {error}") from error
    return pickled


def _try_pickle(option: str, part: object) -> None:
    import cloudpickle

    try:
        cloudpickle.dumps(part)
    except Exception as error:
        problem = f"cannot be pickled; what cannot travel with the job has to be made in its open(): {error}"
        raise ConfigurationError(option, problem) from error
