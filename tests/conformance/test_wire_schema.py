"""The package's own protobuf schema against the one that Google publishes with its Python client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import pytest
from google import pubsub_v1
from google.protobuf.descriptor import FieldDescriptor as Type
from google.protobuf.message import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flink_pubsub.wire import pubsub_pb2 as wire

Descriptor: TypeAlias = Any
EnumDescriptor: TypeAlias = Any
FieldDescriptor: TypeAlias = Any
# The stubs of descriptors are those of a later protobuf than PyFlink's.

MESSAGES: list[str] = sorted(wire.DESCRIPTOR.message_types_by_name)
_INT = {
    Type.TYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    Type.TYPE_INT64: st.integers(-(2**63), 2**63 - 1),
}


def googles(name: str) -> type[Message]:
    """Google's class of a message, without the wrapper that its client puts around it."""
    found: type[Message] = getattr(pubsub_v1.types, name).pb()
    return found


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def kind(field: FieldDescriptor) -> tuple[object, ...]:
    """All that decides how a field is written, and how it may be used."""
    leaf = field.message_type or field.enum_type
    oneof = field.containing_oneof
    return (
        field.name,
        field.number,
        field.type,
        field.label,
        field.has_presence,
        is_map(field),
        None if leaf is None else leaf.full_name.removeprefix("flink_pubsub.wire.").removeprefix("google.pubsub.v1."),
        None if oneof is None else oneof.name,
    )


def values(enum: EnumDescriptor) -> dict[str, int]:
    return {value.name: value.number for value in enum.values}


def pairs(ours: Descriptor, theirs: Descriptor) -> Iterator[tuple[Descriptor, Descriptor]]:
    """The two descriptors and, in pairs, all that are nested in ours."""
    yield ours, theirs
    for name, nested in ours.nested_types_by_name.items():
        yield from pairs(nested, theirs.nested_types_by_name[name])


@pytest.mark.parametrize("name", MESSAGES)
def test_every_field_has_the_name_number_type_and_label_of_googles(name: str) -> None:
    for ours, theirs in pairs(getattr(wire, name).DESCRIPTOR, googles(name).DESCRIPTOR):
        assert {kind(field) for field in ours.fields} <= {kind(field) for field in theirs.fields}
        for enum_name, enum in ours.enum_types_by_name.items():
            assert values(enum) == values(theirs.enum_types_by_name[enum_name])


@pytest.mark.parametrize("name", ["PubsubMessage", "PublishRequest", "ReceivedMessage", "StreamingPullRequest", "SeekRequest"])
def test_no_field_is_missing_where_messages_go_through(name: str) -> None:
    ours, theirs = getattr(wire, name).DESCRIPTOR, googles(name).DESCRIPTOR
    assert set(ours.fields_by_name) == set(theirs.fields_by_name)


def scalars(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.type == Type.TYPE_STRING:
        return st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    if field.type == Type.TYPE_BYTES:
        return st.binary(max_size=40)
    if field.type == Type.TYPE_BOOL:
        return st.booleans()
    if field.type == Type.TYPE_ENUM:
        return st.sampled_from([value.number for value in field.enum_type.values])
    return _INT[field.type]


def field_values(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    """Values for one field: messages as dicts of their fields."""
    if is_map(field):
        entry = field.message_type.fields_by_name
        return st.dictionaries(scalars(entry["key"]), scalars(entry["value"]), max_size=3)
    one = scalars(field) if field.message_type is None else contents(field.message_type)
    return st.lists(one, max_size=3) if field.label == Type.LABEL_REPEATED else one


def contents(message: Descriptor) -> st.SearchStrategy[dict[str, Any]]:
    """Any of a message's fields, as a dict."""
    return st.deferred(
        lambda: st.fixed_dictionaries({}, optional={field.name: field_values(field) for field in message.fields})
    )


def filled(message: Message, content: dict[str, Any]) -> Message:
    for name, value in content.items():
        field: FieldDescriptor = message.DESCRIPTOR.fields_by_name[name]
        target = getattr(message, name)
        if is_map(field):
            target.update(value)
        elif field.label == Type.LABEL_REPEATED:
            if field.message_type is None:
                target.extend(value)
            else:
                for item in value:
                    filled(target.add(), item)
        elif field.message_type is not None:
            target.SetInParent()
            filled(target, value)
        else:
            setattr(message, name, value)
    return message


@pytest.mark.parametrize("name", MESSAGES)
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(data=st.data())
def test_both_schemas_give_the_same_bytes_and_read_them_alike(name: str, data: st.DataObject) -> None:
    ours, theirs = getattr(wire, name), googles(name)
    content = data.draw(contents(ours.DESCRIPTOR))
    written = filled(ours(), content).SerializeToString(deterministic=True)
    assert written == filled(theirs(), content).SerializeToString(deterministic=True)
    assert ours.FromString(written) == filled(ours(), content)
    assert theirs.FromString(written) == filled(theirs(), content)
