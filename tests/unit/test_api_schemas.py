"""Schemas: what each kind promises, how layers compose, and what of them travels."""

from __future__ import annotations

import json
import pickle
from dataclasses import FrozenInstanceError
from datetime import datetime
from typing import Any

import cloudpickle
import pytest

from flink_pubsub import (
    Collector,
    ConfigurationError,
    PubSubDeserializationSchema,
    PubsubMessage,
    PubSubSerializationSchema,
    SerializationError,
    SubscriptionDestination,
)
from flink_pubsub.schemas import JvmPayloadDecoding, JvmPayloadEncoding, PayloadFunction, jvm_encoding

ORDERS = SubscriptionDestination("my-project", "orders")


class ListCollector:
    def __init__(self) -> None:
        self.records: list[tuple[Any, int | datetime | None]] = []

    def collect(self, record: Any, timestamp: int | datetime | None = None) -> None:
        self.records.append((record, timestamp))


class JavaSchema:
    """In place of a Java object: refuses to be pickled, as py4j's do."""

    def __reduce__(self) -> str:
        raise TypeError("a Java object cannot be pickled")


class PyFlinkSchema:
    def __init__(self) -> None:
        self._j_deserialization_schema = self._j_serialization_schema = JavaSchema()


class Splitting(PubSubDeserializationSchema):
    def deserialize(self, message: PubsubMessage, subscription: SubscriptionDestination, collector: Collector) -> None:
        for number, word in enumerate(message.data.split()):
            collector.collect((subscription.subscription, word), timestamp=number)


class Tagged(PubSubSerializationSchema):
    def serialize(self, element: Any) -> PubsubMessage | None:
        return PubsubMessage(str(element).encode(), {"kind": "int", "from": "schema"}, "schema-key") if element else None


def never(element: Any) -> Any:
    raise AssertionError("called for a skipped record")


@pytest.mark.feature("SRC-02")
def test_a_subclass_sees_message_and_subscription_and_emits_any_number_of_records() -> None:
    collector = ListCollector()
    schema = Splitting()
    schema.open()
    schema.deserialize(PubsubMessage(b"a b"), ORDERS, collector)
    schema.deserialize(PubsubMessage(b""), ORDERS, collector)
    assert collector.records == [(("orders", b"a"), 0), (("orders", b"b"), 1)]
    assert schema.get_produced_type() is None
    assert not schema.decodes_in_jvm


@pytest.mark.feature("SRC-02")
def test_a_deserializer_without_deserialize_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="abstract"):
        PubSubDeserializationSchema()  # type: ignore[abstract]


@pytest.mark.feature("SRC-03")
def test_a_payload_function_makes_one_record_of_each_payload() -> None:
    schema = PubSubDeserializationSchema.payload(json.loads)
    collector = ListCollector()
    schema.deserialize(PubsubMessage(b"[1, 2]"), ORDERS, collector)
    assert collector.records == [([1, 2], None)]
    assert isinstance(schema, PayloadFunction)
    assert schema.function is json.loads


@pytest.mark.feature("SRC-29")
def test_the_type_given_with_a_function_is_the_produced_one_but_does_not_travel() -> None:
    type_info = JavaSchema()
    schema = PubSubDeserializationSchema.payload(bytes.decode, type_info)
    assert schema.get_produced_type() is type_info
    copy = pickle.loads(pickle.dumps(schema))
    assert copy.function is bytes.decode
    assert copy.get_produced_type() is None


@pytest.mark.feature("SRC-03")
def test_a_schema_of_pyflinks_decodes_in_the_jvm_and_leaves_its_java_object_behind() -> None:
    schema = PubSubDeserializationSchema.payload(PyFlinkSchema())
    assert schema.decodes_in_jvm
    assert isinstance(schema, JvmPayloadDecoding)
    assert isinstance(schema.j_schema, JavaSchema)
    assert pickle.loads(pickle.dumps(schema)).j_schema is None


@pytest.mark.feature("SRC-03")
def test_a_schema_of_pyflinks_brings_its_own_type() -> None:
    with pytest.raises(ConfigurationError, match="type_info must be left out"):
        PubSubDeserializationSchema.payload(PyFlinkSchema(), JavaSchema())


@pytest.mark.feature("BEY-14")
def test_whole_messages_are_decoded_in_the_jvm() -> None:
    schema = PubSubDeserializationSchema.message()
    assert schema.decodes_in_jvm
    assert pickle.loads(pickle.dumps(schema)).decodes_in_jvm


@pytest.mark.feature("SRC-03")
@pytest.mark.feature("SNK-02")
@pytest.mark.parametrize("make", [PubSubDeserializationSchema.payload, PubSubSerializationSchema.payload])
@pytest.mark.parametrize("value", [None, "utf-8", 5, b"", {}])
def test_a_payload_schema_that_cannot_be_called_is_refused(make: Any, value: object) -> None:
    with pytest.raises(ConfigurationError, match="payload needs a PyFlink schema or a function") as caught:
        make(value)
    assert repr(value) in str(caught.value)


@pytest.mark.feature("SRC-03")
@pytest.mark.feature("SNK-02")
def test_a_whole_message_schema_given_as_a_payload_schema_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="give this schema to the builder as it is"):
        PubSubDeserializationSchema.payload(Splitting())
    with pytest.raises(ConfigurationError, match="give this schema to the builder as it is"):
        PubSubSerializationSchema.payload(Tagged())


@pytest.mark.feature("SRC-03")
@pytest.mark.feature("SNK-02")
def test_the_class_of_a_schema_in_place_of_the_schema_is_refused() -> None:
    class_of_pyflinks = type("SimpleStringSchema", (), {"__module__": "pyflink.common.serialization"})
    with pytest.raises(ConfigurationError, match=r"needs the schema itself, not its class: SimpleStringSchema\(\.\.\.\)"):
        PubSubDeserializationSchema.payload(class_of_pyflinks)
    with pytest.raises(ConfigurationError, match="needs the schema itself, not its class"):
        PubSubSerializationSchema.payload(class_of_pyflinks)


@pytest.mark.feature("SNK-02")
def test_a_payload_function_makes_a_message_of_just_the_payload() -> None:
    schema = PubSubSerializationSchema.payload(str.encode)
    schema.open()
    assert schema.serialize("é") == PubsubMessage("é".encode())
    assert schema.payload_function is str.encode
    assert not schema.payload_in_jvm
    assert schema.attributes_function is None
    assert schema.ordering_key_function is None


@pytest.mark.feature("SNK-02")
def test_a_payload_of_none_is_an_error_that_names_the_mend() -> None:
    schema = PubSubSerializationSchema.payload(lambda element: None)  # type: ignore[return-value]
    with pytest.raises(SerializationError, match="to skip records, subclass PubSubSerializationSchema"):
        schema.serialize("x")


@pytest.mark.feature("SNK-02")
def test_a_payload_that_is_not_bytes_is_an_error() -> None:
    schema = PubSubSerializationSchema.payload(lambda element: element)
    with pytest.raises(SerializationError, match="a payload must be bytes, not str"):
        schema.serialize("x")


@pytest.mark.feature("SNK-02")
def test_layers_add_attributes_and_a_key_to_any_schema_and_win_over_what_it_set() -> None:
    schema = Tagged().with_attributes(lambda n: {"from": "layer", "n": str(n)}).with_ordering_key(lambda n: f"key-{n}")
    assert schema.serialize(7) == PubsubMessage(b"7", {"kind": "int", "from": "layer", "n": "7"}, "key-7")
    assert schema.payload_function is None


@pytest.mark.feature("SNK-02")
@pytest.mark.parametrize("nothing", [None, {}, ""])
def test_empty_extractions_add_nothing(nothing: Any) -> None:
    schema = Tagged().with_attributes(lambda n: nothing or None).with_ordering_key(lambda n: nothing or "")
    assert schema.serialize(7) == Tagged().serialize(7)


@pytest.mark.feature("SNK-02")
def test_extractors_are_not_called_for_a_skipped_record() -> None:
    assert Tagged().with_attributes(never).with_ordering_key(never).serialize(0) is None


@pytest.mark.feature("SNK-02")
@pytest.mark.parametrize("key", ["", "b"])
def test_the_functions_of_stacked_layers_join_to_what_serialize_does(key: str) -> None:
    schema = (
        PubSubSerializationSchema.payload(str.encode)
        .with_attributes(lambda word: {"a": "1", "b": "1"})
        .with_ordering_key(lambda word: "a")
        .with_attributes(lambda word: {"b": word})
        .with_ordering_key(lambda word: key)
    )
    make, attributes, ordering_key = schema.payload_function, schema.attributes_function, schema.ordering_key_function
    assert make
    assert attributes
    assert ordering_key
    joined = PubsubMessage(make("w"), attributes("w") or {}, ordering_key("w") or "")
    assert joined == PubsubMessage(b"w", {"a": "1", "b": "w"}, key or "a")
    assert schema.serialize("w") == joined


@pytest.mark.feature("SNK-02")
def test_layers_open_the_schema_below() -> None:
    opened = []

    class Opening(Tagged):
        def open(self) -> None:
            opened.append(self)

    Opening().with_attributes(never).with_ordering_key(never).open()
    assert len(opened) == 1


@pytest.mark.feature("SNK-02")
def test_a_schema_of_pyflinks_below_layers_is_found_and_leaves_its_java_object_behind() -> None:
    base = PubSubSerializationSchema.payload(PyFlinkSchema())
    schema = base.with_attributes(lambda element: {}).with_ordering_key(lambda element: "k")
    assert jvm_encoding(schema) is base
    assert schema.payload_in_jvm
    assert schema.payload_function is None
    copy = cloudpickle.loads(cloudpickle.dumps(schema))
    assert copy.payload_in_jvm
    assert copy.ordering_key_function(None) == "k"
    assert isinstance(base, JvmPayloadEncoding)
    below = jvm_encoding(copy)
    assert below is not None
    assert below.j_schema is None
    assert jvm_encoding(Tagged()) is None


@pytest.mark.feature("SNK-02")
@pytest.mark.parametrize("name", ["with_attributes", "with_ordering_key"])
def test_an_extractor_that_cannot_be_called_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} must be a function"):
        getattr(Tagged(), name)({"source": "web"})


def test_a_message_is_immutable_equal_by_value_and_picklable() -> None:
    message = PubsubMessage(b"x", {"a": "1"}, "k")
    assert message == PubsubMessage(b"x", {"a": "1"}, "k")
    assert hash(message) == hash(PubsubMessage(b"x", {"a": "2"}, "k"))
    assert pickle.loads(pickle.dumps(message)) == message
    with pytest.raises(FrozenInstanceError):
        message.data = b"y"  # type: ignore[misc]


@pytest.mark.parametrize("data", ["text", None, bytearray(b"x"), 5])
def test_a_message_of_anything_but_bytes_is_refused(data: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"PubsubMessage\.data must be bytes; encode text first"):
        PubsubMessage(data)


@pytest.mark.parametrize("key", [None, 5, b"k"])
def test_a_message_with_a_key_that_is_not_text_is_refused(key: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"PubsubMessage\.ordering_key must be str"):
        PubsubMessage(b"", ordering_key=key)
