"""What a writer has taken over and not settled, and what becomes of it.

Every record is settled exactly once: published, or handed to the failure handler and dropped by it. Until then it counts as in
flight. A flush is complete when everything written before it is settled. After `abandon` nothing is handed out and nothing is
settled any more, so a failure can never be followed by the completion of a flush that covers it.

The life of a batch:

1. waiting: its topic is one too many at the moment (`topics`). Everything written after it waits behind it.
2. open or queued: in the batcher.
3. complete or due: may go, and does as soon as fewer than `max_calls` calls are out. While its topic is missing it is parked
   instead. One that is merely due goes on growing until then, and for longer where there is `patience`.
4. out: `take` has handed it out, and one of these follows:
   - `succeeded`: settled.
   - `failed` in a way that passes: released again at its time, within its retry budget; its ordering key waits.
   - `failed`, the topic is missing: parked until that is there again (`repairs`), or the end where none may be created.
   - `failed`, content refused, several messages: each is released in a request of its own, to have its own verdict.
   - `failed`, content refused, a single message: rejected; see below.
   - `failed` for good: `failed` returns the error that fails the job, and the outbox is abandoned.
5. rejected: `take_rejected` hands it out for the failure handler, while its ordering key waits; `dropped` settles it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from flink_pubsub.core.batching import Batch, Batcher, Lane
from flink_pubsub.core.flushes import Flushes
from flink_pubsub.core.patience import patience
from flink_pubsub.core.progress import Standstill, Watch
from flink_pubsub.core.publish_rules import PublishRules
from flink_pubsub.core.refusals import Refusal, Verdict
from flink_pubsub.core.repairs import TopicRepair
from flink_pubsub.core.retry import Attempts
from flink_pubsub.core.topics import Topic, Topics
from flink_pubsub.errors import PublishError


@dataclass(frozen=True, slots=True)
class Settled:
    """What came to its end since the last time this was asked."""

    records: int
    size: int
    flushes: Sequence[int]


@dataclass(frozen=True, slots=True, eq=False)
class Rejection:
    """A message that the service refused by itself, for the failure handler."""

    batch: Batch
    refusal: Refusal
    too_many: bool
    """Whether this is as many in a row as there may be; the job fails once the handler has had it."""


class Outbox:
    """The decisions of one writer. Not thread-safe; times are monotonic seconds given by the caller.

    `jitter` gives numbers that are drawn evenly from 0 to 1.
    """

    def __init__(self, rules: PublishRules, jitter: Callable[[], float]) -> None:
        self._rules = rules
        self._batcher = Batcher(rules.thresholds)
        self._topics = Topics(rules.max_topics)
        self._waiting: deque[tuple[int, Lane, bytes | memoryview, Sequence[int]]] = deque()
        self._free_calls = rules.max_calls
        self._records_out = 0
        self._jitter = jitter
        self._retries: list[tuple[float, tuple[int, int], Batch]] = []
        self._creating: dict[str, None] = {}
        self._rejected_in_a_row = 0
        self._flushes = Flushes()
        self._watch = Watch(rules.progress_timeout)
        self._room_wanted = False
        self._abandoned = False
        self._settled_records = self._settled_size = 0
        self.repairs: dict[str, TopicRepair] = {}
        """Missing topics, by path; to be read only."""
        self.rejected: list[Rejection] = []
        """What `take_rejected` will hand out."""
        self.records = 0
        """Records in flight."""
        self.size = 0
        """Bytes in flight, as entries of publish requests."""
        self.failures: Counter[str] = Counter()
        """Failed requests by status, those not counted that were refused for one of several messages."""
        self.topics_created = 0
        """Repairs of a missing topic that came to its creation."""

    @property
    def progress_timeout(self) -> float:
        """Seconds that anything may stand still."""
        return self._watch.timeout

    @property
    def topics(self) -> int:
        """Topics in use."""
        return len(self._topics.by_path)

    @property
    def parked(self) -> int:
        """Messages in flight whose topic is missing."""
        return sum(repair.unsettled for repair in list(self.repairs.values()))

    def add(self, lane: Lane, data: bytes | memoryview, ends: Sequence[int], now: float) -> None:
        """Takes over entries of one topic and ordering key; entry i is `data[ends[i-1]:ends[i]]`."""
        self._flushes.added(len(ends))
        self.records += len(ends)
        self.size += len(data)
        if self._waiting or not self._topics.admit(lane[0]):
            self._waiting.append((self._flushes.epoch, lane, data, ends))
            return
        self._topics.added(lane[0], len(ends), now)
        self._batcher.add(lane, data, ends, now, self._flushes.epoch)

    def send_now(self) -> None:
        """Lets partial batches go: nothing more comes until some of what is in flight is settled."""
        self._room_wanted = True
        self._batcher.send_now()

    def flush(self, flush: int) -> None:
        """Lets everything go, and reports the flush once all of it is settled."""
        self._batcher.flush()
        self._flushes.ask(flush)

    def release_idle(self, now: float, seconds: float) -> None:
        """Forgets topics that are settled and have been unused for longer than that."""
        self._topics.release_idle(now, seconds)

    def take(self, now: float, busy: bool = False) -> list[tuple[Batch, float | None]]:
        """The batches to send now, each with its RPC timeout. `busy` tells that more messages are about to be added."""
        calls: list[tuple[Batch, float | None]] = []
        if self._abandoned:
            return calls
        if self._waiting:
            self._admit_waiting(now)
        while self._free_calls and (batch := self._next(now, busy)) is not None:
            self._free_calls -= 1
            self._records_out += batch.messages
            self._topics.by_path[batch.lane[0]].out += 1
            attempts = batch.attempts = batch.attempts or Attempts(self._rules.retry)
            calls.append((batch, attempts.begin(now)))
        if calls and not self._watch.running:
            self._watch.progress(now)
        return calls

    def take_creations(self, now: float) -> list[str]:
        """The topics to create now; `created` or `not_created` follows for each."""
        if self._abandoned or not self.repairs:
            return []
        # One may be under way from an earlier repair, which a request that succeeded has ended: its answer serves this one too.
        creations = [path for path, repair in self.repairs.items() if path not in self._creating and repair.create(now)]
        self._creating.update(dict.fromkeys(creations))
        if creations and not self._watch.running:
            self._watch.progress(now)
        return creations

    def wake_at(self, busy: bool = False) -> float | None:
        """When `take` and `take_creations` have to be called although nothing else happens."""
        if self._abandoned:
            return None
        times = [repair.wake_at() for path, repair in self.repairs.items() if path not in self._creating]
        if self._free_calls:  # without one, whatever is to go waits for an answer and not for a time
            times.append(self._batcher.next_due(self._patience(busy)))
            if self._retries:
                times.append(self._retries[0][0])
        return min((time for time in times if time is not None), default=None)

    def succeeded(self, batch: Batch, now: float) -> None:
        """The service has stored the batch."""
        topic = self._answered(batch)
        if self._abandoned:
            return
        self._progressed(now)
        self._rejected_in_a_row = 0
        if topic.repair is not None:
            self._resume(topic, now)
        self._batcher.completed(batch)
        self._settle(topic, batch)

    def failed(self, batch: Batch, refusal: Refusal, now: float) -> PublishError | None:
        """The batch was not published: decides what becomes of it. Returns what fails the job, after which it is abandoned."""
        topic = self._answered(batch)
        if self._abandoned:
            return None
        batch.refusal = refusal
        if refusal.verdict is not Verdict.INVALID or batch.messages == 1:
            self.failures[refusal.code] += 1
        return self._ended_by(self._decide(topic, batch, refusal, now))

    def created(self, path: str, now: float) -> None:
        """The topic exists now."""
        del self._creating[path]
        self._progressed(now)
        repair = self.repairs.get(path)
        if repair is None or not repair.created_once:
            self.topics_created += 1
        if repair is not None:
            repair.created(now, self._jitter())

    def not_created(self, path: str, refusal: Refusal, now: float) -> PublishError | None:
        """The topic could not be created. Returns what fails the job, after which it is abandoned."""
        del self._creating[path]
        self._progressed(now)
        repair = self.repairs.get(path)
        if self._abandoned or repair is None:
            return None
        self.failures[refusal.code] += 1
        if refusal.verdict is Verdict.PASSING:
            return self._ended_by(repair.attempt_failed(refusal, now, self._jitter()))
        problem = (
            f"the topic is missing and cannot be created: {refusal.reason}. Creating it takes the permission "
            "pubsub.topics.create on its project and valid topic_create_options"
        )
        return self._ended_by(PublishError(path, refusal.code, problem))

    def take_rejected(self) -> list[Rejection]:
        """Messages for the failure handler, each to be answered by `dropped` unless the handler fails the job."""
        rejected, self.rejected = self.rejected, []
        return rejected

    def dropped(self, rejection: Rejection) -> PublishError | None:
        """The handler is done with the message. Returns what fails the job, after which it is abandoned."""
        if self._abandoned:
            return None
        if rejection.too_many:
            problem = (
                f"{self._rules.max_consecutive_rejections} messages in a row were refused for themselves, none published in "
                f"between, and max_consecutive_rejections allows no more; the last one with {rejection.refusal}"
            )
            return self._ended_by(PublishError(rejection.batch.lane[0], rejection.refusal.code, problem))
        self._batcher.completed(rejection.batch)
        self._settle(self._topics.by_path[rejection.batch.lane[0]], rejection.batch)
        return None

    def check(self, now: float) -> Standstill | None:
        """Whether publishes have been standing still for so long that it should be told; `standstill` says it."""
        return None if self._abandoned else self._watch.check(now)

    def check_at(self, now: float) -> float:
        """When to call `check` next, whatever happens until then."""
        return self._watch.check_at(now)

    def standstill(self, seconds: float, oldest: Batch | None) -> PublishError:
        """What a standstill of that long comes to. `oldest` is the batch that has been out for longest."""
        if self._flushes.pending:
            wait = "a flush"
        elif self._waiting:
            wait = f"one of {len(self._topics.by_path)} topics in use to be settled, as max_active_publishers allows no more"
        elif self._room_wanted:
            wait = "room for more messages in flight"
        else:
            wait = "answers"
        batch = oldest or (self._retries[0][2] if self._retries else None)
        refusal = None if batch is None else batch.refusal
        last = "no call has been answered" if refusal is None else f"the last answer was {refusal}"
        problem = (
            f"Pub/Sub has completed no publish for {seconds:.1f} s while the sink waits for {wait}: "
            f"{self.records} messages are outstanding, and {last}"
        )
        topic = next(iter(self._creating), "any topic") if batch is None else batch.lane[0]
        return PublishError(topic, "DEADLINE_EXCEEDED" if refusal is None else refusal.code, problem)

    def abandon(self) -> None:
        """Ends it: nothing is sent or settled from here on."""
        self._abandoned = True

    def take_settled(self) -> Settled | None:
        """What was settled since the last call, if anything."""
        if self._abandoned:
            return None
        flushes = self._flushes.complete()
        if not self._settled_records and not flushes:
            return None
        settled = Settled(self._settled_records, self._settled_size, flushes)
        self._settled_records = self._settled_size = 0
        return settled

    def _admit_waiting(self, now: float) -> None:
        while self._waiting and self._topics.admit(self._waiting[0][1][0]):
            epoch, lane, data, ends = self._waiting.popleft()
            self._topics.added(lane[0], len(ends), now)
            self._batcher.add(lane, data, ends, now, epoch)
            if epoch != self._flushes.epoch and (not self._waiting or self._waiting[0][0] != epoch):
                self._batcher.flush()  # no batch spans a flush
        if self._waiting:
            self._batcher.send_now()

    def _answered(self, batch: Batch) -> Topic:
        self._free_calls += 1
        self._records_out -= batch.messages
        topic = self._topics.by_path[batch.lane[0]]
        topic.out -= 1
        return topic

    def _patience(self, busy: bool) -> float:
        return 0 if self._waiting else patience(self._rules, self.records, self.size, self._records_out, busy)

    def _next(self, now: float, busy: bool) -> Batch | None:
        for repair in self.repairs.values():
            if (probe := repair.due(now)) is not None:
                return probe
        while True:
            again = bool(self._retries) and self._retries[0][0] <= now
            batch = heappop(self._retries)[2] if again else self._batcher.released()
            if batch is None:
                batch = self._batcher.due(now, self._patience(busy))
            if batch is None or not self.repairs:
                return batch
            found = self.repairs.get(batch.lane[0])
            if found is None or found.probe is batch:
                return batch
            found.park(batch)

    def _decide(self, topic: Topic, batch: Batch, refusal: Refusal, now: float) -> PublishError | None:
        if refusal.verdict is Verdict.PASSING:
            return self._again(batch, refusal, now)
        self._progressed(now)
        if refusal.verdict is Verdict.MISSING_TOPIC:
            return self._repair(topic, batch, refusal, now)
        if refusal.verdict is Verdict.FATAL:
            return PublishError(topic.path, refusal.code, f"{refusal.reason} (after {batch.attempts})")
        repair = topic.repair
        if repair is not None and repair.probe is batch:
            repair.probe_refused(now)
        if batch.messages > 1:
            self._batcher.isolate(batch)
            return None
        if repair is not None:
            repair.rejected += 1
        self._rejected_in_a_row += 1
        self.rejected.append(Rejection(batch, refusal, self._rejected_in_a_row == self._rules.max_consecutive_rejections))
        return None

    def _again(self, batch: Batch, refusal: Refusal, now: float) -> PublishError | None:
        assert batch.attempts is not None
        at = batch.attempts.next_at(now, self._jitter())
        if at is not None:
            heappush(self._retries, (at, batch.order, batch))
            return None
        problem = (
            f"Pub/Sub did not take {batch.messages} messages within the retry budget: {batch.attempts} in "
            f"{now - batch.attempts.began:.1f} s, the last one ended with {refusal}"
        )
        return PublishError(batch.lane[0], refusal.code, problem)

    def _repair(self, topic: Topic, batch: Batch, refusal: Refusal, now: float) -> PublishError | None:
        if self._rules.never_create is not None:
            return PublishError(
                topic.path, refusal.code, f"{refusal.reason} (after {batch.attempts}){self._rules.never_create}"
            )
        repair = topic.repair
        if repair is None:
            repair = topic.repair = self.repairs[topic.path] = TopicRepair(topic, self._rules.recovery)
        probed = repair.probe is batch
        repair.park(batch)
        return repair.attempt_failed(refusal, now, self._jitter()) if probed else None

    def _resume(self, topic: Topic, now: float) -> None:
        repair = self._end_repair(topic)
        for batch in repair.parked():
            heappush(self._retries, (now, batch.order, batch))

    def _end_repair(self, topic: Topic) -> TopicRepair:
        del self.repairs[topic.path]
        repair, topic.repair = topic.repair, None
        assert repair is not None
        return repair

    def _ended_by(self, error: PublishError | None) -> PublishError | None:
        if error is not None:
            self.abandon()
        return error

    def _progressed(self, now: float) -> None:
        if self._free_calls < self._rules.max_calls or self._retries or self._creating:
            self._watch.progress(now)
        else:
            self._watch.stop()

    def _settle(self, topic: Topic, batch: Batch) -> None:
        self._topics.settled(topic, batch.messages)
        if topic.repair is not None and not topic.unsettled:
            self._end_repair(topic)
        self._flushes.settled(batch.epoch, batch.messages)
        self._room_wanted = False
        self._settled_records += batch.messages
        self._settled_size += batch.size
        self.records -= batch.messages
        self.size -= batch.size
