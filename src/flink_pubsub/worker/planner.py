"""The planner: checks that every subscription can be read as configured, then divides them among the subtasks.

Everything is checked before anything starts, so a job with a wrong setting fails once and at once, not in one reader of many.
"""

from __future__ import annotations

import json
from typing import Any

import grpc

from flink_pubsub.bridge.connector import Context, Plan, PlannedSplit, Split
from flink_pubsub.core.splits import SplitAssignment, plan_splits
from flink_pubsub.destinations import SubscriptionDestination
from flink_pubsub.errors import SubscriptionError
from flink_pubsub.options import OrderingMode
from flink_pubsub.rpc.admin import Admin
from flink_pubsub.rpc.channel import open_channel
from flink_pubsub.rpc.status import status_of
from flink_pubsub.source import SourceSpec
from flink_pubsub.wire import pubsub_pb2 as wire

STATE_VERSION = 1


def plan(spec: SourceSpec, context: Context, state: Any) -> Plan:
    """The splits of a source for the context's parallelism, and what the enumerator's checkpoint has to remember.

    Args:
        spec: the source.
        context: the bridge's.
        state: what an earlier plan left in a checkpoint, or None. Only whether start positions were sought is taken from it;
            subscriptions and parallelism are always those configured now.

    Raises:
        CredentialsError: the credentials cannot be used.
        SubscriptionError: a subscription does not exist, cannot be described, or does not suit the ordering mode.
    """
    with open_channel(spec.connection) as channel:
        admin = Admin(channel)
        for subscription in spec.subscriptions:
            _check(describe(admin, subscription), spec.ordering_mode)
    assignments = plan_splits(spec.subscriptions, spec.ordering_mode, context.parallelism)
    return Plan(
        [_planned(assignment) for assignment in assignments], {"version": STATE_VERSION, "seek_done": _seek_done(state)}
    )


def describe(admin: Admin, subscription: SubscriptionDestination) -> wire.Subscription:
    """The subscription's settings.

    Raises:
        SubscriptionError: it does not exist or may not be described.
    """
    path = subscription.resource_path
    try:
        return admin.get_subscription(path)
    except grpc.RpcError as error:
        status = status_of(error)
    problem = status.details
    if status.code is grpc.StatusCode.NOT_FOUND:
        problem = f"it does not exist ({status.details}): create it, or correct the name given to subscriptions(...)"
    elif status.code is grpc.StatusCode.PERMISSION_DENIED:
        problem = f"it may not be described ({status.details}): grant pubsub.subscriptions.get, such as by roles/pubsub.viewer"
    raise SubscriptionError(path, status.code.name, problem)


def _check(subscription: wire.Subscription, mode: OrderingMode) -> None:
    if mode is OrderingMode.PER_KEY and not subscription.enable_message_ordering:
        raise SubscriptionError(
            subscription.name,
            grpc.StatusCode.FAILED_PRECONDITION.name,
            "it delivers without order, which ordering_mode(OrderingMode.PER_KEY) cannot mend: read a subscription that was"
            " created with enable_message_ordering, or leave ordering_mode out",
        )


def _planned(assignment: SplitAssignment) -> PlannedSplit:
    data = json.dumps({"subscription": assignment.subscription.resource_path})
    return PlannedSplit(Split(assignment.id, data), assignment.owner)


def _seek_done(state: Any) -> bool:
    """What the state says, in this version's form or an earlier one's; unknown fields are left aside."""
    return isinstance(state, dict) and bool(state.get("seek_done", False))
