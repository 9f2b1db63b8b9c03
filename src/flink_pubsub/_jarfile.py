"""Finds the jar that ships inside the package, and says which build it is of.

`tools/build_jar.py` writes both files of `_jar`: the jar, and `build.json` with the version, the protocol and the digest of
its sources. The same facts are inside the jar; the two sides compare them when a worker starts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parent / "_jar"


@dataclass(frozen=True, slots=True)
class BuildInfo:
    """One build of the package's two halves."""

    version: str
    digest: str
    """SHA-256 over the Java sources and the Python side of the bridge."""
    protocol: int


def jar() -> str:
    """URL of the connector's jar, for `env.add_jars(jar())`.

    Raises:
        PubSubConnectorError: the package has no jar, because it is a clone whose jar was not built or a broken installation.
    """
    return jar_path().as_uri()


def jar_path() -> Path:
    """Where the jar is on this machine. Raises as `jar` does."""
    path = _FOLDER / f"flink-pubsub-{build_info().version}.jar"
    if not path.is_file():
        raise _missing(path)
    return path


def build_info() -> BuildInfo:
    """Version, digest and protocol of the packaged jar. Raises as `jar` does."""
    path = _FOLDER / "build.json"
    try:
        return BuildInfo(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        raise _missing(path) from None


def _missing(path: Path) -> Exception:
    # Imported here: a worker reads `build_info` before it imports anything else.
    from flink_pubsub.errors import PubSubConnectorError

    return PubSubConnectorError(
        f"the installed flink-pubsub lacks {path}. In a clone, build it with `make jar`; "
        "else reinstall: python -m pip install --force-reinstall flink-pubsub"
    )
