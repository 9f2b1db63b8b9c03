package io.github.flinkpubsub.bridge;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.time.Duration;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A reader's worker, and the place where the task thread, Flink's fetcher and the worker's stdout thread meet.
 *
 * <p>Batches are pulled by credit: a FETCH goes out when the fetcher first waits, and again when it takes a batch, so at most
 * one batch waits here while the job emits the ones before. A batch nobody asked for breaks the protocol.
 *
 * <p>A failure of the worker surfaces on the task thread at its next call. A task that is blocked by its downstream makes none;
 * if it has not heard of the failure after {@link #SURFACE_SECONDS}, the enumerator is told instead, and fails the job.
 */
final class ReaderWorker implements WorkerListener {
    private static final Logger LOG = LoggerFactory.getLogger(ReaderWorker.class);
    private static final byte[] NOTHING = new byte[0];
    private static final int SURFACE_SECONDS = 2;

    /** What the worker gets on top of its own time limits, so that it is the one to say what was too slow. */
    private static final double GRACE_SECONDS = 2;

    /** A reply that takes this long means that the worker is stuck. */
    private static final double WITHDRAWAL_SECONDS = 60;

    private static final int MAX_CAUSES = 3;

    private final WorkerSpec spec;
    private final byte[] connector;
    private final SourceReaderContext context;
    private final List<PythonSplit> splits = new CopyOnWriteArrayList<>();
    private final BufferedBatches buffered;

    private final ReentrantLock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();
    private WorkerProcess process;
    private boolean requested;
    private boolean wokenUp;
    private RecordBatch batch;
    private long settledCheckpoint = -1;
    private Withdrawal withdrawal;
    private boolean surfaced;
    private boolean closed;
    private volatile Thread reporter;

    private volatile WorkerException failure;
    private volatile ReaderSettings settings;

    ReaderWorker(WorkerSpec spec, byte[] connector, SourceReaderContext context) {
        this.spec = spec;
        this.connector = connector;
        this.context = context;
        this.buffered = new BufferedBatches(context.metricGroup());
    }

    // The task thread.

    /** Gives the worker more splits, and starts it with the first. */
    void assign(List<PythonSplit> added) {
        if (added.isEmpty()) {
            return;
        }
        throwIfFailed();
        ObjectNode body = Frames.newJson();
        ArrayNode list = body.putArray("splits");
        added.forEach(split -> list.addObject().put("id", split.splitId()).put("data", split.data()));
        WorkerProcess worker = process;
        if (worker == null) {
            worker = WorkerProcess.start(
                    spec.on(context.getConfiguration()),
                    "reader",
                    context.getIndexOfSubtask(),
                    context.currentParallelism(),
                    connector,
                    context.metricGroup(),
                    this);
        }
        splits.addAll(added);
        lock.lock();
        try {
            process = worker;
            worker.sendJson(Frames.ASSIGN, body);
            changed.signalAll();
        } finally {
            lock.unlock();
        }
    }

    /** Throws the worker's failure, if there is one, and notes that the task knows. Cheap enough for every record. */
    void throwIfFailed() {
        WorkerException cause = failure;
        if (cause == null) {
            return;
        }
        lock.lock();
        try {
            surfaced = true;
            changed.signalAll();
        } finally {
            lock.unlock();
        }
        throw cause;
    }

    /** Stops or continues draining splits. */
    void pauseOrResume(Collection<String> pause, Collection<String> resume) {
        throwIfFailed();
        if (process == null) {
            return;
        }
        ObjectNode body = Frames.newJson();
        pause.forEach(body.putArray("pause")::add);
        resume.forEach(body.putArray("resume")::add);
        process.sendJson(Frames.PAUSE_RESUME, body);
    }

    /** Tells which messages a checkpoint covers. */
    void snapshot(long checkpoint, Collection<SplitProgress> progress) {
        throwIfFailed();
        if (process == null) {
            return;
        }
        ObjectNode body = Frames.newJson().put("checkpoint", checkpoint);
        ObjectNode positions = body.putObject("positions");
        for (SplitProgress split : progress) {
            if (split.started()) {
                positions.put(split.split.splitId(), split.last());
            }
        }
        process.sendJson(Frames.SNAPSHOT, body);
    }

    /**
     * Tells that a checkpoint is complete, and waits for the worker's word if its settings ask for it.
     *
     * @throws WorkerException if the word does not come in time
     */
    void checkpointComplete(long checkpoint) throws InterruptedException {
        throwIfFailed();
        if (process == null) {
            return;
        }
        process.sendJson(Frames.CHECKPOINT_COMPLETE, Frames.newJson().put("checkpoint", checkpoint));
        ReaderSettings now = settings;
        if (now != null && now.awaitCheckpointSeconds > 0) {
            awaitSettled(checkpoint, now.awaitCheckpointSeconds);
        }
    }

    private void awaitSettled(long checkpoint, double seconds) throws InterruptedException {
        lock.lock();
        try {
            await(() -> settledCheckpoint >= checkpoint, seconds + GRACE_SECONDS, "settle checkpoint " + checkpoint);
        } finally {
            lock.unlock();
        }
    }

    /** Waits for what the stdout thread brings about, with the lock held. */
    private void await(BooleanSupplier done, double seconds, String what) throws InterruptedException {
        long left = (long) (seconds * 1e9);
        while (!done.getAsBoolean() && failure == null && left > 0) {
            left = changed.awaitNanos(left);
        }
        throwIfFailed();
        if (!done.getAsBoolean()) {
            throw new WorkerException(process + " did not " + what + " within " + seconds + " s");
        }
    }

    /** Whether a message that cannot be decoded fails the task. */
    boolean failsOnRecordFailure() {
        return settings.failOnRecordFailure;
    }

    /** Tells that a message could not be decoded or, when {@code emitting}, that the job failed on its records. */
    void recordFailed(PythonSplit split, long sequence, Throwable error, boolean emitting) {
        process.sendJson(
                Frames.RECORD_FAILED,
                Frames.newJson()
                        .put("split", split.splitId())
                        .put("sequence", sequence)
                        .put("error", kind(error))
                        .put("emitting", emitting));
    }

    /** The classes of an error and its causes. Messages of decoders quote what they decode, which is not for logs. */
    static String kind(Throwable error) {
        StringBuilder kind = new StringBuilder(error.getClass().getName());
        Throwable cause = error.getCause();
        for (int i = 0; i < MAX_CAUSES && cause != null; i++, cause = cause.getCause()) {
            kind.append(" caused by ").append(cause.getClass().getName());
        }
        return kind.toString();
    }

    /**
     * The messages that are not to be emitted because of a failure just reported. Waits for the worker's word if its settings ask
     * for that.
     */
    Set<Long> awaitWithdrawn(PythonSplit split, long sequence) throws InterruptedException {
        if (!settings.awaitRecordFailure) {
            return Collections.emptySet();
        }
        lock.lock();
        try {
            await(
                    () -> withdrawal != null && withdrawal.answers(split, sequence),
                    WITHDRAWAL_SECONDS,
                    "answer that message " + sequence + " of split " + split + " failed");
            return withdrawal.sequences;
        } finally {
            lock.unlock();
        }
    }

    /** Ends the wait of the fetcher and of a failure that is not reported yet; what fails from now on fails unheard. */
    void stop() {
        lock.lock();
        try {
            closed = true;
            changed.signalAll();
        } finally {
            lock.unlock();
        }
    }

    /** Ends the worker within the budget it asked for. */
    void close() {
        stop();
        if (process != null) {
            process.close(Duration.ofMillis(settings == null ? 0 : (long) (settings.closeSeconds * 1000)));
        }
        Thread ending = reporter;
        if (ending != null) {
            try {
                ending.join(TimeUnit.SECONDS.toMillis(1));
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }
    }

    // The fetcher.

    /** The next batch, or an empty one after {@link #wakeUp}. Waits as long as it takes. */
    RecordBatch fetch() throws IOException {
        lock.lock();
        try {
            while (batch == null && failure == null && !wokenUp && !closed) {
                request();
                changed.await();
            }
            wokenUp = false;
            if (failure != null) {
                throw failure;
            }
            if (batch == null) {
                return RecordBatch.EMPTY;
            }
            RecordBatch fetched = batch;
            batch = null;
            requested = false;
            request();
            return fetched;
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new InterruptedIOException("interrupted while waiting for a batch of " + process);
        } finally {
            lock.unlock();
        }
    }

    private void request() {
        if (!requested && process != null) {
            process.send(Frames.FETCH, NOTHING);
            requested = true;
        }
    }

    /** Makes a waiting {@link #fetch}, or else the next one, return. Any thread. */
    void wakeUp() {
        lock.lock();
        try {
            wokenUp = true;
            changed.signalAll();
        } finally {
            lock.unlock();
        }
    }

    // The worker's stdout thread.

    @Override
    public void onReady(JsonNode body) throws ProtocolException {
        settings = ReaderSettings.of(body);
    }

    @Override
    public void onFrame(int kind, byte[] body) throws ProtocolException {
        lock.lock();
        try {
            if (kind == Frames.RECORDS) {
                if (!requested || batch != null) {
                    throw new ProtocolException("a RECORDS frame came without being asked for");
                }
                batch = RecordBatch.parse(body, splits).countedIn(buffered);
            } else if (kind == Frames.CHECKPOINT_SETTLED) {
                long checkpoint = Frames.integer(kind, Frames.decodeJson(kind, body), "checkpoint");
                settledCheckpoint = Math.max(settledCheckpoint, checkpoint);
            } else if (kind == Frames.RECORDS_WITHDRAWN) {
                withdrawal = Withdrawal.of(Frames.decodeJson(kind, body));
            } else {
                throw new ProtocolException("a " + Frames.name(kind) + " frame is not for a reader");
            }
            changed.signalAll();
        } finally {
            lock.unlock();
        }
    }

    @Override
    public void onFailure(WorkerException cause) {
        lock.lock();
        try {
            failure = cause;
            changed.signalAll();
            reporter = new Thread(() -> reportUnlessSurfaced(cause), Thread.currentThread().getName() + " failure");
            reporter.setDaemon(true);
            reporter.start();
        } finally {
            lock.unlock();
        }
    }

    /** Ends by itself once the task knows or is closed. */
    private void reportUnlessSurfaced(WorkerException cause) {
        lock.lock();
        try {
            long left = TimeUnit.SECONDS.toNanos(SURFACE_SECONDS);
            while (!surfaced && !closed && left > 0) {
                left = changed.awaitNanos(left);
            }
            if (surfaced || closed) {
                return;
            }
        } catch (InterruptedException e) {
            return;
        } finally {
            lock.unlock();
        }
        LOG.warn("The task is blocked and does not hear that its worker failed; the source's coordinator is told");
        context.sendSourceEventToCoordinator(new WorkerFailedEvent(cause.getMessage()));
    }
}
