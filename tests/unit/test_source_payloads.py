"""Decoding with a function of the payload: what is kept of messages, and JSON by a shorter way that comes to the same."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flink_pubsub import PubSubDeserializationSchema
from flink_pubsub.bridge.frames import NO_TIMESTAMP, RecordBlock
from flink_pubsub.core.chunks import Run
from flink_pubsub.destinations import SubscriptionDestination
from flink_pubsub.options import DeserializationFailurePolicy
from flink_pubsub.worker.payloads import plain_json, python_decoding
from flink_pubsub.worker.recording import encoder
from flink_pubsub.worker.undecodable import Undecodable
from tests.unit.source_support import received_message, response_of

ORDERS = SubscriptionDestination("project", "orders")

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
)
encodings = st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])


def outcome(loads: Callable[[Any], object], data: bytes | str) -> str:
    try:
        return repr(loads(data))
    except ValueError as error:
        return f"{type(error).__name__}: {error}"


@given(anything, encodings, st.booleans(), st.text(" \t\r\n}]\0x", max_size=3), st.text(" \t\r\n\0", max_size=3))
@example({}, "utf-8", False, "", "")
@example([], "utf-16-le", False, "", "")
@example({"name": "Zoë", "half": "\ud800"}, "utf-8", False, " \n", "")
def test_plain_json_does_what_json_loads_does(value: object, encoding: str, ascii_only: bool, after: str, before: str) -> None:
    text = before + json.dumps(value, ensure_ascii=ascii_only) + after
    data = text.encode(encoding, "surrogatepass")
    with suppress(UnicodeDecodeError):
        assert outcome(plain_json, data.decode()) == outcome(json.loads, data)


@given(st.binary() | st.binary().map(b"{".__add__) | st.binary().map(b"[1".__add__))
@example(b'{"a": 1} x')
@example(b'{"a": NaN, "a": Infinity}')
@example(b"[\xff]\xff")
@example(b"[]")
def test_plain_json_refuses_what_json_loads_refuses(data: bytes) -> None:
    with suppress(UnicodeDecodeError):
        assert outcome(plain_json, data.decode()) == outcome(json.loads, data)


def test_what_is_kept_is_the_data_with_its_time() -> None:
    plain, described, untimed = received_message("m1", b"x" * 1000), received_message("m2"), received_message("m3")
    described.message.attributes["key"] = "v" * 500
    untimed.message.ClearField("publish_time")
    messages = [plain, described, untimed]
    undecodable = Undecodable(DeserializationFailurePolicy.FAIL, lambda: 0.0)
    decoding = python_decoding(PubSubDeserializationSchema.payload(bytes), encoder(None), undecodable, ordered=True)
    delivery = decoding.take(response_of(*messages))
    kept = sum(sys.getsizeof(each.message.data) for each in messages)
    assert kept <= delivery.size < kept + len(messages)
    assert delivery.keys == ["", "", ""]
    block = decoding.decode(0, ORDERS, Run(1, delivery.payloads), 10_000)
    assert [pickle.loads(record) for record in block.records] == [b"x" * 1000, b"data", b"data"]
    assert block.timestamps is not None
    assert block.timestamps[0] == block.timestamps[1] > 0
    assert block.timestamps[2] == NO_TIMESTAMP


@given(
    st.lists(st.none() | st.tuples(st.integers(-1, 2), st.sampled_from([0, 1, 999_999, 1_000_000, 999_999_999])), max_size=5)
)
def test_publish_times_are_read_whatever_part_of_them_is_written(times: list[tuple[int, int] | None]) -> None:
    messages = [received_message(str(i)) for i in range(len(times) + 1)]
    for message, time in zip(messages, times, strict=False):
        message.message.ClearField("publish_time")
        if time is not None:
            message.message.publish_time.SetInParent()
            message.message.publish_time.seconds, message.message.publish_time.nanos = time
    undecodable = Undecodable(DeserializationFailurePolicy.FAIL, lambda: 0.0)
    decoding = python_decoding(PubSubDeserializationSchema.payload(bytes), encoder(None), undecodable)
    block = decoding.decode(0, ORDERS, Run(1, decoding.take(response_of(*messages)).payloads), 10_000)
    expected = [NO_TIMESTAMP if time is None else time[0] * 1000 + time[1] // 1_000_000 for time in times]
    assert isinstance(block, RecordBlock)
    assert block.timestamps == [*expected, 1_700_000_000_123]


@pytest.mark.parametrize("data", [b"[\xff]", '{"a": 1}'.encode("utf-16"), b"\xef\xbb\xbf[1]", b'"\xed\xa0\x80"'])
def test_json_that_is_not_plain_utf_8_is_what_json_loads_makes_of_it(data: bytes) -> None:
    undecodable = Undecodable(DeserializationFailurePolicy.DROP, lambda: 0.0)
    decoding = python_decoding(PubSubDeserializationSchema.payload(json.loads), encoder(None), undecodable)
    delivery = decoding.take(response_of(received_message("m1", data), received_message("m2", b"[2]")))
    block = decoding.decode(0, ORDERS, Run(1, delivery.payloads), 10_000)
    assert isinstance(block, RecordBlock)
    made = [repr(pickle.loads(record)) for record in block.records]
    assert made == [each for each in (outcome(json.loads, data), "[2]") if not each.startswith("UnicodeDecodeError")]


def test_text_and_other_data_of_several_responses_are_decoded_together() -> None:
    undecodable = Undecodable(DeserializationFailurePolicy.FAIL, lambda: 0.0)
    decoding = python_decoding(PubSubDeserializationSchema.payload(json.loads), encoder(None), undecodable)
    payloads = []
    for data in (b"[1]", "[2]".encode("utf-16"), b"[3]"):
        message = received_message("m", data)
        payloads += decoding.take(response_of(message)).divided()
    block = decoding.decode(0, ORDERS, Run(1, payloads), 10_000)
    assert isinstance(block, RecordBlock)
    assert [pickle.loads(record) for record in block.records] == [[1], [2], [3]]


def test_json_loads_may_be_the_function_itself() -> None:
    undecodable = Undecodable(DeserializationFailurePolicy.FAIL, lambda: 0.0)
    decoding = python_decoding(PubSubDeserializationSchema.payload(json.loads), encoder(None), undecodable)
    message = received_message("m1", b' {"number": 17}\n')
    delivery = decoding.take(response_of(message))
    (record,) = decoding.decode(0, ORDERS, Run(1, delivery.payloads), 10_000).records
    assert pickle.loads(record) == {"number": 17}
