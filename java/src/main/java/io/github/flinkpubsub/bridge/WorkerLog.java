package io.github.flinkpubsub.bridge;

import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Says in Flink's log, and in words, what a worker said. */
final class WorkerLog {
    private static final String[] SIGNALS = {
        null, "SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGUSR1",
        "SIGSEGV", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM"
    };

    private WorkerLog() {}

    /** Logs a LOG frame under its Python logger's name. */
    static void write(JsonNode body) throws ProtocolException {
        Logger logger = LoggerFactory.getLogger(Frames.text(Frames.LOG, body, "logger"));
        String message = Frames.text(Frames.LOG, body, "message");
        switch (Frames.text(Frames.LOG, body, "level")) {
            case "DEBUG":
                logger.debug("{}", message);
                break;
            case "WARNING":
                logger.warn("{}", message);
                break;
            case "ERROR":
            case "CRITICAL":
                logger.error("{}", message);
                break;
            default:
                logger.info("{}", message);
        }
    }

    /** The error that a FAILED frame reports. */
    static WorkerException failure(String worker, JsonNode body) throws ProtocolException {
        String traceback = Frames.text(Frames.FAILED, body, "traceback");
        return new WorkerException(worker + " failed with " + Frames.text(Frames.FAILED, body, "type") + ": "
                + Frames.text(Frames.FAILED, body, "message") + (traceback.isEmpty() ? "" : "\n" + traceback));
    }

    /** What an exit code means; the JDK reports a signal as 128 and its number. */
    static String exit(int code) {
        int signal = code - 128;
        if (signal <= 0 || signal > 64) {
            return "exit code " + code;
        }
        String name = signal < SIGNALS.length ? " (" + SIGNALS[signal] + ")" : "";
        String hint = signal == 9 ? "; the kernel does so when memory runs out" : "";
        return "killed by signal " + signal + name + hint;
    }
}
