package io.github.flinkpubsub.bridge;

import java.util.HashSet;
import java.util.Set;

/**
 * How far a reader has emitted a split. Outlives the split: its last messages are covered by a later checkpoint. Task thread.
 */
final class SplitProgress {
    final PythonSplit split;
    private final Set<Long> withdrawn = new HashSet<>();
    private long last = -1;

    SplitProgress(PythonSplit split) {
        this.split = split;
    }

    /** Whether any message was emitted. */
    boolean started() {
        return last >= 0;
    }

    /** Sequence number of the last message whose records are all emitted. */
    long last() {
        return last;
    }

    /** Notes messages that are not to be emitted. */
    void withdraw(Set<Long> sequences) {
        withdrawn.addAll(sequences);
    }

    /** Whether a message is not to be emitted; asked once for each. */
    boolean withdrew(long sequence) {
        return !withdrawn.isEmpty() && withdrawn.remove(sequence);
    }

    /**
     * Goes on to a message.
     *
     * @throws ProtocolException if the worker went back, in which case positions mean nothing any more
     */
    void advance(long sequence) throws ProtocolException {
        if (sequence <= last) {
            throw new ProtocolException("message " + sequence + " of split " + split + " follows message " + last);
        }
        last = sequence;
    }
}
