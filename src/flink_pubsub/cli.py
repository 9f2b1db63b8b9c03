"""The command `flink-pubsub`: a subcommand per thing one does outside a job.

A subcommand is a function `add_<name>(subparsers)` that declares its arguments and sets `run`, which gets the parsed
arguments and returns the exit status. Nothing heavy is imported before `run`.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

    from flink_pubsub.emulator import Emulator

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="flink-pubsub", description="Google Cloud Pub/Sub for PyFlink.")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in (add_demo, add_emulator, add_jar):
        add(subparsers)
    parsed = parser.parse_args(arguments)
    status: int = parsed.run(parsed)
    return status


def add_jar(subparsers: Subparsers) -> None:
    """`flink-pubsub jar`"""
    command = subparsers.add_parser("jar", help="print where the jar is that Flink needs")
    command.add_argument("--path", action="store_true", help="as a path to copy from, not as a URL")
    command.set_defaults(run=_run_jar)


def _run_jar(arguments: argparse.Namespace) -> int:
    from flink_pubsub._jarfile import jar, jar_path
    from flink_pubsub.errors import PubSubConnectorError

    try:
        print(jar_path() if arguments.path else jar())
    except PubSubConnectorError as e:
        print(f"flink-pubsub jar: {e}", file=sys.stderr)
        return 1
    return 0


def add_demo(subparsers: Subparsers) -> None:
    """`flink-pubsub demo`"""
    command = subparsers.add_parser(
        "demo",
        help="run a Flink job on a year of flights, with a failure half way",
        description="Publish a year of flights to an emulator, compute their delays in a PyFlink job on this machine, kill a"
        " worker half way, and check that nothing is lost or wrong.",
    )
    command.add_argument("--flights", type=_count, metavar="N", help="take only the first N flights of the year")
    command.set_defaults(run=_run_demo)


def _run_demo(arguments: argparse.Namespace) -> int:
    from flink_pubsub.demo.errors import DemoError
    from flink_pubsub.demo.flights import TOTAL
    from flink_pubsub.demo.run import run

    try:
        return run(min(arguments.flights or TOTAL, TOTAL))
    except DemoError as e:
        print(f"flink-pubsub demo: {e}", file=sys.stderr)
    except KeyboardInterrupt:
        print("flink-pubsub demo: interrupted", file=sys.stderr)
    return 1


def add_emulator(subparsers: Subparsers) -> None:
    """`flink-pubsub emulator`"""
    command = subparsers.add_parser(
        "emulator",
        help="run a Pub/Sub service on this machine",
        description="Run a Pub/Sub service on this machine until interrupted. It keeps everything in memory.",
    )
    command.add_argument("--port", type=_port, default=8085, help="port to listen on; 0 takes a free one (default: 8085)")
    command.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    command.add_argument("--project", default="my-project", help="project of the topics below (default: my-project)")
    command.add_argument("--topic", action="append", default=[], metavar="TOPIC", help="topic to create; may be repeated")
    command.add_argument(
        "--subscription",
        action="append",
        default=[],
        type=_topic_and_subscription,
        metavar="TOPIC:SUBSCRIPTION",
        help="subscription to create, and its topic if need be; may be repeated",
    )
    command.add_argument("--ordered", action="store_true", help="create the subscriptions with message ordering")
    command.add_argument(
        "--batches-per-key",
        type=_positive,
        default=1,
        metavar="N",
        help="batches of an ordering key that may be outstanding at once (default: 1)",
    )
    command.set_defaults(run=_run_emulator)


def _run_emulator(arguments: argparse.Namespace) -> int:
    from flink_pubsub.emulator import Emulator, ServiceError

    interrupted = _interruption()
    try:
        emulator = Emulator(arguments.port, arguments.host, batches_per_key=arguments.batches_per_key, keep_published_bytes=0)
        with emulator:
            _create_resources(emulator, arguments)
            print(f"Pub/Sub emulator listening on {emulator.endpoint}. Point clients to it with")
            print(f"  export PUBSUB_EMULATOR_HOST={emulator.endpoint}")
            print(f'or, in a source or sink of flink-pubsub, with .emulator_endpoint("{emulator.endpoint}").')
            print("Interrupt (Ctrl-C) to stop.", flush=True)
            interrupted.wait()
    except (OSError, ServiceError) as e:
        print(f"flink-pubsub emulator: {e}", file=sys.stderr)
        return 1
    return 0


def _create_resources(emulator: Emulator, arguments: argparse.Namespace) -> None:
    topics = dict.fromkeys([*arguments.topic, *(topic for topic, _ in arguments.subscription)])
    for topic in topics:
        emulator.create_topic(f"projects/{arguments.project}/topics/{topic}")
    for topic, subscription in arguments.subscription:
        emulator.create_subscription(
            f"projects/{arguments.project}/subscriptions/{subscription}",
            f"projects/{arguments.project}/topics/{topic}",
            enable_message_ordering=arguments.ordered,
        )


def _interruption() -> threading.Event:
    """An event that SIGINT and SIGTERM set."""
    interrupted = threading.Event()

    def interrupt(signal_number: int, frame: FrameType | None) -> None:
        interrupted.set()

    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)
    return interrupted


def _count(text: str) -> int:
    count = int(text) if text.isdecimal() else 0
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return count


def _port(text: str) -> int:
    port = int(text) if text.isdecimal() else -1
    if not 0 <= port <= 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; give a number from 0 to 65535")
    return port


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


def _topic_and_subscription(text: str) -> tuple[str, str]:
    topic, colon, subscription = text.partition(":")
    if not (topic and colon and subscription):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form TOPIC:SUBSCRIPTION")
    return topic, subscription


if __name__ == "__main__":
    sys.exit(main())
