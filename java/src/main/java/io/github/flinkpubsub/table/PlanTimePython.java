package io.github.flinkpubsub.table;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Optional;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ConfigOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.GlobalConfiguration;
import org.apache.flink.configuration.ReadableConfig;

/**
 * The interpreter that checks a table's options where a statement is planned. No Python client tells, so it is, in this order:
 *
 * <ol>
 *   <li>{@code python.executable} of the session, unless that is inside an archive, else {@code python.client.executable};
 *   <li>in a JVM that PyFlink started, the interpreter that started it;
 *   <li>the same two settings of this host's Flink;
 *   <li>{@code python3}.
 * </ol>
 */
final class PlanTimePython {
    private static final ConfigOption<String> EXECUTABLE =
            ConfigOptions.key("python.executable").stringType().noDefaultValue();
    private static final ConfigOption<String> CLIENT_EXECUTABLE =
            ConfigOptions.key("python.client.executable").stringType().noDefaultValue();

    /** The main class of a JVM that PyFlink starts; in the arguments where it does so by way of Flink's command line. */
    private static final String GATEWAY = "org.apache.flink.client.python.PythonGatewayServer";

    /** PyFlink starts the JVM itself, or through a script. */
    private static final int ANCESTORS = 3;

    /** The interpreter. */
    final String path;
    /** Where it comes from, for messages. */
    final String origin;
    /** The interpreter that the job's workers have to use; null when that is for their own hosts to say. */
    final String ofJob;

    private PlanTimePython(String path, String origin, String ofJob) {
        this.path = path;
        this.origin = origin;
        this.ofJob = ofJob;
    }

    static PlanTimePython of(ReadableConfig session) {
        Configuration host = GlobalConfiguration.loadConfiguration();
        String executable = session.get(EXECUTABLE);
        if (executable != null && !isInArchive(executable)) {
            // What only this host's file says is not the job's wish: other hosts may say otherwise.
            return new PlanTimePython(
                    executable, "python.executable of the session", executable.equals(host.get(EXECUTABLE)) ? null : executable);
        }
        if (session.get(CLIENT_EXECUTABLE) != null) {
            return new PlanTimePython(session.get(CLIENT_EXECUTABLE), "python.client.executable of the session", null);
        }
        Optional<String> ancestor = System.getProperty("sun.java.command", "").contains(GATEWAY) ? ofAncestors() : Optional.empty();
        if (ancestor.isPresent()) {
            return new PlanTimePython(ancestor.get(), "the Python that started this JVM", null);
        }
        if (host.get(EXECUTABLE) != null) {
            return new PlanTimePython(host.get(EXECUTABLE), "python.executable of Flink's configuration", null);
        }
        if (host.get(CLIENT_EXECUTABLE) != null) {
            return new PlanTimePython(host.get(CLIENT_EXECUTABLE), "python.client.executable of Flink's configuration", null);
        }
        return new PlanTimePython("python3", "the default", null);
    }

    /** Whether the interpreter comes with the job, to be unpacked for its Python functions only. */
    private static boolean isInArchive(String executable) {
        Path path = Path.of(executable);
        return path.getNameCount() > 1 && !path.isAbsolute() && !Files.exists(path);
    }

    private static Optional<String> ofAncestors() {
        Optional<ProcessHandle> process = ProcessHandle.current().parent();
        for (int i = 0; i < ANCESTORS && process.isPresent(); i++) {
            Optional<String> command = command(process.get());
            if (command.isPresent() && Path.of(command.get()).getFileName().toString().matches("python[0-9.]*")) {
                return command;
            }
            process = process.get().parent();
        }
        return Optional.empty();
    }

    /** The command as it was given, if it is there: the program behind it would have lost its virtual environment. */
    private static Optional<String> command(ProcessHandle process) {
        Path proc = Path.of("/proc", Long.toString(process.pid()));
        try {
            String given = new String(Files.readAllBytes(proc.resolve("cmdline")), StandardCharsets.UTF_8).split("\0", 2)[0];
            if (given.startsWith(".") || given.contains("/")) {
                given = Files.readSymbolicLink(proc.resolve("cwd")).resolve(given).toString();
            }
            return given.isEmpty() ? Optional.empty() : Optional.of(given);
        } catch (IOException e) {
            return process.info().command();
        }
    }
}
