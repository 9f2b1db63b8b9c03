"""Publishes a few orders to the topic `orders`, and whatever is wrong with the others to the topic `dead-letters`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any

from pyflink.common import Types
from pyflink.datastream import OutputTag, ProcessFunction, RuntimeContext, StreamExecutionEnvironment

from flink_pubsub import (
    FailedElement,
    FailureHandler,
    PubSubDeadLetterQueue,
    PubSubSerializationSchema,
    PubSubSink,
    TopicDestination,
    dead_letter_serializer,
    jar,
)

LINES = ['{"order": 1, "total": 20}', '{"order": 2, "total": -5}', '{"order": 3', '{"order": 4, "total": 70}']
MALFORMED = OutputTag("malformed", Types.PICKLED_BYTE_ARRAY())


class Parse(ProcessFunction):  # type: ignore[misc]  # PyFlink has no types
    """A process function has no failure handler: what it cannot parse goes to a side output, and with that to a sink."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._subtask = runtime_context.get_index_of_this_subtask()

    def process_element(self, value: str, ctx: ProcessFunction.Context) -> Iterator[Any]:
        try:
            yield json.loads(value)
        except ValueError as error:
            yield (
                MALFORMED,
                FailedElement(
                    connector="parser",
                    destination="orders",
                    payload=value.encode(),
                    error=str(error),
                    subtask=self._subtask,
                ),
            )


def message_of(order: dict[str, Any]) -> bytes:
    if order["total"] < 0:
        raise ValueError("an order must not be worth less than nothing")
    return json.dumps(order).encode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--project", default="my-project", help="the Google Cloud project (default: %(default)s)")
    parser.add_argument("--emulator-endpoint", metavar="HOST:PORT", help="use an emulator; default: the real service")
    arguments = parser.parse_args()
    dead_letters = TopicDestination(arguments.project, "dead-letters")
    queue = PubSubDeadLetterQueue(topic=dead_letters, emulator_endpoint=arguments.emulator_endpoint)
    orders = (
        PubSubSink.builder()
        .topic(TopicDestination(arguments.project, "orders"))
        .serializer(PubSubSerializationSchema.payload(message_of))
        .failed_message_handler(FailureHandler.send_to_dead_letter_queue(queue))
    )
    malformed = PubSubSink.builder().topic(dead_letters).serializer(dead_letter_serializer())
    if arguments.emulator_endpoint:
        orders.emulator_endpoint(arguments.emulator_endpoint)
        malformed.emulator_endpoint(arguments.emulator_endpoint)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_python_executable(sys.executable)
    env.enable_checkpointing(1000)  # Milliseconds. Dead letters are stored before a checkpoint completes.
    env.add_jars(jar())
    parsed = env.from_collection(LINES, Types.STRING()).process(Parse())
    parsed.sink_to(orders.build())
    parsed.get_side_output(MALFORMED).sink_to(malformed.build())
    env.execute("dead letters")


if __name__ == "__main__":
    main()
