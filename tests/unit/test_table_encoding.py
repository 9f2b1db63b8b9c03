"""The JVM's encoders of table rows: messages as Protocol Buffers read them, and beside each where it goes."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flink_pubsub.wire.pubsub_pb2 import PublishRequest, PubsubMessage
from tests.unit.java import JavaError, Reflected, answering_null, java_class, jvm, make, objects

FEW = settings(max_examples=60)
"""An example costs dozens of calls into the JVM."""

NULL_MAP_ENTRY = "the map in the metadata column 'attributes' has a NULL"

texts = st.text(max_size=20)
maps = st.dictionaries(texts, texts, max_size=4)


def logical(*types: str) -> Any:
    """A logical type, or a row of several."""
    kinds = jvm().org.apache.flink.table.types.logical
    made = []
    for each in types:
        text = kinds.VarCharType(2**31 - 1)
        made.append(kinds.MapType(text, text) if each == "map" else text)
    if len(made) == 1:
        return made[0]
    fields = jvm().java.util.ArrayList()
    for index, kind in enumerate(made):
        fields.add(getattr(kinds, "RowType$RowField")(f"f{index}", kind))
    return kinds.RowType(fields)


def columns(*metadata: str) -> Any:
    keys = jvm().java.util.ArrayList()
    for key in metadata:
        keys.add(key)
    return make("table.WrittenColumns", 1, keys).instance


def encoder(*metadata: str) -> Reflected:
    """The encoder of rows of one physical column, which the format `raw` writes, and these metadata columns."""
    raw = java_class("org.apache.flink.formats.raw.RawFormatSerializationSchema").getConstructors()[0]
    schema = raw.newInstance(objects([logical("text"), "UTF-8", True]))
    made = make("table.RowEncoder", schema, columns(*metadata))
    made.open(answering_null("org.apache.flink.api.connector.sink2.WriterInitContext"))
    return made


def internal(value: str | dict[str | None, str | None] | None) -> Any:
    """A value as rows hold it."""
    data = jvm().org.apache.flink.table.data
    if isinstance(value, dict):
        entries = jvm().java.util.LinkedHashMap()
        for key, text in value.items():
            entries.put(internal(key), internal(text))
        return data.GenericMapData(entries)
    return None if value is None else data.StringData.fromString(value)


def row(*values: Any, binary: bool = False) -> Any:
    made = jvm().org.apache.flink.table.data.GenericRowData(len(values))
    for index, value in enumerate(values):
        made.setField(index, internal(value))
    if not binary:
        return made
    types = logical(*("map" if isinstance(value, dict) else "text" for value in values))
    if len(values) == 1:
        raise AssertionError("a binary row has several columns here")
    serializers = java_class("org.apache.flink.table.runtime.typeutils.RowDataSerializer")
    [constructor] = [each for each in serializers.getConstructors() if each.getParameterCount() == 1 and "RowType" in str(each)]
    return constructor.newInstance(objects([types])).toBinaryRow(made)


def encoded(encoder: Reflected, *rows: Any) -> bytes:
    out = jvm().org.apache.flink.core.memory.DataOutputSerializer(16)
    for each in rows:
        encoder.encode(each, out)
    return bytes(out.getCopyOfBuffer())


def messages(encoder: Reflected, *rows: Any) -> list[PubsubMessage]:
    return list(PublishRequest.FromString(encoded(encoder, *rows)).messages)


@cache
def with_everything() -> Reflected:
    return encoder("attributes", "ordering-key")


@FEW
@pytest.mark.feature("SQL-04")
@given(texts, maps, texts, st.booleans())
def test_a_row_becomes_a_message_with_its_attributes_and_its_key(
    data: str, attributes: dict[str, str], key: str, binary: bool
) -> None:
    [message] = messages(with_everything(), row(data, attributes, key, binary=binary))
    assert message == PubsubMessage(data=data.encode(), attributes=attributes, ordering_key=key)


@FEW
@pytest.mark.feature("SQL-02")
@given(st.lists(texts, max_size=5))
def test_rows_of_physical_columns_only_are_the_tail_of_a_request(values: list[str]) -> None:
    expected = PublishRequest(messages=[PubsubMessage(data=value.encode()) for value in values])
    assert encoded(encoder(), *map(row, values)) == expected.SerializeToString()


@pytest.mark.feature("SQL-04")
@pytest.mark.parametrize("attributes", [None, {}])
@pytest.mark.parametrize("key", [None, ""])
def test_null_and_empty_metadata_add_nothing(attributes: dict[str, str] | None, key: str | None) -> None:
    plain = encoded(encoder(), row("data"))
    assert encoded(with_everything(), row("data", attributes, key)) == plain


@pytest.mark.feature("SQL-04")
@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize(("entry", "part"), [({None: "secret"}, "key"), ({"secret": None}, "value")])
def test_a_null_in_the_map_is_an_error_that_names_the_column_and_shows_nothing(
    entry: dict[str | None, str | None], part: str, binary: bool
) -> None:
    with pytest.raises(JavaError, match=f"{NULL_MAP_ENTRY} {part}") as caught:
        encoded(with_everything(), row("data", {"good": "1", **entry}, "k", binary=binary))
    assert "secret" not in caught.value.message
    assert messages(with_everything(), row("data", None, None)) == [PubsubMessage(data=b"data")], "nothing is left over"


@pytest.mark.feature("SQL-02")
def test_no_payload_is_an_error_that_names_the_mend() -> None:
    with pytest.raises(JavaError, match=r"the format makes no payload of it.*COALESCE"):
        encoded(encoder(), row(None))


@pytest.mark.feature("SQL-04")
def test_metadata_is_taken_from_its_place_whatever_else_is_written() -> None:
    assert messages(encoder("ordering-key", "topic"), row("data", "k", "orders")) == [
        PubsubMessage(data=b"data", ordering_key="k")
    ]
    assert messages(encoder("topic", "attributes"), row("data", "orders", {"a": "1"})) == [
        PubsubMessage(data=b"data", attributes={"a": "1"})
    ]


@pytest.mark.feature("BEY-11")
@pytest.mark.parametrize(
    ("metadata", "values", "expected"),
    [
        (("ordering-key",), ("k",), b"\xff\xff\xff\xffk"),
        (("ordering-key",), (None,), b"\xff\xff\xff\xff"),
        (("topic",), ("grün",), b"\x00\x00\x00\x05gr\xc3\xbcn"),
        (("topic",), (None,), b"\xff\xff\xff\xff"),
        (("topic",), ("",), b"\x00\x00\x00\x00"),
        (("attributes", "ordering-key", "topic"), ({"a": "1"}, "key", "orders"), b"\x00\x00\x00\x06orderskey"),
    ],
)
def test_where_a_row_goes_is_its_topic_if_it_names_one_and_its_key(
    metadata: tuple[str, ...], values: tuple[Any, ...], expected: bytes
) -> None:
    assert encoded(make("table.RouteEncoder", columns(*metadata)), row("data", *values)) == expected
