"""How much the emulator passes on: one process publishes and receives at once, the emulator in another.

`python -m benchmarks.emulator [messages]`: messages of 1 KiB, published by the thousand, received by one raw streaming pull
and acknowledged per response; prints messages per second from the first publish to the last message.
"""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
import time

import grpc

from flink_pubsub.wire import pubsub_pb2 as wire

TOPIC = "projects/bench/topics/load"
SUBSCRIPTION = "projects/bench/subscriptions/load"
REQUESTS_IN_FLIGHT = 16
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]


def main(messages: int) -> None:
    """Measure and print."""
    command = [sys.executable, "-m", "flink_pubsub.cli", "emulator", "--port", "0", "--project", "bench"]
    with subprocess.Popen([*command, "--subscription", "load:load"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        endpoint = server.stdout.readline().split(" listening on ")[1].split(". ")[0]
        try:
            seconds = measure(endpoint, messages // 1000)
        finally:
            server.terminate()
    print(f"{messages / seconds:,.0f} messages/s in and out at once ({messages:,} of 1 KiB in {seconds:.2f} s)")


def measure(endpoint: str, requests: int) -> float:
    """Seconds until all messages have come back and are acknowledged."""
    with grpc.insecure_channel(endpoint, OPTIONS) as publishing, grpc.insecure_channel(endpoint, OPTIONS) as receiving:
        pull = receiving.stream_stream(
            "/google.pubsub.v1.Subscriber/StreamingPull",
            wire.StreamingPullRequest.SerializeToString,
            wire.StreamingPullResponse.FromString,
        )
        acknowledge: grpc.UnaryUnaryMultiCallable[wire.AcknowledgeRequest, bytes] = receiving.unary_unary(
            "/google.pubsub.v1.Subscriber/Acknowledge", wire.AcknowledgeRequest.SerializeToString
        )
        outgoing: queue.SimpleQueue[wire.StreamingPullRequest | None] = queue.SimpleQueue()
        outgoing.put(wire.StreamingPullRequest(subscription=SUBSCRIPTION, stream_ack_deadline_seconds=60))
        stream = pull(iter(outgoing.get, None))
        started = time.perf_counter()
        publisher = threading.Thread(target=publish, args=(publishing, requests))
        publisher.start()
        received, acks = 0, []
        while received < requests * 1000:
            ack_ids = [message.ack_id for message in next(stream).received_messages]
            received += len(ack_ids)
            acks.append(acknowledge.future(wire.AcknowledgeRequest(subscription=SUBSCRIPTION, ack_ids=ack_ids)))
        for ack in acks:
            ack.result()
        seconds = time.perf_counter() - started
        publisher.join()
        stream.cancel()
        outgoing.put(None)
        return seconds


def publish(channel: grpc.Channel, requests: int) -> None:
    """Publish with a bounded number of requests in flight."""
    stub: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/google.pubsub.v1.Publisher/Publish")
    message = wire.PubsubMessage(data=b"x" * 1024)
    body = wire.PublishRequest(topic=TOPIC, messages=[message] * 1000).SerializeToString()
    permits = threading.Semaphore(REQUESTS_IN_FLIGHT)
    answers = []
    for _ in range(requests):
        permits.acquire()
        answer = stub.future(body)
        answer.add_done_callback(lambda _: permits.release())
        answers.append(answer)
    for answer in answers:
        answer.result()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300_000)
