"""What the worker makes of a table's rows: messages that it does not read, sorted by where the column beside them says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flink_pubsub.bridge.frames import WriteBatch
from flink_pubsub.destinations import TopicDestination
from flink_pubsub.errors import ConfigurationError, DestinationError, PublishError, SerializationError
from flink_pubsub.options import Connection, PubSubPublisherOptions
from flink_pubsub.schemas import JvmPayloadEncoding
from flink_pubsub.sink import SinkSpec
from flink_pubsub.wire.pubsub_pb2 import PublishRequest, PubsubMessage
from flink_pubsub.worker.encoding import Encoder
from flink_pubsub.worker.sink import PubSubSinkConnector
from tests.unit.sink_support import Listener, PublishServer, Verdict, entries, write_batch

PATH = "projects/p/topics/"
Row = tuple[str | None, str]
"""Topic and ordering key."""


def spec(default: str | None = "orders", ordering: bool = True, **others: Any) -> SinkSpec:
    return SinkSpec(
        topic=None if default is None else TopicDestination("p", default),
        topic_project="p",
        destination_resolver=None,
        serializer=JvmPayloadEncoding(None),
        element_coding="route",
        payload_coding="message",
        options=PubSubPublisherOptions(enable_message_ordering=ordering),
        **others,
    )


def route(topic: str | None, key: str = "") -> bytes:
    name = b"" if topic is None else topic.encode()
    return (-1 if topic is None else len(name)).to_bytes(4, "big", signed=True) + name + key.encode()


def batch(rows: Sequence[Row]) -> WriteBatch:
    """A message for each row, with its position as data."""
    messages = [PubsubMessage(data=b"%d" % index, ordering_key=key) for index, (_, key) in enumerate(rows)]
    return write_batch([route(*row) for row in rows], entries(messages))


def sorted_rows(spec: SinkSpec, rows: Sequence[Row]) -> dict[tuple[str, str], list[int]]:
    """Positions of the rows by topic and key."""
    encoded = Encoder(spec).encode(batch(rows))
    found = {}
    for (path, key), data, ends in encoded.entries:
        messages = PublishRequest.FromString(bytes(data)).messages
        assert {message.ordering_key for message in messages} == {key}
        assert (len(ends), ends[-1]) == (len(messages), len(data))
        found[path.removeprefix(PATH), key] = [int(message.data) for message in messages]
    assert len(found) == len(encoded.entries), "one part for each topic and key"
    assert (encoded.messages, encoded.refused) == (len(rows), 0)
    assert encoded.size == sum(len(data) for _, data, _ in encoded.entries)
    return found


@pytest.mark.feature("BEY-11")
@pytest.mark.feature("SQL-04")
@given(
    st.lists(
        st.tuples(st.sampled_from([None, "orders", "returns", "a+b%2F.~_"]), st.sampled_from(["", "k", "größe"])),
        min_size=1,
        max_size=30,
    )
)
def test_each_row_goes_to_its_topic_or_the_tables_and_those_of_a_key_stay_in_order(rows: list[Row]) -> None:
    expected: dict[tuple[str, str], list[int]] = {}
    for index, (topic, key) in enumerate(rows):
        expected.setdefault((topic or "orders", key), []).append(index)
    assert sorted_rows(spec(), rows) == expected


def test_rows_that_all_go_the_same_way_are_passed_on_as_they_are() -> None:
    rows = batch([("returns", "k")] * 5)
    [(lane, data, ends)] = Encoder(spec()).encode(rows).entries
    assert rows.payloads is not None
    assert lane == (f"{PATH}returns", "k")
    assert data is rows.payloads.data
    assert ends is rows.payloads.ends


@pytest.mark.feature("BEY-11")
@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("", "topic must be 3 to 255 of"),
        ("projects/p/topics/orders", "must be the bare topic id, not a path"),
        ("goog-orders", "not start with 'goog'"),
        ("grün", r"\(got 'grün'\)"),
    ],
)
def test_a_topic_that_cannot_exist_is_an_error_that_names_column_and_value(topic: str, said: str) -> None:
    with pytest.raises(DestinationError, match=f"^the metadata column 'topic' gave no topic for a record: .*{said}"):
        sorted_rows(spec(), [(None, ""), (topic, "")])


@pytest.mark.feature("BEY-11")
def test_no_topic_at_all_is_an_error_that_names_column_and_option() -> None:
    assert sorted_rows(spec(None), [("orders", ""), ("returns", "")]) == {("orders", ""): [0], ("returns", ""): [1]}
    with pytest.raises(DestinationError, match=r"the metadata column 'topic' .* it is NULL, .* no option 'topic'"):
        sorted_rows(spec(None), [("orders", ""), (None, "")])


def test_a_key_without_message_ordering_is_refused_before_it_is_sent() -> None:
    assert sorted_rows(spec(ordering=False), [("returns", ""), (None, "")])
    with pytest.raises(ConfigurationError, match=f"enable_message_ordering must be True .*{PATH}orders"):
        sorted_rows(spec(ordering=False), [(None, "k")])


@pytest.mark.feature("BEY-11")
def test_what_the_jvm_cannot_encode_is_refused_with_the_topic_of_its_row() -> None:
    refused: list[str] = []
    encoder = Encoder(spec(), lambda topic, error: refused.append(f"{topic}: {error}"))
    failures = write_batch([route("returns"), route(None)], [b"java.lang.Error: no"] * 2, failures=True)
    assert encoder.encode(failures).refused == 2
    assert [text.split(": ")[0] for text in refused] == [f"{PATH}returns", f"{PATH}orders"]
    with pytest.raises(SerializationError, match=rf"in the JVM raised java\.lang\.Error \(topic {PATH}returns\)"):
        Encoder(spec()).encode(failures)


@pytest.fixture
def server() -> Iterator[PublishServer]:
    with PublishServer() as running:
        yield running


@pytest.mark.feature("SQL-04")
@pytest.mark.feature("BEY-11")
def test_a_writer_publishes_rows_where_they_go_and_gives_back_the_bytes_of_the_routes(server: PublishServer) -> None:
    listener, rows = Listener(), [("returns", "k"), (None, "k"), (None, ""), ("returns", "k")] * 50
    writer = PubSubSinkConnector(spec(connection=Connection(emulator_endpoint=server.endpoint))).open_writer(listener)
    written = batch(rows)
    writer.write(written)
    writer.flush(1, end_of_input=True)
    listener.wait_for_flush(1)
    writer.close(10)
    published = {topic: [int(message.data) for message in messages] for topic, messages in server.published.items()}
    keyed = [index for index in published[f"{PATH}orders"] if rows[index][1]]
    assert published[f"{PATH}returns"] == [index for index, row in enumerate(rows) if row[0]]
    assert keyed == [index for index, row in enumerate(rows) if row == (None, "k")]
    assert written.elements is not None
    assert written.payloads is not None
    assert (listener.records, listener.size) == (len(rows), len(written.elements.data) + len(written.payloads.data))


@pytest.mark.feature("SQL-04")
def test_a_message_over_the_services_limits_is_the_services_verdict_on_it_alone(server: PublishServer) -> None:
    def verdict(request: PublishRequest) -> Verdict:
        large = any(message.data == b"3" for message in request.messages)
        return (grpc.StatusCode.INVALID_ARGUMENT, "The value for attribute_value is too large.") if large else None

    server.verdict = verdict
    listener = Listener()
    writer = PubSubSinkConnector(spec(connection=Connection(emulator_endpoint=server.endpoint))).open_writer(listener)
    writer.write(batch([(None, "k")] * 6))
    writer.flush(1, end_of_input=True)
    error = listener.wait_for_failure()
    writer.close(10)
    assert isinstance(error, PublishError)
    assert "Pub/Sub refuses this very message: The value for attribute_value is too large." in str(error)
    assert [message.data for message in server.published[f"{PATH}orders"]] == [b"0", b"1", b"2"]
