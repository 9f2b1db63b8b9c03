package io.github.flinkpubsub.table;

import io.github.flinkpubsub.lineage.Lineage;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;

/** A connector that the Python side has made of a table's options, and so approved of. */
final class BuiltConnector {
    /** The pickled connector. */
    final byte[] connector;
    /** How to start its workers, as JSON. */
    final String workerSpec;
    /** What the table reads or writes. */
    final Lineage lineage;
    /** All that the Python side says of it. */
    final JsonNode facts;

    /**
     * @param table the table's name in its catalog, as Flink's lineage has it
     */
    BuiltConnector(String table, byte[] connector, JsonNode facts) {
        this.connector = connector;
        this.lineage = Lineage.parse(facts.path("lineage").toString()).named(table);
        this.workerSpec = facts.path("worker_spec").toString();
        this.facts = facts;
    }
}
