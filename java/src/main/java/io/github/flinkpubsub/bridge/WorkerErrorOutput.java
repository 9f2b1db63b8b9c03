package io.github.flinkpubsub.bridge;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Drains a worker's stderr, which is also where user code's {@code print} goes, into the log.
 *
 * <p>A pipe nobody reads would stop the worker in the middle of a write, so this reads on whatever comes. What reaches the log
 * is capped in lines per second and bytes per line, and the last lines are kept for the error of a worker that dies.
 */
final class WorkerErrorOutput implements Runnable {
    private static final Logger LOG = LoggerFactory.getLogger("flink_pubsub.worker.stderr");

    private static final int LINES_PER_SECOND = 100;
    private static final int MAX_LINE_BYTES = 4 * 1024;
    private static final int KEPT_LINES = 30;

    private final InputStream in;
    private final String worker;
    private final ArrayDeque<String> last = new ArrayDeque<>();
    private final byte[] line = new byte[MAX_LINE_BYTES];
    private int lineBytes;
    private long cutBytes;
    private long second;
    private int linesOfSecond;

    WorkerErrorOutput(InputStream in, String worker) {
        this.in = in;
        this.worker = worker;
    }

    /** Reads to the end of the stream. */
    @Override
    public void run() {
        byte[] piece = new byte[8 * 1024];
        try {
            for (int read = in.read(piece); read >= 0; read = in.read(piece)) {
                for (int i = 0; i < read; i++) {
                    take(piece[i]);
                }
            }
        } catch (IOException e) {
            LOG.debug("The stderr of {} cannot be read any further", worker, e);
        }
        if (lineBytes > 0) {
            endLine();
        }
        reportSuppressed();
    }

    /** The last lines so far, newest last; empty if there was none. Any thread. */
    String tail() {
        synchronized (last) {
            return String.join("\n", last);
        }
    }

    private void take(byte value) {
        if (value == '\n') {
            endLine();
        } else if (lineBytes < MAX_LINE_BYTES) {
            line[lineBytes++] = value;
        } else {
            cutBytes++;
        }
    }

    private void endLine() {
        String text = new String(line, 0, lineBytes, StandardCharsets.UTF_8);
        if (cutBytes > 0) {
            text += " … (" + cutBytes + " bytes more)";
        }
        lineBytes = 0;
        cutBytes = 0;
        synchronized (last) {
            if (last.size() == KEPT_LINES) {
                last.removeFirst();
            }
            last.addLast(text);
        }
        long now = TimeUnit.NANOSECONDS.toSeconds(System.nanoTime());
        if (now != second) {
            reportSuppressed();
            second = now;
            linesOfSecond = 0;
        }
        if (++linesOfSecond <= LINES_PER_SECOND) {
            LOG.info("{}: {}", worker, text);
        }
    }

    private void reportSuppressed() {
        if (linesOfSecond > LINES_PER_SECOND) {
            LOG.warn("{}: {} more lines of stderr within a second are not shown", worker, linesOfSecond - LINES_PER_SECOND);
            linesOfSecond = 0;
        }
    }
}
