"""Set-up and the checks of tracked files: what they prefer, refuse and say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tools import check_files, javahome, setup


def fake_java(folder: Path, version: str) -> Path:
    """A home whose `java` claims a version."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"#!/bin/sh\necho '    java.home = {folder}' >&2\necho '    java.specification.version = {version}' >&2\n",
        encoding="utf-8",
    )
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize(("version", "fits"), [("1.8", False), ("11", True), ("17", True), ("21", True), ("26", False)])
def test_a_java_counts_only_when_flink_runs_on_it(
    version: str, fits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fake_java(tmp_path / "jdk", version)
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert javahome.installed() == (home if fits else None)


def test_java_home_is_preferred_to_path_unless_it_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new, newer = (fake_java(tmp_path / name, name) for name in ("8", "11", "17"))
    monkeypatch.setenv("PATH", os.pathsep.join((str(newer / "bin"), os.defpath)))
    monkeypatch.setenv("JAVA_HOME", str(new))
    assert javahome.installed() == new
    monkeypatch.setenv("JAVA_HOME", str(old))
    assert javahome.installed() == newer


def test_a_python_without_venv_is_named_with_its_mend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "_succeeds", lambda *_: False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(setup.SetupError, match=r"sudo apt-get install -y python3\.\d+-venv"):
        setup.Environment(tmp_path / "venv").create()


def test_an_environment_that_works_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "venv" / "kept"
    kept.parent.mkdir()
    kept.touch()
    monkeypatch.setattr(setup, "_succeeds", lambda *_: True)
    setup.Environment(tmp_path / "venv").create()
    assert kept.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"open('/" + b"home/somebody/file')",
        b"index = https://files.python" + b"hosted.org/simple",
        b"<<<<<<" + b"< HEAD\n",
        b"\xca\xfe\xba\xbe",
        b"text\0",
        b"x" * (check_files.LARGEST + 1),
    ],
)
def test_a_file_that_only_works_where_it_was_written_is_a_defect(content: bytes) -> None:
    assert len(check_files.defects("file", content)) == 1


@pytest.mark.parametrize("content", [b"taskmanager.env: /opt/flink/usrlib", b"projects/work/topics/home", b"src/work/x.py"])
def test_other_paths_are_none(content: bytes) -> None:
    assert check_files.defects("file", content) == []


def test_every_lock_is_pinned_by_hash_and_names_no_index() -> None:
    for lock in setup.LOCKS.glob("*.txt"):
        lines = lock.read_text(encoding="utf-8").splitlines()
        assert lines
        assert [line for line in lines if not line.startswith("    --hash=sha256:") and "==" not in line] == []
