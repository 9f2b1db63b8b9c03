"""One streaming-pull connection: opened, read, pinged, and opened again until it is stopped or fails for good.

A thread per connection reads responses and hands each over; gRPC's own thread for requests sends the first one and the pings.
The next response is asked of gRPC only when the receiver has room, so a receiver that is full fills the stream's flow-control
window and then stops the server, instead of filling memory here.

The life of a connection:

1. *Opening*: once the receiver wants one, a stream is opened with the first request, the only one that may carry the
   subscription, the client's id (one for the connection, kept for every stream of it) and the limits.
2. *Reading*: responses are handed over. Any response resets the backoff.
3. *Waiting*: the stream ended with a status worth a retry, a normal close by the server among them; after a delay back to 1.
4. *Resting*: the receiver had no room for half a deadline. What waits unread would be delivered again and again while its
   deadlines pass, so the stream is ended in good order and what it still brings is refused; then back to 1.
5. *Failed*: it ended with any other status, which is reported once.
6. *Finishing*: `finish` was called: no more requests, which asks the server to end the stream. What it sends before that is
   handed over, so that it can be given back instead of waiting out its deadline.
7. *Stopped*: the stream ended after 6, or `stop` was called; from every state, at once.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import grpc

from flink_pubsub.core.backoff import Backoff
from flink_pubsub.core.chunks import Delivery
from flink_pubsub.core.keepalive import Keepalive, Step
from flink_pubsub.rpc.status import Purpose, Status, status_of
from flink_pubsub.wire.pubsub_pb2 import StreamingPullRequest

METHOD = "/google.pubsub.v1.Subscriber/StreamingPull"

LINGER_SECONDS = 0.5
"""How long a server may take to end a stream that it was asked to end, before the stream is cancelled."""

_MOST_REFUSED = 16 * 1024 * 1024
"""Bytes that a stream may still bring once its server was asked to end it: about what can be on its way. A server that goes on
beyond that is cut off, and what it sent last waits out its deadline."""

_log = logging.getLogger(__name__)


class Receiver(Protocol):
    """Takes what a connection brings. Called on the connection's thread."""

    def wait_to_open(self, rested: bool) -> None:
        """Waits until a stream may be opened; after a rest, until it is worth it. Must return when the connection is to end."""

    def opened(self) -> None:
        """What comes from now on comes by a new stream."""

    def wait_for_room(self, seconds: float) -> bool:
        """Waits, so long at most, until another response may be read, and tells whether it may. Must return True when the
        connection is to end."""

    def stream_deadline(self) -> int:
        """The acknowledgement deadline, in seconds, that messages should arrive with. Any thread."""

    def parse(self, response: bytes) -> Delivery[Any]:
        """Reads a serialized response. Called on gRPC's thread, which reads those of all streams one after another."""

    def received(self, delivery: Delivery[Any], deadline: int, waited: float) -> bool:
        """Takes what a response brought, with this deadline, after it may have waited for so many seconds to be read.

        False when it could not take everything within half the deadline: the stream is ended, and `refused` called.
        """

    def refused(self, deliveries: Sequence[Delivery[Any]]) -> None:
        """The stream has ended for want of room; these came last, and go back with what `received` did not take."""

    def ended(self, status: Status) -> None:
        """The subscription cannot be read any more. The last call."""

    def broke(self, error: Exception) -> None:
        """Handling a response raised. The last call."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the server may have outstanding on one connection."""

    messages: int
    size: int


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations of a connection's life, in seconds. The defaults are those of Google's clients."""

    ping: float = 30.0
    liveness: float = 15.0
    backoff: float = 0.1
    longest_backoff: float = 10.0


_STOPPED = Status(grpc.StatusCode.CANCELLED, "stopped")


class StreamingPull:
    """A connection. `start` once; later `finish` or `stop`, and `join`."""

    def __init__(
        self,
        channel: grpc.Channel,
        subscription: str,
        limits: Limits,
        receiver: Receiver,
        timing: Timing = Timing(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open_stream: grpc.StreamStreamMultiCallable[bytes, Delivery[Any]] = channel.stream_stream(
            METHOD, request_serializer=None, response_deserializer=receiver.parse
        )
        self._subscription = subscription
        self._limits = limits
        self._receiver = receiver
        self._clock = clock
        self._client_id = str(uuid.uuid4())
        self._keepalive = Keepalive(timing.ping, timing.liveness)
        self._keepalive_lock = threading.Lock()
        self._backoff = Backoff(timing.backoff, 2, timing.longest_backoff)
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._stream: _Stream | None = None
        self._thread = threading.Thread(target=self._run, name=f"pull-{subscription}", daemon=True)

    def start(self) -> None:
        """Opens the first stream, on the connection's thread."""
        self._thread.start()

    def finish(self) -> None:
        """Asks the server to end the stream, and opens no other. Never blocks; any thread."""
        with self._lock:
            self._stopped.set()
            stream = self._stream
        if stream is not None:
            stream.finish()

    def stop(self) -> None:
        """Ends the stream at once. Never blocks; any thread."""
        with self._lock:
            self._stopped.set()
            stream = self._stream
        if stream is not None:
            stream.cancel()

    @property
    def alive(self) -> bool:
        """Whether the thread has not ended."""
        return self._thread.is_alive()

    def join(self, seconds: float) -> bool:
        """Waits for the thread to end, and tells whether it did."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        rested = False
        try:
            while not self._stopped.is_set():
                self._receiver.wait_to_open(rested)
                status = self._read_stream()
                rested = status is None
                if status is None:
                    _log.debug("a stream of %s is ended until there is room again", self._subscription)
                elif not status.retryable(Purpose.STREAM):
                    self._receiver.ended(status)
                    return
                elif not self._stopped.is_set():
                    self._back_off(status)
        except Exception as error:
            self._receiver.broke(error)

    def _back_off(self, status: Status) -> None:
        delay = self._backoff.failed()
        # Servers close streams routinely; only a connection that does not come back is worth a warning.
        level = logging.WARNING if self._backoff.failures >= 5 else logging.DEBUG
        _log.log(level, "a stream of %s ended (%s); the next opens in %.1f s", self._subscription, status, delay)
        self._stopped.wait(delay)

    def _read_stream(self) -> Status | None:
        """Opens a stream and reads it to its end. None when it was ended for want of room."""
        wanted = self._receiver.stream_deadline
        stream = _Stream(self._first_request(wanted()), self._keepalive, self._keepalive_lock, wanted, self._clock)
        self._receiver.opened()
        with self._lock:
            if self._stopped.is_set():
                return _STOPPED
            self._stream = stream
            stream.open(self._open_stream, self._subscription)
        try:
            while (waited := self._wait_for_room(stream)) is not None:
                response = stream.read()
                if response is None:
                    return Status(grpc.StatusCode.OK, "closed by the server")
                self._backoff.succeeded()
                if not self._receiver.received(response, stream.deadline, waited):
                    break
            return self._rest(stream)
        except grpc.RpcError as error:
            return status_of(error)
        finally:
            stream.finish()
            with self._lock:
                self._stream = None

    def _wait_for_room(self, stream: _Stream) -> float | None:
        """Waits until the receiver wants more, and returns the seconds that took; None when that was too long."""
        began = self._clock()
        stream.reading(False)
        room = self._receiver.wait_for_room(stream.deadline / 2)
        stream.reading(True)
        return self._clock() - began if room else None

    def _rest(self, stream: _Stream) -> Status | None:
        """Ends the stream and refuses what it still brings. Returns a status only when it is final."""
        refused: list[Delivery[Any]] = []
        size = 0
        stream.finish()
        cancel = threading.Timer(LINGER_SECONDS, stream.cancel)
        cancel.start()
        try:
            while (response := stream.read()) is not None:
                refused.append(response)
                size += response.size
                if size > _MOST_REFUSED:
                    stream.cancel()
        except grpc.RpcError as error:
            status = status_of(error)
            return None if status.retryable(Purpose.STREAM) else status
        finally:
            cancel.cancel()
            self._receiver.refused(refused)
        return None

    def _first_request(self, deadline: int) -> StreamingPullRequest:
        return StreamingPullRequest(
            subscription=self._subscription,
            stream_ack_deadline_seconds=deadline,
            client_id=self._client_id,
            max_outstanding_messages=self._limits.messages,
            max_outstanding_bytes=self._limits.size,
            protocol_version=1,
        )


class _Stream:
    """One call. Its requests are an iterator on gRPC's thread: the first request, then a ping whenever one is due."""

    def __init__(
        self,
        first: StreamingPullRequest,
        keepalive: Keepalive,
        lock: threading.Lock,
        wanted: Callable[[], int],
        clock: Callable[[], float],
    ) -> None:
        self._first = first
        self._keepalive = keepalive
        self._wanted = wanted
        self._clock = clock
        self._lock = lock
        self._over = threading.Event()
        self._responses: Iterator[Delivery[Any]] = iter(())
        self._cancel: Callable[[], bool] = lambda: False
        self._sent_deadline = first.stream_ack_deadline_seconds
        self._lowest_deadline = self._sent_deadline

    @property
    def deadline(self) -> int:
        """The deadline that messages of this stream have at least: a change reaches the server at an unknown moment."""
        return self._lowest_deadline

    def open(self, stub: grpc.StreamStreamMultiCallable[bytes, Delivery[Any]], subscription: str) -> None:
        """Starts the call."""
        self._keepalive.opened(self._clock())
        call = stub(self._requests(), metadata=(("x-goog-request-params", f"subscription={subscription}"),))
        self._responses, self._cancel = iter(call), call.cancel

    def read(self) -> Delivery[Any] | None:
        """The next response, None at the stream's normal end.

        Raises:
            grpc.RpcError: the stream failed.
        """
        response = next(self._responses, None)
        if response is not None:
            with self._lock:
                self._keepalive.heard(empty=not response.ack_ids)
        return response

    def reading(self, reading: bool) -> None:
        """Tells whether responses are being read."""
        with self._lock:
            self._keepalive.reading(reading, self._clock())

    def cancel(self) -> None:
        """Ends the call from any thread."""
        self._over.set()
        self._cancel()

    def finish(self) -> None:
        """Ends the requests, and with them our half of the stream."""
        self._over.set()

    def _requests(self) -> Iterator[bytes]:
        yield self._first.SerializeToString()
        while not self._over.is_set():
            with self._lock:
                step, seconds = self._keepalive.step(self._clock())
            if step is Step.REOPEN:
                _log.warning("no answer to a ping on a stream of %s; it is opened again", self._first.subscription)
                self.cancel()
                return
            if step is Step.PING:
                yield from self._changes()
                yield StreamingPullRequest().SerializeToString()
            self._over.wait(seconds)

    def _changes(self) -> Iterator[bytes]:
        """The deadline, if another one is wanted by now: the only thing that later requests may change. Not taken as a ping."""
        wanted = self._wanted()
        if wanted != self._sent_deadline:
            self._lowest_deadline = min(self._sent_deadline, wanted)
            self._sent_deadline = wanted
            yield StreamingPullRequest(stream_ack_deadline_seconds=wanted).SerializeToString()
