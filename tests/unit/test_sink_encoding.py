"""How elements become entries of publish requests, and what happens to bad ones."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flink_pubsub.bridge.frames import NO_TIMESTAMP, WriteBatch
from flink_pubsub.destinations import TopicDestination
from flink_pubsub.errors import ConfigurationError, DestinationError, SerializationError
from flink_pubsub.messages import PubsubMessage
from flink_pubsub.options import PubSubPublisherOptions
from flink_pubsub.schemas import JvmPayloadEncoding, PubSubSerializationSchema
from flink_pubsub.sink import SinkContext, SinkSpec
from flink_pubsub.wire import pubsub_pb2 as wire
from flink_pubsub.worker.encoding import Encoder, entry_of
from tests.unit.sink_support import entries, write_batch

TOPIC = TopicDestination("p", "orders")
PATH = "projects/p/topics/orders"


class Whole(PubSubSerializationSchema):
    """A serializer from a function that makes messages."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function
        self.opened = 0

    def open(self) -> None:
        self.opened += 1

    def serialize(self, element: Any) -> Any:
        return self.function(element)


def payload(function: Callable[[Any], Any] = lambda element: element) -> PubSubSerializationSchema:
    return PubSubSerializationSchema.payload(function)


def returning(value: Any) -> Callable[[Any], Any]:
    return lambda element: value


def encode(
    serializer: PubSubSerializationSchema, batch: WriteBatch, ordering: bool = False, **spec: Any
) -> dict[tuple[str, str], list[wire.PubsubMessage]]:
    """The messages by topic and key, read back from the entries."""
    spec.setdefault("topic", None if "destination_resolver" in spec else TOPIC)
    spec.setdefault("destination_resolver", None)
    spec.setdefault("element_coding", "bytes")
    options = PubSubPublisherOptions(enable_message_ordering=ordering)
    encoded = Encoder(SinkSpec(serializer=serializer, options=options, **spec)).encode(batch)
    messages = {}
    for lane, data, ends in encoded.entries:
        messages[lane] = list(wire.PublishRequest.FromString(bytes(data)).messages)
        assert len(messages[lane]) == len(ends)
        assert ends[-1] == len(data)
    assert encoded.messages == sum(map(len, messages.values()))
    assert encoded.size == sum(len(data) for _, data, _ in encoded.entries)
    return messages


@given(st.binary(max_size=300), st.dictionaries(st.text(), st.text(), max_size=4), st.text())
def test_an_entry_is_read_back_as_the_message(data: bytes, attributes: dict[str, str], key: str) -> None:
    (message,) = wire.PublishRequest.FromString(entry_of(data, attributes, key)).messages
    assert (message.data, dict(message.attributes), message.ordering_key) == (data, attributes, key)


@given(st.binary(max_size=300) | st.integers(120, 70_000).map(bytes))
def test_the_spliced_entry_is_what_protobuf_writes(data: bytes) -> None:
    assert entry_of(data, None, "") == entries([wire.PubsubMessage(data=data)])[0]


@pytest.mark.feature("SNK-02")
@given(st.lists(st.binary(max_size=200), min_size=1, max_size=20))
def test_entries_of_the_jvm_and_entries_made_here_are_the_same_bytes(payloads: list[bytes]) -> None:
    made = entries([wire.PubsubMessage(data=data) for data in payloads])
    jvm = JvmPayloadEncoding(None)
    fixed = {"topic": TOPIC, "destination_resolver": None}
    hot = Encoder(SinkSpec(serializer=jvm, payload_coding="message", **fixed)).encode(write_batch(payloads=made))  # type: ignore[arg-type]
    slow = Encoder(SinkSpec(serializer=jvm, payload_coding="payload", **fixed)).encode(write_batch(payloads=payloads))  # type: ignore[arg-type]
    assert [(lane, bytes(data), list(ends)) for lane, data, ends in hot.entries] == [
        (lane, bytes(data), list(ends)) for lane, data, ends in slow.entries
    ]
    assert (hot.messages, hot.size) == (slow.messages, slow.size)


@pytest.mark.feature("SNK-02")
def test_a_payload_function_makes_messages_of_just_data() -> None:
    messages = encode(payload(lambda element: element.upper()), write_batch([b"a", b"b"]))
    assert messages == {(PATH, ""): [wire.PubsubMessage(data=b"A"), wire.PubsubMessage(data=b"B")]}


@pytest.mark.feature("SNK-02")
def test_attributes_and_key_are_extracted_from_the_element_beside_a_payload_of_the_jvm() -> None:
    serializer = (
        JvmPayloadEncoding(None)
        .with_attributes(lambda element: {"n": element["n"]})
        .with_ordering_key(lambda element: element["k"])
    )
    batch = write_batch([pickle.dumps({"n": "1", "k": "x"})], payloads=[b"payload"])
    messages = encode(serializer, batch, True, element_coding="pickle", payload_coding="payload")
    assert messages == {(PATH, "x"): [wire.PubsubMessage(data=b"payload", attributes={"n": "1"}, ordering_key="x")]}


@pytest.mark.feature("SNK-02")
@pytest.mark.parametrize("nothing", [None, {}])
def test_empty_extractions_add_nothing(nothing: Any) -> None:
    serializer = payload().with_attributes(lambda element: nothing).with_ordering_key(lambda element: nothing and "")
    assert encode(serializer, write_batch([b"a"])) == {(PATH, ""): [wire.PubsubMessage(data=b"a")]}


@pytest.mark.feature("SNK-02")
def test_a_whole_message_is_published_with_what_extractors_add_but_without_the_services_fields() -> None:
    serializer = Whole(lambda element: PubsubMessage(element, {"a": "1"}, "k", message_id="7")).with_attributes(
        lambda element: {"b": "2"}
    )
    messages = encode(serializer, write_batch([b"x"]), ordering=True)
    assert messages == {(PATH, "k"): [wire.PubsubMessage(data=b"x", attributes={"a": "1", "b": "2"}, ordering_key="k")]}


@pytest.mark.feature("SNK-02")
def test_a_skipped_record_makes_no_message_and_reaches_no_extractor() -> None:
    seen: list[bytes] = []
    serializer = Whole(lambda element: PubsubMessage(element) if element != b"skip" else None).with_attributes(
        lambda element: seen.append(element)
    )
    messages = encode(serializer, write_batch([b"a", b"skip", b"b"]))
    assert [message.data for message in messages[PATH, ""]] == [b"a", b"b"]
    assert seen == [b"a", b"b"]


@pytest.mark.feature("SNK-02")
def test_the_serializer_is_opened_once() -> None:
    serializer = Whole(PubsubMessage)
    encoder = Encoder(SinkSpec(topic=TOPIC, destination_resolver=None, serializer=serializer, element_coding="bytes"))
    encoder.encode(write_batch([b"a"]))
    assert serializer.opened == 1


@pytest.mark.feature("SNK-02")
def test_a_payload_of_none_is_a_serialization_failure() -> None:
    with pytest.raises(SerializationError, match=f"returned None.*topic {PATH}"):
        encode(payload(lambda element: None), write_batch([b"a"]))


@pytest.mark.feature("SNK-02")
@pytest.mark.parametrize(
    ("serializer", "said"),
    [
        (payload(lambda element: "text"), "a payload must be bytes, not str"),
        (Whole(lambda element: b"x"), "must return a PubsubMessage or None, not bytes"),
        (payload().with_attributes(returning({"a": 1})), "attributes must map str to str"),
        (payload().with_attributes(returning(["a"])), "attributes must map str to str"),
        (payload().with_attributes(lambda element: {"a": "\ud800"}), "encodable as UTF-8"),
        (payload().with_ordering_key(returning(7)), "ordering key must be str"),
    ],
)
def test_what_cannot_be_a_message_is_a_serialization_failure_naming_the_topic(
    serializer: PubSubSerializationSchema, said: str
) -> None:
    with pytest.raises(SerializationError, match=said) as caught:
        encode(serializer, write_batch([b"secret"]), ordering=True)
    assert PATH in str(caught.value)
    assert "secret" not in str(caught.value)


def fail(element: Any) -> Any:
    raise LookupError("no such thing")


@pytest.mark.feature("SNK-02")
@pytest.mark.parametrize(
    ("serializer", "role"),
    [
        (payload(fail), "the function given to payload"),
        (payload().with_attributes(fail), "the function given to with_attributes"),
        (payload().with_ordering_key(fail), "the function given to with_ordering_key"),
        (Whole(fail), "the serializer"),
    ],
)
def test_an_exception_of_user_code_is_named_by_its_role_and_kept_as_the_cause(
    serializer: PubSubSerializationSchema, role: str
) -> None:
    with pytest.raises(SerializationError, match=f"{role}.*raised LookupError.*{PATH}") as caught:
        encode(serializer, write_batch([b"secret"]))
    assert isinstance(caught.value.__cause__, LookupError)
    assert "secret" not in str(caught.value)


def test_an_element_that_cannot_be_decoded_is_a_serialization_failure() -> None:
    with pytest.raises(SerializationError, match="decoding a record of the stream raised UnpicklingError"):
        encode(payload(), write_batch([b"no pickle"]), element_coding="pickle")


@pytest.mark.feature("SNK-07")
def test_a_keyed_message_without_ordering_fails_naming_the_option() -> None:
    with pytest.raises(ConfigurationError, match=f"enable_message_ordering must be True.*{PATH}"):
        encode(payload().with_ordering_key(lambda element: "k"), write_batch([b"a"]))


@pytest.mark.feature("SNK-01")
def test_a_resolver_chooses_the_topic_from_record_event_time_and_watermark() -> None:
    seen = []

    def resolve(element: bytes, context: SinkContext) -> TopicDestination:
        seen.append((element, context))
        return TopicDestination("p", f"topic-{element.decode()}")

    batch = write_batch([b"a", b"b", b"a"], timestamps=[5, NO_TIMESTAMP, 7], watermark=3)
    messages = encode(payload(), batch, destination_resolver=resolve)
    assert {topic: [message.data for message in made] for (topic, _), made in messages.items()} == {
        "projects/p/topics/topic-a": [b"a", b"a"],
        "projects/p/topics/topic-b": [b"b"],
    }
    assert seen == [(b"a", SinkContext(5, 3)), (b"b", SinkContext(None, 3)), (b"a", SinkContext(7, 3))]


@pytest.mark.feature("SNK-01")
def test_before_the_first_watermark_the_resolver_sees_none() -> None:
    seen = []

    def resolve(element: bytes, context: SinkContext) -> TopicDestination:
        seen.append(context)
        return TOPIC

    encode(payload(), write_batch([b"a"]), destination_resolver=resolve)
    assert seen == [SinkContext(None, None)]


@pytest.mark.feature("SNK-01")
@pytest.mark.parametrize(
    ("returned", "said"), [(None, "returned None"), (PATH, "an object of type str, but it has to return a TopicDestination")]
)
def test_a_resolver_that_returns_no_topic_fails(returned: Any, said: str) -> None:
    with pytest.raises(DestinationError, match=said):
        encode(payload(), write_batch([b"a"]), destination_resolver=lambda element, context: returned)


@pytest.mark.feature("SNK-01")
def test_the_topic_is_resolved_before_the_serializer_runs() -> None:
    with pytest.raises(DestinationError, match="raised LookupError") as caught:
        encode(Whole(lambda element: None), write_batch([b"a"]), destination_resolver=lambda element, context: fail(element))
    assert isinstance(caught.value.__cause__, LookupError)


def test_elements_of_an_explicit_type_are_decoded_by_pyflinks_coder() -> None:
    pytest.importorskip("pyflink")
    from pyflink.fn_execution import flink_fn_execution_pb2
    from pyflink.fn_execution.coders import from_type_info_proto

    type_info = flink_fn_execution_pb2.TypeInfo(type_name=flink_fn_execution_pb2.TypeInfo.STRING)
    element = from_type_info_proto(type_info).get_impl().encode("grüße")
    messages = encode(
        payload(lambda element: element.encode()),
        write_batch([element]),
        element_coding="proto",
        type_info_proto=type_info.SerializeToString(),
    )
    assert messages == {(PATH, ""): [wire.PubsubMessage(data="grüße".encode())]}
