"""The JVM reads the record batches that Python writes; a damaged one is one clear error or stays within its frame."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flink_pubsub.bridge.frames import NO_TIMESTAMP, Block, RecordBlock, SerializedBlock
from flink_pubsub.wire.pubsub_pb2 import ReceivedMessage, StreamingPullResponse
from tests.unit.java import JavaError, Reflected, jvm

FEW = settings(max_examples=60)
"""An example costs dozens of calls into the JVM."""

SPLITS = 3


class Record(NamedTuple):
    split: str
    sequence: int
    data: bytes
    timestamp: int


@st.composite
def blocks(draw: st.DrawFn, ordinal: int) -> RecordBlock:
    counts = draw(st.one_of(st.none(), st.lists(st.integers(0, 3), max_size=4)))
    number = draw(st.integers(0, 4)) if counts is None else sum(counts)
    return RecordBlock(
        ordinal,
        draw(st.integers(0, 2**40)),
        draw(st.lists(st.binary(max_size=20), min_size=number, max_size=number)),
        counts,
        draw(st.one_of(st.none(), st.lists(st.integers(-(2**63), 2**63 - 1), min_size=number, max_size=number))),
        draw(st.booleans()),
    )


@st.composite
def serialized(draw: st.DrawFn, ordinal: int) -> SerializedBlock:
    """Records among fields of other kinds."""
    body, records = b"", draw(st.integers(0, 4))
    for _ in range(records):
        body += draw(st.sampled_from([b"", b"\x12\x02ab", b"\x08\x96\x01", b"\x0d" + bytes(4), b"\x79" + bytes(8)]))
        record = ReceivedMessage(ack_id=draw(st.text(max_size=20))).SerializeToString()
        body += b"\x0a" + bytes([len(record)]) + record
    return SerializedBlock(ordinal, draw(st.integers(0, 2**40)), records, body)


batches = st.permutations(range(SPLITS)).flatmap(
    lambda order: st.tuples(*(st.one_of(blocks(ordinal), serialized(ordinal)) for ordinal in order[:2]))
)


def body_of(batch: tuple[Block, ...]) -> bytes:
    return b"".join(part for block in batch for part in block.parts())


def records_of(block: Block) -> list[Record]:
    if isinstance(block, SerializedBlock):
        values = [each.SerializeToString() for each in StreamingPullResponse.FromString(block.serialized).received_messages]
        return [Record(f"s{block.ordinal}", block.first + i, data, NO_TIMESTAMP) for i, data in enumerate(values)]
    owners = [i for i, count in enumerate(block.counts or [1] * len(block.records)) for _ in range(count)]
    times = block.timestamps or [NO_TIMESTAMP] * len(block.records)
    split = f"s{block.ordinal}"
    return [Record(split, block.first + owner, data, t) for owner, data, t in zip(owners, block.records, times, strict=True)]


@pytest.fixture(scope="module")
def parser() -> Reflected:
    return Reflected("bridge.RecordBatch")


@pytest.fixture(scope="module")
def splits() -> Any:
    known = jvm().java.util.ArrayList()
    for i in range(SPLITS):
        known.add(jvm().io.github.flinkpubsub.bridge.PythonSplit(f"s{i}", ""))
    return known


def walk(batch: Any, size: int) -> tuple[list[Record], set[str], int]:
    """Records, finished splits and number of messages of a batch, as Flink's reader would go through it."""
    found, messages = [], 0
    body = None
    while (split := batch.nextSplit()) is not None:
        while (message := batch.nextRecordFromSplit()) is not None:
            messages += 1
            while message.nextRecord():
                start, length = message.offset(), message.length()
                assert 0 <= start <= start + length <= size
                body = body or bytes(message.buffer())
                found.append(Record(split, message.sequence(), body[start : start + length], message.timestamp()))
    return found, set(batch.finishedSplits()), messages


@FEW
@given(batch=batches)
def test_a_record_batch_of_python_is_read_in_the_jvm(parser: Reflected, splits: Any, batch: tuple[Block, ...]) -> None:
    body = body_of(batch)
    records, finished, messages = walk(parser.parse(body, splits), len(body))
    assert records == [record for block in batch for record in records_of(block)]
    assert finished == {f"s{block.ordinal}" for block in batch if isinstance(block, RecordBlock) and block.finished}
    assert messages == sum(block.messages for block in batch)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Valid batches with a few bytes changed, and cut anywhere."""
    body = bytearray(body_of(draw(batches)))
    for _ in range(draw(st.integers(1, 3))):
        body[draw(st.integers(0, len(body) - 1))] = draw(st.sampled_from([0, 1, 2, 3, 4, 7, 0x7F, 0x80, 0xFF]))
    return bytes(body[: draw(st.one_of(st.just(len(body)), st.integers(0, len(body))))])


@settings(max_examples=200)
@given(body=st.one_of(damaged(), st.binary(max_size=100)))
def test_a_damaged_batch_is_one_clear_error_or_stays_within_its_frame(parser: Reflected, splits: Any, body: bytes) -> None:
    try:
        batch = parser.parse(body, splits)
    except JavaError as error:
        assert error.kind == "io.github.flinkpubsub.bridge.ProtocolException"
        assert error.message.startswith("a RECORDS frame is malformed: ")
    else:
        walk(batch, len(body))


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ((9, 0, 0, 0, 0), "it names split 9 of 3"),
        ((0, 9, 0, 0, 0), "it has unknown flags 9"),
        ((0, 8, 0, 0, 0), "a serialized block is cut off"),
        ((0, 8, 0, 2**32 - 1, 2**32 - 1), "a serialized block claims 4294967295 records in 0 bytes"),
        ((0, 0, -1, 0, 0), "the sequence number -1 is out of range"),
        ((0, 1, 2**63 - 1, 1, 0), "the sequence number 9223372036854775807 is out of range"),
        ((0, 0, 0, 2**32 - 1, 2**32 - 1), "a block claims 4294967295 messages and 4294967295 records in 0 bytes"),
        ((0, 1, 0, 2**32 - 1, 0), "a block claims 4294967295 messages and 0 records in 0 bytes"),
        ((0, 0, 0, 1, 2), "1 messages claim 2 records without saying whose"),
    ],
)
def test_a_block_that_cannot_be_is_an_error_that_says_why(
    parser: Reflected, splits: Any, head: tuple[int, int, int, int, int], reason: str
) -> None:
    with pytest.raises(JavaError) as raised:
        parser.parse(RecordBlock._HEAD.pack(*head), splits)
    assert raised.value.message == f"a RECORDS frame is malformed: {reason}"
