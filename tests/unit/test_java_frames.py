"""The JVM reads the frames that Python writes and the other way round, and no damage costs more than one clear error."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from py4j.java_gateway import get_field
from pyflink.util.java_utils import to_jarray

from flink_pubsub.bridge.frames import (
    MAX_FRAME_BYTES,
    NO_TIMESTAMP,
    PROTOCOL_VERSION,
    FrameReader,
    Kind,
    ProtocolError,
    WriteBatch,
    encode,
)
from tests.unit.java import JavaError, Reflected, boxed_long, classes, java_class, jvm, long_class, make, objects

FEW = settings(max_examples=150)
"""An example costs a few calls into the JVM."""


@pytest.fixture(scope="module")
def frames() -> Reflected:
    return Reflected("bridge.Frames")


def read_all(frames: Reflected, data: bytes) -> list[tuple[Kind, bytes]]:
    """What the JVM makes of a stream."""
    stream, found = jvm().java.io.ByteArrayInputStream(data), []
    while (frame := frames.read(stream)) is not None:
        found.append((Kind(get_field(frame, "kind")), bytes(get_field(frame, "body"))))
    return found


def read_all_here(data: bytes) -> list[tuple[Kind, bytes]] | str:
    reader, found = FrameReader(io.BytesIO(data).read), []
    try:
        while (frame := reader.next()) is not None:
            found.append(frame)
    except ProtocolError as error:
        return str(error)
    return found


def test_both_sides_have_the_same_kinds_and_limits(frames: Reflected) -> None:
    constants = {field.getName(): field.get(None) for field in java_class("bridge.Frames").getFields()}
    expected = {kind.name: kind.value for kind in Kind}
    expected |= {"PROTOCOL_VERSION": PROTOCOL_VERSION, "MAX_FRAME_BYTES": MAX_FRAME_BYTES, "NO_TIMESTAMP": NO_TIMESTAMP}
    assert constants == expected


@FEW
@given(st.lists(st.tuples(st.sampled_from(Kind), st.binary(max_size=300)), max_size=8))
def test_frames_cross_over_in_both_directions(frames: Reflected, sent: list[tuple[Kind, bytes]]) -> None:
    data = b"".join(encode(kind, body) for kind, body in sent)
    assert read_all(frames, data) == sent
    out = jvm().java.io.ByteArrayOutputStream()
    for kind, body in sent:
        frames.write(out, int(kind), body)
    assert bytes(out.toByteArray()) == data


def test_a_body_of_many_pieces_arrives_whole(frames: Reflected) -> None:
    body = bytes(range(256)) * 40_000
    assert read_all(frames, encode(Kind.RECORDS, body)) == [(Kind.RECORDS, body)]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Valid frames with a few bytes changed, and cut anywhere."""
    sent = draw(st.lists(st.tuples(st.sampled_from(Kind), st.binary(max_size=40)), min_size=1, max_size=4))
    data = bytearray(b"".join(encode(kind, body) for kind, body in sent))
    for _ in range(draw(st.integers(0, 3))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))])


@FEW
@given(st.one_of(damaged(), st.binary(max_size=80)))
def test_both_sides_judge_a_damaged_stream_alike(frames: Reflected, data: bytes) -> None:
    expected = read_all_here(data)
    if isinstance(expected, str):
        with pytest.raises(JavaError) as raised:
            read_all(frames, data)
        assert raised.value.kind == "io.github.flinkpubsub.bridge.ProtocolException"
        if "ended within" not in expected:
            assert raised.value.message == expected
    else:
        assert read_all(frames, data) == expected


@pytest.mark.parametrize("length", [0, MAX_FRAME_BYTES + 1, 2**31, 2**32 - 1])
def test_an_impossible_length_is_an_error(frames: Reflected, length: int) -> None:
    with pytest.raises(JavaError, match=f"ProtocolException: a frame claims {length} bytes"):
        read_all(frames, struct.pack(">IB", length, Kind.WRITE))


def test_a_claimed_length_is_not_allocated_before_its_bytes_are_there(frames: Reflected) -> None:
    allocated = allocation_meter()
    before = allocated()
    for _ in range(20):
        with pytest.raises(JavaError, match="ended within a frame"):
            read_all(frames, struct.pack(">IB", MAX_FRAME_BYTES, Kind.RECORDS) + b"0123456789")
    assert allocated() - before < 20 * MAX_FRAME_BYTES / 8


def allocation_meter() -> Callable[[], int]:
    """Tells how many bytes the JVM's thread behind this one has allocated so far."""
    beans = jvm().java.lang.management.ManagementFactory.getThreadMXBean()
    thread = jvm().Thread.currentThread().getId()
    method = java_class("com.sun.management.ThreadMXBean").getMethod("getThreadAllocatedBytes", classes(long_class()))
    return lambda: int(method.invoke(beans, objects([boxed_long(thread)])))


rows = st.lists(st.tuples(st.binary(max_size=60), st.integers(-(2**63), 2**63 - 1)), max_size=20)
"""Elements with their event times."""


@pytest.mark.parametrize("timestamps", [False, True])
@pytest.mark.parametrize("columns", ["elements", "payloads", "both"])
@settings(max_examples=25)
@given(batches=st.lists(rows, min_size=1, max_size=3), watermark=st.integers(-(2**63), 2**63 - 1))
def test_a_write_batch_of_the_jvm_is_read_in_python(
    batches: list[list[tuple[bytes, int]]], watermark: int, columns: str, timestamps: bool
) -> None:
    bytes_encoder = make("bridge.BytesEncoder").instance
    batch = make(
        "bridge.WriteBatch", *(bytes_encoder if columns in (name, "both") else None for name in ("elements", "payloads"))
    )
    if timestamps:
        batch.withTimestamps()
    for added in batches:
        for element, timestamp in added:
            assert batch.encode(element) == len(element) * (1 + (columns == "both"))
            batch.add(boxed_long(timestamp))
        assert batch.size() == len(added)
        expected = batch.bodyBytes()
        body = bytes(batch.take(boxed_long(watermark)))
        assert len(body) == expected
        read = WriteBatch.decode(body)
        assert (read.size, read.watermark) == (len(added), watermark)
        assert (read.timestamps and list(read.timestamps)) == (
            [timestamp for _, timestamp in added] if timestamps else None
        ) or not added
        for name, column in (("elements", read.elements), ("payloads", read.payloads)):
            assert (column is not None) == (columns in (name, "both"))
            assert column is None or column.values() == [element for element, _ in added]


def test_an_element_encoded_and_not_added_is_in_the_next_batch() -> None:
    batch = make("bridge.WriteBatch", make("bridge.BytesEncoder").instance, None)
    for element in (b"first", b"second"):
        batch.encode(element)
        batch.add(boxed_long(0))
    batch.encode(b"third")
    assert values(batch) == [b"first", b"second"]
    batch.add(boxed_long(0))
    assert values(batch) == [b"third"]
    assert values(batch) == []


def test_an_element_encoded_again_takes_the_place_of_the_one_before() -> None:
    batch = make("bridge.WriteBatch", make("bridge.BytesEncoder").instance, None)
    batch.encode(b"a longer one")
    batch.encode(b"this")
    batch.add(boxed_long(0))
    assert values(batch) == [b"this"]


def test_the_buffer_of_a_huge_element_is_given_up_and_what_follows_is_intact() -> None:
    batch = make("bridge.WriteBatch", sized_encoder(), None)
    for size in (9_000_000, 5):
        assert batch.encode(str(size)) == size
        batch.add(boxed_long(0))
    batch.encode("7")
    assert list(map(len, values(batch))) == [9_000_000, 5]
    batch.add(boxed_long(0))
    assert list(map(len, values(batch))) == [7]


def values(batch: Reflected) -> list[bytes]:
    """The elements of the batch, taken out."""
    column = WriteBatch.decode(bytes(batch.take(boxed_long(NO_TIMESTAMP)))).elements
    assert column is not None
    return column.values()


def test_the_largest_element_fills_a_frame_and_a_larger_one_is_an_error_that_says_so() -> None:
    batch = make("bridge.WriteBatch", sized_encoder(), None)
    largest = MAX_FRAME_BYTES - 1 - 13 - 4
    assert batch.encode(str(largest)) == largest
    assert batch.fits()
    batch.encode("1")
    batch.add(boxed_long(0))
    batch.encode(str(largest))
    assert not batch.fits()
    with pytest.raises(JavaError, match=f"An element of {largest + 1} bytes .* and {MAX_FRAME_BYTES} is the most"):
        batch.encode(str(largest + 1))


def sized_encoder() -> Any:
    """Encodes a number's text to that many bytes, so that large ones need not cross from Python."""
    invoke = jvm().java.lang.invoke
    lookup, array = invoke.MethodHandles.publicLookup(), jvm().Class.forName("[B")
    parse = lookup.unreflect(java_class("java.lang.Integer").getMethod("parseInt", classes(java_class("java.lang.String"))))
    make_array = invoke.MethodHandles.filterArguments(invoke.MethodHandles.arrayConstructor(array), 0, handles(parse))
    schema = invoke.MethodHandleProxies.asInterfaceInstance(
        java_class("org.apache.flink.api.common.serialization.SerializationSchema"), make_array
    )
    return make("message.PayloadEncoder", schema).instance


def handles(*values: Any) -> Any:
    return to_jarray(jvm().java.lang.invoke.MethodHandle, values)
