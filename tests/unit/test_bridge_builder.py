"""A worker that builds a connector of a request, seen from both sides of the bridge."""

from __future__ import annotations

import base64
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

from flink_pubsub.bridge.frames import Kind
from tests.bridge_connectors import CountingSource, build_counting
from tests.bridge_driver import WorkerDriver
from tests.unit.java import JavaError, Reflected


def test_a_builder_answers_with_a_connector_and_what_to_know_of_it() -> None:
    with WorkerDriver() as worker:
        worker.open(build_counting, "builder", client_python=None)
        assert worker.expect_json(Kind.READY) == {}
        worker.send_json(Kind.BUILD, count=4)
        built = worker.expect_json(Kind.BUILT)
        worker.send_json(Kind.CLOSE, seconds=1)
        worker.expect(Kind.CLOSED)
        assert worker.ended() == 0
    assert pickle.loads(base64.b64decode(built.pop("connector"))) == CountingSource(count=4)
    assert built == {"facts": {"last": 3}}


def test_a_refusal_is_an_answer() -> None:
    with WorkerDriver() as worker:
        worker.open(build_counting, "builder")
        worker.send_json(Kind.BUILD, count=-1)
        assert worker.expect_json(Kind.BUILT) == {"refused": "nobody counts to -1"}


def test_any_other_exception_is_a_failure_and_so_is_a_frame_of_another_role() -> None:
    with WorkerDriver() as worker:
        worker.open(build_counting, "builder")
        worker.send_json(Kind.BUILD, other=4)
        assert worker.expect_json(Kind.FAILED)["type"] == "KeyError"
    with WorkerDriver() as worker:
        worker.open(build_counting, "builder")
        worker.send_json(Kind.PLAN, state=None)
        assert worker.expect_json(Kind.FAILED)["message"] == "a builder cannot handle PLAN"


def answer(function: str, request: str, python: str = sys.executable) -> dict[str, Any]:
    """What the JVM gets of a builder among the tests' connectors, by field."""
    spec = Reflected("bridge.WorkerSpec").ofInterpreter(python, "the test")
    parsed = Reflected("bridge.Frames").parse(request.encode())
    got = Reflected("bridge.BuilderWorker").run(spec, "tests.bridge_connectors", function, parsed)
    return {field.getName(): field.get(got) for field in got.getClass().getFields()}


def test_the_jvm_names_a_builder_and_gets_its_answer() -> None:
    built = answer("build_counting", '{"count": 4}')
    assert pickle.loads(bytes(built["connector"])) == CountingSource(count=4)
    assert (built["facts"].toString(), built["refusal"]) == ('{"last":3}', None)


def test_the_jvm_gets_a_refusal_and_nothing_else() -> None:
    refused = answer("build_counting", '{"count": -4}')
    assert refused == {"refusal": "nobody counts to -4", "connector": None, "facts": None}


def test_a_builder_that_fails_is_an_error_with_its_traceback() -> None:
    with pytest.raises(JavaError, match=r"(?s)Python builder failed with KeyError: 'count'\n.*bridge_connectors\.py"):
        answer("build_counting", "{}")
    with pytest.raises(JavaError, match="Python builder failed with AttributeError"):
        answer("no_such_builder", "{}")


@pytest.mark.feature("DEP-04")
def test_a_python_without_the_package_is_told_what_to_install(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    with pytest.raises(JavaError) as error:
        answer("build_counting", '{"count": 4}', str(bare))
    assert f"The Python worker of {bare} (the test) did not start" in error.value.message
    assert f"The package is not installed there, run: {bare} -m pip install flink-pubsub==" in error.value.message
