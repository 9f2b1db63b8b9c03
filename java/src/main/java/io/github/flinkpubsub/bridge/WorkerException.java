package io.github.flinkpubsub.bridge;

/**
 * A Python worker could not be started, failed, or died. The message says which, and carries the Python traceback if there is
 * one.
 */
public final class WorkerException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    public WorkerException(String message) {
        super(message);
    }

    public WorkerException(String message, Throwable cause) {
        super(message, cause);
    }
}
