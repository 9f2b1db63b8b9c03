"""A streaming pull: one thread sends responses, another applies what the client sends.

Life of a stream:

1. opened with the first request, which alone may name the subscription, the client and the flow control;
2. running: the sender takes what the subscription has for it, up to its flow control, and waits when there is nothing; the
   reader applies acks and deadline changes, and has pings answered;
3. finished once, with an error or without: by the client, the subscription's deletion, an ordered fault or the shutdown.
   What it holds stays leased until settled or expired.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping

import grpc
from google.protobuf.message import DecodeError

from flink_pubsub.emulator import limits
from flink_pubsub.emulator.engine import Engine
from flink_pubsub.emulator.errors import ServiceError, invalid
from flink_pubsub.emulator.faults import Faults
from flink_pubsub.emulator.leases import Consumer
from flink_pubsub.emulator.messages import encode_received
from flink_pubsub.emulator.subscription import Subscription
from flink_pubsub.wire import pubsub_pb2 as wire


class StreamSession:
    """The server's side of one stream.

    Attributes:
        subscription_name: the full name of what it pulls from.
        error: what it ended with; None means OK.
    """

    def __init__(self, engine: Engine, faults: Faults, first: wire.StreamingPullRequest, context: grpc.ServicerContext) -> None:
        self.subscription_name = first.subscription
        self.error: ServiceError | None = None
        self._engine = engine
        self._faults = faults
        self._first = first
        self._context = context
        self._woken = threading.Condition(engine.lock)
        self._finished = False
        self._pings_to_answer = 0
        self._confirmations: deque[wire.StreamingPullResponse] = deque()
        self._answers_pings = first.protocol_version >= 1
        self._consumer = Consumer(
            self.wake,
            max_messages=first.max_outstanding_messages,
            max_bytes=first.max_outstanding_bytes,
            ack_deadline=first.stream_ack_deadline_seconds or None,
        )
        self._subscription: Subscription
        self._settings: wire.Subscription | None = None
        self._properties = b""

    def open(self, now: float) -> None:
        """Join the subscription's consumers; the lock is held."""
        limits.check_stream_ack_deadline(self._first.stream_ack_deadline_seconds)
        self._subscription = self._engine.service.subscription(self.subscription_name)
        self._subscription.open(self._consumer, now)
        try:
            self._apply(self._first, now)
        except ServiceError:
            self._subscription.close(self._consumer, now)
            raise

    def responses(self) -> Iterator[bytes]:
        """What to send; ends when the stream is finished. The lock is not held while one is sent."""
        if not self._context.add_callback(self._client_gone):
            return
        self._context.send_initial_metadata(())
        while True:
            with self._engine.lock:
                response = None
                while not self._finished and (response := self._next_response()) is None:
                    self._woken.wait()
            if response is None:
                return
            yield response

    def finish(self, error: ServiceError | None, now: float) -> None:
        """End the stream; the lock is held. Only the first call counts."""
        if self._finished:
            return
        self._finished = True
        self.error = error
        self._subscription.close(self._consumer, now)
        self._woken.notify_all()

    def wake(self) -> None:
        """Have the sender look again; the lock is held."""
        if self._consumer.end is not None and not self._finished:
            self._finished = True
            self.error = self._consumer.end
        self._woken.notify_all()

    def _next_response(self) -> bytes | None:
        if self._faults.is_silent("StreamingPull"):
            return None
        if self._confirmations:
            return self._confirmations.popleft().SerializeToString() + self._current_properties()
        batch = self._engine.run(lambda now: self._subscription.take(self._consumer, now))
        if batch is not None:
            return encode_received(batch.first_number, batch.messages, batch.attempts, self._current_properties())
        if self._pings_to_answer:
            self._pings_to_answer -= 1
            return self._current_properties()
        return None

    def _current_properties(self) -> bytes:
        """The part of a response that tells the subscription's properties; made anew only when its settings are."""
        settings = self._subscription.settings
        if settings is not self._settings:
            self._settings = settings
            self._properties = wire.StreamingPullResponse(
                subscription_properties=wire.StreamingPullResponse.SubscriptionProperties(
                    exactly_once_delivery_enabled=settings.enable_exactly_once_delivery,
                    message_ordering_enabled=settings.enable_message_ordering,
                )
            ).SerializeToString()
        return self._properties

    def read(self, requests: Iterator[bytes]) -> None:
        """Apply what the client sends, until the stream is over."""
        error = None
        try:
            for raw in requests:
                limits.check_request_size(len(raw), limits.MAX_ACK_REQUEST_BYTES)
                request = wire.StreamingPullRequest.FromString(raw)
                self._engine.run(lambda now, request=request: self._apply_later(request, now))  # type: ignore[misc]
        except ServiceError as e:
            error = e
        except DecodeError:
            error = invalid("The request cannot be parsed.")
        except grpc.RpcError:
            pass  # the call is over, which its callback tells
        except Exception:
            if self._context.is_active():
                raise
        self._engine.run(lambda now: self.finish(error, now))

    def _apply_later(self, request: wire.StreamingPullRequest, now: float) -> None:
        if self._finished:
            return
        if request.subscription or request.client_id or request.max_outstanding_messages or request.max_outstanding_bytes:
            raise invalid(
                "Only the first request of a streaming pull may set subscription, client_id, max_outstanding_messages "
                "and max_outstanding_bytes."
            )
        limits.check_stream_ack_deadline(request.stream_ack_deadline_seconds)
        if request.stream_ack_deadline_seconds:
            self._consumer.ack_deadline = request.stream_ack_deadline_seconds
        if self._apply(request, now):
            return
        if self._answers_pings and not request.stream_ack_deadline_seconds:
            self._pings_to_answer += 1
            self._woken.notify_all()

    def _apply(self, request: wire.StreamingPullRequest, now: float) -> bool:
        """Acks and deadline changes of a request; False if there are none."""
        if len(request.modify_deadline_seconds) != len(request.modify_deadline_ack_ids):
            raise invalid("modify_deadline_seconds and modify_deadline_ack_ids must be of the same length.")
        by_seconds: dict[int, list[str]] = {}
        for ack_id, seconds in zip(request.modify_deadline_ack_ids, request.modify_deadline_seconds, strict=True):
            by_seconds.setdefault(seconds, []).append(ack_id)
        if not request.ack_ids and not by_seconds:
            return False
        ack_failed = self._subscription.acknowledge(request.ack_ids) if request.ack_ids else {}
        modify_failed: dict[str, str] = {}
        for seconds, ack_ids in by_seconds.items():
            modify_failed.update(self._subscription.modify_ack_deadline(ack_ids, seconds, now))
        if self._subscription.settings.enable_exactly_once_delivery:
            self._confirm(request, ack_failed, modify_failed)
        return True

    def _confirm(
        self, request: wire.StreamingPullRequest, ack_failed: Mapping[str, str], modify_failed: Mapping[str, str]
    ) -> None:
        """Have the client told what became of its ack ids."""
        confirmation = wire.StreamingPullResponse()
        for part, ack_ids, failed in (
            (confirmation.acknowledge_confirmation, request.ack_ids, ack_failed),
            (confirmation.modify_ack_deadline_confirmation, request.modify_deadline_ack_ids, modify_failed),
        ):
            for ack_id in ack_ids:
                reason = failed.get(ack_id, "")
                if not reason:
                    part.ack_ids.append(ack_id)
                elif reason.startswith("PERMANENT"):
                    part.invalid_ack_ids.append(ack_id)
                else:
                    part.temporary_failed_ack_ids.append(ack_id)
        self._confirmations.append(confirmation)
        self._woken.notify_all()

    def _client_gone(self) -> None:
        self._engine.run(lambda now: self.finish(None, now))
