"""The emulator as its users see it: start, stop, prepare, inspect, and order faults."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from types import TracebackType

from google.protobuf.timestamp_pb2 import Timestamp
from grpc import StatusCode

from flink_pubsub.emulator.clock import Clock, ManualClock
from flink_pubsub.emulator.engine import Engine
from flink_pubsub.emulator.errors import STREAM_CLOSED, ServiceError, denied
from flink_pubsub.emulator.inspection import Delivery, SubscriptionCounts
from flink_pubsub.emulator.service import Service
from flink_pubsub.emulator.shell import Shell
from flink_pubsub.wire import pubsub_pb2 as wire


class Emulator:
    """A Pub/Sub service inside this process.

    A context manager. It may be stopped and started again, on the same port and with everything it holds: what a client sees
    of an outage. Methods, but for starting and stopping, may be called from any thread. Resources are named in full, as
    `projects/p/topics/t`; calls are named by their method alone, as `Publish`. What the service would refuse raises
    `ServiceError`.

    Args:
        port: the port to listen on; 0 takes a free one.
        host: the address to listen on.
        clock: seconds that only go forward; leases and publish times follow it. A `ManualClock` lets a test move them.
        batches_per_key: how many batches (responses) of an ordering key may be outstanding at once, all at one stream.
            The service does not say how many it allows.
        keep_published_bytes: how many bytes of messages each topic remembers for `published`.
        log_deliveries: how many deliveries each subscription remembers for `deliveries`; 0 remembers none.
        topic_propagation_seconds: for so long after a client created a topic, publishing to it is refused with NOT_FOUND, as
            may happen with the service. Topics made by `create_topic` of this class are usable at once.
    """

    def __init__(
        self,
        port: int = 0,
        host: str = "127.0.0.1",
        clock: Clock = time.monotonic,
        *,
        batches_per_key: int = 1,
        keep_published_bytes: int = 64 << 20,
        log_deliveries: int = 0,
        topic_propagation_seconds: float = 0.0,
    ) -> None:
        if batches_per_key < 1:
            raise ValueError(f"batches_per_key must be at least 1, but is {batches_per_key}")
        self._host = host
        self._port = port
        self._service = Service(
            epoch=time.time() - clock(),
            batches_per_key=batches_per_key,
            keep_published_bytes=keep_published_bytes,
            log_deliveries=log_deliveries,
            topic_propagation=topic_propagation_seconds,
        )
        self._engine = Engine(self._service, clock)
        self._shell = Shell(self._engine)
        self._has_endpoint = self._running = False

    # Life

    def start(self) -> Emulator:
        """Listen and answer; returns itself.

        Raises:
            OSError: the port is taken or the host is not this machine's.
        """
        if self._running:
            raise RuntimeError("the emulator is running")
        self._port = self._shell.start(self._host, self._port)
        self._has_endpoint = self._running = True
        self._engine.start()
        return self

    def stop(self) -> None:
        """End all calls and streams and give up the port; returns when every thread has ended.

        What is outstanding stays so; leases that end meanwhile have ended when it is started again.
        """
        if self._running:
            self._running = False
            self._shell.stop()
            self._engine.stop()

    def restart(self) -> None:
        """Stop and start at once: all streams and calls break, everything else is kept."""
        self.stop()
        self.start()

    def __enter__(self) -> Emulator:
        return self.start()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def endpoint(self) -> str:
        """Where it listens, as `host:port`: what clients take as PUBSUB_EMULATOR_HOST."""
        if not self._has_endpoint:
            raise RuntimeError("the emulator has no endpoint before it is started")
        return f"{self._host}:{self._port}"

    # Preparing

    def create_topic(self, name: str, **settings: object) -> None:
        """Create a topic; `settings` are fields of the API's Topic."""
        request = wire.Topic(name=name, **settings)  # type: ignore[arg-type]
        self._engine.run(lambda now: self._service.create_topic(request, now, usable_at_once=True))

    def create_subscription(self, name: str, topic: str, **settings: object) -> None:
        """Create a subscription; `settings` are fields of the API's Subscription, such as `ack_deadline_seconds`."""
        request = wire.Subscription(name=name, topic=topic, **settings)  # type: ignore[arg-type]
        self._engine.run(lambda now: self._service.create_subscription(request, now))

    def delete_topic(self, name: str) -> None:
        """Delete a topic; its subscriptions stay."""
        self._engine.run(lambda now: self._service.delete_topic(wire.DeleteTopicRequest(topic=name), now))

    def delete_subscription(self, name: str) -> None:
        """Delete a subscription; its streams end with NOT_FOUND."""
        request = wire.DeleteSubscriptionRequest(subscription=name)
        self._engine.run(lambda now: self._service.delete_subscription(request, now))

    def detach_subscription(self, name: str) -> None:
        """Detach a subscription: its messages are dropped, and pulling ends with FAILED_PRECONDITION."""
        request = wire.DetachSubscriptionRequest(subscription=name)
        self._engine.run(lambda now: self._service.detach_subscription(request, now))

    def create_snapshot(self, name: str, subscription: str) -> None:
        """Keep the subscription's backlog, and what is published from now on, for a seek."""
        request = wire.CreateSnapshotRequest(name=name, subscription=subscription)
        self._engine.run(lambda now: self._service.snapshots.create(request, now))

    def seek(self, subscription: str, to: datetime | str) -> None:
        """Seek a subscription to a time, which must have a time zone, or to a snapshot."""
        if isinstance(to, str):
            request = wire.SeekRequest(subscription=subscription, snapshot=to)
        else:
            request = wire.SeekRequest(subscription=subscription, time=_timestamp(to))
        self._engine.run(lambda now: self._service.seek(request, now))

    def publish(
        self, topic: str, data: bytes = b"", attributes: Mapping[str, str] | None = None, ordering_key: str = ""
    ) -> str:
        """Publish one message, past all faults; returns its id."""
        message = wire.PubsubMessage(data=data, attributes=attributes, ordering_key=ordering_key)
        return self.publish_all(topic, [message])[0]

    def publish_all(self, topic: str, messages: list[wire.PubsubMessage]) -> list[str]:
        """Publish up to 1000 messages in one request, past all faults; returns their ids."""
        request = wire.PublishRequest(topic=topic, messages=messages)
        size = request.ByteSize()
        return list(self._engine.run(lambda now: self._service.publish_past_propagation(request, size, now)).message_ids)

    # Inspecting

    def counts(self, subscription: str) -> SubscriptionCounts:
        """A subscription's numbers now."""
        return self._engine.run(lambda now: self._service.subscription(subscription).counts())

    def published(self, topic: str) -> list[wire.PubsubMessage]:
        """All messages published to the topic, in order.

        Raises:
            RuntimeError: some are no longer remembered; raise `keep_published_bytes`, or use `published_count`.
        """

        def kept(now: float) -> list[wire.PubsubMessage]:
            found = self._service.topic(topic)
            forgotten = found.published_count - len(found.published)
            if forgotten:
                raise RuntimeError(
                    f"{forgotten} of {found.published_count} messages of {topic} are no longer remembered; "
                    "raise keep_published_bytes"
                )
            return [message.decode() for message in found.published]

        return self._engine.run(kept)

    def published_count(self, topic: str) -> int:
        """How many messages were published to the topic."""
        return self._engine.run(lambda now: self._service.topic(topic).published_count)

    def deliveries(self, subscription: str) -> list[Delivery]:
        """The latest deliveries of a subscription, as many as `log_deliveries`, in order.

        Raises:
            RuntimeError: deliveries are not logged.
        """

        def logged(now: float) -> list[Delivery]:
            log = self._service.subscription(subscription).deliveries
            if log is None:
                raise RuntimeError("deliveries are not logged; make the emulator with log_deliveries")
            return list(log)

        return self._engine.run(logged)

    def topics(self) -> list[str]:
        """The names of all topics."""
        return self._engine.run(lambda now: sorted(self._service.topics))

    def subscriptions(self) -> list[str]:
        """The names of all subscriptions."""
        return self._engine.run(lambda now: sorted(self._service.subscriptions))

    def calls(self, method: str) -> int:
        """How many calls of the method have come in, failed ones included."""
        with self._engine.lock:
            return self._shell.calls[method]

    def open_streams(self, subscription: str | None = None) -> int:
        """How many streaming pulls are open, of one subscription or all."""
        with self._engine.lock:
            return sum(subscription in (None, s.subscription_name) for s in self._shell.streams())

    def wait_until(self, predicate: Callable[[], bool], timeout: float = 10.0) -> None:
        """Return as soon as `predicate`, which is looked at after each change of state, is true.

        Args:
            predicate: asks this emulator, and must not block.
            timeout: seconds of real time.

        Raises:
            TimeoutError: it was still false.
        """
        if not self._engine.wait_until(predicate, timeout):
            raise TimeoutError(f"what was waited for did not come about within {timeout} s")

    # Faults

    def fail_next(
        self, method: str, status: StatusCode, message: str = "", times: int = 1, *, resource: str | None = None
    ) -> None:
        """Fail the next `times` calls before they have any effect, all or those on one resource."""
        with self._engine.lock:
            self._shell.faults.fail(method, status, message, times=times, resource=resource)

    def fail_rate(
        self, method: str, status: StatusCode, message: str = "", every: int = 10, *, resource: str | None = None
    ) -> None:
        """Fail every `every`-th call before it has any effect, until `clear_faults`."""
        with self._engine.lock:
            self._shell.faults.fail(method, status, message, times=None, every=every, resource=resource)

    def lose_answers(
        self,
        method: str,
        status: StatusCode = StatusCode.UNAVAILABLE,
        message: str = "",
        times: int = 1,
        *,
        resource: str | None = None,
    ) -> None:
        """Carry out the next `times` calls, but answer with this status."""
        with self._engine.lock:
            self._shell.faults.fail(method, status, message, times=times, after=True, resource=resource)

    def deny(self, method: str, resource: str | None = None) -> None:
        """Refuse calls of the method with PERMISSION_DENIED until `allow`, all or those on one resource.

        Denying StreamingPull also ends open streams, as a permission taken away does.
        """

        def deny(now: float) -> None:
            self._shell.faults.deny(method, resource)
            if method == "StreamingPull":
                for session in self._shell.streams():
                    if resource in (None, session.subscription_name):
                        session.finish(denied(), now)

        self._engine.run(deny)

    def allow(self, method: str, resource: str | None = None) -> None:
        """Take back what `deny` ordered with the same arguments."""
        with self._engine.lock:
            self._shell.faults.allow(method, resource)

    def withhold_dead_letter_grants(self, resource: str | None = None) -> None:
        """Have the service agent lack its rights on a subscription or dead-letter topic, or on all of them.

        Nothing is forwarded from or to it then; delivery attempts go on rising.
        """
        self._engine.run(lambda now: self._service.dead_letters.withhold(resource))

    def restore_dead_letter_grants(self, resource: str | None = None) -> None:
        """Give the service agent back its rights on a subscription or dead-letter topic, or all of them."""
        self._engine.run(lambda now: self._service.dead_letters.grant(resource))

    def fail_ack_ids(self, subscription: str, failure: str = "TRANSIENT_FAILURE_INTERNAL", times: int = 1) -> None:
        """With exactly-once delivery, have the next `times` valid ack ids fail for this reason, be it an ack or a deadline."""
        self._engine.run(lambda now: self._service.subscription(subscription).ack_ids.fail_next(times, failure))

    def set_topic_propagation(self, seconds: float) -> None:
        """Change `topic_propagation_seconds` for topics created from now on."""
        self._engine.run(lambda now: setattr(self._service, "topic_propagation", seconds))

    def delay(self, method: str, seconds: float) -> None:
        """Delay every call of the method by real seconds; 0 ends it."""
        with self._engine.lock:
            self._shell.faults.delay(method, seconds)

    def stop_answering(self, method: str) -> None:
        """Leave calls of the method without effect and answer until `resume`; open streams fall silent."""
        with self._engine.lock:
            self._shell.faults.stop_answering(method)

    def resume(self, method: str) -> None:
        """Answer again, first what has been waiting."""
        with self._engine.lock:
            self._shell.faults.resume(method)
            self._shell.release()

    def clear_faults(self) -> None:
        """No faults any more; what has been waiting is answered."""
        with self._engine.lock:
            self._shell.faults.clear()
            self._shell.release()

    def drop_streams(
        self,
        subscription: str | None = None,
        status: StatusCode = StatusCode.UNAVAILABLE,
        message: str = STREAM_CLOSED,
    ) -> int:
        """Abort all open streaming pulls, or those of one subscription; returns how many."""
        return self._end_streams(subscription, ServiceError(status, message))

    def close_streams(self, subscription: str | None = None) -> int:
        """End all open streaming pulls, or those of one subscription, normally; returns how many."""
        return self._end_streams(subscription, None)

    def _end_streams(self, subscription: str | None, error: ServiceError | None) -> int:
        def end(now: float) -> int:
            sessions = [s for s in self._shell.streams() if subscription in (None, s.subscription_name)]
            for session in sessions:
                session.finish(error, now)
            return len(sessions)

        return self._engine.run(end)


def _timestamp(time: datetime) -> Timestamp:
    if time.tzinfo is None:
        raise ValueError(f"{time} has no time zone; give it one, such as datetime.timezone.utc")
    timestamp = Timestamp()
    timestamp.FromDatetime(time.astimezone(timezone.utc))
    return timestamp


__all__ = ["Emulator", "ManualClock"]
