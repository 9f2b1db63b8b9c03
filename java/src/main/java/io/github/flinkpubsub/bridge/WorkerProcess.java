package io.github.flinkpubsub.bridge;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.flink.metrics.MetricGroup;
import org.apache.flink.util.IOUtils;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A Python worker and the three threads that serve its pipes.
 *
 * <p>The life of a worker:
 *
 * <ol>
 *   <li><em>Started.</em> The process runs; its HELLO is awaited for at most a minute.
 *   <li><em>Greeted.</em> HELLO matched this build; INIT and CONNECTOR go out.
 *   <li><em>Ready.</em> READY came; frames given to {@link #send} go out in order, those given earlier first. User code may
 *       take any time to get here, so this wait has no end but says in the log that it lasts.
 *   <li><em>Closed.</em> {@link #close} asked, waited its budget, and ended what was left; one that is not ready yet, or is
 *       {@linkplain #destroy destroyed}, is ended at once. Nothing is reported any more.
 *   <li>Or <em>failed</em>, from any of the first three: {@link WorkerListener#onFailure} is called once, every later send
 *       throws. The process then ends by itself, or in {@link #close}.
 * </ol>
 *
 * <p>Pipes cannot be interrupted in Java, so only these threads touch them: one reads stdout, one drains stderr, one writes
 * stdin from a {@link FrameQueue}. Everybody else hands over or waits interruptibly.
 */
final class WorkerProcess {
    private static final Logger LOG = LoggerFactory.getLogger(WorkerProcess.class);

    private static final Duration START_DEADLINE = Duration.ofSeconds(60);

    /** What a worker gets on top of its budget before it is killed, and what the end of its threads may take. */
    private static final Duration GRACE = Duration.ofSeconds(2);

    private final Process process;
    private final Handshake handshake;
    private final String name;
    private final byte[] init;
    private final byte[] connector;
    private final WorkerMetrics metrics;
    private final WorkerListener listener;
    private final WorkerErrorOutput errorOutput;
    private final FrameQueue outgoing = new FrameQueue();
    private final CompletableFuture<Void> greeted = new CompletableFuture<>();
    private final CompletableFuture<Void> ready = new CompletableFuture<>();
    private final CountDownLatch stdoutEnded = new CountDownLatch(1);
    private final AtomicReference<WorkerException> failure = new AtomicReference<>();
    private final AtomicBoolean closing = new AtomicBoolean();
    private final Thread stdout;
    private final Thread stderr;
    private final Thread stdin;

    private WorkerProcess(
            Process process, Handshake handshake, String name, byte[] init, byte[] connector, MetricGroup metrics,
            WorkerListener listener) {
        this.process = process;
        this.handshake = handshake;
        this.name = name;
        this.init = init;
        this.connector = connector;
        this.metrics = new WorkerMetrics(metrics);
        this.listener = listener;
        this.errorOutput = new WorkerErrorOutput(process.getErrorStream(), name);
        this.stdout = thread("stdout", this::readFrames);
        this.stderr = thread("stderr", errorOutput);
        this.stdin = thread("stdin", this::writeFrames);
    }

    /**
     * Starts a worker and returns at once; the listener hears how it goes. Its threads are named after the calling thread.
     *
     * @throws WorkerException if the interpreter cannot be started
     */
    static WorkerProcess start(
            WorkerSpec spec,
            String role,
            int subtask,
            int parallelism,
            byte[] connector,
            MetricGroup metrics,
            WorkerListener listener) {
        WorkerSpec.Interpreter interpreter = spec.interpreter();
        Handshake handshake = new Handshake(spec, interpreter);
        Process process;
        try {
            process = new ProcessBuilder(interpreter.path, "-m", "flink_pubsub.bridge", role).start();
        } catch (IOException e) {
            throw handshake.notStartable(e);
        }
        boolean ofSubtask = role.equals("reader") || role.equals("writer");
        String name = "Python " + role + (ofSubtask ? " " + (subtask + 1) + "/" + parallelism : "");
        LOG.info("Started {} as process {} with {}", name, process.pid(), interpreter);
        byte[] init = handshake.init(role, subtask, parallelism);
        WorkerProcess worker = new WorkerProcess(process, handshake, name, init, connector, metrics, listener);
        worker.stdout.start();
        worker.stderr.start();
        worker.stdin.start();
        return worker;
    }

    private static Thread thread(String pipe, Runnable body) {
        Thread thread = new Thread(body, Thread.currentThread().getName() + " worker " + pipe);
        thread.setDaemon(true);
        return thread;
    }

    /** The worker as messages name it, such as {@code Python reader 2/4}. */
    @Override
    public String toString() {
        return name;
    }

    /** Hands a control frame to the stdin thread; see {@link #send(int, byte[], int, int)}. */
    void sendJson(int kind, Object body) {
        send(kind, Frames.encodeJson(body));
    }

    /** Hands a frame to the stdin thread; see {@link #send(int, byte[], int, int)}. */
    void send(int kind, byte[] body) {
        send(kind, body, 0, body.length);
    }

    /**
     * Hands a frame to the stdin thread. Never blocks; any thread. The array must not change afterwards.
     *
     * @throws WorkerException if the worker failed, was closed, reads no more, or the body exceeds a frame
     */
    void send(int kind, byte[] body, int offset, int size) {
        throwIfFailed();
        if (closing.get()) {
            throw new WorkerException(name + " is closed");
        }
        try {
            Frames.requireAllowed(kind, size);
        } catch (ProtocolException e) {
            throw new WorkerException(name + ": " + e.getMessage(), e);
        }
        if (!outgoing.offer(kind, body, offset, size)) {
            throw new WorkerException(name + " stopped reading: " + FrameQueue.CAPACITY + " frames wait for it");
        }
    }

    /** Throws what the worker failed with, if it did. */
    void throwIfFailed() {
        WorkerException cause = failure.get();
        if (cause != null) {
            throw cause;
        }
    }

    /**
     * Ends the worker: asks it to close within the budget, kills it a little later, and joins the threads. Returns within the
     * budget and a few seconds, kills at once when the caller is interrupted (and leaves it interrupted). Idempotent.
     */
    void close(Duration budget) {
        if (closing.compareAndSet(false, true)) {
            boolean interrupted = false;
            try {
                awaitEnd(budget);
            } catch (InterruptedException e) {
                interrupted = true;
            }
            end(interrupted);
        }
    }

    /** Kills a worker that has nothing to give back, and joins the threads. Idempotent. */
    void destroy() {
        if (closing.compareAndSet(false, true)) {
            end(false);
        }
    }

    private void awaitEnd(Duration budget) throws InterruptedException {
        Duration patience = GRACE;
        if (ready.isDone() && !ready.isCompletedExceptionally()) {
            byte[] body = Frames.encodeJson(Frames.newJson().put("seconds", budget.toMillis() / 1000.0));
            patience = outgoing.offer(Frames.CLOSE, body, 0, body.length) ? budget.plus(GRACE) : Duration.ZERO;
        } else if (failure.get() == null) {
            LOG.info("{} (process {}) is killed before it is ready", name, process.pid());
            return;
        }
        if (!process.waitFor(patience.toMillis(), TimeUnit.MILLISECONDS)) {
            LOG.warn("{} (process {}) did not end within {} s and is killed", name, process.pid(), patience.toMillis() / 1000.0);
        }
    }

    /** Ends what is left: the process, and then the threads, whose pipes are broken by that. */
    private void end(boolean interrupted) {
        kill();
        WorkerException closed = new WorkerException(name + " is closed");
        greeted.completeExceptionally(closed);
        ready.completeExceptionally(closed);
        stdin.interrupt();
        long deadline = System.nanoTime() + GRACE.toNanos();
        for (Thread thread : new Thread[] {stdout, stdin, stderr}) {
            interrupted |= !join(thread, deadline);
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private boolean join(Thread thread, long deadline) {
        if (thread == Thread.currentThread()) {
            return true;
        }
        try {
            thread.join(Math.max(1, TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime())));
        } catch (InterruptedException e) {
            return false;
        }
        if (thread.isAlive()) {
            LOG.warn("{} does not end: something holds the pipe of {} open", thread.getName(), name);
        }
        return true;
    }

    private void kill() {
        if (process.isAlive()) {
            process.descendants().forEach(ProcessHandle::destroyForcibly);
            process.destroyForcibly();
        }
    }

    private void fail(WorkerException cause) {
        if (!failure.compareAndSet(null, cause)) {
            return;
        }
        greeted.completeExceptionally(cause);
        ready.completeExceptionally(cause);
        if (closing.get()) {
            LOG.debug("{} failed while it was closed", name, cause);
        } else {
            listener.onFailure(cause);
        }
    }

    // The stdin thread.

    private void writeFrames() {
        OutputStream out = process.getOutputStream();
        try {
            awaitGreeting();
            Frames.write(out, Frames.INIT, init);
            Frames.write(out, Frames.CONNECTOR, connector);
            out.flush();
            awaitReady();
            outgoing.drainTo(out);
            stdoutEnded.await();
        } catch (IOException e) {
            brokenPipe(e);
        } catch (InterruptedException | ExecutionException e) {
            LOG.debug("{} is not written to any more", name);
        } finally {
            IOUtils.closeQuietly(out);
        }
    }

    private void awaitGreeting() throws InterruptedException, ExecutionException {
        try {
            greeted.get(START_DEADLINE.toMillis(), TimeUnit.MILLISECONDS);
        } catch (TimeoutException e) {
            fail(handshake.notStarted("it did not answer within " + START_DEADLINE.getSeconds() + " s", errorOutput.tail()));
            kill();
            greeted.get();
        }
    }

    private void awaitReady() throws InterruptedException, ExecutionException {
        while (true) {
            try {
                ready.get(START_DEADLINE.toMillis(), TimeUnit.MILLISECONDS);
                return;
            } catch (TimeoutException e) {
                LOG.warn("{} is still opening its connector", name);
            }
        }
    }

    /** A worker that dies breaks its stdin too; how it died is the better story, and the stdout thread tells it. */
    private void brokenPipe(IOException cause) {
        try {
            if (!stdoutEnded.await(GRACE.toMillis(), TimeUnit.MILLISECONDS)) {
                fail(new WorkerException(name + " closed its stdin: " + cause.getMessage(), cause));
            }
        } catch (InterruptedException e) {
            LOG.debug("{} is closed with a broken stdin", name, cause);
        }
    }

    // The stdout thread.

    private void readFrames() {
        try {
            InputStream in = process.getInputStream();
            if (greet(Frames.read(in))) {
                for (Frames.Frame frame = Frames.read(in); frame != null; frame = Frames.read(in)) {
                    dispatch(frame.kind, frame.body);
                }
            }
            ended();
        } catch (WorkerException e) {
            fail(e);
            kill();
        } catch (ProtocolException e) {
            if (e.isTruncated()) {
                ended();
            } else {
                broke(e);
            }
        } catch (Throwable e) {
            fail(new WorkerException(name + " cannot be read: " + e, e));
            kill();
        } finally {
            stdoutEnded.countDown();
        }
    }

    private boolean greet(Frames.Frame hello) throws ProtocolException {
        if (hello == null) {
            return false;
        }
        if (hello.kind != Frames.HELLO) {
            throw new ProtocolException("its first frame is " + Frames.name(hello.kind) + ", not HELLO");
        }
        handshake.check(Frames.decodeJson(hello.kind, hello.body));
        greeted.complete(null);
        return true;
    }

    private void dispatch(int kind, byte[] body) throws ProtocolException {
        switch (kind) {
            case Frames.READY:
                listener.onReady(Frames.decodeJson(kind, body));
                ready.complete(null);
                break;
            case Frames.METRICS:
                metrics.update(Frames.decodeJson(kind, body));
                break;
            case Frames.LOG:
                WorkerLog.write(Frames.decodeJson(kind, body));
                break;
            case Frames.FAILED:
                fail(WorkerLog.failure(name, Frames.decodeJson(kind, body)));
                break;
            case Frames.CLOSED:
                LOG.debug("{} closed", name);
                break;
            default:
                if (kind <= Frames.HELLO || !ready.isDone()) {
                    throw new ProtocolException("a " + Frames.name(kind) + " frame is not for the JVM, or not now");
                }
                listener.onFrame(kind, body);
        }
    }

    private void broke(ProtocolException cause) {
        fail(greeted.isDone()
                ? new WorkerException(name + " broke the protocol: " + cause.getMessage() + stderrLines(), cause)
                : handshake.notStarted("it does not speak like a worker (" + cause.getMessage() + ")", errorOutput.tail()));
        kill();
    }

    private void ended() {
        String how;
        try {
            how = process.waitFor(GRACE.toMillis(), TimeUnit.MILLISECONDS)
                    ? WorkerLog.exit(process.exitValue())
                    : "it closed its stdout";
            stderr.join(GRACE.toMillis());
        } catch (InterruptedException e) {
            how = "interrupted";
        }
        if (greeted.isDone()) {
            fail(new WorkerException(name + " (process " + process.pid() + ") ended: " + how + stderrLines()));
        } else {
            fail(handshake.notStarted(how, errorOutput.tail()));
        }
        kill();
    }

    private String stderrLines() {
        String lines = errorOutput.tail();
        return lines.isEmpty() ? "" : "\nLast lines of its stderr:\n" + lines;
    }
}
