package io.github.flinkpubsub.table;

import io.github.flinkpubsub.bridge.BuilderWorker;
import io.github.flinkpubsub.bridge.WorkerException;
import io.github.flinkpubsub.bridge.WorkerSpec;
import java.util.List;
import org.apache.flink.configuration.ReadableConfig;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.table.api.ValidationException;

/**
 * Has the Python side check a table's options and make the connector of them, while the statement is planned.
 *
 * <p>So every rule exists once, in the code that DataStream jobs use too. The price is one short run of a worker for each use of
 * a table.
 */
final class ConnectorBuilder {
    private static final String MODULE = "flink_pubsub.worker.tables";

    private final String table;
    private final String direction;
    private final ObjectNode options;
    private final PlanTimePython python;

    /**
     * @param table the table's name in its catalog
     * @param direction source or sink
     * @param options what is set, see {@link TableOptions#given}
     * @param session configuration of the session that plans
     */
    ConnectorBuilder(String table, String direction, ObjectNode options, ReadableConfig session) {
        this.table = table;
        this.direction = direction;
        this.options = options;
        this.python = PlanTimePython.of(session);
    }

    /**
     * The connector.
     *
     * @param metadata keys of the metadata columns that are written
     * @throws ValidationException if an option is wrong, or there is no Python that could tell
     */
    BuiltConnector build(List<String> metadata) {
        ObjectNode request = options.objectNode().put("direction", direction).put("python_executable", python.ofJob);
        request.set("options", options);
        ArrayNode keys = request.putArray("metadata");
        metadata.forEach(keys::add);
        BuilderWorker.Answer answer;
        try {
            answer = BuilderWorker.run(WorkerSpec.ofInterpreter(python.path, python.origin), MODULE, "build", request);
        } catch (WorkerException e) {
            throw new ValidationException("The options of the table cannot be checked. " + e.getMessage(), e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new ValidationException("Interrupted while the options of the table were checked.", e);
        }
        if (answer.refusal != null) {
            throw new ValidationException(answer.refusal);
        }
        return new BuiltConnector(table, answer.connector, answer.facts);
    }
}
