"""Channels, credentials, and admin calls."""

from __future__ import annotations

import json
import threading
import traceback
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.oauth2 import service_account

from flink_pubsub.destinations import SubscriptionDestination
from flink_pubsub.emulator import Emulator
from flink_pubsub.errors import CredentialsError
from flink_pubsub.options import Connection, OrderingMode
from flink_pubsub.rpc.admin import GET_SUBSCRIPTION, Admin
from flink_pubsub.rpc.channel import channel_opener, open_channel
from flink_pubsub.rpc.credentials import _from_key_file, _TokenPlugin
from flink_pubsub.rpc.status import Purpose, Status, status_of
from flink_pubsub.source import SourceSpec
from flink_pubsub.wire import pubsub_pb2 as wire
from flink_pubsub.worker.source import PubSubSourceConnector
from tests.unit.source_support import FakeContext, ScriptedServer, in_turn, refuse

ORDERS = SubscriptionDestination("project", "orders")


def spec(endpoint: str, *subscriptions: SubscriptionDestination, mode: OrderingMode = OrderingMode.NONE) -> SourceSpec:
    connection = Connection(emulator_endpoint=endpoint)
    return SourceSpec(subscriptions=subscriptions or (ORDERS,), deserializer=None, ordering_mode=mode, connection=connection)


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    with Emulator() as emulator:
        emulator.create_topic("projects/project/topics/orders")
        emulator.create_subscription(ORDERS.resource_path, "projects/project/topics/orders")
        yield emulator


@pytest.mark.feature("SRC-05")
@pytest.mark.parametrize("content", [None, "not json SECRET", '{"client_email": "SECRET"}', '["SECRET"]', b"\xff\xfeSECRET"])
def test_a_bad_key_file_is_an_error_that_shows_neither_path_nor_content(tmp_path: Path, content: str | bytes | None) -> None:
    path = tmp_path / "hidden-name.json"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(CredentialsError) as caught:
        open_channel(Connection(service_account_key_file=str(path)))
    shown = "".join(traceback.format_exception(caught.value))
    assert "service_account_key_file" in shown
    assert "hidden-name" not in shown
    assert "SECRET" not in shown
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.feature("SRC-05")
def test_a_key_file_is_read_once_however_many_channels_are_opened(tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    path.write_text(json.dumps(service_account_key()))
    opener = channel_opener(Connection(service_account_key_file=str(path)))
    path.unlink()
    for _ in range(2):
        opener().close()


def service_account_key() -> dict[str, str]:
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    email = "reader@project.iam.gserviceaccount.com"
    return {
        "type": "service_account",
        "client_email": email,
        "private_key": pem,
        "token_uri": "https://oauth2.googleapis.com/token",
    }


@pytest.mark.feature("SRC-05")
def test_without_default_credentials_the_error_says_what_to_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "hidden-name.json"))
    with pytest.raises(CredentialsError, match="GOOGLE_APPLICATION_CREDENTIALS") as caught:
        open_channel(Connection())
    assert "hidden-name" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.feature("SRC-06")
def test_the_emulators_environment_variable_redirects_nothing(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "127.0.0.1:1")
    plan = PubSubSourceConnector(spec(emulator.endpoint)).plan(FakeContext(), None)
    assert len(plan.splits) == 1


def test_a_describe_call_is_repeated_while_the_service_is_unavailable() -> None:
    described = wire.Subscription(name=ORDERS.resource_path)
    with ScriptedServer() as server, server.channel() as channel:
        unavailable = refuse(grpc.StatusCode.UNAVAILABLE, "later")
        server.answers[GET_SUBSCRIPTION.rsplit("/", 1)[1]] = in_turn(
            [unavailable, unavailable, lambda request, context: described.SerializeToString()]
        )
        slept: list[float] = []
        assert Admin(channel, clock=lambda: sum(slept), sleep=slept.append).get_subscription(ORDERS.resource_path) == described
        assert slept == [0.1, 0.2]


def test_describing_gives_up_after_a_minute() -> None:
    with ScriptedServer() as server, server.channel() as channel:
        server.answers[GET_SUBSCRIPTION.rsplit("/", 1)[1]] = refuse(grpc.StatusCode.UNAVAILABLE, "never")
        slept: list[float] = []
        with pytest.raises(grpc.RpcError):
            Admin(channel, clock=lambda: sum(slept), sleep=slept.append).get_subscription(ORDERS.resource_path)
        assert 50 < sum(slept) < 60


def test_a_final_code_is_not_retryable_for_any_purpose_and_a_passing_one_is_for_all() -> None:
    final = ["NOT_FOUND", "PERMISSION_DENIED", "UNAUTHENTICATED", "INVALID_ARGUMENT", "FAILED_PRECONDITION"]
    for purpose in Purpose:
        assert not any(Status(grpc.StatusCode[name], "").retryable(purpose) for name in final)
        assert Status(grpc.StatusCode.UNAVAILABLE, "").retryable(purpose)


def test_what_is_no_status_is_unknown_and_keeps_its_text() -> None:
    assert str(status_of(ValueError("odd"))) == "UNKNOWN: ValueError: odd"


class TokenEndpoint(BaseHTTPRequestHandler):
    """Hands out an access token, or refuses."""

    refuses = False

    def do_POST(self) -> None:
        body = b'{"error": "invalid_grant"}' if self.refuses else b'{"access_token": "token-1", "expires_in": 3600}'
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(400 if self.refuses else 200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


class Context(grpc.AuthMetadataContext):
    """A call that needs a token."""

    service_url = "https://pubsub.googleapis.com/google.pubsub.v1.Subscriber"
    method_name = "GetSubscription"


class Callback(grpc.AuthMetadataPluginCallback):
    """Keeps what a plugin answers."""

    def __call__(self, metadata: Any, error: Exception | None) -> None:
        self.metadata = dict(metadata)
        self.error = error


@pytest.mark.feature("SRC-05")
@pytest.mark.parametrize("refuses", [False, True])
def test_a_token_is_fetched_without_more_than_the_standard_library(refuses: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TokenEndpoint, "refuses", refuses)
    callback = Callback()
    with HTTPServer(("127.0.0.1", 0), TokenEndpoint) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        key = {**service_account_key(), "token_uri": f"http://127.0.0.1:{server.server_port}/token"}
        plugin = _TokenPlugin(service_account.Credentials.from_service_account_info(key, scopes=["scope"]))
        plugin(Context(), callback)
        thread.join()
    if refuses:
        assert isinstance(callback.error, CredentialsError)
        assert "invalid_grant" not in str(callback.error)
    else:
        assert (callback.metadata["authorization"], callback.error) == ("Bearer token-1", None)


@pytest.mark.feature("SRC-05")
def test_a_key_file_signs_its_own_tokens_and_asks_nobody(tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    path.write_text(json.dumps({**service_account_key(), "token_uri": "http://127.0.0.1:1/token"}))
    callback = Callback()
    _TokenPlugin(_from_key_file(str(path)))(Context(), callback)
    assert callback.error is None
    assert callback.metadata["authorization"].startswith("Bearer ey")
