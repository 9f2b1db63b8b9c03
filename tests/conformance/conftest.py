"""One suite, several servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from flink_pubsub.emulator import Emulator
from tests.conformance.client import Client
from tests.conformance.servers import google_emulator, google_emulator_jar


@pytest.fixture(scope="session", params=["ours", "google"])
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    """The endpoint of a server."""
    if request.param == "ours":
        with Emulator() as emulator:
            yield emulator.endpoint
        return
    jar = google_emulator_jar()
    if jar is None:
        pytest.skip("Google's emulator (package google-cloud-cli-pubsub-emulator) is not installed")
    with google_emulator(jar) as endpoint:
        yield endpoint


@pytest.fixture
def google_differs(request: pytest.FixtureRequest, server: str) -> Callable[[str], None]:
    """Called with what Google's emulator does otherwise, as docs/emulator.md lists; the test is then expected to fail there."""

    def differs(how: str) -> None:
        if request.node.callspec.params["server"] == "google":
            request.applymarker(
                pytest.mark.xfail(reason=f"Google's emulator {how}", raises=(AssertionError, pytest.fail.Exception))
            )

    return differs


@pytest.fixture
def is_ours(request: pytest.FixtureRequest, server: str) -> bool:
    """Whether the server is this project's; for exact texts, and where Google's emulator would let a test wait in vain."""
    return bool(request.node.callspec.params["server"] == "ours")


@pytest.fixture
def client(server: str) -> Iterator[Client]:
    client = Client(server)
    yield client
    client.close()
