"""The Java sources and sinks that are made of ours, in the JVM that PyFlink starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from pyflink.common import Row, SimpleStringSchema, Types, WatermarkStrategy
from pyflink.datastream import DataStream, StreamExecutionEnvironment
from pyflink.datastream.connectors.base import SupportsPreprocessing

import flink_pubsub
from flink_pubsub import (
    ConfigurationError,
    PubSubDeserializationSchema,
    PubSubSerializationSchema,
    PubSubSink,
    PubSubSource,
    SubscriptionDestination,
    TopicDestination,
    _pyflink,
)
from flink_pubsub.sink import PubSubSinkBuilder

TOPIC = TopicDestination("my-project", "orders")


@pytest.fixture(scope="module")
def env() -> StreamExecutionEnvironment:
    environment = StreamExecutionEnvironment.get_execution_environment()
    environment.add_jars(flink_pubsub.jar())
    return environment


def source(deserializer: PubSubDeserializationSchema) -> PubSubSource:
    builder = PubSubSource.builder().subscriptions(SubscriptionDestination("my-project", "orders"))
    return builder.deserializer(deserializer).emulator_endpoint("localhost:8085").build()


def sink(serializer: PubSubSerializationSchema) -> PubSubSinkBuilder:
    return PubSubSink.builder().topic(TOPIC).serializer(serializer).emulator_endpoint("localhost:8085")


def stream(env: StreamExecutionEnvironment, type_info: Any = None) -> DataStream:
    return env.from_collection(["a"], type_info) if type_info else env.from_collection(["a"])


def spec_for(built: PubSubSink, data_stream: DataStream) -> Any:
    """The columns that a writer behind this stream gets."""
    return _pyflink._columns(built._spec, data_stream._j_data_stream.getType())


def simple_name(java: Any) -> str | None:
    return None if java is None else str(java.getClass().getSimpleName())


@pytest.mark.feature("SRC-29")
@pytest.mark.parametrize(
    ("deserializer", "produced"),
    [
        (lambda: PubSubDeserializationSchema.payload(json.loads), Types.PICKLED_BYTE_ARRAY),
        (lambda: PubSubDeserializationSchema.payload(json.loads, Types.PICKLED_BYTE_ARRAY()), Types.PICKLED_BYTE_ARRAY),
        (lambda: PubSubDeserializationSchema.payload(bytes.decode, Types.STRING()), Types.STRING),
        (
            lambda: PubSubDeserializationSchema.payload(Row, Types.ROW_NAMED(["data"], [Types.STRING()])),
            lambda: Types.ROW_NAMED(["data"], [Types.STRING()]),
        ),
        (lambda: PubSubDeserializationSchema.payload(SimpleStringSchema()), Types.STRING),
    ],
    ids=["python", "pickled", "string", "row", "jvm"],
)
def test_a_stream_has_the_type_of_the_schema(env: StreamExecutionEnvironment, deserializer: Any, produced: Any) -> None:
    built = env.from_source(source(deserializer()), WatermarkStrategy.no_watermarks(), "orders")
    assert built._j_data_stream.getType().equals(produced().get_java_type_info())


@pytest.mark.feature("BEY-14")
def test_whole_messages_are_rows_with_all_metadata(env: StreamExecutionEnvironment) -> None:
    built = env.from_source(source(PubSubDeserializationSchema.message()), WatermarkStrategy.no_watermarks(), "orders")
    names = list(built._j_data_stream.getType().getFieldNames())
    assert {"data", "attributes", "message_id", "publish_time", "ordering_key", "subscription"} <= set(names)


@pytest.mark.feature("SRC-29")
def test_an_explicit_type_travels_to_the_worker_as_pyflinks_coder(env: StreamExecutionEnvironment) -> None:
    from pyflink.fn_execution import flink_fn_execution_pb2

    _, _, proto = _pyflink._decoding(PubSubDeserializationSchema.payload(bytes.decode, Types.STRING()))
    info = flink_fn_execution_pb2.TypeInfo.FromString(proto)
    assert info.type_name == flink_fn_execution_pb2.TypeInfo.STRING


@pytest.mark.feature("SRC-29")
@pytest.mark.parametrize("wrong", ["STRING", str, Types.STRING])
def test_a_produced_type_that_is_none_of_pyflinks_is_refused(env: StreamExecutionEnvironment, wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="get_produced_type must return a PyFlink TypeInformation"):
        source(PubSubDeserializationSchema.payload(bytes.decode, wrong)).get_java_function()


@pytest.mark.feature("VAL-05")
@pytest.mark.feature("SRC-29")
def test_a_deserializer_that_cannot_be_pickled_is_refused_by_name(env: StreamExecutionEnvironment) -> None:
    lock = threading.Lock()
    with pytest.raises(ConfigurationError, match=r"deserializer cannot be pickled; .* made in its open\(\)"):
        source(PubSubDeserializationSchema.payload(lambda data: lock)).get_java_function()


@pytest.mark.feature("VAL-05")
@pytest.mark.feature("SNK-01")
def test_a_resolver_that_cannot_be_pickled_is_refused_by_name(env: StreamExecutionEnvironment) -> None:
    lock = threading.Lock()
    built = sink(PubSubSerializationSchema.payload(str.encode)).destination_resolver(lambda e, c: (lock, TOPIC)[1])
    with pytest.raises(ConfigurationError, match="destination_resolver cannot be pickled"):
        stream(env).sink_to(built.build())


@pytest.mark.feature("SNK-02")
def test_a_python_serializer_gets_elements_as_the_stream_has_them(env: StreamExecutionEnvironment) -> None:
    built = sink(PubSubSerializationSchema.payload(str.encode)).build()
    cases = [
        (stream(env), "pickle", "BytesEncoder"),
        (stream(env, Types.STRING()), "proto", "SerializerEncoder"),
        (stream(env, Types.STRING()).map(str.encode, Types.PRIMITIVE_ARRAY(Types.BYTE())), "bytes", "BytesEncoder"),
        (env.from_collection([Row("a")], Types.ROW([Types.STRING()])), "proto", "SerializerEncoder"),
    ]
    for data_stream, coding, encoder in cases:
        columns = spec_for(built, data_stream)
        assert (columns.element_coding, simple_name(columns.elements)) == (coding, encoder)
        assert (columns.payload_coding, columns.payloads) == ("none", None)
        assert (columns.type_info_proto is not None) == (coding == "proto")


@pytest.mark.feature("SNK-02")
def test_a_jvm_payload_for_a_fixed_topic_needs_no_elements_in_python(env: StreamExecutionEnvironment) -> None:
    columns = spec_for(sink(PubSubSerializationSchema.payload(SimpleStringSchema())).build(), stream(env, Types.STRING()))
    assert (columns.element_coding, columns.elements) == ("none", None)
    assert (columns.payload_coding, simple_name(columns.payloads)) == ("message", "MessageEncoder")


@pytest.mark.feature("SNK-01")
@pytest.mark.feature("SNK-02")
def test_a_jvm_payload_with_python_extractors_or_resolver_comes_beside_the_element(env: StreamExecutionEnvironment) -> None:
    payload = PubSubSerializationSchema.payload(SimpleStringSchema())
    for built in (
        sink(payload.with_attributes(lambda element: {"a": element})),
        sink(payload.with_ordering_key(lambda element: element)),
        sink(payload).destination_resolver(lambda element, context: TOPIC),
    ):
        columns = spec_for(built.build(), stream(env, Types.STRING()))
        assert (columns.element_coding, simple_name(columns.elements)) == ("proto", "SerializerEncoder")
        assert (columns.payload_coding, simple_name(columns.payloads)) == ("payload", "PayloadEncoder")


@pytest.mark.feature("SNK-02")
def test_a_jvm_schema_on_a_stream_of_python_objects_is_refused_with_the_mend(env: StreamExecutionEnvironment) -> None:
    built = sink(PubSubSerializationSchema.payload(SimpleStringSchema())).build()
    with pytest.raises(ConfigurationError, match=r"give the function before the sink an output_type, such as Types\.STRING"):
        stream(env).sink_to(built)


def test_a_sink_is_told_the_streams_type_by_sink_to() -> None:
    assert isinstance(sink(PubSubSerializationSchema.payload(str.encode)).build(), SupportsPreprocessing)


def test_one_sink_serves_two_streams_of_different_types(env: StreamExecutionEnvironment) -> None:
    built = sink(PubSubSerializationSchema.payload(str.encode)).build()
    for data_stream in (stream(env), stream(env, Types.STRING()), stream(env)):
        data_stream.sink_to(built)
        with pytest.raises(ConfigurationError, match="needs to know the stream's type"):
            built.get_java_function()


def test_a_type_that_pyflink_cannot_exchange_is_refused_by_name(env: StreamExecutionEnvironment) -> None:
    from pyflink.java_gateway import get_gateway

    jvm: Any = get_gateway().jvm
    j_type = jvm.org.apache.flink.api.common.typeinfo.BasicTypeInfo.VOID_TYPE_INFO
    with pytest.raises(ConfigurationError, match="sink_to has a type that PyFlink cannot exchange with Python, Void"):
        _pyflink._element_columns(j_type)


@pytest.mark.feature("BEY-05")
@pytest.mark.feature("DEP-04")
def test_workers_are_told_interpreter_version_and_where_the_client_imports_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", "lib.zip", str(tmp_path / "missing"), *sys.path])
    spec = json.loads(_pyflink.worker_spec("/opt/worker/bin/python"))
    assert spec["python_executable"] == "/opt/worker/bin/python"
    assert spec["client_executable"] == sys.executable
    assert spec["client_python"] == "{}.{}".format(*sys.version_info[:2])
    assert spec["version"] == flink_pubsub.__version__
    assert spec["search_path"][0] == os.path.realpath(tmp_path)
    assert all(os.path.isabs(entry) and os.path.exists(entry) for entry in spec["search_path"])
    assert json.loads(_pyflink.worker_spec(None))["python_executable"] is None


def test_a_jar_that_was_not_added_is_one_clear_error() -> None:
    code = (
        "import json; from flink_pubsub import *\n"
        "try:\n"
        "    PubSubSource.builder().subscriptions(SubscriptionDestination('p', 'orders'))"
        ".deserializer(PubSubDeserializationSchema.payload(json.loads)).build().get_java_function()\n"
        "except JarNotLoadedError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=100)
    assert done.stdout.startswith("env.add_jars(jar()) must be called before the source or sink is used")
