package io.github.flinkpubsub.bridge;

import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;

/** What a reader's worker says of itself in READY: how long to wait for it, and who decides about a message that fails. */
final class ReaderSettings {
    final double closeSeconds;
    final boolean failOnRecordFailure;
    final boolean awaitRecordFailure;
    final double awaitCheckpointSeconds;

    private ReaderSettings(
            double closeSeconds, boolean failOnRecordFailure, boolean awaitRecordFailure, double awaitCheckpointSeconds) {
        this.closeSeconds = closeSeconds;
        this.failOnRecordFailure = failOnRecordFailure;
        this.awaitRecordFailure = awaitRecordFailure;
        this.awaitCheckpointSeconds = awaitCheckpointSeconds;
    }

    static ReaderSettings of(JsonNode ready) throws ProtocolException {
        return new ReaderSettings(
                Frames.number(Frames.READY, ready, "close_seconds"),
                Frames.flag(Frames.READY, ready, "fail_on_record_failure"),
                Frames.flag(Frames.READY, ready, "await_record_failure"),
                Frames.number(Frames.READY, ready, "await_checkpoint_seconds"));
    }
}
