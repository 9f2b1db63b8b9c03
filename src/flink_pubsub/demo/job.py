"""The job: flights in, delays per airport and hour out.

Event time in the topics is no order at all: a carrier's flights come in theirs, but nothing holds the carriers together, and
small ones are through the year before large ones have left January. So watermarks stay a whole year behind: no window can
close too early, no flight is late. The windows close when the job is stopped with a drain, which is how Flink ends unbounded
input: it advances event time to its end, lets every window fire, and finishes once the sink has published everything.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from pyflink.common import Configuration, Duration, JobClient, Time, WatermarkStrategy
    from pyflink.datastream import ProcessWindowFunction, StreamExecutionEnvironment
    from pyflink.datastream.window import TumblingEventTimeWindows
    from pyflink.java_gateway import get_gateway

from flink_pubsub._jarfile import jar
from flink_pubsub.demo.delays import PROJECT, Departure, DepartureSchema, Hour, destination, flights_name, hours_of, to_json
from flink_pubsub.demo.flights import AIRPORTS
from flink_pubsub.destinations import SubscriptionDestination
from flink_pubsub.options import OrderingMode, PubSubPublisherOptions, PubSubSubscriberOptions
from flink_pubsub.schemas import PubSubSerializationSchema
from flink_pubsub.sink import PubSubSink
from flink_pubsub.source import PubSubSource

CHECKPOINT_MILLISECONDS = 1000
_DISORDER_DAYS = 366
_SETTINGS = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "3",
    "restart-strategy.fixed-delay.delay": "1 s",
    "execution.checkpointing.storage": "filesystem",
    # Fewer, larger exchanges with the Python functions.
    "python.fn-execution.bundle.size": "10000",
    "python.fn-execution.bundle.time": "500",
    "python.state.cache-size": "10000",
    "rest.bind-port": "0",
}


class DelaysOfADay(ProcessWindowFunction):  # type: ignore[misc]
    """The hours of one day at one airport."""

    def process(self, key: str, context: object, elements: Iterable[Departure]) -> Iterator[tuple[Hour, int]]:
        """Called once per window, when event time has passed its end."""
        return hours_of(elements)


def submit(endpoint: str, outstanding: int, folder: Path) -> JobClient:
    """Starts the job on a mini-cluster inside this process's JVM.

    Args:
        endpoint: the emulator's.
        outstanding: how many messages of each subscription may wait for a checkpoint.
        folder: where checkpoints go.
    """
    # Python functions run in processes of their own, as on a cluster, and not on threads of this one.
    os.environ["_python_worker_execution_mode"] = "process"  # noqa: SIM112
    # The libraries beneath PyFlink complain about versions and about parts of theirs that are not there.
    os.environ.setdefault("PYTHONWARNINGS", "ignore::FutureWarning")
    warnings.simplefilter("ignore", FutureWarning)
    logging.getLogger("apache_beam").setLevel(logging.ERROR)
    configuration = Configuration()
    for name, value in _SETTINGS.items():
        configuration.set_string(name, value)
    configuration.set_string("execution.checkpointing.dir", folder.as_uri())
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_python_executable(sys.executable)
    env.set_parallelism(1)
    env.enable_checkpointing(CHECKPOINT_MILLISECONDS)
    env.add_jars(jar())

    source = (
        PubSubSource.builder()
        .subscriptions(*(SubscriptionDestination(PROJECT, flights_name(airport)) for airport in AIRPORTS))
        .deserializer(DepartureSchema())
        .ordering_mode(OrderingMode.PER_KEY)
        .subscriber_options(PubSubSubscriberOptions(flow_control_max_outstanding_element_count=outstanding))
        .emulator_endpoint(endpoint)
        .build()
    )
    sink = (
        PubSubSink.builder()
        .destination_resolver(destination)
        .serializer(PubSubSerializationSchema.payload(to_json))
        .publisher_options(PubSubPublisherOptions(batch_request_byte_threshold=1_000_000))
        .emulator_endpoint(endpoint)
        .build()
    )
    watermarks = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_days(_DISORDER_DAYS))
    (
        env.from_source(source, watermarks, "flights")
        .key_by(lambda departure: departure[0])
        .window(TumblingEventTimeWindows.of(Time.days(1)))
        .process(DelaysOfADay())
        .sink_to(sink)
    )
    return env.execute_async("Delays per airport and hour")


def drain(job: JobClient, folder: Path) -> None:
    """Ends the job's input: event time goes to its end and every window fires. Returns when all is published."""
    savepoint_format = get_gateway().jvm.org.apache.flink.core.execution.SavepointFormatType.DEFAULT
    # PyFlink's own `stop_with_savepoint` calls a signature that Flink 2 no longer has.
    job._j_job_client.stopWithSavepoint(True, folder.as_uri(), savepoint_format).get()
    job.get_job_execution_result().result()
