"""One suite, several servers."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from flink_pubsub.emulator import Emulator
from tests.conformance.client import Client, Differs
from tests.conformance.servers import UnavailableError, build_pstest, google_emulator, google_emulator_jar, pstest

NAMES = {"google": "Google's emulator", "pstest": "Go's pstest"}
BUILD_TIMEOUT = 500
"""Seconds for the first test of a server that is built first."""


@pytest.fixture(scope="session", params=["ours", "google", pytest.param("pstest", marks=pytest.mark.timeout(BUILD_TIMEOUT))])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of a server."""
    if request.param == "ours":
        with Emulator() as emulator:
            yield emulator.endpoint
    elif request.param == "google":
        jar = google_emulator_jar()
        if jar is None:
            pytest.skip("Google's emulator (package google-cloud-cli-pubsub-emulator) is not installed")
        with google_emulator(jar) as endpoint:
            yield endpoint
    else:
        try:
            binary = build_pstest(tmp_path_factory.mktemp("pstest"))
        except UnavailableError as e:
            pytest.skip(str(e))
        with pstest(binary) as endpoint:
            yield endpoint


@pytest.fixture
def kind(request: pytest.FixtureRequest, server: str) -> str:
    """Which server it is: ours, google or pstest."""
    return str(request.node.callspec.params["server"])


@pytest.fixture
def is_ours(kind: str) -> bool:
    """Whether the server is this project's, whose texts are the service's."""
    return kind == "ours"


@pytest.fixture
def differs(request: pytest.FixtureRequest, kind: str) -> Differs:
    """Called with what other servers do otherwise, as docs/emulator.md lists; the test is then expected to fail there.

    Where it would wait for what never comes, it is skipped instead.
    """

    def differs(*, google: str = "", pstest: str = "", waits: bool = False) -> None:
        how = {"google": google, "pstest": pstest}.get(kind, "")
        if how and waits:
            pytest.skip(f"{NAMES[kind]} {how}")
        if how:
            failures = (AssertionError, pytest.fail.Exception, grpc.RpcError)
            request.applymarker(pytest.mark.xfail(reason=f"{NAMES[kind]} {how}", raises=failures, strict=True))

    return differs


@pytest.fixture
def client(server: str) -> Iterator[Client]:
    client = Client(server)
    yield client
    client.close()
