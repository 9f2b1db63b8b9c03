package io.github.flinkpubsub.bridge;

import java.util.HashSet;
import java.util.Set;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;

/** The worker's answer to a message that failed: which later messages of the split are not to be emitted. */
final class Withdrawal {
    final Set<Long> sequences = new HashSet<>();
    private final String split;
    private final long failed;

    private Withdrawal(String split, long failed) {
        this.split = split;
        this.failed = failed;
    }

    static Withdrawal of(JsonNode body) throws ProtocolException {
        int kind = Frames.RECORDS_WITHDRAWN;
        Withdrawal made = new Withdrawal(Frames.text(kind, body, "split"), Frames.integer(kind, body, "sequence"));
        for (JsonNode each : body.path("withdrawn")) {
            made.sequences.add(each.asLong());
        }
        return made;
    }

    boolean answers(PythonSplit at, long sequence) {
        return split.equals(at.splitId()) && failed == sequence;
    }
}
