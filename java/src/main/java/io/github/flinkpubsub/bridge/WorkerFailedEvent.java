package io.github.flinkpubsub.bridge;

import org.apache.flink.api.connector.source.SourceEvent;

/** Tells the enumerator that a reader's worker failed while its task could not say so, because its downstream is blocked. */
final class WorkerFailedEvent implements SourceEvent {
    private static final long serialVersionUID = 1L;

    final String message;

    WorkerFailedEvent(String message) {
        this.message = message;
    }
}
