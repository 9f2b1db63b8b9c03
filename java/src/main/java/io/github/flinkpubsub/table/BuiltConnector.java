package io.github.flinkpubsub.table;

import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;

/** A connector that the Python side has made of a table's options, and so approved of. */
final class BuiltConnector {
    /** The pickled connector. */
    final byte[] connector;
    /** How to start its workers, as JSON. */
    final String workerSpec;
    /** All that the Python side says of it. */
    final JsonNode facts;

    BuiltConnector(byte[] connector, JsonNode facts) {
        this.connector = connector;
        this.workerSpec = facts.path("worker_spec").toString();
        this.facts = facts;
    }
}
