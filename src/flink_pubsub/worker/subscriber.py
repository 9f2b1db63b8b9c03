"""A subscriber: what reads one split, by one or more streaming-pull connections into one tracker.

The tracker's permits are the memory bound. The server is told the limits, divided over the connections; and no connection
reads the next response while the split holds as many messages or bytes as it may, or has read too far ahead of the fetch
thread. What is not read stays in gRPC's window and then with the server.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import grpc

from flink_pubsub.core.acks import AckTracker
from flink_pubsub.errors import SubscriptionError
from flink_pubsub.options import PubSubSubscriberOptions
from flink_pubsub.rpc.status import Status
from flink_pubsub.rpc.streaming_pull import Limits, StreamingPull
from flink_pubsub.wire.pubsub_pb2 import StreamingPullResponse
from flink_pubsub.worker.decoding import Decoding, Payload
from flink_pubsub.worker.holding import Holding, Shared
from flink_pubsub.worker.keeper import Keeper

_LONGEST_WAIT = 1.0


class Subscriber:
    """Reads one split. Implements `streaming_pull.Receiver` for its connections."""

    def __init__(
        self,
        split: str,
        ordinal: int,
        holding: Holding,
        shared: Shared,
        keeper: Keeper,
        decoding: Decoding,
        options: PubSubSubscriberOptions,
        fail: Callable[[BaseException], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.split = split
        self.ordinal = ordinal
        self.holding = holding
        self.tracker: AckTracker[Payload] = AckTracker(holding.index)
        self.paused = False
        self.received_messages = 0
        """Messages taken in; deliveries of what was held already do not count."""
        self._shared = shared
        self._keeper = keeper
        self._decoding = decoding
        self._max_messages = options.flow_control_max_outstanding_element_count
        self._max_bytes = options.flow_control_max_outstanding_request_bytes
        self._fail = fail
        self._clock = clock
        self._connections: tuple[StreamingPull, ...] = ()

    def connect(self, open_channel: Callable[[], grpc.Channel], connections: int) -> None:
        """Opens the connections, each on the channel it is given."""
        limits = Limits(max(1, self._max_messages // connections), max(1, self._max_bytes // connections))
        path = self.holding.subscription.resource_path
        self._connections = tuple(StreamingPull(open_channel(), path, limits, self) for _ in range(connections))
        for connection in self._connections:
            connection.start()

    def wait_for_room(self) -> None:
        """See `Receiver`."""
        shared = self._shared
        with shared.lock:
            while not shared.closing and not self._has_room():
                shared.room.wait(_LONGEST_WAIT)

    def _has_room(self) -> bool:
        tracker = self.tracker
        return (
            tracker.held_messages < self._max_messages
            and tracker.held_bytes < self._max_bytes
            and tracker.buffered_bytes < self._shared.read_ahead
        )

    def stream_deadline(self) -> int:
        """See `Receiver`."""
        return self.holding.deadlines.seconds

    def received(self, response: StreamingPullResponse, deadline: int, waited: float) -> None:
        """See `Receiver`."""
        if not response.received_messages:
            return
        delivery = self._decoding.take(response)
        now = self._clock()
        with self._shared.lock:
            receipt = self.tracker.receive(delivery, now)
            if receipt.chunk is not None:
                self.received_messages += len(receipt.chunk.message_ids)
                self.holding.leases.grant(receipt.chunk, now, deadline, waited)
                self._shared.records.notify()
            if receipt.redelivered is not None:
                self.holding.leases.grant(receipt.redelivered, now, deadline, waited)
        self._keeper.acknowledge_again(self.holding, receipt.acknowledge)
        self._keeper.give_back(self.holding, receipt.give_back)

    def ended(self, status: Status) -> None:
        """See `Receiver`."""
        path = self.holding.subscription.resource_path
        self._fail(SubscriptionError(path, status.code.name, status.details or "the service ended the stream without a reason"))

    def broke(self, error: Exception) -> None:
        """See `Receiver`."""
        self._fail(error)

    def settle(self, checkpoint: int) -> int:
        """Acknowledges what the completed checkpoint covers, and returns how many messages that is."""
        now = self._clock()
        deadlines = self.holding.deadlines
        with self._shared.lock:
            acks = self.tracker.complete(checkpoint)
            for received, messages in acks.held:
                deadlines.held(now - received, messages)
            deadlines.adapt()
            self._shared.room.notify_all()
        self._keeper.acknowledge(self.holding, self.tracker, acks)
        return len(acks.ack_ids)

    def nack(self, sequence: int) -> None:
        """Gives one message back, if it is still held."""
        with self._shared.lock:
            ack_id = self.tracker.nack(sequence)
            self._shared.room.notify_all()
        if ack_id is not None:
            self._keeper.give_back(self.holding, [ack_id])

    def finish(self) -> None:
        """Asks the server to end the connections in good order; what it still sends is read. Never blocks."""
        for connection in self._connections:
            connection.finish()

    def stop(self) -> None:
        """Ends the connections at once. Never blocks."""
        for connection in self._connections:
            connection.stop()

    def join(self, until: float) -> bool:
        """Waits for the connections to end, and tells whether they did."""
        ended = [connection.join(max(0.0, until - self._clock())) for connection in self._connections]
        return all(ended)

    def release(self) -> None:
        """Gives back everything held, and whatever still arrives."""
        with self._shared.lock:
            ack_ids = self.tracker.close()
        self._keeper.give_back(self.holding, ack_ids)
