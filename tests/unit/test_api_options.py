"""Options: limits, defaults, and what contradicts what."""

from __future__ import annotations

import ast
import inspect
import pickle
from dataclasses import FrozenInstanceError, fields, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flink_pubsub import ConfigurationError, PubSubPublisherOptions, PubSubSubscriberOptions
from flink_pubsub.options import Connection, OrderingMode, declared

CLASSES: tuple[type, ...] = (PubSubSubscriberOptions, PubSubPublisherOptions)
EVERY = [(options, name) for options in CLASSES for name in declared(options)]
ZERO_MEANS_SOMETHING = {
    "max_ack_extension_period",
    "first_checkpoint_timeout",
    "retry_total_timeout",
    "retry_initial_delay",
    "retry_max_delay",
    "retry_initial_rpc_timeout",
    "retry_max_rpc_timeout",
}
UNLIMITED = {"max_consecutive_rejections"}
"""Counts for which -1 means no limit."""
COUNTS = [
    (options, name)
    for options, name in EVERY
    if type(declared(options)[name].default) is int or name == "retry_max_attempts" or name.startswith("paused_split_buffer")
]
DURATIONS = [
    (options, name)
    for options, name in EVERY
    if isinstance(declared(options)[name].default, timedelta) or "per_ack_extension" in name or name == "await_ack_confirmation"
]
FACTORS = [(options, name) for options, name in EVERY if name.endswith("multiplier")]


def kinds(options: list[tuple[type, str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("options", "name"), options, ids=[name for _, name in options])


@pytest.mark.feature("SRC-09")
@pytest.mark.feature("SRC-11")
@pytest.mark.feature("SRC-12")
@pytest.mark.feature("SRC-13")
@pytest.mark.feature("SRC-14")
def test_the_defaults_of_the_subscriber() -> None:
    options = PubSubSubscriberOptions()
    assert options.flow_control_max_outstanding_element_count == 1000
    assert options.flow_control_max_outstanding_request_bytes == 100 * 1024 * 1024
    assert options.max_records_per_fetch == 1000
    assert options.parallel_pull_count == 1
    assert options.max_ack_extension_period == timedelta(hours=1)
    assert options.min_duration_per_ack_extension is None
    assert options.max_duration_per_ack_extension is None
    assert options.shutdown_timeout == timedelta(seconds=5)
    assert (options.subscriber_buffer_max_messages, options.subscriber_buffer_max_bytes) == (10_000, 64 << 20)
    assert (options.paused_split_buffer_max_messages, options.paused_split_buffer_max_bytes) == (None, None)
    assert (options.await_ack_confirmation, options.first_checkpoint_timeout) == (None, timedelta(minutes=10))


@pytest.mark.feature("SRC-23")
def test_a_paused_split_may_buffer_twice_the_flow_control_unless_it_is_said() -> None:
    assert PubSubSubscriberOptions().paused_split_buffer == (2000, 200 << 20)
    options = PubSubSubscriberOptions(
        flow_control_max_outstanding_element_count=50, flow_control_max_outstanding_request_bytes=70
    )
    assert options.paused_split_buffer == (100, 140)
    own = replace(options, paused_split_buffer_max_messages=5, paused_split_buffer_max_bytes=6)
    assert own.paused_split_buffer == (5, 6)


@pytest.mark.feature("SNK-04")
@pytest.mark.feature("SNK-05")
@pytest.mark.feature("SNK-06")
@pytest.mark.feature("SNK-07")
def test_the_defaults_of_the_publisher() -> None:
    options = PubSubPublisherOptions()
    assert (options.batch_element_count_threshold, options.batch_request_byte_threshold) == (100, 1000)
    assert options.batch_delay_threshold == timedelta(milliseconds=1)
    assert options.retry_total_timeout == timedelta(seconds=600)
    assert options.retry_initial_delay == timedelta(milliseconds=100)
    assert (options.retry_delay_multiplier, options.retry_rpc_timeout_multiplier) == (4, 4)
    assert options.retry_max_delay == timedelta(seconds=60)
    assert options.retry_initial_rpc_timeout == timedelta(seconds=5)
    assert options.retry_max_rpc_timeout == timedelta(seconds=60)
    assert options.retry_max_attempts is None
    assert options.enable_message_ordering is False
    assert (options.max_in_flight_messages, options.max_in_flight_bytes) == (1000, 64 * 1024 * 1024)
    assert options.shutdown_timeout == timedelta(seconds=30)


@pytest.mark.feature("SNK-08")
@pytest.mark.feature("SNK-10")
@pytest.mark.feature("SNK-11")
@pytest.mark.feature("SNK-15")
def test_the_defaults_of_the_publishers_recovery() -> None:
    options = PubSubPublisherOptions()
    assert options.max_active_publishers == 100
    assert options.destination_idle_timeout == timedelta(hours=1)
    assert options.publish_progress_timeout == timedelta(seconds=600)
    assert options.recovery_initial_backoff == timedelta(milliseconds=500)
    assert options.recovery_max_backoff == timedelta(seconds=10)
    assert options.recovery_max_attempts == 10
    assert options.max_consecutive_rejections == 100
    assert options.per_destination_metrics is False


@pytest.mark.feature("VAL-03")
def test_the_longest_recovery_backoff_is_at_least_the_first() -> None:
    with pytest.raises(ConfigurationError, match="recovery_max_backoff must be at least recovery_initial_backoff"):
        PubSubPublisherOptions(recovery_max_backoff=timedelta(milliseconds=499))
    second = timedelta(seconds=1)
    assert PubSubPublisherOptions(recovery_initial_backoff=second, recovery_max_backoff=second).recovery_max_backoff == second


@pytest.mark.feature("VAL-02")
@kinds(EVERY)
def test_none_means_the_default(options: type, name: str) -> None:
    assert options(**{name: None}) == options()


@pytest.mark.feature("VAL-02")
def test_options_are_immutable_and_equal_by_value() -> None:
    options = PubSubSubscriberOptions(max_records_per_fetch=7)
    assert options == PubSubSubscriberOptions(max_records_per_fetch=7)
    assert hash(options) == hash(PubSubSubscriberOptions(max_records_per_fetch=7))
    assert options != PubSubSubscriberOptions(max_records_per_fetch=8)
    with pytest.raises(FrozenInstanceError):
        options.max_records_per_fetch = 8  # type: ignore[misc]
    assert options.max_records_per_fetch == 7


@pytest.mark.feature("VAL-02")
def test_options_pickle_and_can_be_copied_with_a_change() -> None:
    options = PubSubPublisherOptions(enable_message_ordering=True, retry_max_attempts=3)
    assert pickle.loads(pickle.dumps(options)) == options
    assert replace(options, retry_max_attempts=4) == PubSubPublisherOptions(enable_message_ordering=True, retry_max_attempts=4)


@pytest.mark.feature("VAL-02")
@pytest.mark.parametrize("options", CLASSES)
def test_options_are_given_by_keyword_and_unknown_ones_are_refused(options: Any) -> None:
    with pytest.raises(TypeError):
        options(5)
    with pytest.raises(TypeError):
        options(no_such_option=5)


@pytest.mark.feature("VAL-02")
@kinds(COUNTS)
@pytest.mark.parametrize("value", [0, -1, -2, True, 1.5, "5", timedelta(1), 2**63])
def test_a_count_that_is_no_positive_int_is_refused_by_name_and_value(options: Any, name: str, value: object) -> None:
    if value == -1 and name in UNLIMITED:
        assert getattr(options(**{name: value}), name) == -1
        return
    with pytest.raises(ConfigurationError, match=f"{name} must be an int") as caught:
        options(**{name: value})
    assert caught.value.option == name
    assert str(value) in str(caught.value)


@pytest.mark.feature("VAL-02")
@kinds(COUNTS)
@given(value=st.integers(1, 1000))
def test_every_positive_count_is_kept_as_it_is(options: Any, name: str, value: int) -> None:
    assert getattr(options(**{name: value}), name) == value


@pytest.mark.feature("VAL-02")
@kinds(DURATIONS)
@pytest.mark.parametrize("value", [5, 0.5, "PT5S", True])
def test_a_duration_that_is_no_timedelta_is_refused_by_name_and_value(options: Any, name: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} must be a datetime.timedelta") as caught:
        options(**{name: value})
    assert repr(value) in str(caught.value)


@pytest.mark.feature("VAL-02")
@kinds(DURATIONS)
def test_a_negative_duration_is_refused(options: Any, name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} must"):
        options(**{name: timedelta(seconds=-1)})


@pytest.mark.feature("VAL-02")
@pytest.mark.feature("SRC-13")
@kinds(DURATIONS)
def test_a_duration_of_0_is_allowed_only_where_it_has_a_meaning(options: Any, name: str) -> None:
    if name == "retry_total_timeout":
        assert options(retry_total_timeout=timedelta(0), retry_max_attempts=5).retry_total_timeout == timedelta(0)
    elif name in ZERO_MEANS_SOMETHING:
        assert getattr(options(**{name: timedelta(0)}), name) == timedelta(0)
    else:
        with pytest.raises(ConfigurationError, match=f"{name} must be longer than 0"):
            options(**{name: timedelta(0)})


@pytest.mark.feature("VAL-02")
@pytest.mark.feature("SNK-05")
@kinds(FACTORS)
@pytest.mark.parametrize("value", [0, 0.99, -4, float("nan"), float("inf"), True, "4"])
def test_a_multiplier_that_would_not_grow_is_refused(options: Any, name: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} must be a finite number of at least 1"):
        options(**{name: value})


@pytest.mark.feature("VAL-02")
@pytest.mark.feature("SNK-07")
@pytest.mark.parametrize("value", [1, 0, "true", "False"])
def test_a_switch_takes_only_true_and_false(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="enable_message_ordering must be True or False"):
        PubSubPublisherOptions(enable_message_ordering=value)


@pytest.mark.feature("VAL-03")
@pytest.mark.feature("SRC-13")
@pytest.mark.parametrize("name", ["min_duration_per_ack_extension", "max_duration_per_ack_extension"])
@pytest.mark.parametrize("seconds", [0.001, 9.999, 600.001, 86_400])
def test_an_extension_outside_what_the_service_accepts_is_refused(name: str, seconds: float) -> None:
    given: Any = {name: timedelta(seconds=seconds)}
    with pytest.raises(ConfigurationError, match=f"{name} must be between 10 and 600 seconds"):
        PubSubSubscriberOptions(**given)


@pytest.mark.feature("VAL-03")
@pytest.mark.feature("SRC-13")
@given(st.integers(10, 600), st.integers(10, 600))
def test_the_shortest_extension_must_not_exceed_the_longest(shortest: int, longest: int) -> None:
    def build() -> PubSubSubscriberOptions:
        return PubSubSubscriberOptions(
            min_duration_per_ack_extension=timedelta(seconds=shortest),
            max_duration_per_ack_extension=timedelta(seconds=longest),
        )

    if shortest <= longest:
        assert build().min_duration_per_ack_extension == timedelta(seconds=shortest)
    else:
        with pytest.raises(ConfigurationError, match="must not exceed max_duration_per_ack_extension") as caught:
            build()
        assert str(timedelta(seconds=longest)) in str(caught.value)


@pytest.mark.feature("VAL-03")
@pytest.mark.feature("SNK-04")
def test_a_batch_cannot_be_larger_than_the_service_accepts() -> None:
    assert PubSubPublisherOptions(batch_element_count_threshold=1000, batch_request_byte_threshold=10_000_000)
    with pytest.raises(ConfigurationError, match="batch_element_count_threshold must be an int between 1 and 1000"):
        PubSubPublisherOptions(batch_element_count_threshold=1001)
    with pytest.raises(ConfigurationError, match="batch_request_byte_threshold must be an int between 1 and 10000000"):
        PubSubPublisherOptions(batch_request_byte_threshold=10_000_001)


@pytest.mark.feature("VAL-03")
@pytest.mark.feature("SNK-05")
def test_retries_bounded_by_neither_time_nor_attempts_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="retry_total_timeout of 0 leaves retries to retry_max_attempts"):
        PubSubPublisherOptions(retry_total_timeout=timedelta(0))


@pytest.mark.parametrize("options", CLASSES)
def test_every_field_is_a_declared_option_with_a_docstring_and_a_unique_sql_key(options: type) -> None:
    names = [field.name for field in fields(options)]
    assert list(declared(options)) == names
    keys = [option.sql for option in declared(options).values()]
    prefix = "scan." if options is PubSubSubscriberOptions else "sink."
    assert len(set(keys)) == len(keys)
    assert all(key.startswith(prefix) for key in keys)
    (tree,) = ast.parse(inspect.getsource(options)).body
    assert isinstance(tree, ast.ClassDef)
    documented = [
        before.target.id
        for before, after in zip(tree.body, tree.body[1:], strict=False)
        if isinstance(before, ast.AnnAssign)
        and isinstance(before.target, ast.Name)
        and isinstance(after, ast.Expr)
        and isinstance(after.value, ast.Constant)
    ]
    assert documented == names


def test_enum_values_are_what_sql_uses() -> None:
    assert {mode.name: mode.value for mode in OrderingMode} == {"NONE": "none", "PER_KEY": "per-key"}


@pytest.mark.feature("SRC-05")
@pytest.mark.feature("SNK-18")
@pytest.mark.feature("VAL-05")
def test_a_connection_does_not_show_the_key_files_path() -> None:
    connection = Connection(service_account_key_file="/secrets/key.json")
    assert "secrets" not in repr(connection)
    assert pickle.loads(pickle.dumps(connection)) == connection


@pytest.mark.feature("SRC-05")
@pytest.mark.feature("SNK-18")
@pytest.mark.feature("VAL-04")
def test_a_connection_is_either_an_emulator_or_has_a_key_file() -> None:
    with pytest.raises(ConfigurationError, match="cannot be combined with emulator_endpoint") as caught:
        Connection(service_account_key_file="/secrets/key.json", emulator_endpoint="localhost:8085")
    assert "secrets" not in str(caught.value)
