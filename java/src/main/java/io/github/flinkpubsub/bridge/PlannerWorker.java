package io.github.flinkpubsub.bridge;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import org.apache.flink.metrics.MetricGroup;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;

/** One run of a planner: a worker that lives for a single question. */
final class PlannerWorker implements WorkerListener {
    private static final Duration CLOSE_BUDGET = Duration.ofSeconds(5);

    private final int parallelism;
    private final CompletableFuture<Plan> answer = new CompletableFuture<>();

    private PlannerWorker(int parallelism) {
        this.parallelism = parallelism;
    }

    /** Which subtask reads which splits, and what the enumerator has to remember. */
    static final class Plan {
        final Map<Integer, List<PythonSplit>> splits;
        final byte[] state;

        private Plan(Map<Integer, List<PythonSplit>> splits, byte[] state) {
            this.splits = splits;
            this.state = state;
        }
    }

    /**
     * Makes a plan, however long that takes. An interrupt kills the worker.
     *
     * @param state JSON of an earlier plan, or {@code null} in JSON
     * @throws WorkerException if the worker failed; the message is the worker's
     */
    static Plan run(WorkerSpec spec, byte[] connector, int parallelism, JsonNode state, MetricGroup metrics)
            throws InterruptedException {
        PlannerWorker planner = new PlannerWorker(parallelism);
        WorkerProcess process = WorkerProcess.start(spec, "planner", 0, parallelism, connector, metrics, planner);
        try {
            ObjectNode body = Frames.newJson();
            body.set("state", state);
            process.sendJson(Frames.PLAN, body);
            Plan plan = planner.answer.get();
            process.close(CLOSE_BUDGET);
            return plan;
        } catch (ExecutionException e) {
            throw (WorkerException) e.getCause();
        } finally {
            process.destroy();
        }
    }

    @Override
    public void onReady(JsonNode settings) {}

    @Override
    public void onFrame(int kind, byte[] body) throws ProtocolException {
        if (kind != Frames.PLANNED) {
            throw new ProtocolException("a " + Frames.name(kind) + " frame is not for a planner");
        }
        JsonNode planned = Frames.decodeJson(kind, body);
        Map<Integer, List<PythonSplit>> splits = new HashMap<>();
        Set<String> ids = new HashSet<>();
        for (JsonNode entry : planned.path("splits")) {
            String id = Frames.text(kind, entry, "id");
            long owner = Frames.integer(kind, entry, "owner");
            if (!ids.add(id) || owner < 0 || owner >= parallelism) {
                throw new ProtocolException(
                        "split " + id + " is planned twice, or for subtask " + owner + " of " + parallelism);
            }
            splits.computeIfAbsent((int) owner, subtask -> new ArrayList<>())
                    .add(new PythonSplit(id, Frames.text(kind, entry, "data")));
        }
        answer.complete(new Plan(splits, Frames.encodeJson(planned.path("state"))));
    }

    @Override
    public void onFailure(WorkerException cause) {
        answer.completeExceptionally(cause);
    }
}
