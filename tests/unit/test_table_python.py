"""Which interpreter checks a table's options where a statement is planned."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from tests.unit.java import Reflected, java_class, jvm

pytestmark = pytest.mark.feature("SQL-12")


def chosen(**session: str) -> tuple[str, str, str | None]:
    """Path, origin and what the job's own workers are bound to, for a session with these settings."""
    configuration = jvm().org.apache.flink.configuration.Configuration()
    for key, value in session.items():
        configuration.setString(key.replace("_", "."), value)
    python = Reflected("table.PlanTimePython").of(configuration)

    def field(name: str) -> Any:
        declared = java_class("table.PlanTimePython").getDeclaredField(name)
        declared.setAccessible(True)
        return declared.get(python)

    return field("path"), field("origin"), field("ofJob")


def test_the_sessions_interpreter_is_the_jobs_too() -> None:
    found = chosen(python_executable="/opt/a", python_client_executable="/opt/b")
    assert found == ("/opt/a", "python.executable of the session", "/opt/a")


def test_a_path_into_an_archive_is_passed_over() -> None:
    found = chosen(python_executable="env.zip/env/bin/python", python_client_executable="/opt/b")
    assert found == ("/opt/b", "python.client.executable of the session", None)
    assert chosen(python_executable="python3.11")[0] == "python3.11", "a name is looked up where it is started"


def test_the_clients_interpreter_is_not_the_jobs() -> None:
    assert chosen(python_client_executable="/opt/b") == ("/opt/b", "python.client.executable of the session", None)


def test_in_a_jvm_that_pyflink_started_it_is_the_one_that_started_it() -> None:
    path, origin, of_job = chosen()
    assert os.path.realpath(path) == os.path.realpath(sys.executable)
    assert os.path.samefile(os.path.dirname(path), os.path.dirname(sys.executable)), "a virtual environment is not lost"
    assert (origin, of_job) == ("the Python that started this JVM", None)
