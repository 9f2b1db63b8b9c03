package io.github.flinkpubsub.bridge;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.flink.api.connector.source.SourceEvent;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.api.connector.source.SplitsAssignment;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Hands out the splits that a planner worker planned.
 *
 * <p>The planner runs once per start, off the coordinator thread. Readers that register earlier wait. The plan does not change
 * afterwards, so a reader that registers, for the first time or again, gets the plan's splits for its subtask, and splits that
 * come back need no bookkeeping. State is the planner's JSON; until there is a plan it is what was restored.
 *
 * <p>All methods run on the coordinator thread.
 */
final class PythonEnumerator implements SplitEnumerator<PythonSplit, byte[]> {
    /** State of a job that has not planned yet. */
    static final byte[] NO_STATE = "null".getBytes(StandardCharsets.UTF_8);

    private static final Logger LOG = LoggerFactory.getLogger(PythonEnumerator.class);

    private final SplitEnumeratorContext<PythonSplit> context;
    private final WorkerSpec spec;
    private final byte[] connector;
    private final byte[] restored;
    private final EnumeratorMetrics metrics;
    private PlannerWorker.Plan plan;
    private volatile boolean closed;

    PythonEnumerator(SplitEnumeratorContext<PythonSplit> context, WorkerSpec spec, byte[] connector, byte[] restored) {
        this.context = context;
        this.spec = spec;
        this.connector = connector;
        this.restored = restored;
        this.metrics = new EnumeratorMetrics(context.metricGroup());
    }

    @Override
    public void start() {
        int parallelism = context.currentParallelism();
        context.callAsync(() -> plan(parallelism), this::planned);
    }

    /** On one of Flink's worker threads, which closing the coordinator interrupts: that kills the planner. */
    private PlannerWorker.Plan plan(int parallelism) throws IOException, InterruptedException {
        JsonNode state = Frames.parse(restored);
        return PlannerWorker.run(spec, connector, parallelism, state, context.metricGroup());
    }

    private void planned(PlannerWorker.Plan made, Throwable failure) {
        if (closed || failure instanceof InterruptedException) {
            LOG.debug("Closed while planning");
            return;
        }
        if (failure != null) {
            throw failure instanceof WorkerException
                    ? (WorkerException) failure
                    : new WorkerException("The source cannot be planned: " + failure.getMessage(), failure);
        }
        plan = made;
        List.copyOf(context.registeredReaders().keySet()).forEach(this::assign);
        showMetrics();
    }

    @Override
    public void addReader(int subtask) {
        if (plan != null) {
            assign(subtask);
        }
        showMetrics();
    }

    private void assign(int subtask) {
        List<PythonSplit> splits = plan.splits.get(subtask);
        if (splits != null) {
            context.assignSplits(new SplitsAssignment<>(Collections.singletonMap(subtask, splits)));
        }
        context.signalNoMoreSplits(subtask);
    }

    /** A reader is gone, whatever it had. The one that registers next for the subtask gets its splits from the plan. */
    @Override
    public void addSplitsBack(List<PythonSplit> splits, int subtask) {
        showMetrics();
    }

    private void showMetrics() {
        Set<Integer> readers = context.registeredReaders().keySet();
        if (plan == null) {
            metrics.set(0, 0, readers.size());
            return;
        }
        int assigned = 0;
        int planned = 0;
        for (Map.Entry<Integer, List<PythonSplit>> splits : plan.splits.entrySet()) {
            planned += splits.getValue().size();
            assigned += readers.contains(splits.getKey()) ? splits.getValue().size() : 0;
        }
        metrics.set(assigned, planned - assigned, 0);
    }

    @Override
    public void handleSplitRequest(int subtask, String host) {
        // Splits are assigned, never requested.
    }

    @Override
    public void handleSourceEvent(int subtask, SourceEvent event) {
        if (!(event instanceof WorkerFailedEvent)) {
            throw new IllegalArgumentException("unknown event " + event);
        }
        throw new WorkerException(((WorkerFailedEvent) event).message);
    }

    @Override
    public byte[] snapshotState(long checkpoint) {
        return plan == null ? restored : plan.state;
    }

    @Override
    public void close() {
        closed = true;
        metrics.close();
    }

    /** State as it is stored: the planner's JSON in UTF-8. */
    static final class StateSerializer implements SimpleVersionedSerializer<byte[]> {
        private static final int VERSION = 1;

        @Override
        public int getVersion() {
            return VERSION;
        }

        @Override
        public byte[] serialize(byte[] state) {
            return state;
        }

        @Override
        public byte[] deserialize(int version, byte[] serialized) throws IOException {
            if (version != VERSION) {
                throw new IOException("the source's state has version " + version + "; this jar knows version " + VERSION);
            }
            return serialized;
        }
    }
}
