package io.github.flinkpubsub.bridge;

import java.io.IOException;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ConfigOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.GlobalConfiguration;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;

/**
 * What the job's author asked of workers, and what their own Python looked like. Travels as JSON inside the source or sink.
 *
 * <p>The interpreter is, in this order: the job's own {@code python_executable}, this host's {@code python.executable} if Flink
 * is configured with one, the author's own interpreter if it exists here (a single machine, or one image for all), else {@code
 * python3}.
 */
public final class WorkerSpec implements Serializable {
    private static final long serialVersionUID = 1L;

    private static final ConfigOption<String> PYTHON_EXECUTABLE =
            ConfigOptions.key("python.executable").stringType().noDefaultValue();
    private static final ConfigOption<Duration> CHECKPOINT_INTERVAL =
            ConfigOptions.key("execution.checkpointing.interval").durationType().noDefaultValue();

    private final String pythonExecutable;
    private final String origin;
    private final String configuredExecutable;
    private final String clientExecutable;
    /** Null where no Python came before the worker. */
    final String clientPython;
    /** Null where the jar's own version is all there is to compare with. */
    final String version;
    final List<String> searchPath;
    /** Null where the host's configuration does not say; what a job sets itself is not seen there. */
    final Duration checkpointInterval;

    private WorkerSpec(
            String pythonExecutable,
            String origin,
            String configuredExecutable,
            String clientExecutable,
            String clientPython,
            String version,
            List<String> searchPath,
            Duration checkpointInterval) {
        this.pythonExecutable = pythonExecutable;
        this.origin = origin;
        this.configuredExecutable = configuredExecutable;
        this.clientExecutable = clientExecutable;
        this.clientPython = clientPython;
        this.version = version;
        this.searchPath = searchPath;
        this.checkpointInterval = checkpointInterval;
    }

    /**
     * Reads the JSON that the Python side wrote.
     *
     * @throws IllegalArgumentException if it is not such JSON
     */
    public static WorkerSpec parse(String json) {
        try {
            JsonNode spec = Frames.parse(json.getBytes(StandardCharsets.UTF_8));
            ArrayList<String> searchPath = new ArrayList<>();
            spec.path("search_path").forEach(entry -> searchPath.add(entry.asText()));
            return new WorkerSpec(
                    text(spec, "python_executable"),
                    "the builder's python_executable",
                    null,
                    text(spec, "client_executable"),
                    required(spec, "client_python"),
                    required(spec, "version"),
                    searchPath,
                    null);
        } catch (IOException e) {
            throw new IllegalArgumentException("the worker specification is not JSON: " + e.getMessage(), e);
        }
    }

    /**
     * How to start a worker where there is no Python client.
     *
     * @param pythonExecutable the interpreter
     * @param origin the setting it comes from, for messages
     */
    public static WorkerSpec ofInterpreter(String pythonExecutable, String origin) {
        return new WorkerSpec(pythonExecutable, origin, null, null, null, null, new ArrayList<>(), null);
    }

    private static String text(JsonNode spec, String field) {
        String value = spec.path(field).textValue();
        return value == null || value.isEmpty() ? null : value;
    }

    private static String required(JsonNode spec, String field) {
        String value = text(spec, field);
        if (value == null) {
            throw new IllegalArgumentException("the worker specification has no \"" + field + "\"");
        }
        return value;
    }

    /**
     * This specification on a host with that Flink configuration. Without a call, the configuration file of the process counts.
     */
    WorkerSpec on(Configuration host) {
        return new WorkerSpec(
                pythonExecutable,
                origin,
                host.get(PYTHON_EXECUTABLE),
                clientExecutable,
                clientPython,
                version,
                searchPath,
                host.get(CHECKPOINT_INTERVAL));
    }

    /** What names an interpreter, for messages. */
    String setting() {
        return clientPython == null
                ? "python.executable of the session or of Flink"
                : "python_executable of the builder or python.executable of Flink";
    }

    /** The interpreter to start on this host. */
    Interpreter interpreter() {
        if (pythonExecutable != null) {
            return new Interpreter(pythonExecutable, origin);
        }
        String configured = configuredExecutable;
        if (configured == null) {
            configured = GlobalConfiguration.loadConfiguration().get(PYTHON_EXECUTABLE);
        }
        if (configured != null) {
            return new Interpreter(configured, "python.executable of Flink's configuration");
        }
        if (clientExecutable != null) {
            Path client = Paths.get(clientExecutable);
            if (Files.isRegularFile(client) && Files.isExecutable(client)) {
                return new Interpreter(clientExecutable, "the interpreter the job was submitted with");
            }
        }
        return new Interpreter("python3", "the default");
    }

    /** A Python interpreter and the setting it came from, for messages. */
    static final class Interpreter {
        final String path;
        final String origin;

        private Interpreter(String path, String origin) {
            this.path = path;
            this.origin = origin;
        }

        /** The interpreter as messages name it. */
        @Override
        public String toString() {
            return path + " (" + origin + ")";
        }

        /** The command that puts the right package where this interpreter finds it. */
        String mend(String version) {
            return mend("", version);
        }

        String mend(String options, String version) {
            return path + " -m pip install " + options + "flink-pubsub==" + version;
        }
    }
}
