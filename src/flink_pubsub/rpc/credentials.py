"""Credentials for the service: application default, or a service account's key file that is read once and never shown.

A key file's path and content are secrets of the deployment. Every failure to read or understand one becomes an error that
says what kind of failure it was and nothing else, and that carries no cause: the original exception quotes the path, and a
parser's quotes the content.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import grpc

from flink_pubsub.errors import CredentialsError

_SCOPES = ("https://www.googleapis.com/auth/pubsub",)
_FETCH_SECONDS = 30.0
_MEND = "check that service_account_key_file names a readable service account key (JSON) on this machine"


def call_credentials(key_file: str | None) -> grpc.CallCredentials:
    """Call credentials that add a fresh token to every call; google-auth is imported only here.

    Raises:
        CredentialsError: there are no usable credentials.
    """
    return grpc.metadata_call_credentials(
        _TokenPlugin(_application_default() if key_file is None else _from_key_file(key_file))
    )


def _application_default() -> Any:
    import google.auth
    from google.auth.exceptions import DefaultCredentialsError

    try:
        credentials, _ = google.auth.default(scopes=_SCOPES)
    except DefaultCredentialsError as error:
        failure = type(error).__name__
    else:
        return credentials
    raise CredentialsError(
        f"no application default credentials were found ({failure}): attach a service account, set"
        " GOOGLE_APPLICATION_CREDENTIALS, or give service_account_key_file or emulator_endpoint"
    )


def _from_key_file(key_file: str) -> Any:
    from google.auth.exceptions import GoogleAuthError
    from google.oauth2 import service_account

    # Raised after the except blocks, so that the error has neither cause nor context that could quote path or content.
    try:
        with open(key_file, encoding="utf-8") as file:
            content = file.read()
    except (OSError, ValueError) as error:
        failure = f"cannot be read ({type(error).__name__})"
    else:
        try:
            credentials = service_account.Credentials.from_service_account_info(json.loads(content), scopes=_SCOPES)
        except (ValueError, TypeError, KeyError, AttributeError, GoogleAuthError):
            failure = "is not a service account key"
        else:
            # A self-signed token needs no call to a token endpoint, so none can hold up the first message.
            return credentials.with_always_use_jwt_access(True)
    raise CredentialsError(f"the service account key file {failure}: {_MEND}")


class _TokenPlugin(grpc.AuthMetadataPlugin):
    """Adds google-auth's headers to a call. google-auth's own plugin warns about every grpcio that PyFlink allows."""

    def __init__(self, credentials: Any) -> None:
        self._credentials = credentials

    def __call__(self, context: grpc.AuthMetadataContext, callback: grpc.AuthMetadataPluginCallback) -> None:
        headers: dict[str, str] = {}
        try:
            self._credentials.before_request(_fetch, context.method_name, context.service_url, headers)
        except Exception as error:
            # A thread of gRPC: a raised exception would be printed with its context, a reported one ends the call.
            callback((), CredentialsError(f"no access token could be obtained ({type(error).__name__})"))
        else:
            callback(tuple(headers.items()), None)


@dataclass(frozen=True)
class _Response:
    """What google-auth expects of an answer."""

    status: int
    headers: Mapping[str, str]
    data: bytes


def _fetch(
    url: str,
    method: str = "GET",
    body: bytes | str | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float = _FETCH_SECONDS,
    **_: object,
) -> _Response:
    """Implements `google.auth.transport.Request` with the standard library; google-auth's own needs the package requests."""
    from google.auth.exceptions import TransportError

    content = body.encode() if isinstance(body, str) else body
    request = urllib.request.Request(url, content, dict(headers or {}), method=method)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return _Response(answer.status, dict(answer.headers), answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return _Response(error.code, dict(error.headers), error.read())
    except OSError as error:
        raise TransportError(error) from error
