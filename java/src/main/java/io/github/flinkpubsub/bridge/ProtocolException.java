package io.github.flinkpubsub.bridge;

import java.io.IOException;

/** The worker sent something that is not a valid frame. The stream cannot be used any further. */
public final class ProtocolException extends IOException {
    private static final long serialVersionUID = 1L;

    private final boolean truncated;

    public ProtocolException(String message) {
        this(message, false);
    }

    ProtocolException(String message, boolean truncated) {
        super(message);
        this.truncated = truncated;
    }

    /** Whether the stream ended within a frame, as it does when its writer is killed. */
    public boolean isTruncated() {
        return truncated;
    }
}
