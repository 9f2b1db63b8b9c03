"""Finds the source's worker among this process's descendants."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_READER = "-m flink_pubsub.bridge reader"
"""How the command line of a source's worker ends: the bridge's module and the role."""


def source_workers() -> list[int]:
    """Process ids of the readers that this process's JVM has started."""
    processes = _processes()
    readers = [pid for pid, (_, command) in processes.items() if command.endswith(_READER)]
    return [pid for pid in readers if _descends(pid, os.getpid(), processes)]


def _descends(pid: int, ancestor: int, processes: dict[int, tuple[int, str]]) -> bool:
    while pid in processes:
        pid = processes[pid][0]
        if pid == ancestor:
            return True
    return False


def _processes() -> dict[int, tuple[int, str]]:
    """Parent and command line of every process."""
    # Slim Linux images have no ps, other systems have no /proc.
    if Path("/proc/self/stat").exists():
        return dict(filter(None, map(_from_proc, Path("/proc").glob("[0-9]*"))))
    listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listing.splitlines()]
    return {int(row[0]): (int(row[1]), row[2].strip()) for row in rows if len(row) == 3}


def _from_proc(folder: Path) -> tuple[int, tuple[int, str]] | None:
    try:
        # The name in parentheses may hold anything; the parent is the second field after it.
        parent = int((folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
        command = (folder / "cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
    except (OSError, IndexError):
        return None
    return int(folder.name), (parent, command)
