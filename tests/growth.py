"""For tests that open and close something many times: what this process, or another, holds of the machine."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from pathlib import Path

import psutil


@dataclass(frozen=True)
class Footprint:
    """What leaks would show in. Descendants' own threads and descriptors are counted with the process."""

    threads: int
    processes: int
    descriptors: int
    files: int

    def exceeds(self, other: Footprint) -> bool:
        """Whether there is more of anything here than there."""
        return any(
            mine > theirs
            for mine, theirs in (
                (self.threads, other.threads),
                (self.processes, other.processes),
                (self.descriptors, other.descriptors),
                (self.files, other.files),
            )
        )


def footprint(process: psutil.Process | None = None, *folders: Path) -> Footprint:
    """What a process (default: this one) and its descendants hold now, and how many files are below the folders."""
    top = process or psutil.Process()
    threads = processes = descriptors = 0
    for each in (top, *top.children(recursive=True)):
        try:
            with each.oneshot():
                threads, processes, descriptors = threads + each.num_threads(), processes + 1, descriptors + each.num_fds()
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
    return Footprint(
        threads, processes, descriptors, sum(1 for folder in folders for path in folder.rglob("*") if path.is_file())
    )


GRPC_THREADS = 3
"""By how many the threads of gRPC's own pool may differ from one moment to another."""


def assert_settles_to(
    before: Footprint, process: psutil.Process | None = None, *folders: Path, seconds: float = 20, threads: int = 0
) -> None:
    """Fails unless the footprint comes down to what it was; ends of threads and processes are seen a little late.

    So many more `threads` are no growth; what is done many times by the test would leave many more.
    """
    before = replace(before, threads=before.threads + threads)
    pause = threading.Event()
    for _ in range(int(seconds / 0.05)):
        if not footprint(process, *folders).exceeds(before):
            return
        pause.wait(0.05)
    raise AssertionError(
        f"after {seconds} s there is still more than at first: {footprint(process, *folders)}, before {before}"
    )
