"""Whether the sink creates a topic that is missing, and how.

Creation only: a topic that exists keeps its own settings, and these are neither applied to it nor compared with it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from flink_pubsub import _checks
from flink_pubsub.options import Option

_KMS_KEY = re.compile(r"projects/[^/\s]+/locations/[^/\s]+/keyRings/[^/\s]+/cryptoKeys/[^/\s]+")


class CreateDisposition(Enum):
    """What the sink does about a topic that does not exist. The value is the one SQL uses."""

    CREATE_IF_NEEDED = "create-if-needed"
    """Creates it when a publish finds it missing; nothing is asked for topics that exist."""
    CREATE_NEVER = "create-never"
    """Fails the job, for pipelines where a missing topic is a mistake in the routing."""


def _regions(option: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        _checks.refuse(option, "must be a sequence of region names, such as ['europe-west1']", value)
    if not value:
        _checks.refuse(option, "must name at least one region; leave it out to allow all", value)
    for region in value:
        if not isinstance(region, str) or not region or region != region.strip():
            _checks.refuse(option, "must hold names of regions, such as 'europe-west1', without spaces around them", value)
    if len(set(value)) != len(value):
        _checks.refuse(option, "must name each region once", value)
    return tuple(value)


def _kms_key(option: str, value: object) -> str:
    if not isinstance(value, str) or not _KMS_KEY.fullmatch(value):
        _checks.refuse(option, "must be a key's name, projects/P/locations/L/keyRings/R/cryptoKeys/K", value)
    return value


@dataclass(frozen=True, kw_only=True)
class TopicCreateOptions:
    """Settings of the topics that the sink creates, the same for each. Immutable; equal by value.

    What is not set is left to the service.

    Raises:
        ConfigurationError: a value has the wrong type or is outside what the service accepts, or two contradict each other.
    """

    message_retention: Option[timedelta | None] = Option(
        None, _checks.duration(timedelta(minutes=10), timedelta(days=31)), "sink.auto-create.message-retention"
    )
    """How long the topic itself keeps messages, acknowledged or not, 10 minutes to 31 days: what lets a subscription that is
    created later, or a seek backwards, reach messages published before. Default: not at all."""

    kms_key_name: Option[str | None] = Option(None, _kms_key, "sink.auto-create.kms-key-name")
    """Full name of the Cloud KMS key that encrypts the messages. It must exist, and Pub/Sub's own service account must be
    allowed to use it. Default: keys of Google's."""

    allowed_persistence_regions: Option[Sequence[str] | None] = Option(
        None, _regions, "sink.auto-create.storage-policy.allowed-regions"
    )
    """The only regions where messages may be stored. Default: what the organization allows."""

    enforce_in_transit: Option[bool] = Option(False, _checks.flag, "sink.auto-create.storage-policy.enforce-in-transit")
    """Whether publishes from outside those regions are refused as well. Needs the regions. Default False."""

    def __post_init__(self) -> None:
        if self.enforce_in_transit and self.allowed_persistence_regions is None:
            problem = "needs allowed_persistence_regions, which are what it enforces"
            _checks.refuse("enforce_in_transit", problem, self.enforce_in_transit)
