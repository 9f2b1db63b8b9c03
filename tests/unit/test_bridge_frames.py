"""The frame format: round trips, and one clear error for everything that is not a frame."""

from __future__ import annotations

import io
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flink_pubsub.bridge.frames import (
    MAX_FRAME_BYTES,
    NO_TIMESTAMP,
    FrameReader,
    Kind,
    ProtocolError,
    RecordBlock,
    WriteBatch,
    decode_json,
    encode,
    encode_json,
    encode_parts,
)


def read_all(data: bytes) -> list[tuple[Kind, bytes]]:
    reader, frames = FrameReader(io.BytesIO(data).read), []
    while (frame := reader.next()) is not None:
        frames.append(frame)
    return frames


@given(st.lists(st.tuples(st.sampled_from(Kind), st.binary(max_size=300)), max_size=8))
def test_frames_come_out_as_they_went_in(frames: list[tuple[Kind, bytes]]) -> None:
    assert read_all(b"".join(encode(kind, body) for kind, body in frames)) == frames


@given(st.binary(max_size=200), st.integers(1, 7))
def test_a_source_that_gives_a_few_bytes_at_a_time_makes_no_difference(body: bytes, step: int) -> None:
    source = io.BytesIO(encode(Kind.WRITE, body))
    assert FrameReader(lambda size: source.read(min(size, step))).next() == (
        Kind.WRITE,
        body,
    )


@given(st.binary(max_size=400))
def test_random_bytes_are_frames_or_one_clear_error(data: bytes) -> None:
    try:
        frames = read_all(data)
    except ProtocolError as error:
        assert str(error)
    else:
        assert b"".join(encode(kind, body) for kind, body in frames) == data


@given(st.binary(min_size=1, max_size=100), st.data())
def test_a_frame_cut_short_is_an_error(body: bytes, data: st.DataObject) -> None:
    frame = encode(Kind.WRITE, body)
    cut = data.draw(st.integers(1, len(frame) - 1))
    with pytest.raises(ProtocolError, match="ended within a frame"):
        read_all(frame[:cut])


@pytest.mark.parametrize("length", [0, MAX_FRAME_BYTES + 1, 2**32 - 1])
def test_an_impossible_length_is_an_error(length: int) -> None:
    with pytest.raises(ProtocolError, match=f"claims {length} bytes"):
        read_all(struct.pack(">IB", length, Kind.WRITE))


def test_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="unknown frame kind 0x7f"):
        read_all(struct.pack(">IB", 1, 0x7F))


def test_a_claimed_length_is_not_allocated_before_its_bytes_are_there() -> None:
    frame = struct.pack(">IB", MAX_FRAME_BYTES, Kind.WRITE) + b"only this"
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="bytes short"):
            FrameReader(io.BytesIO(frame).read).next()
        assert tracemalloc.get_traced_memory()[1] < 8 * 1024 * 1024
    finally:
        tracemalloc.stop()


def test_a_frame_too_long_to_be_sent_names_its_kind_and_the_limit() -> None:
    with pytest.raises(
        ProtocolError,
        match=f"a RECORDS frame of .* exceeds the limit of {MAX_FRAME_BYTES}",
    ):
        encode_parts(Kind.RECORDS, [bytes(1024 * 1024)] * 64)


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"\xff"])
def test_a_control_body_that_is_not_a_json_object_is_an_error(body: bytes) -> None:
    with pytest.raises(ProtocolError, match="FLUSH"):
        decode_json(Kind.FLUSH, body)


def test_a_control_frame_carries_a_json_object() -> None:
    [(kind, body)] = read_all(encode_json(Kind.FLUSH, {"flush": 3, "end_of_input": True}))
    assert (kind, decode_json(kind, body)) == (
        Kind.FLUSH,
        {"flush": 3, "end_of_input": True},
    )


def write_body(size: int, flags: int, columns: bytes) -> bytes:
    return struct.pack(">IBq", size, flags, NO_TIMESTAMP) + columns


def column(values: list[bytes]) -> bytes:
    return b"".join(struct.pack(">I", len(value)) for value in values) + b"".join(values)


@given(
    st.lists(
        st.tuples(
            st.binary(max_size=20),
            st.binary(max_size=20),
            st.integers(-(2**63), 2**63 - 1),
        ),
        max_size=10,
    )
)
def test_a_write_batch_comes_out_as_it_went_in(
    rows: list[tuple[bytes, bytes, int]],
) -> None:
    elements, payloads = [row[0] for row in rows], [row[1] for row in rows]
    stamps = b"".join(struct.pack(">q", row[2]) for row in rows)
    batch = WriteBatch.decode(write_body(len(rows), 7, stamps + column(elements) + column(payloads)))
    assert batch.elements is not None
    assert batch.payloads is not None
    assert batch.timestamps is not None
    assert (batch.size, batch.elements.values(), batch.payloads.values()) == (
        len(rows),
        elements,
        payloads,
    )
    assert list(batch.timestamps) == [row[2] for row in rows]


def test_a_write_batch_of_failures_says_so() -> None:
    assert not WriteBatch.decode(write_body(1, 2, column([b"payload"]))).failures
    assert WriteBatch.decode(write_body(1, 2 | 8, column([b"why it failed"]))).failures


@given(st.binary(max_size=60))
def test_random_write_bodies_are_batches_or_one_clear_error(body: bytes) -> None:
    try:
        batch = WriteBatch.decode(body)
    except ProtocolError as error:
        assert "WRITE" in str(error)
    else:
        assert all(c is None or len(c.values()) == batch.size for c in (batch.elements, batch.payloads))


def test_a_write_batch_that_claims_more_than_it_holds_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="claims 4294967295 elements"):
        WriteBatch.decode(write_body(2**32 - 1, 1, b"\x00" * 8))
    with pytest.raises(ProtocolError, match="claims 100 bytes, 3 are there"):
        WriteBatch.decode(write_body(1, 2, struct.pack(">I", 100) + b"abc"))
    with pytest.raises(ProtocolError, match="2 bytes follow"):
        WriteBatch.decode(write_body(1, 2, column([b"abc"]) + b"xx"))


def test_a_record_block_is_laid_out_by_column() -> None:
    block = RecordBlock(
        ordinal=3,
        first=7,
        records=[b"a", b"bc"],
        counts=[0, 2],
        timestamps=[5, NO_TIMESTAMP],
        finished=True,
    )
    assert b"".join(block.parts()) == (
        struct.pack(">HBqII", 3, 7, 7, 2, 2)
        + struct.pack(">II", 0, 2)
        + struct.pack(">qq", 5, NO_TIMESTAMP)
        + struct.pack(">II", 1, 2)
        + b"abc"
    )
    assert b"".join(RecordBlock(0, 1, [b"x"]).parts()) == struct.pack(">HBqII", 0, 0, 1, 1, 1) + struct.pack(">I", 1) + b"x"
