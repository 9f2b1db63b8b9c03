package io.github.flinkpubsub.bridge;

import java.io.IOException;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.BooleanSupplier;
import org.apache.flink.api.common.operators.MailboxExecutor;
import org.apache.flink.api.common.operators.ProcessingTimeService;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.util.function.ThrowingRunnable;

/**
 * Hands elements to a worker in batches and keeps what is in flight within the worker's caps.
 *
 * <p>The life of an element:
 *
 * <ol>
 *   <li>It is encoded at the end of the batch. No byte of it counts yet.
 *   <li>Room: when it would exceed a cap, what was added before goes out, the worker is told that nothing more comes, and the
 *       task thread yields to Flink's mailbox until a batch is settled, so that the next one is no small one. With nothing in
 *       flight it is always let in.
 *   <li>It is added to the batch and in flight from then on.
 *   <li>The batch goes to the worker when it is full, old, followed by an element of another watermark, or flushed.
 *   <li>The worker settles it: its answer is there. Or the worker fails, and with it the job.
 * </ol>
 *
 * <p>Nothing is kept in state: a flush returns once every element before it is settled. The task thread never waits but by
 * yielding, so checkpoints and timers go on. The worker's thread only raises counters, and wakes the task thread by a mail
 * when that waits. A failure ends a wait at once; otherwise it fails the task by a mail.
 */
final class PythonSinkWriter<T> implements SinkWriter<T>, WorkerListener {
    private static final int BATCH_ELEMENTS = 1000;
    private static final int BATCH_BYTES = 1024 * 1024;
    /** A batch is at most this part of a cap, so that the worker has the next while it settles one. */
    private static final int BATCHES_PER_CAP = 4;
    /** How long a partial batch waits for more: short against a publish call, long against the pace worth batching. */
    private static final long BATCH_MILLIS = 3;
    private static final Duration CLOSE_BEFORE_READY = Duration.ofSeconds(30);

    private final WriteBatch<T> batch;
    private final MailboxExecutor mailbox;
    private final ProcessingTimeService timers;
    private WorkerProcess worker;

    private Settings settings;
    private long watermark = Frames.NO_TIMESTAMP;
    private long writtenRecords;
    private long writtenBytes;
    private long flushes;
    private long batches;
    private boolean timerSet;

    private volatile Settings announced;
    private volatile long settledRecords;
    private volatile long settledBytes;
    private volatile long flushed;
    private final AtomicBoolean waiting = new AtomicBoolean();

    PythonSinkWriter(WriteBatch<T> batch, MailboxExecutor mailbox, ProcessingTimeService timers) {
        this.batch = batch;
        this.mailbox = mailbox;
        this.timers = timers;
    }

    /** Called once, before anything else. The worker may have called the listener's methods already. */
    void start(WorkerProcess started) {
        worker = started;
    }

    @Override
    public void write(T element, Context context) throws IOException, InterruptedException {
        worker.throwIfFailed();
        awaitReady();
        long bytes = batch.encode(element);
        if (!hasRoom(bytes)) {
            send();
            worker.send(Frames.SEND_NOW, new byte[0]);
            await(() -> hasRoomForBatch(bytes));
        }
        if (settings.timestamps && context.currentWatermark() != watermark) {
            send();
            watermark = context.currentWatermark();
        } else if (!batch.fits()) {
            send();
        }
        batch.add(settings.timestamps && context.timestamp() != null ? context.timestamp() : Frames.NO_TIMESTAMP);
        writtenRecords++;
        writtenBytes += bytes;
        if (batch.size() >= settings.batchElements || batch.bodyBytes() >= settings.batchBytes) {
            send();
        } else if (!timerSet) {
            setTimer();
        }
    }

    private boolean hasRoom(long bytes) {
        long records = writtenRecords - settledRecords;
        return records <= 0
                || (records < settings.maxRecords && writtenBytes - settledBytes + bytes <= settings.maxBytes);
    }

    private boolean hasRoomForBatch(long bytes) {
        long records = writtenRecords - settledRecords;
        return records <= 0
                || (records <= settings.maxRecords - settings.batchElements
                        && writtenBytes - settledBytes + Math.max(bytes, settings.batchBytes) <= settings.maxBytes);
    }

    @Override
    public void flush(boolean endOfInput) throws IOException, InterruptedException {
        worker.throwIfFailed();
        awaitReady();
        send();
        long flush = ++flushes;
        worker.sendJson(Frames.FLUSH, Map.of("flush", flush, "end_of_input", endOfInput));
        await(() -> flushed >= flush);
    }

    private void send() throws IOException {
        if (batch.size() > 0) {
            batches++;
            worker.send(Frames.WRITE, batch.take(watermark));
        }
    }

    /** Sends the batch that is being filled now if it still is when the time is up; one that went earlier takes it over. */
    private void setTimer() {
        timerSet = true;
        long current = batches;
        timers.registerTimer(
                timers.getCurrentProcessingTime() + BATCH_MILLIS,
                time -> {
                    timerSet = false;
                    if (batches == current) {
                        send();
                    } else if (batch.size() > 0) {
                        setTimer();
                    }
                });
    }

    private void awaitReady() throws InterruptedException {
        if (settings != null) {
            return;
        }
        await(() -> announced != null);
        settings = announced;
        if (settings.timestamps) {
            batch.withTimestamps();
        }
        if (settings.takesFailures) {
            batch.withFailures();
        }
    }

    private void await(BooleanSupplier done) throws InterruptedException {
        worker.throwIfFailed();
        while (!done.getAsBoolean()) {
            // Announced first, looked at again after: a change in between finds the announcement, or is seen here.
            waiting.set(true);
            worker.throwIfFailed();
            if (!done.getAsBoolean()) {
                mailbox.yield();
            }
        }
        waiting.set(false);
    }

    @Override
    public void onReady(JsonNode ready) throws ProtocolException {
        announced = new Settings(ready);
        wake();
    }

    @Override
    public void onFrame(int kind, byte[] body) throws ProtocolException {
        JsonNode frame = Frames.decodeJson(kind, body);
        if (kind == Frames.SETTLED) {
            settledBytes += Frames.integer(kind, frame, "bytes");
            settledRecords += Frames.integer(kind, frame, "records");
        } else if (kind == Frames.FLUSHED) {
            flushed = Frames.integer(kind, frame, "flush");
        } else {
            throw new ProtocolException("a writer's worker cannot send " + Frames.name(kind));
        }
        wake();
    }

    @Override
    public void onFailure(WorkerException cause) {
        if (!wake()) {
            mail(() -> worker.throwIfFailed(), "fail with the worker");
        }
    }

    /** Whether the task thread was waiting, and now is not. */
    private boolean wake() {
        return waiting.compareAndSet(true, false) && mail(() -> {}, "look at the worker's progress");
    }

    private boolean mail(ThrowingRunnable<RuntimeException> action, String description) {
        try {
            mailbox.execute(action, description);
            return true;
        } catch (RejectedExecutionException e) {
            // The task is ending and waits for nothing any more.
            return false;
        }
    }

    @Override
    public void close() {
        Settings known = announced;
        worker.close(known == null ? CLOSE_BEFORE_READY : known.close);
    }
    /** What the worker asked for in READY. */
    private static final class Settings {
        private final Duration close;
        private final long maxRecords;
        private final long maxBytes;
        private final boolean timestamps;
        private final boolean takesFailures;
        private final int batchElements;
        private final int batchBytes;

        private Settings(JsonNode ready) throws ProtocolException {
            close = Duration.ofMillis((long) (Frames.number(Frames.READY, ready, "close_seconds") * 1000));
            maxRecords = Frames.integer(Frames.READY, ready, "max_in_flight_records");
            maxBytes = Frames.integer(Frames.READY, ready, "max_in_flight_bytes");
            timestamps = Frames.flag(Frames.READY, ready, "timestamps");
            takesFailures = Frames.flag(Frames.READY, ready, "takes_failures");
            batchElements = (int) Math.max(1, Math.min(BATCH_ELEMENTS, maxRecords / BATCHES_PER_CAP));
            batchBytes = (int) Math.max(1, Math.min(BATCH_BYTES, maxBytes / BATCHES_PER_CAP));
        }
    }
}
