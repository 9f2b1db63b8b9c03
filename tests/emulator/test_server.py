"""The emulator over gRPC: life cycle, streams, inspection, time moved by hand."""

from __future__ import annotations

import gc
import socket
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import grpc
import pytest
from grpc import StatusCode

from flink_pubsub.emulator import Emulator, ManualClock
from flink_pubsub.wire import pubsub_pb2 as wire
from tests.conformance.client import Client, data, refused

TOPIC = "projects/p/topics/orders"
SUBSCRIPTION = "projects/p/subscriptions/orders"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def emulator(clock: ManualClock) -> Iterator[Emulator]:
    with Emulator(clock=clock, log_deliveries=100) as emulator:
        emulator.create_topic(TOPIC)
        emulator.create_subscription(SUBSCRIPTION, TOPIC)
        yield emulator


@pytest.fixture
def client(emulator: Emulator) -> Iterator[Client]:
    client = Client(emulator.endpoint)
    yield client
    client.close()


def test_a_stopped_emulator_leaves_no_thread_and_frees_its_port() -> None:
    before = set(threading.enumerate())
    for _ in range(3):
        with Emulator() as emulator:
            emulator.create_topic(TOPIC)
            emulator.create_subscription(SUBSCRIPTION, TOPIC)
            client = Client(emulator.endpoint)
            streams = [client.stream(SUBSCRIPTION) for _ in range(5)]
            emulator.wait_until(lambda emulator=emulator: emulator.open_streams() == 5)  # type: ignore[misc]
            host, port = emulator.endpoint.rsplit(":", 1)
        for stream in streams:
            assert refused(lambda stream=stream: list(stream.responses()))[0] in (  # type: ignore[misc]
                StatusCode.UNAVAILABLE,
                StatusCode.CANCELLED,
            )
        client.close()
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind((host, int(port)))
    leaked = [t.name for t in set(threading.enumerate()) - before if t.name.startswith("pubsub-emulator")]
    assert leaked == []


def test_a_taken_port_is_an_error() -> None:
    with Emulator() as emulator:
        port = int(emulator.endpoint.rsplit(":", 1)[1])
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}"):
            Emulator(port).start()
    gc.collect()


def test_an_emulator_without_start_has_no_endpoint() -> None:
    with pytest.raises(RuntimeError, match="no endpoint before it is started"):
        _ = Emulator().endpoint


def test_leases_follow_a_clock_moved_by_hand(emulator: Emulator, clock: ManualClock, client: Client) -> None:
    emulator.publish(TOPIC, b"x")
    stream = client.stream(SUBSCRIPTION, stream_ack_deadline_seconds=30)
    (first,) = stream.receive(1)
    clock.advance(29.9)
    assert emulator.counts(SUBSCRIPTION).expiries == 0
    clock.advance(0.1)
    assert emulator.counts(SUBSCRIPTION).expiries == 1
    (second,) = stream.receive(1)
    log = emulator.deliveries(SUBSCRIPTION)
    assert [(d.ack_id, d.attempt, d.time) for d in log] == [(first.ack_id, 1, 0.0), (second.ack_id, 2, 30.0)]


def test_leases_follow_real_time_otherwise() -> None:
    with Emulator() as emulator:
        emulator.create_topic(TOPIC)
        emulator.create_subscription(SUBSCRIPTION, TOPIC)
        client = Client(emulator.endpoint)
        emulator.publish(TOPIC, b"x")
        (first,) = client.pull(SUBSCRIPTION, 1)
        client.modack(SUBSCRIPTION, 1, first.ack_id)
        emulator.wait_until(lambda: emulator.counts(SUBSCRIPTION).expiries == 1)
        client.close()


def test_a_cancelled_stream_is_gone(emulator: Emulator, client: Client) -> None:
    stream = client.stream(SUBSCRIPTION)
    emulator.wait_until(lambda: emulator.open_streams() == 1)
    stream.close()
    emulator.wait_until(lambda: emulator.open_streams() == 0)


def test_a_stream_that_is_not_read_does_not_hold_up_another(emulator: Emulator, client: Client) -> None:
    client.stream(SUBSCRIPTION)
    emulator.wait_until(lambda: emulator.open_streams() == 1)
    for _ in range(16):  # 32 MB, of which buffers on the way to the first stream take some
        emulator.publish_all(TOPIC, [wire.PubsubMessage(data=b"x" * 500_000)] * 4)
    other = Client(emulator.endpoint)
    reading = other.stream(SUBSCRIPTION)
    received = 0
    while received < 10:
        received += len(next(reading.responses()).received_messages)
    other.close()


def test_a_request_of_more_than_half_a_mebibyte_of_ack_ids_is_refused(emulator: Emulator, client: Client) -> None:
    emulator.publish(TOPIC, b"x")
    (message,) = client.pull(SUBSCRIPTION, 1)
    code, text = refused(lambda: client.ack(SUBSCRIPTION, *[message.ack_id] * 2800))
    assert code is StatusCode.INVALID_ARGUMENT
    assert text.endswith("but the maximum value is 524288.")
    assert emulator.counts(SUBSCRIPTION).acked == 0


def test_what_the_emulator_lacks_says_so(emulator: Emulator, client: Client) -> None:
    request = wire.GetSubscriptionRequest(subscription=SUBSCRIPTION)
    code, text = refused(lambda: client.call("Subscriber/ModifyPushConfig", request, wire.Subscription))
    assert (code, text) == (StatusCode.UNIMPLEMENTED, "The emulator does not support ModifyPushConfig.")


def test_published_messages_are_forgotten_beyond_a_bound_and_that_is_said() -> None:
    with Emulator(keep_published_bytes=100) as emulator:
        emulator.create_topic(TOPIC)
        emulator.publish(TOPIC, b"x" * 60)
        assert len(emulator.published(TOPIC)) == 1
        emulator.publish(TOPIC, b"y" * 60)
        with pytest.raises(RuntimeError, match=r"1 of 2 messages .* no longer remembered; raise keep_published_bytes"):
            emulator.published(TOPIC)
        assert emulator.published_count(TOPIC) == 2


def test_waiting_in_vain_ends_in_time(emulator: Emulator) -> None:
    with pytest.raises(TimeoutError, match=r"within 0\.05 s"):
        emulator.wait_until(lambda: False, timeout=0.05)


def test_a_publisher_s_own_id_and_time_are_replaced(emulator: Emulator, client: Client) -> None:
    message = wire.PubsubMessage(data=b"x", message_id="mine")
    message.publish_time.seconds = 1
    message.publish_time.nanos = 7
    (message_id,) = client.publish_messages(TOPIC, [message])
    (stored,) = emulator.published(TOPIC)
    assert stored.message_id == message_id != "mine"
    assert stored.publish_time.seconds > 1_500_000_000
    assert stored.publish_time.nanos % 1_000_000 == 0


@pytest.mark.parametrize("second", range(256))
def test_every_publish_time_is_written_as_it_is(second: int) -> None:
    """Each value of a byte of the encoded time once."""
    clock = ManualClock(start=float(second * 128 + second))
    emulator = Emulator(clock=clock)
    emulator.create_topic(TOPIC)
    emulator._service._epoch = 1_700_000_000.0
    emulator.publish(TOPIC, b"x")
    assert emulator.published(TOPIC)[0].publish_time.seconds == 1_700_000_000 + second * 129


@pytest.mark.feature("BEY-07")
def test_a_restart_breaks_streams_and_calls_and_keeps_everything_else(emulator: Emulator, client: Client) -> None:
    endpoint = emulator.endpoint
    emulator.publish_all(TOPIC, [wire.PubsubMessage(data=b"%d" % n) for n in range(3)])
    stream = client.stream(SUBSCRIPTION, max_outstanding_messages=2)
    held = stream.receive(2)
    emulator.restart()
    assert emulator.endpoint == endpoint
    assert refused(lambda: list(stream.responses()))[0] in (StatusCode.UNAVAILABLE, StatusCode.CANCELLED)
    again = Client(endpoint)
    again.ack(SUBSCRIPTION, *(message.ack_id for message in held))
    assert data(again.stream(SUBSCRIPTION).receive(1)) == [b"2"]
    assert emulator.counts(SUBSCRIPTION).acked == 2
    again.close()


@pytest.mark.feature("BEY-07")
def test_leases_end_during_an_outage_too(emulator: Emulator, clock: ManualClock, client: Client) -> None:
    emulator.publish(TOPIC, b"x")
    client.pull(SUBSCRIPTION, 1)
    emulator.stop()
    with pytest.raises(grpc.FutureTimeoutError):
        grpc.channel_ready_future(grpc.insecure_channel(emulator.endpoint)).result(0.05)
    clock.advance(10)
    emulator.start()
    assert emulator.counts(SUBSCRIPTION).expiries == 1
    with pytest.raises(RuntimeError, match="is running"):
        emulator.start()


@pytest.mark.feature("BEY-07")
def test_time_goes_on_after_a_restart() -> None:
    with Emulator() as emulator:
        emulator.create_topic(TOPIC)
        emulator.create_subscription(SUBSCRIPTION, TOPIC)
        emulator.publish(TOPIC, b"x")
        emulator.restart()
        client = Client(emulator.endpoint)
        (message,) = client.pull(SUBSCRIPTION, 1)
        client.modack(SUBSCRIPTION, 1, message.ack_id)
        emulator.wait_until(lambda: emulator.counts(SUBSCRIPTION).expiries == 1)
        client.close()


@pytest.mark.feature("BEY-07")
def test_detaching_ends_streams_with_failed_precondition(emulator: Emulator, client: Client) -> None:
    stream = client.stream(SUBSCRIPTION)
    emulator.wait_until(lambda: emulator.open_streams() == 1)
    request = wire.DetachSubscriptionRequest(subscription=SUBSCRIPTION)
    client.call("Publisher/DetachSubscription", request, wire.DetachSubscriptionResponse)
    for call in (lambda: list(stream.responses()), lambda: client.pull(SUBSCRIPTION, 1), lambda: client.pull_now(SUBSCRIPTION)):
        assert refused(call) == (
            StatusCode.FAILED_PRECONDITION,
            "The subscription is detached from its topic (resource=orders).",
        )
    emulator.create_subscription("projects/p/subscriptions/other", TOPIC)
    emulator.detach_subscription("projects/p/subscriptions/other")
    assert refused(lambda: client.pull("projects/p/subscriptions/other", 1))[0] is StatusCode.FAILED_PRECONDITION


@pytest.mark.feature("BEY-07")
def test_seeking_by_name_of_a_snapshot_or_by_time(emulator: Emulator, client: Client) -> None:
    snapshot = "projects/p/snapshots/before"
    emulator.publish(TOPIC, b"x")
    emulator.create_snapshot(snapshot, SUBSCRIPTION)
    emulator.seek(SUBSCRIPTION, datetime.now(timezone.utc) + timedelta(days=1))
    assert emulator.counts(SUBSCRIPTION).backlog == 0
    emulator.seek(SUBSCRIPTION, snapshot)
    assert data(client.pull(SUBSCRIPTION, 1)) == [b"x"]
    with pytest.raises(ValueError, match="has no time zone"):
        emulator.seek(SUBSCRIPTION, datetime(2024, 1, 1))
    emulator.deny("Seek", snapshot)
    request = wire.SeekRequest(subscription=SUBSCRIPTION, snapshot=snapshot)
    assert refused(lambda: client.call("Subscriber/Seek", request, wire.SeekResponse))[0] is StatusCode.PERMISSION_DENIED
