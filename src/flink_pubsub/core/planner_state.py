"""What a source remembers across restarts: whether its start position was sought, in a form that later versions can read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flink_pubsub.errors import PubSubConnectorError

VERSION = 1
"""Raised when the meaning of a field changes. Readers of a version know all earlier ones."""


@dataclass(frozen=True, slots=True)
class PlannerState:
    """The enumerator's part of a checkpoint, a JSON object there. No state at all means that nothing was planned yet."""

    seek_done: bool = False
    """Whether the first startup check is over, and with it the only time to seek."""
    subscriptions: tuple[str, ...] = ()
    """Resource paths that were read when the state was made."""

    @classmethod
    def restore(cls, state: object) -> PlannerState:
        """The state in a checkpoint, None for none.

        Raises:
            PubSubConnectorError: it was made by a later version of this package, or by something else.
        """
        if state is None:
            return cls()
        if isinstance(state, dict):
            version, done, paths = state.get("version"), state.get("seek_done"), state.get("subscriptions", [])
            if isinstance(version, int) and version > VERSION:
                raise PubSubConnectorError(
                    f"the checkpoint's state of the source has version {version}, and this flink-pubsub knows versions up to"
                    f" {VERSION}: restore it with the version of flink-pubsub that wrote it, or a later one"
                )
            if version == VERSION and isinstance(done, bool) and isinstance(paths, list):
                return cls(done, tuple(str(path) for path in paths))
        raise PubSubConnectorError(
            f"the checkpoint's state of the source was not written by flink-pubsub: {str(state)[:100]!r}. Restore it into the"
            " job that wrote it, or give the source another uid"
        )

    def as_json(self) -> dict[str, object]:
        """The state as it is stored."""
        return {"version": VERSION, "seek_done": self.seek_done, "subscriptions": list(self.subscriptions)}

    def added(self, subscriptions: Sequence[str]) -> list[str]:
        """Those that were not read when the state was made; none if that is not known."""
        known = set(self.subscriptions)
        return [path for path in subscriptions if known and path not in known]
