"""What the options of a table become."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from flink_pubsub import (
    CreateDisposition,
    DeadLetterPolicy,
    DeserializationFailurePolicy,
    OrderingMode,
    PubSubPublisherOptions,
    PubSubSubscriberOptions,
    StartPosition,
    SubscriptionCreateOptions,
    SubscriptionDestination,
    TopicCreateOptions,
    TopicDestination,
)
from flink_pubsub.source import SourceSpec
from flink_pubsub.worker.tables import build
from tests.unit.table_support import CREATED, DAY, ORDERS, SECOND, sink, source


@pytest.mark.feature("SQL-07")
def test_a_table_that_says_nothing_reads_as_a_builder_that_says_nothing() -> None:
    assert source({}) == SourceSpec(subscriptions=(ORDERS,), deserializer=None)


@pytest.mark.feature("SQL-01")
def test_several_subscriptions_are_read() -> None:
    names = ["orders-sub", "returns-sub"]
    assert source({"subscription": names}).subscriptions == tuple(SubscriptionDestination("p", name) for name in names)


@pytest.mark.feature("SQL-07")
def test_every_subscriber_option_reaches_the_source() -> None:
    options = {
        "scan.flow-control.max-outstanding-element-count": 11,
        "scan.flow-control.max-outstanding-request-bytes": 12,
        "scan.subscriber-buffer.max-messages": 13,
        "scan.subscriber-buffer.max-bytes": 14,
        "scan.paused-split-buffer.max-messages": 15,
        "scan.paused-split-buffer.max-bytes": 16,
        "scan.parallel-pull-count": 17,
        "scan.ack.max-extension-period": 18 * SECOND,
        "scan.ack.min-duration-per-extension": 19 * SECOND,
        "scan.ack.max-duration-per-extension": 20 * SECOND,
        "scan.ack.await-confirmation": 21 * SECOND,
        "scan.shutdown-timeout": 22 * SECOND,
        "scan.max-records-per-fetch": 23,
        "scan.first-checkpoint-timeout": 0,
    }
    assert source(options).options == PubSubSubscriberOptions(
        flow_control_max_outstanding_element_count=11,
        flow_control_max_outstanding_request_bytes=12,
        subscriber_buffer_max_messages=13,
        subscriber_buffer_max_bytes=14,
        paused_split_buffer_max_messages=15,
        paused_split_buffer_max_bytes=16,
        parallel_pull_count=17,
        max_ack_extension_period=timedelta(seconds=18),
        min_duration_per_ack_extension=timedelta(seconds=19),
        max_duration_per_ack_extension=timedelta(seconds=20),
        await_ack_confirmation=timedelta(seconds=21),
        shutdown_timeout=timedelta(seconds=22),
        max_records_per_fetch=23,
        first_checkpoint_timeout=timedelta(0),
    )


@pytest.mark.feature("SQL-07")
@pytest.mark.parametrize(
    ("options", "position"),
    [
        ({"scan.startup.mode": "continue-from-subscription"}, StartPosition.continue_from_subscription()),
        ({"scan.startup.mode": "earliest-retained"}, StartPosition.earliest_retained()),
        ({"scan.startup.mode": "LATEST"}, StartPosition.latest()),
        (
            {"scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": 1735689600123},
            StartPosition.from_timestamp(1735689600123),
        ),
    ],
)
def test_the_start_position_is_a_mode_and_a_timestamp(options: dict[str, Any], position: StartPosition) -> None:
    assert source(options).start_position == position


@pytest.mark.feature("SQL-07")
@pytest.mark.feature("SQL-10")
def test_modes_and_the_connection_reach_the_source() -> None:
    spec = source(
        {
            "scan.ordering-mode": "per-key",
            "scan.deserialization-failure-policy": "drop",
            "emulator-endpoint": "localhost:8085",
        }
    )
    assert spec.ordering_mode is OrderingMode.PER_KEY
    assert spec.deserialization_failure_policy is DeserializationFailurePolicy.DROP
    assert spec.connection.emulator_endpoint == "localhost:8085"
    assert source({"service-account-key-file": "/k.json"}).connection.service_account_key_file == "/k.json"


@pytest.mark.feature("SQL-08")
def test_each_subscription_is_created_for_its_own_topic_with_the_shared_settings() -> None:
    spec = source(
        {
            "subscription": ["orders-sub", "returns-sub"],
            "scan.auto-create.topics": {"orders-sub": "orders", "returns-sub": "returns"},
            "scan.auto-create.ack-deadline": 60 * SECOND,
            "scan.auto-create.message-ordering.enabled": True,
            "scan.auto-create.message-retention": DAY,
            "scan.auto-create.retain-acked-messages": True,
            "scan.auto-create.expiration-ttl": 2 * DAY,
            "scan.auto-create.dead-letter.topic": "dead",
            "scan.auto-create.dead-letter.max-delivery-attempts": 7,
            "scan.auto-create.filter": 'attributes.region = "eu"',
        }
    )
    shared: Any = {
        "ack_deadline": timedelta(seconds=60),
        "enable_message_ordering": True,
        "message_retention": timedelta(days=1),
        "retain_acked_messages": True,
        "expiration_ttl": timedelta(days=2),
        "dead_letter_policy": DeadLetterPolicy(topic=TopicDestination("p", "dead"), max_delivery_attempts=7),
        "filter": 'attributes.region = "eu"',
    }
    assert spec.create_options == {
        ORDERS: SubscriptionCreateOptions(topic=TopicDestination("p", "orders"), **shared),
        SubscriptionDestination("p", "returns-sub"): SubscriptionCreateOptions(
            topic=TopicDestination("p", "returns"), **shared
        ),
    }
    forever = source({**CREATED, "scan.auto-create.never-expire": True})
    assert forever.create_options[ORDERS].never_expire


@pytest.mark.feature("SQL-09")
def test_every_publisher_option_reaches_the_sink() -> None:
    options = {
        "sink.batching.element-count-threshold": 11,
        "sink.batching.request-byte-threshold": 12,
        "sink.batching.delay-threshold": 13 * SECOND,
        "sink.retry.total-timeout": 14 * SECOND,
        "sink.retry.initial-delay": 15 * SECOND,
        "sink.retry.delay-multiplier": 1.6,
        "sink.retry.max-delay": 17 * SECOND,
        "sink.retry.initial-rpc-timeout": 18 * SECOND,
        "sink.retry.rpc-timeout-multiplier": 1.9,
        "sink.retry.max-rpc-timeout": 20 * SECOND,
        "sink.retry.max-attempts": 21,
        "sink.message-ordering.enabled": True,
        "sink.in-flight.max-messages": 22,
        "sink.in-flight.max-bytes": 23,
        "sink.max-active-publishers": 24,
        "sink.destination-idle-timeout": 25 * SECOND,
        "sink.max-consecutive-rejections": -1,
        "sink.publish-progress-timeout": 26 * SECOND,
        "sink.recovery.initial-backoff": 27 * SECOND,
        "sink.recovery.max-backoff": 28 * SECOND,
        "sink.recovery.max-attempts": 29,
        "sink.shutdown-timeout": 30 * SECOND,
        "sink.metrics.per-destination": True,
    }
    assert sink(options).options == PubSubPublisherOptions(
        batch_element_count_threshold=11,
        batch_request_byte_threshold=12,
        batch_delay_threshold=timedelta(seconds=13),
        retry_total_timeout=timedelta(seconds=14),
        retry_initial_delay=timedelta(seconds=15),
        retry_delay_multiplier=1.6,
        retry_max_delay=timedelta(seconds=17),
        retry_initial_rpc_timeout=timedelta(seconds=18),
        retry_rpc_timeout_multiplier=1.9,
        retry_max_rpc_timeout=timedelta(seconds=20),
        retry_max_attempts=21,
        enable_message_ordering=True,
        max_in_flight_messages=22,
        max_in_flight_bytes=23,
        max_active_publishers=24,
        destination_idle_timeout=timedelta(seconds=25),
        max_consecutive_rejections=-1,
        publish_progress_timeout=timedelta(seconds=26),
        recovery_initial_backoff=timedelta(seconds=27),
        recovery_max_backoff=timedelta(seconds=28),
        recovery_max_attempts=29,
        shutdown_timeout=timedelta(seconds=30),
        per_destination_metrics=True,
    )


@pytest.mark.feature("SQL-09")
@pytest.mark.feature("SQL-10")
def test_the_topic_its_creation_and_the_connection_reach_the_sink() -> None:
    assert sink({}).topic == TopicDestination("p", "orders")
    assert sink({}).topic_create_options is None
    key = "projects/p/locations/l/keyRings/r/cryptoKeys/k"
    spec = sink(
        {
            "sink.create-disposition": "create-if-needed",
            "sink.auto-create.message-retention": DAY,
            "sink.auto-create.kms-key-name": key,
            "sink.auto-create.storage-policy.allowed-regions": ["europe-west1", "europe-west4"],
            "sink.auto-create.storage-policy.enforce-in-transit": True,
            "service-account-key-file": "/k.json",
        }
    )
    assert spec.topic_create_options == TopicCreateOptions(
        message_retention=timedelta(days=1),
        kms_key_name=key,
        allowed_persistence_regions=("europe-west1", "europe-west4"),
        enforce_in_transit=True,
    )
    assert spec.connection.service_account_key_file == "/k.json"
    assert sink({"sink.create-disposition": "create-never"}).create_disposition is CreateDisposition.CREATE_NEVER


def test_the_run_time_workers_use_the_interpreter_that_the_job_names() -> None:
    request = {"direction": "sink", "options": {"project": "p", "topic": "orders"}, "metadata": []}
    named = build({**request, "python_executable": "/opt/python"})
    assert named.facts["worker_spec"]["python_executable"] == "/opt/python"
    assert build({**request, "python_executable": None}).facts["worker_spec"]["python_executable"] is None
