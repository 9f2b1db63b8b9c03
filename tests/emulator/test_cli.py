"""The command `flink-pubsub emulator`."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import pytest

from flink_pubsub import cli
from tests.conformance.client import Client, data

COMMAND = [sys.executable, "-m", "flink_pubsub.cli"]


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_interrupted(signal_number: signal.Signals) -> None:
    arguments = ["emulator", "--port", "0", "--project", "p", "--topic", "lone", "--subscription", "orders:orders-sub"]
    arguments += ["--ordered", "--batches-per-key", "2"]
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        endpoint = re.search(r"listening on (127\.0\.0\.1:\d+)\.", process.stdout.readline())
        assert endpoint is not None
        assert f"export PUBSUB_EMULATOR_HOST={endpoint[1]}" in process.stdout.readline()
        client = Client(endpoint[1])
        client.publish("projects/p/topics/lone", b"x")
        stream = client.stream("projects/p/subscriptions/orders-sub")
        for content in (b"1", b"2"):
            client.publish("projects/p/topics/orders", content, key="k")
            assert data(stream.receive(1)) == [content]
        client.close()
        process.send_signal(signal_number)
        rest = process.stdout.read()
        assert process.wait(20) == 0
    assert rest.endswith("Interrupt (Ctrl-C) to stop.\n")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--port", "65536"], "'65536' is not a port; give a number from 0 to 65535"),
        (["--port", "x"], "'x' is not a port"),
        (["--batches-per-key", "0"], "'0' is not a number above 0"),
        (["--subscription", "orders"], "'orders' is not of the form TOPIC:SUBSCRIPTION"),
    ],
)
def test_bad_arguments_are_named(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["emulator", *arguments])
    assert exit_.value.code == 2
    assert complaint in capsys.readouterr().err


def test_a_bad_topic_ends_the_command_with_the_service_s_words(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    try:
        assert cli.main(["emulator", "--port", "0", "--topic", "ab"]) == 1
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGTERM, before[1])
    assert "Invalid resource name given (name=projects/my-project/topics/ab)" in capsys.readouterr().err
