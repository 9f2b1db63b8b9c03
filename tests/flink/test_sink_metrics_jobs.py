"""Every metric of a writer and of its dead-letter queue, as Flink shows it while the job runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import grpc
import pytest
from pyflink.common import WatermarkStrategy

from flink_pubsub import (
    FailureHandler,
    PubSubDeadLetterQueue,
    PubsubMessage,
    PubSubPublisherOptions,
    PubSubSerializationSchema,
    PubSubSink,
    TopicDestination,
)
from flink_pubsub.emulator import Emulator
from flink_pubsub.wire import pubsub_pb2 as wire
from tests.bridge_connectors import CountingSource
from tests.flink.jobs import bridge_source, environment, running
from tests.unit.sink_support import entries

KNOWN, MISSING, DEAD = (TopicDestination("p", name) for name in ("known", "missing.yet", "dead-letters"))

HOUR = timedelta(hours=1)


class Numbers(PubSubSerializationSchema):
    """Skips 3, 13 and so on, raises on 7, and gives 8 an attribute that the service refuses."""

    def serialize(self, element: Any) -> PubsubMessage | None:
        number = int(element)
        if number == 7:
            raise ValueError("seven")
        return None if number % 10 == 3 else PubsubMessage(element, {"googled" if number == 8 else "number": "yes"})


def sink(emulator: Emulator, elsewhere: Emulator) -> PubSubSink:
    queue = PubSubDeadLetterQueue(topic=DEAD, emulator_endpoint=elsewhere.endpoint, max_in_flight_messages=0)
    builder = PubSubSink.builder().serializer(Numbers()).emulator_endpoint(emulator.endpoint)
    builder.destination_resolver(lambda element, context: KNOWN if int(element) < 50 else MISSING)
    builder.failed_message_handler(FailureHandler.send_to_dead_letter_queue(queue))
    options = PubSubPublisherOptions(per_destination_metrics=True, recovery_initial_backoff=HOUR, recovery_max_backoff=HOUR)
    return builder.publisher_options(options).build()


def size_of(numbers: list[int]) -> int:
    """Bytes of the messages in publish requests."""
    made = [Numbers().serialize(b"%d" % number) for number in numbers]
    return sum(map(len, entries([wire.PubsubMessage(data=m.data, attributes=m.attributes) for m in made if m is not None])))


@pytest.mark.feature("SNK-17")
@pytest.mark.feature("DLQ-06")
def test_every_metric_of_writer_and_queue_is_shown_while_the_job_runs() -> None:
    known, missing = ([n for n in range(start, start + 50) if n % 10 != 3 and n != 7] for start in (0, 50))
    with Emulator() as emulator, Emulator() as elsewhere:
        emulator.create_topic(KNOWN.resource_path)
        elsewhere.create_topic(DEAD.resource_path)
        elsewhere.delay("Publish", 0.01)
        emulator.set_topic_propagation(3600)
        emulator.fail_next("Publish", grpc.StatusCode.UNAVAILABLE)
        env = environment(checkpoint_millis=None)
        stream = env.from_source(
            bridge_source(CountingSource(count=100, quirk="never ends"), bounded=False), WatermarkStrategy.no_watermarks(), "n"
        )
        stream.sink_to(sink(emulator, elsewhere))
        expected = {
            "numRecordsSend": len(known + missing),
            "numBytesSend": size_of(known + missing),
            "numRecordsSendErrors": 2,
            "recordsSkipped": 10,
            "inFlightMessages": len(missing),
            "inFlightBytes": size_of(missing),
            "parkedMessages": len(missing),
            "activePublishers": 2,
            "topicsCreated": 1,
            "publisherShutdownsAbandoned": 0,
            "errorClass.UNAVAILABLE.errors": 1,
            "errorClass.INVALID_ARGUMENT.errors": 1,
            "destination.p/known.recordsSend": len(known),
            "destination.p/known.sendErrors": 2,
            "destination.p/missing%2Eyet.recordsSend": len(missing),
            "deadLettersPublished": 2,
            "inFlightDeadLetters": 0,
            "deadLetterPublisherShutdownsAbandoned": 0,
        }
        with running(env) as job:
            metrics = job.shown(job.writer_metrics, expected)
    assert metrics["errorClass.NOT_FOUND.errors"] >= 1
    assert 0 < metrics["deadLetterFlushMillis"] <= metrics["longestDeadLetterFlushMillis"]
