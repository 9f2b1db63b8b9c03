"""The startup check: makes sure that every subscription can be read as configured, then moves them to the start position.

1. Every subscription is described. A missing one may be created if the source has settings for it.
2. The rules of `core.startup` judge all that exist; what they reject ends the check, and nothing has changed yet.
3. What may be created is created. A subscription that somebody else created meanwhile is as good, if the rules agree.
4. Every subscription is sought, if that has not happened before. A seek that is repeated has the same effect.

Each step handles several subscriptions at a time and collects every rejection into one error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TypeVar

import grpc

from flink_pubsub.core import startup
from flink_pubsub.core.startup import Refused, SubscriptionFacts
from flink_pubsub.destinations import SubscriptionDestination
from flink_pubsub.errors import StartupCheckError
from flink_pubsub.rpc.admin import Admin
from flink_pubsub.rpc.status import Purpose, Status, status_of
from flink_pubsub.source import SourceSpec
from flink_pubsub.subscription_options import SubscriptionCreateOptions
from flink_pubsub.wire import pubsub_pb2 as wire

_AT_A_TIME = 8

_log = logging.getLogger(__name__)

T = TypeVar("T")


class _RejectedError(Exception):
    """One subscription is rejected, with these sentences."""

    def __init__(self, *rejections: str) -> None:
        super().__init__(*rejections)
        self.rejections = rejections


class StartupCheck:
    """One run of the check."""

    def __init__(self, spec: SourceSpec, admin: Admin) -> None:
        self._spec = spec
        self._admin = admin

    def resolve(self) -> list[SubscriptionFacts]:
        """Describes, judges and creates: every subscription exists then and can be read.

        Raises:
            StartupCheckError: some do not or cannot. Nothing was created if one that exists was rejected.
        """
        found = _for_each(self._spec.subscriptions, self._find)
        created = _for_each([each for each, facts in found.items() if facts is None], self._create)
        return [facts or created[subscription] for subscription, facts in found.items()]

    def seek(self, to: datetime) -> None:
        """Moves every subscription to a time.

        Raises:
            StartupCheckError: some could not be sought; others may have been.
        """
        _for_each(self._spec.subscriptions, lambda subscription: self._seek(subscription, to))

    def _find(self, subscription: SubscriptionDestination) -> SubscriptionFacts | None:
        """What the rules accept; None for what is to be created."""
        try:
            described = self._admin.get_subscription(subscription.resource_path)
        except grpc.RpcError as error:
            status = status_of(error)
            if status.code is grpc.StatusCode.NOT_FOUND and subscription in self._spec.create_options:
                return None
            raise _rejected(status, startup.not_described(subscription, _refused(status))) from None
        return self._judged(described)

    def _create(self, subscription: SubscriptionDestination) -> SubscriptionFacts:
        options = self._spec.create_options[subscription]
        try:
            created = self._admin.create_subscription(settings_of(subscription, options))
        except grpc.RpcError as error:
            status = status_of(error)
            # By another job, or by an attempt of this one whose answer was lost.
            existing = self._find(subscription) if status.code is grpc.StatusCode.ALREADY_EXISTS else None
            if existing is None:
                raise _rejected(status, startup.not_created(subscription, options, _refused(status))) from None
            return existing
        _log.info("created subscription %s on topic %s", created.name, created.topic)
        return self._judged(created)

    def _judged(self, described: wire.Subscription) -> SubscriptionFacts:
        facts = facts_of(described)
        rejections = startup.rejections(facts, self._spec.ordering_mode, self._spec.deserialization_failure_policy)
        if rejections:
            raise _RejectedError(*rejections)
        return facts

    def _seek(self, subscription: SubscriptionDestination, to: datetime) -> None:
        try:
            self._admin.seek(subscription.resource_path, to)
        except grpc.RpcError as error:
            status = status_of(error)
            problem = startup.not_sought(subscription, self._spec.start_position, _refused(status))
            raise _rejected(status, problem) from None


def _for_each(
    subscriptions: Sequence[SubscriptionDestination], call: Callable[[SubscriptionDestination], T]
) -> dict[SubscriptionDestination, T]:
    """The results of a call for every subscription, several at a time.

    Raises:
        StartupCheckError: calls were rejected; it has the rejections of all, unless one made the others pointless.
    """
    results: dict[SubscriptionDestination, T] = {}
    rejections: list[str] = []
    pool = ThreadPoolExecutor(_AT_A_TIME, "startup-check")
    try:
        for subscription, future in [(each, pool.submit(call, each)) for each in subscriptions]:
            try:
                results[subscription] = future.result()
            except _RejectedError as rejected:
                rejections += rejected.rejections
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    if rejections:
        raise StartupCheckError(*rejections)
    return results


def _rejected(status: Status, problem: str) -> Exception:
    """A rejection among others, or the end of the check where the others would only say the same."""
    if status.retryable(Purpose.ADMIN) or status.code is grpc.StatusCode.UNAUTHENTICATED:
        return StartupCheckError(problem)
    return _RejectedError(problem)


def _refused(status: Status) -> Refused:
    return Refused(status.code.name, status.details)


def facts_of(described: wire.Subscription) -> SubscriptionFacts:
    """What the rules need of a subscription's description."""
    return SubscriptionFacts(
        path=described.name,
        topic=described.topic,
        ordered=described.enable_message_ordering,
        exactly_once=described.enable_exactly_once_delivery,
        detached=described.detached,
        pushed=bool(described.push_config.push_endpoint),
        dead_letters=bool(described.dead_letter_policy.dead_letter_topic),
        retains_acked=described.retain_acked_messages,
        topic_retains=described.HasField("topic_message_retention_duration"),
        filtered=bool(described.filter),
    )


def settings_of(subscription: SubscriptionDestination, options: SubscriptionCreateOptions) -> wire.Subscription:
    """The request that creates a subscription; what the options leave open is left to the service."""
    settings = wire.Subscription(
        name=subscription.resource_path,
        topic=options.topic.resource_path,
        enable_message_ordering=options.enable_message_ordering,
        retain_acked_messages=options.retain_acked_messages,
        filter=options.filter or "",
    )
    if options.ack_deadline is not None:
        settings.ack_deadline_seconds = int(options.ack_deadline.total_seconds())
    if options.message_retention is not None:
        settings.message_retention_duration.FromTimedelta(options.message_retention)
    if options.never_expire:
        settings.expiration_policy.SetInParent()  # a policy without a time
    elif options.expiration_ttl is not None:
        settings.expiration_policy.ttl.FromTimedelta(options.expiration_ttl)
    if options.dead_letter_policy is not None:
        settings.dead_letter_policy.dead_letter_topic = options.dead_letter_policy.topic.resource_path
        settings.dead_letter_policy.max_delivery_attempts = options.dead_letter_policy.max_delivery_attempts
    return settings
