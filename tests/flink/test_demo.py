"""The demo as users run it, with a few thousand flights."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

_FLIGHTS = 3000


@pytest.mark.timeout(240)
@pytest.mark.feature("BEY-13")
@pytest.mark.feature("SNK-01")
@pytest.mark.feature("SRC-15")
def test_the_demo_loses_nothing_when_the_sources_worker_is_killed_half_way() -> None:
    command = [sys.executable, "-m", "flink_pubsub.cli", "demo", "--flights", str(_FLIGHTS)]

    done = subprocess.run(command, capture_output=True, text=True, timeout=230, check=False)

    lines = done.stdout.splitlines()
    assert lines, done.stderr
    expected = rf"RESULT published={_FLIGHTS} consumed={_FLIGHTS} lost=0 duplicates=\d+ results=\d+ mismatches=0"
    assert re.fullmatch(expected, lines[-1]), f"{done.stdout}\n{done.stderr}"
    assert done.returncode == 0
    assert re.search(r"half way .*SIGKILL to the source's worker", done.stdout)
    assert "Flink restarted the job" in done.stdout
