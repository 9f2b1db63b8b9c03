package io.github.flinkpubsub.bridge;

import java.io.IOException;

/** The worker sent something that is not a valid frame. The stream cannot be used any further. */
public final class ProtocolException extends IOException {
    private static final long serialVersionUID = 1L;

    public ProtocolException(String message) {
        super(message);
    }
}
