"""Decoding with a function of the payload: what is kept of messages, and JSON by a shorter way that comes to the same."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable

from hypothesis import example, given
from hypothesis import strategies as st

from flink_pubsub import PubSubDeserializationSchema
from flink_pubsub.bridge.frames import NO_TIMESTAMP
from flink_pubsub.core.chunks import Run
from flink_pubsub.destinations import SubscriptionDestination
from flink_pubsub.options import DeserializationFailurePolicy
from flink_pubsub.wire import pubsub_pb2 as wire
from flink_pubsub.worker.payloads import plain_json, python_decoding
from flink_pubsub.worker.recording import encoder
from flink_pubsub.worker.undecodable import Undecodable
from tests.unit.source_support import received_message

ORDERS = SubscriptionDestination("project", "orders")

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
)
encodings = st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])


def outcome(loads: Callable[[bytes], object], data: bytes) -> str:
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
    assert outcome(plain_json, data) == outcome(json.loads, data)


@given(st.binary() | st.binary().map(b"{".__add__) | st.binary().map(b"[1".__add__))
@example(b'{"a": 1} x')
@example(b'{"a": NaN, "a": Infinity}')
@example(b"[\xff]\xff")
@example(b"[]")
def test_plain_json_refuses_what_json_loads_refuses(data: bytes) -> None:
    assert outcome(plain_json, data) == outcome(json.loads, data)


def test_sizes_count_the_data_and_attributes_of_each_message() -> None:
    plain, described, untimed = received_message("m1", b"x" * 1000), received_message("m2"), received_message("m3")
    described.message.attributes["key"] = "v" * 500
    untimed.message.ClearField("publish_time")
    messages = [plain, described, untimed]
    undecodable = Undecodable(DeserializationFailurePolicy.FAIL, lambda: 0.0)
    decoding = python_decoding(PubSubDeserializationSchema.payload(bytes), encoder(None), undecodable, ordered=True)
    delivery = decoding.take(wire.StreamingPullResponse(received_messages=messages))
    exact = [each.message.ByteSize() for each in messages]
    assert all(abs(size - right) <= 64 for size, right in zip(delivery.sizes, exact, strict=True))
    assert delivery.sizes[1] == exact[1]
    assert delivery.keys == ["", "", ""]
    block = decoding.decode(0, ORDERS, Run(1, list(delivery.payloads)), 10_000)
    assert [pickle.loads(record) for record in block.records] == [b"x" * 1000, b"data", b"data"]
    assert block.timestamps is not None
    assert block.timestamps[0] == block.timestamps[1] > 0
    assert block.timestamps[2] == NO_TIMESTAMP


def test_json_loads_may_be_the_function_itself() -> None:
    undecodable = Undecodable(DeserializationFailurePolicy.FAIL, lambda: 0.0)
    decoding = python_decoding(PubSubDeserializationSchema.payload(json.loads), encoder(None), undecodable)
    message = received_message("m1", b' {"number": 17}\n')
    delivery = decoding.take(wire.StreamingPullResponse(received_messages=[message]))
    (record,) = decoding.decode(0, ORDERS, Run(1, list(delivery.payloads)), 10_000).records
    assert pickle.loads(record) == {"number": 17}
