"""Builds the jar with the Java half of the connector: `python tools/build_jar.py [--force]`.

Plain `javac` against the jars inside the installed PyFlink package; no build tool, no download. The jar is reproducible:
the same sources and the same compiler give the same bytes. The invariant: the digest in the jar, the one in `build.json`
next to it, and the sources agree, or the jar is built anew. The Java side and the worker compare these digests when they
meet, so that halves of different builds never talk to each other.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "src" / "flink_pubsub" / "_jar"

_RELEASE = "11"
"""Oldest Java that Flink 2 runs on."""
_OPTIONS = "META-INF/flink-pubsub-options.json"
"""Where the jar has the options of tables, which are declared in Python."""
_LINT = "-Xlint:all,-classfile,-path,-processing,-options,-try"
"""Everything but complaints about Flink's own jars, about `--release` itself, and about `close` methods that may be
interrupted, as Flink's may."""
_NO_TIME = (1980, 1, 1, 0, 0, 0)
"""Timestamp of every jar entry: the earliest a zip can hold."""


class BuildError(Exception):
    """The jar cannot be built; the message names the mend."""


@dataclass(frozen=True)
class BuildInfo:
    """What `build.json` holds: enough to tell one build from another."""

    version: str
    digest: str
    protocol: int


def build(output: Path = OUTPUT, *, force: bool = False) -> Path:
    """Path of the jar in `output`, built when it is missing or its sources have changed since, or when `force` is set.

    Raises:
        BuildError: there is no compiler, no PyFlink, or the sources do not compile.
    """
    info = source_info()
    jar = output / f"flink-pubsub-{info.version}.jar"
    record = output / "build.json"
    if not force and jar.exists() and _recorded(record) == asdict(info):
        return jar
    javac, classpath = compiler(), flink_jars()
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=output) as scratch:
        classes = Path(scratch) / "classes"
        _compile(javac, classpath, classes, Path(scratch) / "arguments")
        packed = Path(scratch) / jar.name
        _pack(packed, classes, info)
        # A running JVM may have the old jar open: replace the name, never the content.
        os.replace(packed, jar)
        written = Path(scratch) / record.name
        written.write_text(json.dumps(asdict(info)) + "\n", encoding="utf-8")
        os.replace(written, record)
    for other in output.glob("flink-pubsub-*.jar"):
        if other != jar:
            other.unlink(missing_ok=True)
    return jar


def source_info() -> BuildInfo:
    """What a build of the sources as they are now would record."""
    digest = hashlib.sha256()
    sources = (
        *_files("java/src/main", "**/*"),
        *_files("src/flink_pubsub/bridge", "*.py"),
        *_files("src/flink_pubsub", "*options.py"),
    )
    for path in sources:
        content = path.read_bytes()
        digest.update(f"{path.relative_to(ROOT).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return BuildInfo(
        version=_find("pyproject.toml", r'^version = "([^"]+)"$'),
        digest=digest.hexdigest(),
        protocol=int(_find("src/flink_pubsub/bridge/frames.py", r"^PROTOCOL_VERSION = (\d+)$")),
    )


def _files(folder: str, pattern: str) -> list[Path]:
    return sorted((path for path in (ROOT / folder).glob(pattern) if path.is_file()), key=lambda path: path.as_posix())


def _find(file: str, pattern: str) -> str:
    match = re.search(pattern, (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    if match is None:
        raise BuildError(f"{file} has no line like {pattern}")
    return match.group(1)


def _recorded(record: Path) -> object:
    try:
        return json.loads(record.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def compiler() -> str:
    """The Java compiler of JAVA_HOME, else of PATH.

    Raises:
        BuildError: there is none; the message names the mend.
    """
    home = os.environ.get("JAVA_HOME")
    found = (home and shutil.which(os.path.join(home, "bin", "javac"))) or shutil.which("javac")
    if not found:
        raise BuildError(
            "the jar has to be built, and neither JAVA_HOME nor PATH has a Java compiler (javac).\n"
            "On Debian or Ubuntu this mends it: sudo apt-get install --no-install-recommends -y default-jdk-headless"
        )
    return found


def flink_jars() -> list[Path]:
    """The Flink to compile against.

    Raises:
        BuildError: there is no PyFlink; the message names the mend.
    """
    pyflink = importlib.util.find_spec("pyflink")
    folders = pyflink.submodule_search_locations if pyflink else None
    jars = sorted(Path(folders[0], "lib").glob("*.jar")) if folders else []
    if not jars:
        raise BuildError(
            f"the jar is compiled against the Flink inside PyFlink, and {sys.executable} has no PyFlink.\n"
            "This mends it: python -m pip install 'flink-pubsub[flink]' (in a clone: make setup)"
        )
    return jars


def _compile(javac: str, classpath: list[Path], classes: Path, arguments: Path) -> None:
    classes.mkdir()
    lines = [
        *("--release", _RELEASE, "-encoding", "UTF-8", "-g", "-parameters", "-proc:none", _LINT, "-Werror"),
        *("-d", classes, "-classpath", os.pathsep.join(map(str, classpath))),
        *_files("java/src/main/java", "**/*.java"),
    ]
    arguments.write_text("".join(f'"{_escape(str(line))}"\n' for line in lines), encoding="utf-8")
    done = subprocess.run([javac, f"@{arguments}"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{javac} exited with {done.returncode}:\n{(done.stderr or done.stdout).strip()}")


def _escape(argument: str) -> str:
    return argument.replace("\\", "\\\\").replace('"', '\\"')


def _pack(jar: Path, classes: Path, info: BuildInfo) -> None:
    resources = ROOT / "java" / "src" / "main" / "resources"
    entries = {
        path.relative_to(base).as_posix(): path.read_bytes()
        for base in (classes, resources)
        for path in base.glob("**/*")
        if path.is_file()
    }
    entries[_OPTIONS] = _table_options()
    entries["META-INF/MANIFEST.MF"] = b"Manifest-Version: 1.0\r\n\r\n"
    entries["META-INF/flink-pubsub.properties"] = "".join(f"{name}={value}\n" for name, value in asdict(info).items()).encode()
    # Readers of jars as streams expect the manifest first.
    names = sorted(entries, key=lambda name: (name != "META-INF/MANIFEST.MF", name))
    with zipfile.ZipFile(jar, "w") as archive:
        for name in names:
            entry = zipfile.ZipInfo(name, _NO_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, entries[name])


def _table_options() -> bytes:
    """The options of tables that the factory in the JVM has to declare, as JSON."""
    source = str(ROOT / "src")
    if source not in sys.path:
        sys.path.insert(0, source)
    from flink_pubsub.table_options import OPTIONS

    declared = [
        {"key": option.key, "kind": option.kind, "direction": option.direction} for option in OPTIONS if not option.of_flink
    ]
    return json.dumps(declared, indent=1).encode()


def main() -> int:
    """Builds the jar if need be and prints its path. Exit status 1 when that fails."""
    parser = argparse.ArgumentParser(description="Builds the jar with the Java half of the connector.")
    parser.add_argument("--force", action="store_true", help="build even when the jar is up to date")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder of the jar (default: %(default)s)")
    options = parser.parse_args()
    try:
        print(build(options.output, force=options.force))
    except BuildError as error:
        print(f"build_jar: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
