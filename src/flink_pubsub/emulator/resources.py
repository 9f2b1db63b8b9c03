"""What the calls on every kind of resource share: pages of names, and changes by field mask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from google.protobuf.field_mask_pb2 import FieldMask

from flink_pubsub.emulator.errors import invalid
from flink_pubsub.wire import pubsub_pb2 as wire

DEFAULT_PAGE = 100
MAX_PAGE = 1000

Settings = TypeVar("Settings", wire.Topic, wire.Subscription, wire.Snapshot)


class PageRequest(Protocol):
    """The part of a list request that asks for a page."""

    @property
    def page_size(self) -> int: ...
    @property
    def page_token(self) -> str: ...


def in_project(names: Iterable[str], project: str) -> list[str]:
    """The names that are of the project, itself named as `projects/p`."""
    if not project.startswith("projects/") or project.count("/") != 1 or project.endswith("/"):
        raise invalid(f"Invalid resource name given (name={project}).")
    return [name for name in names if name.startswith(project + "/")]


def page(names: Iterable[str], request: PageRequest) -> tuple[Sequence[str], str]:
    """One page of the names in order; the token is the last name of the page before."""
    if request.page_size < 0:
        raise invalid(f"Invalid page_size given ({request.page_size}).")
    size = min(request.page_size or DEFAULT_PAGE, MAX_PAGE)
    rest = sorted(name for name in names if name > request.page_token)
    return rest[:size], rest[size - 1] if len(rest) > size else ""


def updated(
    current: Settings, changes: Settings, mask: FieldMask, mutable: frozenset[str], check: Callable[[Settings], None]
) -> Settings:
    """A copy of `current` with the fields of `mask` taken from `changes`, checked."""
    if not mask.paths:
        raise invalid("The update_mask of the request must be set, and must contain a non-empty paths list.")
    result = type(current)()
    result.CopyFrom(current)
    for path in mask.paths:
        if path.split(".", 1)[0] not in mutable:
            raise invalid(f"Invalid update_mask provided in the request: {path!r} is not a known and mutable field.")
    try:
        mask.MergeMessage(changes, result, replace_message_field=True, replace_repeated_field=True)
    except (KeyError, ValueError):
        raise invalid(f"Invalid update_mask provided in the request: {list(mask.paths)} names no field.") from None
    check(result)
    return result
