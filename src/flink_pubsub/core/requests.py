"""Splitting ack ids into requests that the service accepts.

A request of acknowledgements or deadlines may hold 524,288 bytes. Ack ids are opaque and have grown over the years, so the
bound is on encoded bytes as well as on the count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

MAX_IDS = 2500
"""Ids in one request: the official Go client's figure, and with today's ids just below the limit in bytes."""

MAX_BYTES = 524_288 - 4_096
"""Bytes of ids in one request; the rest is room for the subscription's name and the deadline."""

_OVERHEAD = 4
"""Bytes around each id at most: a tag, and a length below 2 MiB."""


def split_ids(ack_ids: Sequence[str], max_ids: int = MAX_IDS, max_bytes: int = MAX_BYTES) -> Iterator[tuple[int, int]]:
    """Ranges of `ack_ids`, in order, each fit for one request. An id too long for any gets a request of its own."""
    pending = [(low, min(low + max_ids, len(ack_ids))) for low in range(0, len(ack_ids), max_ids)]
    pending.reverse()
    while pending:
        low, high = pending.pop()
        size = len("".join(ack_ids[low:high]).encode()) + _OVERHEAD * (high - low)
        if size <= max_bytes or high - low == 1:
            yield low, high
        else:
            middle = (low + high) // 2
            pending += [(middle, high), (low, middle)]
