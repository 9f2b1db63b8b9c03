"""The service's snapshots: made of a subscription, kept until they expire, and what a seek to one needs.

A snapshot lives for seven days less the age of the oldest message it retains; one that would live for less than an hour is
refused. See https://cloud.google.com/pubsub/docs/reference/rpc/google.pubsub.v1#createsnapshotrequest.
"""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.empty_pb2 import Empty
from google.protobuf.timestamp_pb2 import Timestamp

from flink_pubsub.emulator import limits
from flink_pubsub.emulator.errors import already_exists, failed_precondition, invalid, not_found
from flink_pubsub.emulator.resources import in_project, page, updated
from flink_pubsub.emulator.retention import Snapshot
from flink_pubsub.emulator.subscription import Subscription
from flink_pubsub.emulator.timers import Alarm, Timers
from flink_pubsub.emulator.topics import Topic
from flink_pubsub.wire import pubsub_pb2 as wire

LIFETIME = 7 * 86_400
SHORTEST_LIFETIME = 3600

_FIELDS = frozenset({"labels", "expire_time"})


class Snapshots:
    """All snapshots of all projects.

    Args:
        timers: where expiries are kept.
        epoch: what to add to a time to get seconds since 1970.
        subscription: finds a subscription by name, or raises.
        topic: finds a topic by name, or raises.
    """

    def __init__(
        self, timers: Timers, epoch: float, subscription: Callable[[str], Subscription], topic: Callable[[str], Topic]
    ) -> None:
        self._timers = timers
        self._epoch = epoch
        self._subscription = subscription
        self._topic = topic
        self._snapshots: dict[str, Snapshot] = {}
        self._alarms: dict[str, Alarm] = {}

    def find(self, name: str) -> Snapshot:
        """The snapshot, or NOT_FOUND."""
        snapshot = self._snapshots.get(name)
        if snapshot is None:
            limits.check_name(name, "snapshots")
            raise not_found(name)
        return snapshot

    def expires_at(self, snapshot: Snapshot) -> float:
        """When the snapshot expires, by the emulator's clock."""
        expire_time = snapshot.settings.expire_time
        return expire_time.seconds + expire_time.nanos / 1e9 - self._epoch

    def create(self, request: wire.CreateSnapshotRequest, now: float) -> wire.Snapshot:
        limits.check_name(request.name, "snapshots")
        subscription = self._subscription(request.subscription)
        subscription.check_attached()
        if request.name in self._snapshots:
            raise already_exists(request.name)
        backlog = subscription.unacked()
        oldest = backlog[0].published_at if backlog else now
        if oldest + LIFETIME - now < SHORTEST_LIFETIME:
            raise failed_precondition(
                f"The snapshot would expire within an hour, for the oldest message of its backlog is {now - oldest:.0f} s old."
            )
        settings = wire.Snapshot(
            name=request.name,
            topic=subscription.settings.topic,
            expire_time=self._timestamp(oldest + LIFETIME),
            labels=request.labels,
        )
        snapshot = Snapshot(settings, subscription.topic_log, backlog)
        self._snapshots[request.name] = snapshot
        if settings.topic != limits.DELETED_TOPIC:
            self._topic(settings.topic).snapshots[request.name] = snapshot
        alarm = self._alarms[request.name] = Alarm(self._timers, lambda now: self._remove(request.name))
        alarm.set(self.expires_at(snapshot))
        return settings

    def get(self, request: wire.GetSnapshotRequest, now: float) -> wire.Snapshot:
        return self.find(request.snapshot).settings

    def list(self, request: wire.ListSnapshotsRequest, now: float) -> wire.ListSnapshotsResponse:
        names, token = page(in_project(self._snapshots, request.project), request)
        settings = [self._snapshots[name].settings for name in names]
        return wire.ListSnapshotsResponse(snapshots=settings, next_page_token=token)

    def list_of_topic(self, request: wire.ListTopicSnapshotsRequest, now: float) -> wire.ListTopicSnapshotsResponse:
        names, token = page(self._topic(request.topic).snapshots, request)
        return wire.ListTopicSnapshotsResponse(snapshots=names, next_page_token=token)

    def update(self, request: wire.UpdateSnapshotRequest, now: float) -> wire.Snapshot:
        snapshot = self.find(request.snapshot.name)

        def check(settings: wire.Snapshot) -> None:
            latest = self.expires_at(Snapshot(settings, snapshot.topic_log, ()))
            if not now < latest <= now + LIFETIME:
                raise invalid(
                    f"Invalid expire_time given ({settings.expire_time.ToJsonString()}). It must be within seven days."
                )

        snapshot.settings = updated(snapshot.settings, request.snapshot, request.update_mask, _FIELDS, check)
        self._alarms[request.snapshot.name].set(self.expires_at(snapshot))
        return snapshot.settings

    def delete(self, request: wire.DeleteSnapshotRequest, now: float) -> Empty:
        self.find(request.snapshot)
        self._remove(request.snapshot)
        return Empty()

    def _remove(self, name: str) -> None:
        snapshot = self._snapshots.pop(name)
        self._alarms.pop(name).set(None)
        if snapshot.settings.topic != limits.DELETED_TOPIC:
            del self._topic(snapshot.settings.topic).snapshots[name]

    def _timestamp(self, at: float) -> Timestamp:
        milliseconds = int((self._epoch + at) * 1000)
        return Timestamp(seconds=milliseconds // 1000, nanos=milliseconds % 1000 * 1_000_000)
