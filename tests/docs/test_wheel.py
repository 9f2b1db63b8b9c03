"""The wheel, installed alone beside apache-flink in a clean environment, is all that the README's example needs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, readme_example
from tools import build_jar, javahome

pytestmark = [pytest.mark.feature("DEP-01"), pytest.mark.timeout(600)]


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """The standard output of a command that has to succeed, with the environment it belongs to active."""
    # Nothing of this checkout may be on the path of the clean environment.
    active = javahome.environment(Path(command[0])).items()
    env = {name: value for name, value in active if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    env["UV_PYTHON_DOWNLOADS"] = "never"
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    build_jar.build()
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out)
    [built] = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def clean_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel and what it asks for, and nothing else."""
    environment = tmp_path_factory.mktemp("clean") / "venv"
    uv = Path(sys.executable).with_name("uv")
    run(uv, "venv", "--quiet", "--python", sys.executable, environment)
    python = environment / "bin" / "python"
    # The lock's versions, so that a release of somebody else's cannot break this test.
    pins = environment / "pins.txt"
    lock = (ROOT / "requirements" / "run.txt").read_text(encoding="utf-8")
    pins.write_text("\n".join(re.findall(r"^\S+==[^\\\n]+", lock, re.MULTILINE)), encoding="utf-8")
    run(uv, "pip", "install", "--quiet", "--python", python, "--constraints", pins, f"flink-pubsub[flink] @ {wheel.as_uri()}")
    return python


def test_the_wheel_holds_the_jar_and_nothing_but_the_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        [metadata] = [name for name in names if name.endswith(".dist-info/METADATA")]
        version = message_from_bytes(archive.read(metadata))["Version"]
    assert f"flink_pubsub/_jar/flink-pubsub-{version}.jar" in names
    assert "flink_pubsub/_jar/build.json" in names
    assert "flink_pubsub/py.typed" in names
    assert f"flink_pubsub-{version}.dist-info/licenses/LICENSE" in names
    assert {name.split("/")[0] for name in names} == {"flink_pubsub", f"flink_pubsub-{version}.dist-info"}
    assert [name for name in names if "__pycache__" in name or name.endswith(".java")] == []


def test_a_wheel_is_not_built_without_an_up_to_date_jar(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    for folder in ("tools", "java", "src"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("_jar", "__pycache__"))
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "make wheel" in done.stderr
    assert not list((tmp_path / "dist").glob("*.whl"))


def test_the_command_is_installed(clean_python: Path) -> None:
    assert "emulator" in run(clean_python.with_name("flink-pubsub"), "--help")


def test_the_readme_example_prints_what_the_readme_says(clean_python: Path, tmp_path: Path) -> None:
    program, output = readme_example()
    (tmp_path / "example.py").write_text(program.text, encoding="utf-8")
    shown = run(clean_python, "example.py", cwd=tmp_path)
    # Nothing promises the order of messages without an ordering key.
    assert sorted(shown.splitlines()) == sorted(output.text.splitlines())
    where = run(clean_python, "-c", "import flink_pubsub; print(flink_pubsub.__file__)", cwd=tmp_path)
    assert not Path(where.strip()).is_relative_to(ROOT)
