"""Channels to the service or to an emulator, made from a `Connection` and nothing else.

No environment variable redirects a channel: `PUBSUB_EMULATOR_HOST` is honoured inside Google's generated clients, and a
stray value on a TaskManager would send a production job's traffic to an emulator. The stubs used here are raw, so only
the connection the user configured decides.
"""

from __future__ import annotations

from collections.abc import Callable

import grpc

from flink_pubsub.options import Connection
from flink_pubsub.rpc.credentials import call_credentials

SERVICE = "pubsub.googleapis.com:443"

_MIB = 1024 * 1024
_OPTIONS: tuple[tuple[str, int | str], ...] = (
    # A response of streaming pull may be larger than the 10 MB a message may have.
    ("grpc.max_receive_message_length", 24 * _MIB),
    # Errors of exactly-once subscriptions list every ack id in the trailers.
    ("grpc.max_metadata_size", 4 * _MIB),
    ("grpc.absolute_max_metadata_size", 4 * _MIB),
    ("grpc.keepalive_time_ms", 30_000),
    # Bounds how long a server that went away without a word goes unnoticed once it is back.
    ("grpc.max_reconnect_backoff_ms", 10_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    # Otherwise all channels of a process share one connection, and with it one flow-control window.
    ("grpc.use_local_subchannel_pool", 1),
    # Retries are decided in `rpc.status`, visibly; and no proxy lookup for a local emulator.
    ("grpc.enable_retries", 0),
)


def open_channel(connection: Connection) -> grpc.Channel:
    """A new channel of its own. Connects lazily; the caller closes it.

    Raises:
        CredentialsError: the credentials cannot be used.
    """
    return channel_opener(connection)()


def channel_opener(connection: Connection) -> Callable[[], grpc.Channel]:
    """What opens any number of channels, as `open_channel` does, with credentials that are read once, now.

    Raises:
        CredentialsError: the credentials cannot be used.
    """
    endpoint = connection.emulator_endpoint
    if endpoint is not None:
        return lambda: grpc.insecure_channel(endpoint, options=(*_OPTIONS, ("grpc.enable_http_proxy", 0)))
    credentials = grpc.composite_channel_credentials(
        grpc.ssl_channel_credentials(), call_credentials(connection.service_account_key_file)
    )
    return lambda: grpc.secure_channel(SERVICE, credentials, options=_OPTIONS)
