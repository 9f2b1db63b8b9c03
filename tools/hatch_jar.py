"""Keeps wheels without an up-to-date jar from being built."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


class JarHook(BuildHookInterface[Any]):  # type: ignore[misc, unused-ignore]
    """Compares the jar's record with the sources before a wheel is packed. Editable installs need no jar yet."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it packs.

        Raises:
            RuntimeError: the jar is absent, or older than its sources.
        """
        if version == "editable":
            return
        from tools import build_jar

        info = asdict(build_jar.source_info())
        jar = build_jar.OUTPUT / f"flink-pubsub-{info['version']}.jar"
        try:
            record = json.loads((build_jar.OUTPUT / "build.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            record = None
        if not jar.exists() or record != info:
            state = "older than its sources" if jar.exists() else "missing"
            raise RuntimeError(f"{jar.name} is {state}; `make wheel` builds the jar, then the wheel")
