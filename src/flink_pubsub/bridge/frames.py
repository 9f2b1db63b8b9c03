"""Frames: the only thing that crosses the pipes between Flink's JVM and a worker.

A frame is a 4-byte big-endian length (of what follows it), one kind byte, and a body. Control bodies are JSON objects in
UTF-8; record batches are binary and columnar, so that a batch costs a few calls and not a few per record. Both sides check
every length against `MAX_FRAME_BYTES` before they allocate, and read a long body piece by piece, so a damaged length can
neither exhaust memory nor hang the reader: every defect is one `ProtocolError`.

The order of a session:

1. The worker sends HELLO before it imports anything large: protocol, package version, build digest, Python version and
   interpreter path.
2. The JVM compares, then sends INIT (role, subtask, settings) and CONNECTOR (the pickled connector).
3. The worker sends READY with the settings the JVM has to honour, or FAILED.
4. Frames of the role: BUILD/BUILT for a builder, PLAN/PLANNED for a planner, ASSIGN … RECORD_FAILED and RECORDS …
   RECORDS_WITHDRAWN for a reader, WRITE/FLUSH/SEND_NOW and SETTLED/FLUSHED for a writer. METRICS, LOG and FAILED may come
   from any worker at any time.
5. CLOSE, or the end of the worker's stdin, ends it; CLOSED is its last frame.
"""

from __future__ import annotations

import json
import struct
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate
from typing import Any, TypeAlias

PROTOCOL_VERSION = 2
"""Raised by every change of a frame's layout or meaning; both sides refuse any other."""

MAX_FRAME_BYTES = 64 * 1024 * 1024
"""Longest frame, kind byte included. A message is at most 10 MB; the rest is room for what a schema makes of it."""

_PIECE = 1024 * 1024
_LARGE = 64 * 1024
"""From this size on a system call of its own costs less than a copy."""
_HEADER = struct.Struct(">IB")
NO_TIMESTAMP = -(2**63)
"""Stands for a record without an event time."""


class ProtocolError(Exception):
    """The other side sent something that is not a valid frame. The stream cannot be used any further."""


class Kind(IntEnum):
    """What a frame is. Below 0x80 the JVM sends it, from 0x80 on the worker does."""

    INIT = 0x01
    CONNECTOR = 0x02
    CLOSE = 0x03
    PLAN = 0x10
    ASSIGN = 0x20
    FETCH = 0x21
    PAUSE_RESUME = 0x22
    SNAPSHOT = 0x23
    CHECKPOINT_COMPLETE = 0x24
    RECORD_FAILED = 0x25
    WRITE = 0x30
    FLUSH = 0x31
    SEND_NOW = 0x32
    BUILD = 0x40
    HELLO = 0x80
    READY = 0x81
    METRICS = 0x82
    LOG = 0x83
    FAILED = 0x84
    CLOSED = 0x85
    PLANNED = 0x90
    RECORDS = 0xA0
    CHECKPOINT_SETTLED = 0xA1
    RECORDS_WITHDRAWN = 0xA2
    SETTLED = 0xB0
    FLUSHED = 0xB1
    BUILT = 0xC0


def encode(kind: Kind, body: bytes = b"") -> bytes:
    """One frame, ready to be written."""
    return b"".join(encode_parts(kind, (body,)))


def encode_json(kind: Kind, body: Mapping[str, Any]) -> bytes:
    """One control frame."""
    return encode(kind, json.dumps(body, separators=(",", ":")).encode())


def encode_parts(kind: Kind, parts: Sequence[bytes]) -> list[bytes]:
    """One frame whose body is the concatenation of the parts, to be written piece by piece: large parts are not copied.

    Raises:
        ProtocolError: the frame would be longer than `MAX_FRAME_BYTES`.
    """
    length = 1 + sum(map(len, parts))
    if length > MAX_FRAME_BYTES:
        raise ProtocolError(f"a {kind.name} frame of {length} bytes exceeds the limit of {MAX_FRAME_BYTES}")
    pieces: list[bytes] = []
    small = [_HEADER.pack(length, kind)]
    for part in parts:
        if len(part) < _LARGE:
            small.append(part)
        else:
            pieces += b"".join(small), part
            small = []
    return [*pieces, b"".join(small)]


def decode_json(kind: Kind, body: bytes) -> dict[str, Any]:
    """The object in a control frame's body."""
    try:
        value = json.loads(body)
    except ValueError as error:
        raise ProtocolError(f"the body of a {kind.name} frame is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ProtocolError(f"the body of a {kind.name} frame is not a JSON object")
    return value


class FrameReader:
    """Reads frames from a blocking byte source. `read(n)` returns up to n bytes, and b"" at the end, like a raw file's."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read

    def next(self) -> tuple[Kind, bytes] | None:
        """The next frame, or None when the stream ended between two frames.

        Raises:
            ProtocolError: the stream ended within a frame, the length is 0 or too large, or the kind is unknown.
        """
        header = self._exactly(_HEADER.size, at_boundary=True)
        if header is None:
            return None
        length, code = _HEADER.unpack(header)
        if not 1 <= length <= MAX_FRAME_BYTES:
            raise ProtocolError(f"a frame claims {length} bytes; between 1 and {MAX_FRAME_BYTES} are allowed")
        try:
            kind = Kind(code)
        except ValueError:
            raise ProtocolError(f"unknown frame kind 0x{code:02x}") from None
        body = self._exactly(length - 1, at_boundary=False)
        assert body is not None
        return kind, body

    def _exactly(self, size: int, at_boundary: bool) -> bytes | None:
        pieces: list[bytes] = []
        missing = size
        while missing:
            piece = self._read(min(missing, _PIECE))
            if not piece:
                if at_boundary and missing == size:
                    return None
                raise ProtocolError(f"the stream ended within a frame, {missing} bytes short")
            pieces.append(piece)
            missing -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """Consecutive messages of one split, each with the records it was decoded to.

    Body layout, all big-endian, one block after another until the frame ends::

        u16 ordinal        position of the split in the order of all ASSIGN frames of this worker
        u8  flags          1: record counts follow; 2: timestamps follow; 4: the split is finished after this block; 8: see
                           `SerializedBlock`
        i64 first          sequence number of the first message; the others count up from it
        u32 messages
        u32 records
        u32 [messages]     records per message (flag 1; else one each)
        i64 [records]      event time in milliseconds (flag 2), NO_TIMESTAMP for none
        u32 [records]      record lengths
        records
    """

    ordinal: int
    first: int
    records: Sequence[bytes]
    counts: Sequence[int] | None = None
    timestamps: Sequence[int] | None = None
    finished: bool = False

    _HEAD = struct.Struct(">HBqII")

    @property
    def messages(self) -> int:
        """How many there are."""
        return len(self.records if self.counts is None else self.counts)

    @property
    def size(self) -> int:
        """Bytes of all records."""
        return sum(map(len, self.records))

    def parts(self) -> list[bytes]:
        """The block as byte strings to be joined into a RECORDS frame."""
        flags = (self.counts is not None) | (self.timestamps is not None) << 1 | self.finished << 2
        parts = [self._HEAD.pack(self.ordinal, flags, self.first, self.messages, len(self.records))]
        if self.counts is not None:
            parts.append(_column("I", self.counts))
        if self.timestamps is not None:
            parts.append(_column("q", self.timestamps))
        parts.append(_column("I", list(map(len, self.records))))
        parts.extend(self.records)
        return parts


@dataclass(frozen=True, slots=True)
class SerializedBlock:
    """Consecutive messages of one split, one record each, in the form in which they came: as the field 1 of a Protocol Buffers
    message. Other fields of it are skipped. So nobody has to cut them out one by one before the JVM does.

    Body layout: head as in `RecordBlock`, with flag 8 alone, then::

        u32 size
        the serialized message
    """

    ordinal: int
    first: int
    messages: int
    serialized: bytes

    @property
    def size(self) -> int:
        """Bytes of all records, and of what stands between them."""
        return len(self.serialized)

    def parts(self) -> list[bytes]:
        """See `RecordBlock`."""
        head = RecordBlock._HEAD.pack(self.ordinal, 8, self.first, self.messages, self.messages)
        return [head, _SIZE.pack(len(self.serialized)), self.serialized]


_SIZE = struct.Struct(">I")

Block: TypeAlias = RecordBlock | SerializedBlock


def _column(code: str, values: Sequence[int]) -> bytes:
    column = array(code, values)
    if sys.byteorder == "little":
        column.byteswap()
    return column.tobytes()


@dataclass(frozen=True, slots=True)
class Column:
    """Byte strings of one kind for every element of a batch, in one buffer: value i is `data[ends[i-1]:ends[i]]`."""

    ends: Sequence[int]
    data: memoryview

    def values(self) -> list[bytes]:
        """Every value as bytes of its own."""
        data, start, values = bytes(self.data), 0, []
        for end in self.ends:
            values.append(data[start:end])
            start = end
        return values


@dataclass(frozen=True, slots=True)
class WriteBatch:
    """Elements for a writer, in order.

    Body layout, all big-endian::

        u32 elements
        u8  flags          1: element column; 2: payload column; 4: timestamps; 8: failures
        i64 watermark      of all elements, NO_TIMESTAMP when none was seen
        i64 [elements]     event times (flag 4), NO_TIMESTAMP for none
        per column (element first): u32 [elements] lengths, then the bytes

    `payloads` is what a JVM schema made of the elements, `elements` the elements themselves in the sink's element coding. In a
    batch of failures `payloads` holds, in UTF-8, how the schema failed on each: a Java stack trace.
    """

    size: int
    watermark: int
    timestamps: Sequence[int] | None
    elements: Column | None
    payloads: Column | None
    failures: bool = False

    _HEAD = struct.Struct(">IBq")

    @classmethod
    def decode(cls, body: bytes) -> WriteBatch:
        """The batch in a WRITE frame's body.

        Raises:
            ProtocolError: lengths and body do not agree.
        """
        try:
            size, flags, watermark = cls._HEAD.unpack_from(body)
        except struct.error as error:
            raise ProtocolError(f"a WRITE frame is too short: {error}") from None
        offset = cls._HEAD.size
        timestamps: Sequence[int] | None = None
        if flags & 4:
            timestamps, offset = _read_column("q", body, offset, size)
        columns: list[Column | None] = []
        for flag in (1, 2):
            if not flags & flag:
                columns.append(None)
                continue
            lengths, offset = _read_column("I", body, offset, size)
            ends = list(accumulate(lengths))
            total = ends[-1] if ends else 0
            if total > len(body) - offset:
                raise ProtocolError(f"a WRITE frame's column claims {total} bytes, {len(body) - offset} are there")
            columns.append(Column(ends, memoryview(body)[offset : offset + total]))
            offset += total
        if offset != len(body):
            raise ProtocolError(f"{len(body) - offset} bytes follow the columns of a WRITE frame")
        return cls(size, watermark, timestamps, columns[0], columns[1], failures=bool(flags & 8))


def _read_column(code: str, body: bytes, offset: int, size: int) -> tuple[array[int], int]:
    column = array(code)
    end = offset + size * column.itemsize
    if end > len(body):
        raise ProtocolError(f"a WRITE frame claims {size} elements, more than its {len(body)} bytes can hold")
    column.frombytes(body[offset:end])
    if sys.byteorder == "little":
        column.byteswap()
    return column, end
