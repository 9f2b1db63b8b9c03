"""What every example needs: the command line, and an environment that checkpoints and knows the connector."""

from __future__ import annotations

import argparse
import sys

from pyflink.datastream import StreamExecutionEnvironment

from flink_pubsub import jar


def parser(description: str) -> argparse.ArgumentParser:
    """A parser with the options that all examples share."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--project", default="my-project", help="the Google Cloud project (default: %(default)s)")
    made.add_argument("--emulator-endpoint", metavar="HOST:PORT", help="use an emulator; default: the real service")
    return made


def environment() -> StreamExecutionEnvironment:
    """Messages are acknowledged, and publishing is confirmed, when a checkpoint completes."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_python_executable(sys.executable)
    env.enable_checkpointing(1000)
    env.add_jars(jar())
    return env
