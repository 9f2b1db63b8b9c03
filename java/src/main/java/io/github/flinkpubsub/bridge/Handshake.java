package io.github.flinkpubsub.bridge;

import java.io.IOException;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The first exchange with a worker: both sides must be of one build, and of the Python minor version that pickled the
 * connector.
 *
 * <p>Three parties meet here: the Python that submitted the job, this jar, and the worker's Python. Whichever differs, the
 * outcome is one error that names both sides, the interpreter and the mend.
 */
final class Handshake {
    private static final String RESOURCE = "/META-INF/flink-pubsub.properties";
    private static final Logger PYTHON_LOG = LoggerFactory.getLogger("flink_pubsub");

    private final WorkerSpec spec;
    private final WorkerSpec.Interpreter interpreter;
    private final String version;
    private final String digest;

    Handshake(WorkerSpec spec, WorkerSpec.Interpreter interpreter) {
        this.spec = spec;
        this.interpreter = interpreter;
        Properties build = new Properties();
        try (InputStream in = Handshake.class.getResourceAsStream(RESOURCE)) {
            if (in == null) {
                throw new WorkerException(
                        "the flink-pubsub jar lacks " + RESOURCE + "; use the jar that flink_pubsub.jar() names");
            }
            build.load(in);
        } catch (IOException e) {
            throw new WorkerException("the flink-pubsub jar cannot be read: " + e.getMessage(), e);
        }
        this.version = build.getProperty("version", "");
        this.digest = build.getProperty("digest", "");
    }

    /**
     * Compares a HELLO body with this side.
     *
     * @throws WorkerException naming everything that differs, and the mend
     */
    void check(JsonNode hello) throws ProtocolException {
        long protocol = Frames.integer(Frames.HELLO, hello, "protocol");
        String workerVersion = Frames.text(Frames.HELLO, hello, "version");
        String workerDigest = Frames.text(Frames.HELLO, hello, "digest");
        String workerPython = Frames.text(Frames.HELLO, hello, "python");
        String executable = Frames.text(Frames.HELLO, hello, "executable");
        if (spec.version != null && !spec.version.equals(version)) {
            throw new WorkerException("the job was built with flink-pubsub " + spec.version
                    + ", but the jar in Flink is version " + version + "; add the jar that flink_pubsub.jar() of the job's Python names, and remove the other one");
        }
        List<String> differences = new ArrayList<>();
        List<String> mends = new ArrayList<>();
        if (!workerVersion.equals(version)) {
            String theirs = workerVersion.isEmpty() ? "of unknown version" : workerVersion;
            differences.add("has flink-pubsub " + theirs + ", the job and its jar have " + version);
            mends.add("run: " + interpreter.mend(version));
        } else if (!workerDigest.equals(digest) || protocol != Frames.PROTOCOL_VERSION) {
            differences.add("has another build of flink-pubsub " + version + " (" + abbreviated(workerDigest) + ", protocol "
                    + protocol + ") than the jar (" + abbreviated(digest) + ", protocol " + Frames.PROTOCOL_VERSION + ")");
            mends.add("build the jar anew if this is a clone, else run: " + interpreter.mend("--force-reinstall ", version));
        }
        if (spec.clientPython != null && !workerPython.startsWith(spec.clientPython + ".")) {
            differences.add("is Python " + workerPython + ", the job was submitted with Python " + spec.clientPython);
            mends.add("name an interpreter of Python " + spec.clientPython
                    + " with " + spec.setting());
        }
        if (!differences.isEmpty()) {
            throw new WorkerException("The Python worker at " + executable + ", from " + interpreter.origin + ", "
                    + String.join(", and ", differences) + ". To mend it, " + String.join(", and ", mends));
        }
    }

    private static String abbreviated(String digest) {
        return digest.isEmpty() ? "unknown" : digest.substring(0, Math.min(12, digest.length()));
    }

    /** The INIT body that answers a matching HELLO. */
    byte[] init(String role, int subtask, int parallelism) {
        ObjectNode body = Frames.newJson()
                .put("protocol", Frames.PROTOCOL_VERSION)
                .put("version", version)
                .put("digest", digest)
                .put("client_python", spec.clientPython)
                .put("role", role)
                .put("subtask", subtask)
                .put("parallelism", parallelism)
                .put("log_level", logLevel());
        if (spec.checkpointInterval != null) {
            body.put("checkpoint_interval", spec.checkpointInterval.toMillis() / 1000.0);
        }
        ArrayNode searchPath = body.putArray("search_path");
        spec.searchPath.forEach(searchPath::add);
        return Frames.encodeJson(body);
    }

    /** What the log wants of Python, so that a worker does not send what would be dropped here. */
    private static String logLevel() {
        if (PYTHON_LOG.isDebugEnabled()) {
            return "DEBUG";
        }
        return PYTHON_LOG.isInfoEnabled() ? "INFO" : PYTHON_LOG.isWarnEnabled() ? "WARNING" : "ERROR";
    }

    /** The error of a worker that did not get as far as its first frame. */
    WorkerException notStarted(String how, String lastLines) {
        boolean missing = lastLines.contains("No module named") && lastLines.contains("flink_pubsub");
        String mend = missing ? "The package is not installed there" : "If the package is missing or incomplete there";
        return new WorkerException("The Python worker of " + interpreter + " did not start: " + how + ". " + mend + ", run: "
                + interpreter.mend(version) + (lastLines.isEmpty() ? "" : "\nIts stderr:\n" + lastLines));
    }

    /** The error of an interpreter that the operating system does not start. */
    WorkerException notStartable(IOException cause) {
        return new WorkerException("The Python interpreter " + interpreter + " cannot be started: " + cause.getMessage()
                + ". With " + spec.setting() + ", name one that exists on this host and has"
                + " flink-pubsub==" + version + " installed", cause);
    }
}
