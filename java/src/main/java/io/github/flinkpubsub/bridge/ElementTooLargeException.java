package io.github.flinkpubsub.bridge;

import java.io.IOException;

/** No frame to a worker can hold an element. */
final class ElementTooLargeException extends IOException {
    private static final long serialVersionUID = 1L;

    ElementTooLargeException(String message) {
        super(message);
    }
}
