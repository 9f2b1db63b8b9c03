"""A listener for Flink's lineage, compiled where there is a Java compiler: listeners can be written in Java only."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from tools import build_jar

_SOURCE = Path(__file__).with_name("LineageListener.java")


def compile_java(source: Path, classes: Path) -> None:
    """Compiles one file against Flink. Skips the test on a machine without a Java compiler."""
    try:
        javac = build_jar.compiler()
    except build_jar.BuildError:
        pytest.skip("a lineage listener has to be compiled, and there is no javac on this machine")
    classpath = ":".join(map(str, build_jar.flink_jars()))
    command = [
        javac,
        "--release",
        "11",
        "-Xlint:all,-processing,-path",
        "-Werror",
        "-cp",
        classpath,
        "-d",
        str(classes),
        str(source),
    ]
    subprocess.run(command, check=True, timeout=60)


def listener_jar(folder: Path) -> Path:
    """The jar with `tests.LineageListener`, made in the folder."""
    jar, classes = folder / "listener.jar", folder / "classes"
    compile_java(_SOURCE, classes)
    with zipfile.ZipFile(jar, "w") as archive:
        for path in classes.rglob("*.class"):
            archive.write(path, path.relative_to(classes).as_posix())
    return jar


def listening(lineage: Path) -> dict[str, str]:
    """Flink's settings that make the listener write the lineage of the next job to this file."""
    return {"execution.job-status-changed-listeners": "tests.LineageListener", "tests.lineage.file": str(lineage)}
