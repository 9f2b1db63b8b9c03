package io.github.flinkpubsub.bridge;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Base64;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.flink.metrics.groups.UnregisteredMetricsGroup;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;

/** One run of a builder: a worker that makes a connector of a request, where there is no Python client to make one. */
public final class BuilderWorker implements WorkerListener {
    private static final Duration CLOSE_BUDGET = Duration.ofSeconds(5);

    /** Far more than a builder takes: it computes, and asks nobody. */
    private static final Duration DEADLINE = Duration.ofMinutes(2);

    private final CompletableFuture<Answer> answer = new CompletableFuture<>();

    private BuilderWorker() {}

    /** What became of a request: a connector, or the reason why there is none. */
    public static final class Answer {
        /** Why the request was refused; null when it was not, and the rest is null when it was. */
        public final String refusal;
        /** The pickled connector. */
        public final byte[] connector;
        /** What else the builder says of it. */
        public final JsonNode facts;

        private Answer(String refusal, byte[] connector, JsonNode facts) {
            this.refusal = refusal;
            this.connector = connector;
            this.facts = facts;
        }
    }

    /**
     * Has a connector built, within two minutes. An interrupt kills the worker.
     *
     * @param module the Python module with the builder
     * @param function the builder's name there
     * @param request a JSON object that the builder understands
     * @throws WorkerException if the worker could not be started, failed, or did not answer in time
     */
    public static Answer run(WorkerSpec spec, String module, String function, JsonNode request) throws InterruptedException {
        BuilderWorker builder = new BuilderWorker();
        // A pickle of a function is a reference to it: one instruction, and the end.
        byte[] reference = ("c" + module + "\n" + function + "\n.").getBytes(StandardCharsets.US_ASCII);
        WorkerProcess process =
                WorkerProcess.start(spec, "builder", 0, 1, reference, new UnregisteredMetricsGroup(), builder);
        try {
            process.sendJson(Frames.BUILD, request);
            Answer answer = builder.answer.get(DEADLINE.toMillis(), TimeUnit.MILLISECONDS);
            process.close(CLOSE_BUDGET);
            return answer;
        } catch (ExecutionException e) {
            throw (WorkerException) e.getCause();
        } catch (TimeoutException e) {
            throw new WorkerException(process + " did not answer within " + DEADLINE.getSeconds() + " s");
        } finally {
            process.destroy();
        }
    }

    @Override
    public void onReady(JsonNode settings) {}

    @Override
    public void onFrame(int kind, byte[] body) throws ProtocolException {
        if (kind != Frames.BUILT) {
            throw new ProtocolException("a " + Frames.name(kind) + " frame is not for a builder");
        }
        JsonNode built = Frames.decodeJson(kind, body);
        if (built.has("refused")) {
            answer.complete(new Answer(Frames.text(kind, built, "refused"), null, null));
            return;
        }
        byte[] connector;
        try {
            connector = Base64.getDecoder().decode(Frames.text(kind, built, "connector"));
        } catch (IllegalArgumentException e) {
            throw new ProtocolException("the connector in a BUILT frame is not base64: " + e.getMessage());
        }
        answer.complete(new Answer(null, connector, built.path("facts")));
    }

    @Override
    public void onFailure(WorkerException cause) {
        answer.completeExceptionally(cause);
    }
}
