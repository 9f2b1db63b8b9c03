"""The jar: reproducible, cheap to ask for, of the same build as the package, and found or missed with a clear word."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import flink_pubsub
from flink_pubsub import _jarfile, cli
from flink_pubsub.bridge.frames import PROTOCOL_VERSION
from tools import build_jar


@pytest.fixture(scope="module")
def compiler() -> str:
    """Path of `javac`."""
    try:
        return build_jar.compiler()
    except build_jar.BuildError:
        pytest.skip("building the jar needs a Java compiler, and there is no javac on this machine")


@pytest.fixture(scope="module")
def built(compiler: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_jar.build(tmp_path_factory.mktemp("jar"))


def test_two_builds_are_byte_identical(built: Path, tmp_path: Path) -> None:
    again = build_jar.build(tmp_path / "elsewhere")
    assert again != built
    assert again.read_bytes() == built.read_bytes()


def test_the_jar_says_what_it_is_of(built: Path) -> None:
    info = build_jar.source_info()
    with zipfile.ZipFile(built) as archive:
        names = archive.namelist()
        properties = archive.read("META-INF/flink-pubsub.properties").decode()
    assert properties == f"version={flink_pubsub.__version__}\ndigest={info.digest}\nprotocol={PROTOCOL_VERSION}\n"
    assert json.loads((built.parent / "build.json").read_text()) == {
        "version": flink_pubsub.__version__,
        "digest": info.digest,
        "protocol": PROTOCOL_VERSION,
    }
    assert names[0] == "META-INF/MANIFEST.MF"
    assert names[1:] == sorted(names[1:])
    assert "io/github/flinkpubsub/bridge/PythonSink.class" in names


def test_the_classes_run_on_java_11(built: Path) -> None:
    with zipfile.ZipFile(built) as archive:
        versions = {archive.read(name)[7] for name in archive.namelist() if name.endswith(".class")}
    assert versions == {55}


def test_a_jar_that_is_up_to_date_needs_no_compiler(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    before = built.stat()
    assert build_jar.build(built.parent) == built
    assert built.stat().st_mtime_ns == before.st_mtime_ns


def test_a_jar_of_other_sources_is_built_anew(built: Path) -> None:
    record = built.parent / "build.json"
    record.write_text(record.read_text().replace(build_jar.source_info().digest, "0" * 64))
    stale = built.parent / "flink-pubsub-0.0.1.jar"
    stale.touch()
    assert build_jar.build(built.parent) == built
    assert build_jar.source_info().digest in record.read_text()
    assert not stale.exists()


def test_without_a_compiler_the_error_names_the_package_to_install(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, build_jar.__file__, "--output", tmp_path],
        env={"PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "apt-get install" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("compiler")
def test_without_pyflink_the_error_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(build_jar.BuildError, match="has no PyFlink"):
        build_jar.build(tmp_path)


def test_the_package_gives_the_url_of_its_jar() -> None:
    url = flink_pubsub.jar()
    assert url.startswith("file:///")
    assert Path(url.removeprefix("file://")).is_file()
    assert _jarfile.build_info().digest == build_jar.source_info().digest


def test_the_command_gives_the_jar_as_a_url_and_as_a_path(capsys: pytest.CaptureFixture[str]) -> None:
    assert (cli.main(["jar"]), cli.main(["jar", "--path"])) == (0, 0)
    url, path = capsys.readouterr().out.split()
    assert (url, Path(path).as_uri()) == (flink_pubsub.jar(), url)


@pytest.mark.parametrize("left", [[], ["build.json"]])
def test_a_package_without_its_jar_says_how_to_mend_it(
    left: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in left:
        (tmp_path / name).write_text('{"version": "0.1.0", "digest": "d", "protocol": 1}')
    monkeypatch.setattr(_jarfile, "_FOLDER", tmp_path)
    with pytest.raises(flink_pubsub.PubSubConnectorError, match=r"make jar.*reinstall"):
        flink_pubsub.jar()
