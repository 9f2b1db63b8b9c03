"""What tests read off a subscription."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Delivery:
    """One delivery, as the log keeps it.

    Attributes:
        message_id: the message's id.
        ack_id: the ack id of this delivery.
        attempt: 1 for the first delivery, then one more for each nack or expiry.
        time: when, by the emulator's clock.
    """

    message_id: str
    ack_id: str
    attempt: int
    time: float


@dataclass(frozen=True)
class SubscriptionCounts:
    """A subscription's numbers at one moment.

    `backlog`, `outstanding`, `acked` and `dropped` are messages and add up to `received`; the others count events since the
    subscription was created (one per ack id, or per message forwarded), except `open_streams`.

    Attributes:
        received: messages published to it (those its filter keeps), and those from before its time that a seek brought.
        backlog: messages that wait.
        outstanding: messages delivered, their leases running.
        acked: messages settled: by an ack, a seek beyond them, or by going to the dead-letter topic.
        dropped: messages gone without that: too old, or detached.
    """

    received: int
    backlog: int
    outstanding: int
    acked: int
    dropped: int
    delivered: int
    nacks: int
    modacks: int
    expiries: int
    late_acks: int
    dead_lettered: int
    open_streams: int
