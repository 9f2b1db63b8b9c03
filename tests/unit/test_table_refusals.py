"""What is refused when a statement is planned, each time by the key as SQL has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flink_pubsub.bridge.connector import RequestRefusedError
from flink_pubsub.worker.tables import build
from tests.unit.table_support import CREATED, DAY, SECOND, sink, source


def refused(spec: Callable[[dict[str, Any]], object], options: dict[str, Any]) -> str:
    with pytest.raises(RequestRefusedError) as refusal:
        spec(options)
    return str(refusal.value)


def told(message: str, refusal: str) -> bool:
    """Whether a refusal begins with the message, whose parts have anything between them."""
    start, *rest = message.split("…")
    return refusal.startswith(start) and all(part in refusal for part in rest)


@pytest.mark.feature("VAL-03")
@pytest.mark.feature("VAL-04")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscription": ["orders-sub", "orders-sub"]}, "'subscription' must not name a subscription twice"),
        ({"subscription": ["projects/p/subscriptions/s"]}, "'subscription' must be the bare subscription id, not a path"),
        ({"project": "projects/p"}, "'project' must be a bare project id"),
        ({"scan.ordering-mode": "PER_KEY"}, "'scan.ordering-mode' must be one of 'none', 'per-key' (got 'PER_KEY')"),
        (
            {"scan.ordering-mode": "per-key", "scan.parallel-pull-count": 2},
            "'scan.parallel-pull-count' must be 1 with 'scan.ordering-mode' = 'per-key'",
        ),
        ({"scan.parallel-pull-count": 0}, "'scan.parallel-pull-count' must be an int of at least 1 (got 0)"),
        ({"scan.max-records-per-fetch": -1}, "'scan.max-records-per-fetch' must be an int of at least 1"),
        ({"scan.subscriber-buffer.max-bytes": 0}, "'scan.subscriber-buffer.max-bytes' must be an int of at least 1"),
        ({"scan.shutdown-timeout": 0}, "'scan.shutdown-timeout' must be longer than 0"),
        (
            {"scan.ack.min-duration-per-extension": 30 * SECOND, "scan.ack.max-duration-per-extension": 20 * SECOND},
            "'scan.ack.min-duration-per-extension' must not exceed 'scan.ack.max-duration-per-extension'",
        ),
        (
            {"scan.ack.max-duration-per-extension": 601 * SECOND},
            "'scan.ack.max-duration-per-extension' must be between 10 and 600 seconds",
        ),
        (
            {"scan.startup.mode": "timestamp"},
            "'scan.startup.timestamp-millis' is missing: 'scan.startup.mode' = 'timestamp' needs one",
        ),
        (
            {"scan.startup.timestamp-millis": 1},
            "'scan.startup.timestamp-millis' goes with 'scan.startup.mode' = 'timestamp' only, not with"
            " 'scan.startup.mode' = 'continue-from-subscription'",
        ),
        (
            {"scan.startup.mode": "latest", "scan.startup.timestamp-millis": 1},
            "'scan.startup.timestamp-millis' goes with … not with 'scan.startup.mode' = 'latest'",
        ),
        (
            {"scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": -1},
            "'scan.startup.timestamp-millis' must be 0 or more milliseconds since 1970",
        ),
        (
            {"service-account-key-file": "/secrets/k.json", "emulator-endpoint": "localhost:8085"},
            "'service-account-key-file' cannot be combined with 'emulator-endpoint'",
        ),
        ({"emulator-endpoint": "http://localhost:8085"}, "'emulator-endpoint' must be 'host:port' without a scheme"),
        ({"service-account-key-file": '{"type": 1}'}, "'service-account-key-file' takes the path of a file, not its content"),
    ],
)
def test_a_wrong_or_contradictory_source_option_is_refused(options: dict[str, Any], message: str) -> None:
    refusal = refused(source, options)
    assert told(message, refusal)
    assert "/secrets" not in refusal


@pytest.mark.feature("SQL-08")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"scan.auto-create.ack-deadline": 60 * SECOND},
            "'scan.auto-create.ack-deadline' needs 'scan.auto-create.topics'",
        ),
        ({"scan.auto-create.topics": {}}, "'scan.auto-create.topics' must name a topic … none for 'orders-sub'"),
        (
            {"subscription": ["orders-sub", "returns-sub"], **CREATED},
            "'scan.auto-create.topics' must name a topic for each subscription … has none for 'returns-sub'",
        ),
        (
            {"scan.auto-create.topics": {"orders-sub": "orders", "else": "orders"}},
            "'scan.auto-create.topics' must have the names in 'subscription' for keys, which does not have 'else'",
        ),
        (
            {"scan.auto-create.topics": {"orders-sub": "projects/p/topics/orders"}},
            "'scan.auto-create.topics' must be the bare topic id, not a path",
        ),
        (
            {**CREATED, "scan.auto-create.expiration-ttl": DAY, "scan.auto-create.never-expire": True},
            "'scan.auto-create.expiration-ttl' cannot be combined with 'scan.auto-create.never-expire'",
        ),
        (
            {**CREATED, "scan.auto-create.dead-letter.topic": "dead"},
            "'scan.auto-create.dead-letter.max-delivery-attempts' is missing: 'scan.auto-create.dead-letter.topic' needs it",
        ),
        (
            {**CREATED, "scan.auto-create.dead-letter.max-delivery-attempts": 5},
            "'scan.auto-create.dead-letter.topic' is missing: 'scan.auto-create.dead-letter.max-delivery-attempts' needs",
        ),
        (
            {
                **CREATED,
                "scan.auto-create.dead-letter.topic": "a/b",
                "scan.auto-create.dead-letter.max-delivery-attempts": 5,
            },
            "'scan.auto-create.dead-letter.topic' must be the bare topic id",
        ),
        (
            {
                **CREATED,
                "scan.auto-create.dead-letter.topic": "dead",
                "scan.auto-create.dead-letter.max-delivery-attempts": 4,
            },
            "'scan.auto-create.dead-letter.max-delivery-attempts' must be an int between 5 and 100",
        ),
        (
            {
                **CREATED,
                "scan.auto-create.dead-letter.topic": "orders",
                "scan.auto-create.dead-letter.max-delivery-attempts": 5,
            },
            "'scan.auto-create.dead-letter.topic' must not forward to the topic that is subscribed to",
        ),
        (
            {**CREATED, "scan.deserialization-failure-policy": "nack"},
            "'scan.auto-create.dead-letter.topic' is missing … 'scan.deserialization-failure-policy' = 'nack' needs it",
        ),
        (
            {**CREATED, "scan.ordering-mode": "per-key"},
            "'scan.auto-create.message-ordering.enabled' must be true … 'scan.ordering-mode' = 'per-key' needs",
        ),
        (
            {**CREATED, "scan.auto-create.ack-deadline": 10_500_000},
            "'scan.auto-create.ack-deadline' must be whole seconds",
        ),
        (
            {**CREATED, "scan.auto-create.message-retention": 60 * SECOND},
            "'scan.auto-create.message-retention' must be between 0:10:00 and 31 days",
        ),
        ({**CREATED, "scan.auto-create.filter": " "}, "'scan.auto-create.filter' must be text that is not empty"),
    ],
)
def test_creation_settings_that_do_not_fit_are_refused(options: dict[str, Any], message: str) -> None:
    assert told(message, refused(source, options))


@pytest.mark.feature("SQL-09")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "projects/p/topics/orders"}, "'topic' must be the bare topic id, not a path"),
        (
            {"sink.create-disposition": "create-never", "sink.auto-create.message-retention": DAY},
            "'sink.auto-create.*' cannot be combined with 'sink.create-disposition' = 'create-never'",
        ),
        (
            {"sink.auto-create.storage-policy.enforce-in-transit": True},
            "'sink.auto-create.storage-policy.enforce-in-transit' needs 'sink.auto-create.storage-policy.allowed-regions'",
        ),
        (
            {"sink.auto-create.storage-policy.allowed-regions": ["a", "a"]},
            "'sink.auto-create.storage-policy.allowed-regions' must name each region once",
        ),
        ({"sink.auto-create.kms-key-name": "k"}, "'sink.auto-create.kms-key-name' must be a key's name"),
        (
            {"sink.recovery.max-backoff": SECOND, "sink.recovery.initial-backoff": 2 * SECOND},
            "'sink.recovery.max-backoff' must be at least 'sink.recovery.initial-backoff'",
        ),
        ({"sink.retry.total-timeout": 0}, "'sink.retry.total-timeout' of 0 leaves retries to 'sink.retry.max-attempts'"),
        ({"sink.retry.delay-multiplier": 0.5}, "'sink.retry.delay-multiplier' must be a finite number of at least 1"),
        ({"sink.batching.element-count-threshold": 1001}, "'sink.batching.element-count-threshold' must be … 1000"),
        ({"sink.max-consecutive-rejections": 0}, "'sink.max-consecutive-rejections' must be an int of at least 1, or -1"),
        (
            {"service-account-key-file": "/k", "emulator-endpoint": "h:1"},
            "'service-account-key-file' cannot be combined with 'emulator-endpoint'",
        ),
    ],
)
def test_a_wrong_or_contradictory_sink_option_is_refused(options: dict[str, Any], message: str) -> None:
    assert told(message, refused(sink, options))


@pytest.mark.feature("SQL-01")
def test_a_table_needs_what_its_direction_needs() -> None:
    request: Any = {"options": {"project": "p"}, "metadata": [], "python_executable": None}
    with pytest.raises(RequestRefusedError, match=r"^'subscription' is missing"):
        build({"direction": "source", **request})
    with pytest.raises(RequestRefusedError, match=r"^'topic' is missing"):
        build({"direction": "sink", **request})
