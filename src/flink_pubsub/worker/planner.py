"""The planner: runs the startup check, then divides the subscriptions among the subtasks.

Everything is checked before anything starts, so a job with a wrong setting fails once and at once, not in one reader of many.
The plan always follows what is configured now; of earlier plans it only matters whether the start position was sought.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from flink_pubsub.bridge.connector import Context, Plan, PlannedSplit, Split
from flink_pubsub.core import startup
from flink_pubsub.core.planner_state import PlannerState
from flink_pubsub.core.splits import SplitAssignment, plan_splits
from flink_pubsub.rpc.admin import Admin
from flink_pubsub.rpc.channel import open_channel
from flink_pubsub.source import SourceSpec
from flink_pubsub.worker.startup_check import StartupCheck

_log = logging.getLogger(__name__)


def _utc_now() -> datetime:
    return datetime.now(timezone.utc)


def plan(spec: SourceSpec, context: Context, state: Any, now: Callable[[], datetime] = _utc_now) -> Plan:
    """The splits of a source for the context's parallelism, and what the enumerator's checkpoint has to remember.

    Args:
        spec: the source.
        context: the bridge's.
        state: what an earlier plan left in a checkpoint, or None.
        now: the wall clock, read once: `StartPosition.latest` means this instant, however long the check takes.

    Raises:
        CredentialsError: the credentials cannot be used.
        StartupCheckError: a subscription cannot be read as configured.
        PubSubConnectorError: the state is not one that this version can read.
    """
    started = now()
    restored = PlannerState.restore(state)
    paths = tuple(subscription.resource_path for subscription in spec.subscriptions)
    with open_channel(spec.connection) as channel:
        check = StartupCheck(spec, Admin(channel))
        _start(check, spec, started, restored)
    assignments = plan_splits(spec.subscriptions, spec.ordering_mode, context.parallelism)
    return Plan([_planned(assignment) for assignment in assignments], PlannerState(True, paths).as_json())


def _start(check: StartupCheck, spec: SourceSpec, started: datetime, restored: PlannerState) -> None:
    facts = check.resolve()
    position = startup.seek_time(spec.start_position, started)
    target = None if restored.seek_done else position
    for warning in startup.warnings(facts, target, started):
        _log.warning("%s", warning)
    if target is not None:
        check.seek(target)
        _log.info("sought %d subscriptions to %s", len(facts), target.isoformat())
    elif position is not None:
        for path in restored.added([each.path for each in facts]):
            _log.warning("subscription %s is new in the restored job: start_position is not applied to it", path)


def _planned(assignment: SplitAssignment) -> PlannedSplit:
    data = json.dumps({"subscription": assignment.subscription.resource_path})
    return PlannedSplit(Split(assignment.id, data), assignment.owner)
