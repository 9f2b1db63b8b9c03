"""Who received what: a lease per delivery, and the consumer that holds it.

A delivery has a number, unique in the service; its ack id is made from it. While the lease lives, the message counts
against its consumer's flow control; it ends once, by an ack, a nack, the deadline, or because an earlier message of its
ordering key goes out again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flink_pubsub.emulator.errors import ServiceError
from flink_pubsub.emulator.messages import Message

if TYPE_CHECKING:
    from flink_pubsub.emulator.ordering import KeyQueue

UNLIMITED = 1 << 62


class Lease:
    """One delivery of one message that is neither settled nor expired."""

    __slots__ = ("consumer", "deadline", "examined_at", "message", "number")

    key: KeyQueue | None = None

    def __init__(self, number: int, message: Message, consumer: Consumer, deadline: float, examined_at: float) -> None:
        self.number = number
        self.message = message
        self.consumer = consumer
        self.deadline = deadline
        self.examined_at = examined_at


class OrderedLease(Lease):
    """A delivery of a message with an ordering key; remembered by its key until all earlier ones are acked too."""

    __slots__ = ("acked", "batch", "key")

    key: KeyQueue

    def __init__(
        self, number: int, message: Message, consumer: Consumer, deadline: float, examined_at: float, key: KeyQueue, batch: int
    ) -> None:
        super().__init__(number, message, consumer, deadline, examined_at)
        self.key = key
        self.batch = batch
        self.acked = False


class Consumer:
    """A streaming pull, or one pull call: where deliveries go, and how many it may hold.

    `wake` is called when an idle consumer has something to take or has been ended; it must not block.
    """

    __slots__ = (
        "ack_deadline",
        "closed",
        "end",
        "max_bytes",
        "max_messages",
        "outstanding_bytes",
        "outstanding_messages",
        "ready_keys",
        "wake",
    )

    def __init__(
        self, wake: Callable[[], None], *, max_messages: int = 0, max_bytes: int = 0, ack_deadline: int | None = None
    ) -> None:
        self.wake = wake
        self.max_messages = max_messages if max_messages > 0 else UNLIMITED
        self.max_bytes = max_bytes if max_bytes > 0 else UNLIMITED
        self.ack_deadline = ack_deadline
        self.outstanding_messages = 0
        self.outstanding_bytes = 0
        self.ready_keys: deque[KeyQueue] = deque()
        self.closed = False
        self.end: ServiceError | None = None

    @property
    def has_room(self) -> bool:
        """Whether flow control lets it have another message."""
        return self.outstanding_messages < self.max_messages and self.outstanding_bytes < self.max_bytes


@dataclass(slots=True)
class Batch:
    """What a consumer takes at once: deliveries numbered upwards from `first_number`.

    `attempts` is None when the subscription has no dead-letter policy.
    """

    first_number: int
    messages: Sequence[Message]
    attempts: Sequence[int] | None


class DeliveryNumbers:
    """The service's running number of deliveries."""

    __slots__ = ("next",)

    def __init__(self) -> None:
        self.next = 1
