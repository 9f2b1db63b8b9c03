"""What holds for every test: well-formed feature ids, two hypothesis profiles, one environment, a JVM that is not forgotten."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

# Examples share two cores with a JVM: a slow one says nothing about the code.
settings.register_profile("project", deadline=None, print_blob=True, derandomize=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("project")

_FEATURE = re.compile(r"[A-Z]{3}-\d{2}")
_gateways: list[Any] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuses a `feature` mark that names no row of the feature list."""
    for item in items:
        for mark in item.iter_markers("feature"):
            if len(mark.args) != 1 or not _FEATURE.fullmatch(str(mark.args[0])) or mark.kwargs:
                raise pytest.UsageError(f"{item.nodeid}: a feature mark takes one id such as SRC-07, not {mark.args}")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    """Gives each test the environment variables of the first: PyFlink runs Python functions in this process, and leaves
    variables behind with which no other process could start a job."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


def pytest_collection_finish() -> None:
    """Keeps the process of PyFlink's JVM, which PyFlink forgets; Python then warns of it in whatever test runs."""
    module = sys.modules.get("pyflink.java_gateway")
    if module is None:
        return
    launch = module.launch_gateway_server_process

    def launch_and_keep(*arguments: Any) -> Any:
        _gateways.append(launch(*arguments))
        return _gateways[-1]

    module.launch_gateway_server_process = launch_and_keep  # type: ignore[attr-defined]
