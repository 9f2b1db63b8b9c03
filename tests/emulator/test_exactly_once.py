"""Exactly-once delivery, over gRPC: which ack ids are good, and how the others are reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]
from grpc import StatusCode

from flink_pubsub.emulator import Emulator, ManualClock
from flink_pubsub.wire import pubsub_pb2 as wire
from tests.conformance.client import Client, data

pytestmark = pytest.mark.feature("BEY-07")

TOPIC = "projects/p/topics/orders"
SUBSCRIPTION = "projects/p/subscriptions/orders"
PERMANENT = "PERMANENT_FAILURE_INVALID_ACK_ID"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def emulator(clock: ManualClock) -> Iterator[Emulator]:
    with Emulator(clock=clock) as emulator:
        emulator.create_topic(TOPIC)
        emulator.create_subscription(SUBSCRIPTION, TOPIC, enable_exactly_once_delivery=True)
        yield emulator


@pytest.fixture
def client(emulator: Emulator) -> Iterator[Client]:
    client = Client(emulator.endpoint)
    yield client
    client.close()


def failures(call: Callable[[], object]) -> dict[str, str]:
    """What the error's details say, read with Google's own classes."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    error = caught.value
    assert isinstance(error, grpc.Call)
    assert error.code() is StatusCode.INVALID_ARGUMENT
    trailers = dict(error.trailing_metadata() or ())
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    assert (status.code, status.message) == (3, error.details())
    (detail,) = status.details
    info = error_details_pb2.ErrorInfo()
    assert detail.Unpack(info)
    assert (info.reason, info.domain) == ("EXACTLY_ONCE_ACKID_FAILURE", "pubsub.googleapis.com")
    return dict(info.metadata)


def test_only_ids_of_running_leases_are_good_and_the_others_are_named(
    emulator: Emulator, clock: ManualClock, client: Client
) -> None:
    client.publish(TOPIC, b"a", b"b", b"c")
    a, b, c = client.pull(SUBSCRIPTION, 3)
    client.modack(SUBSCRIPTION, 600, b.ack_id, c.ack_id)
    clock.advance(10)
    assert failures(lambda: client.ack(SUBSCRIPTION, a.ack_id, b.ack_id, "bogus")) == {a.ack_id: PERMANENT, "bogus": PERMANENT}
    assert emulator.counts(SUBSCRIPTION).acked == 1
    assert failures(lambda: client.modack(SUBSCRIPTION, 60, b.ack_id, c.ack_id)) == {b.ack_id: PERMANENT}
    assert failures(lambda: client.modack(SUBSCRIPTION, 0, a.ack_id)) == {a.ack_id: PERMANENT}
    (again,) = client.pull(SUBSCRIPTION, 3)
    client.ack(SUBSCRIPTION, again.ack_id, c.ack_id)
    assert emulator.counts(SUBSCRIPTION).acked == 3


def test_ids_can_be_made_to_fail_for_now(emulator: Emulator, client: Client) -> None:
    client.publish(TOPIC, b"a", b"b", b"c")
    a, b, c = (message.ack_id for message in client.pull(SUBSCRIPTION, 3))
    emulator.fail_ack_ids(SUBSCRIPTION, times=2)
    failure = "TRANSIENT_FAILURE_INTERNAL"
    assert failures(lambda: client.ack(SUBSCRIPTION, a, b, c)) == {a: failure, b: failure}
    client.ack(SUBSCRIPTION, a, b)
    assert emulator.counts(SUBSCRIPTION).acked == 3


def test_a_stream_tells_so_and_confirms_what_is_acked_over_it(emulator: Emulator, client: Client) -> None:
    stream = client.stream(SUBSCRIPTION)
    client.publish(TOPIC, b"a", b"b", b"c")
    responses = stream.responses()
    response = next(responses)
    assert response.subscription_properties.exactly_once_delivery_enabled
    assert not response.HasField("acknowledge_confirmation")
    a, b, c = (message.ack_id for message in response.received_messages)
    stream.send(ack_ids=[a])
    assert list(next(responses).acknowledge_confirmation.ack_ids) == [a]
    emulator.fail_ack_ids(SUBSCRIPTION, "TRANSIENT_FAILURE_SERVICE_UNAVAILABLE")
    stream.send(ack_ids=[a, b], modify_deadline_ack_ids=[a, c], modify_deadline_seconds=[60, 0])
    confirmation = next(responses)
    assert list(confirmation.acknowledge_confirmation.invalid_ack_ids) == [a]
    assert list(confirmation.acknowledge_confirmation.temporary_failed_ack_ids) == [b]
    assert list(confirmation.modify_ack_deadline_confirmation.invalid_ack_ids) == [a]
    assert list(confirmation.modify_ack_deadline_confirmation.ack_ids) == [c]
    assert data(stream.receive(1)) == [b"c"]


def test_the_flag_can_be_changed_and_open_streams_tell(emulator: Emulator, client: Client) -> None:
    stream = client.stream(SUBSCRIPTION, protocol_version=1)
    changes = wire.Subscription(name=SUBSCRIPTION)
    request = wire.UpdateSubscriptionRequest(
        subscription=changes, update_mask=FieldMask(paths=["enable_exactly_once_delivery"])
    )
    client.call("Subscriber/UpdateSubscription", request, wire.Subscription)
    stream.send()
    assert not next(stream.responses()).subscription_properties.exactly_once_delivery_enabled
    client.publish(TOPIC, b"a")
    (a,) = stream.receive(1)
    client.ack(SUBSCRIPTION, a.ack_id)
    client.ack(SUBSCRIPTION, a.ack_id)
