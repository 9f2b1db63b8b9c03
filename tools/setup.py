"""Makes everything a make target needs: `python -m tools.setup run|dev [--flink] [--venv DIR]`.

In this order: the virtual environment, the locked packages (`run` for the demo, `dev` for all else) with their hashes, the
project itself in editable form and, with `--flink`, the jar and a Java to run it on. Every step looks first and does
nothing when its result is there, so running it again takes a moment. Standard library only: it runs before anything is
installed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tools import javahome

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "requirements"
DOWNLOADS = {"run": 450, "dev": 500, "java": 100}
JDK = "default-jdk-headless"
"""Debian's package with a compiler and no desktop."""


class SetupError(Exception):
    """Set-up cannot go on; the message names the mend."""


def say(text: str) -> None:
    """One line of progress."""
    print(f"[setup] {text}", flush=True)


class Environment:
    """The virtual environment, with a record in it of what has been installed from which lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"
        self._record = folder / "setup.json"

    def create(self) -> None:
        """Makes the environment unless there is one that works."""
        if _succeeds([self.python, "-c", "import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 13))"]):
            return
        if self.folder.exists():
            say(f"{self.folder.name} does not work any more: making it anew")
            shutil.rmtree(self.folder)
        say(f"making {self.folder.name} with Python {'.'.join(map(str, sys.version_info[:3]))}")
        if _succeeds([sys.executable, "-m", "venv", self.folder]):
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
        if shutil.which("uv"):
            _run(["uv", "venv", "--quiet", "--python", sys.executable, self.folder])
        elif _apt_install(package, "this Python has no venv module"):
            _run([sys.executable, "-m", "venv", self.folder])
        else:
            raise SetupError(f"this Python has no venv module. On Debian or Ubuntu: sudo apt-get install -y {package}")

    def install_lock(self, name: str) -> None:
        """Installs a lock of `requirements/`, each package held to its hash."""
        lock = LOCKS / f"{name}.txt"
        digest = _digest(lock)
        if self._installed().get(name) == digest:
            return
        say(f"installing the locked packages of {lock.relative_to(ROOT)} (up to {DOWNLOADS[name]} MB to download)")
        # Some packages exist as source only: what builds them is held to the lock as well.
        self._uv("install", "--require-hashes", "--build-constraints", LOCKS / "run.txt", "--requirements", lock)
        self._note(name, digest)
        if name == "dev":
            self._note("run", _digest(LOCKS / "run.txt"))

    def install_project(self) -> None:
        """Installs this checkout in editable form, with its command."""
        digest = _digest(ROOT / "pyproject.toml")
        if self._installed().get("project") == [digest, str(ROOT)]:
            return
        say("installing the project itself")
        self._uv("install", "--no-deps", "--no-build-isolation", "--editable", ROOT)
        self._note("project", [digest, str(ROOT)])

    def _uv(self, command: str, *arguments: str | Path) -> None:
        own = self.folder / "bin" / "uv"
        if not own.exists() and not shutil.which("uv"):
            self._bootstrap_uv()
        uv = own if own.exists() else "uv"
        _run([uv, "pip", command, "--quiet", "--python", self.python, *arguments])

    def _bootstrap_uv(self) -> None:
        block = re.search(r"^uv==.*\n(?: .*\n)*", (LOCKS / "run.txt").read_text(encoding="utf-8"), re.MULTILINE)
        if block is None:
            raise SetupError("requirements/run.txt does not pin uv")
        with tempfile.TemporaryDirectory() as scratch:
            only_uv = Path(scratch, "uv.txt")
            only_uv.write_text(block[0], encoding="utf-8")
            options = ["--quiet", "--disable-pip-version-check", "--no-input", "--no-deps", "--require-hashes"]
            _run([self.python, "-m", "pip", "install", *options, "-r", only_uv])

    def _installed(self) -> dict[str, object]:
        try:
            found = json.loads(self._record.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _note(self, name: str, value: object) -> None:
        self._record.write_text(json.dumps({**self._installed(), name: value}), encoding="utf-8")


def build_jar(environment: Environment) -> None:
    """Builds the jar unless it is up to date, installing a compiler first where that is allowed."""
    command = [str(environment.python), str(ROOT / "tools" / "build_jar.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and not shutil.which("javac") and _apt_install(JDK, "the jar has to be built, and there is no javac"):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SetupError(done.stderr.strip() or f"{' '.join(command)} exited with {done.returncode}")


def provide_java(environment: Environment) -> None:
    """Installs a Java runtime into the environment when the machine has none that Flink runs on."""
    if javahome.installed() is None:
        environment.install_lock("java")


def _apt_install(package: str, reason: str) -> bool:
    """Installs a Debian package if this user may, and says whether it is there now."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return False
    say(f"{reason}: installing Debian's {package}")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", package]
    return _succeeds(["apt-get", "update", "-qq"], env) and _succeeds(install, env)


def _succeeds(command: Sequence[str | Path], env: dict[str, str] | None = None) -> bool:
    try:
        return subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, env=env, check=False).returncode == 0
    except OSError:
        return False


def _run(command: Sequence[str | Path]) -> None:
    # uv must take the Python it is told, and never fetch one of its own.
    env = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    done = subprocess.run(command, stdin=subprocess.DEVNULL, env=env, check=False)
    if done.returncode:
        raise SetupError(f"{' '.join(map(str, command))} exited with {done.returncode}")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> int:
    """Sets up what the arguments ask for. Exit status 1 when that fails."""
    parser = argparse.ArgumentParser(description="Makes what a make target needs.")
    parser.add_argument("lock", choices=("run", "dev"), help="which packages: the demo's, or everything")
    parser.add_argument("--flink", action="store_true", help="also the jar and a Java to run it on")
    parser.add_argument("--venv", type=Path, default=Path(".venv"), help="the virtual environment (default: %(default)s)")
    options = parser.parse_args()
    started = time.monotonic()
    environment = Environment(ROOT / options.venv)
    try:
        environment.create()
        environment.install_lock(options.lock)
        environment.install_project()
        if options.flink:
            build_jar(environment)
            provide_java(environment)
    except SetupError as error:
        print(f"[setup] failed: {error}", file=sys.stderr)
        return 1
    if (seconds := time.monotonic() - started) > 2:
        say(f"done in {seconds:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
