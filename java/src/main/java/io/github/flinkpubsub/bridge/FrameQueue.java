package io.github.flinkpubsub.bridge;

import java.io.IOException;
import java.io.OutputStream;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/** Frames on their way to a worker: any thread puts them in without waiting, one thread writes them out. */
final class FrameQueue {
    /** Frames that may wait. Records are bounded by credit, so this many mean that the worker stopped reading. */
    static final int CAPACITY = 64 * 1024;

    private final BlockingQueue<Entry> entries = new LinkedBlockingQueue<>(CAPACITY);

    /** Puts a frame in, or returns false if the queue is full. The array must not change afterwards. */
    boolean offer(int kind, byte[] body, int offset, int size) {
        return entries.offer(new Entry(kind, body, offset, size));
    }

    /** Writes frames as they come, up to and including CLOSE. The stream is flushed whenever nothing waits. */
    void drainTo(OutputStream out) throws IOException, InterruptedException {
        Entry entry;
        do {
            entry = entries.poll();
            if (entry == null) {
                out.flush();
                entry = entries.take();
            }
            Frames.write(out, entry.kind, entry.body, entry.offset, entry.size);
        } while (entry.kind != Frames.CLOSE);
        out.flush();
    }

    private static final class Entry {
        private final int kind;
        private final byte[] body;
        private final int offset;
        private final int size;

        private Entry(int kind, byte[] body, int offset, int size) {
            this.kind = kind;
            this.body = body;
            this.offset = offset;
            this.size = size;
        }
    }
}
