package io.github.flinkpubsub.bridge;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.util.ExceptionUtils;

/**
 * The elements that go to the worker with the next WRITE frame, column by column.
 *
 * <p>An element is first encoded and then either added, or taken into the batch that follows: what {@link #take} returns
 * holds added elements only. So its size is known before it is decided whether there is room for it. The buffers are used
 * again and again.
 *
 * <p>Where the worker takes failures, an element whose payload cannot be encoded has the stack trace in place of the payload.
 * A batch holds such elements only, or none: {@link #fits} says when it has to go first. So has one whose payload fits no frame.
 */
final class WriteBatch<T> {
    private static final int HEADER_BYTES = Integer.BYTES + Byte.BYTES + Long.BYTES;
    private static final int ELEMENTS = 1;
    private static final int PAYLOADS = 2;
    private static final int TIMESTAMPS = 4;
    private static final int FAILURES = 8;
    private static final int TRACE_BYTES = 16 * 1024;

    private final Column<T> elements;
    private final Column<T> payloads;
    private long[] timestamps;
    private int size;
    private long columnBytes;
    private long encodedBytes;
    private boolean takesFailures;
    /** Of the element encoded last, and of those added. */
    private boolean failed;
    private boolean failures;

    /** Either encoder may be null: that column is left out then. */
    WriteBatch(ElementEncoder<? super T> elements, ElementEncoder<? super T> payloads) {
        this.elements = elements == null ? null : new Column<>(elements);
        this.payloads = payloads == null ? null : new Column<>(payloads);
    }

    /** From now on batches carry event times. Before the first element only. */
    void withTimestamps() {
        timestamps = new long[64];
    }

    /** From now on an element whose payload cannot be encoded is written as a failure. */
    void withFailures() {
        takesFailures = true;
    }

    /** Elements added. */
    int size() {
        return size;
    }

    /** Length of the body that {@link #take} would return. */
    long bodyBytes() {
        return HEADER_BYTES + (long) size * overhead() + columnBytes;
    }

    /** Whether the batch can hold the element encoded last. */
    boolean fits() {
        return (size == 0 || failed == failures) && bodyBytes() + overhead() + encodedBytes < Frames.MAX_FRAME_BYTES;
    }

    private int overhead() {
        return (elements == null ? 0 : Integer.BYTES)
                + (payloads == null ? 0 : Integer.BYTES)
                + (timestamps == null ? 0 : Long.BYTES);
    }

    /**
     * Encodes the next element, in place of one that was encoded and not added, and returns its bytes.
     *
     * @throws ElementTooLargeException if no frame can hold the element
     * @throws IOException if an encoder fails
     */
    long encode(T element) throws IOException {
        encodedBytes = 0;
        failed = false;
        if (elements != null) {
            encodedBytes += elements.encode(element);
        }
        requireRoom();
        if (payloads != null) {
            encodePayload(element);
        }
        return encodedBytes;
    }

    private void encodePayload(T element) throws IOException {
        long before = encodedBytes;
        Throwable failure;
        try {
            encodedBytes += payloads.encode(element);
            requireRoom();
            return;
        } catch (ElementTooLargeException e) {
            if (!takesFailures) {
                throw e;
            }
            failure = e;
        } catch (IOException e) {
            if (!takesFailures) {
                throw e;
            }
            failure = e.getCause();
        }
        failed = true;
        byte[] trace = ExceptionUtils.stringifyException(failure).getBytes(StandardCharsets.UTF_8);
        encodedBytes = before + payloads.put(trace, Math.min(trace.length, TRACE_BYTES));
        requireRoom();
    }

    private void requireRoom() throws ElementTooLargeException {
        long frame = 1 + HEADER_BYTES + overhead() + encodedBytes;
        if (frame > Frames.MAX_FRAME_BYTES) {
            throw new ElementTooLargeException("An element of " + encodedBytes + " bytes cannot be written: its frame to the worker "
                    + "would have " + frame + " bytes, and " + Frames.MAX_FRAME_BYTES + " is the most");
        }
    }

    /** Adds the element encoded last. */
    void add(long timestamp) {
        failures = failed;
        columnBytes += encodedBytes;
        if (timestamps != null) {
            if (size == timestamps.length) {
                timestamps = Arrays.copyOf(timestamps, size * 2);
            }
            timestamps[size] = timestamp;
        }
        if (elements != null) {
            elements.add(size);
        }
        if (payloads != null) {
            payloads.add(size);
        }
        size++;
    }

    /** The body of a WRITE frame with all added elements, which leave the batch; one encoded and not added stays. */
    byte[] take(long watermark) throws IOException {
        ByteBuffer body = ByteBuffer.allocate(Math.toIntExact(bodyBytes()));
        int flags = (elements == null ? 0 : ELEMENTS)
                | (payloads == null ? 0 : PAYLOADS)
                | (timestamps == null ? 0 : TIMESTAMPS)
                | (failures ? FAILURES : 0);
        body.putInt(size).put((byte) flags).putLong(watermark);
        if (timestamps != null) {
            body.asLongBuffer().put(timestamps, 0, size);
            body.position(body.position() + size * Long.BYTES);
        }
        if (elements != null) {
            elements.take(size, body);
        }
        if (payloads != null) {
            payloads.take(size, body);
        }
        size = 0;
        columnBytes = 0;
        return body.array();
    }

    private static final class Column<T> {
        private static final int INITIAL_BYTES = 16 * 1024;
        /** A buffer that one huge element made larger than this is not kept for the small ones after it. */
        private static final int KEPT_BYTES = 8 * 1024 * 1024;

        private final ElementEncoder<? super T> encoder;
        private DataOutputSerializer out = new DataOutputSerializer(INITIAL_BYTES);
        private int[] lengths = new int[64];
        private int added;

        private Column(ElementEncoder<? super T> encoder) {
            this.encoder = encoder;
        }

        private int encode(T element) throws IOException {
            out.setPosition(added);
            try {
                encoder.encode(element, out);
            } catch (Exception e) {
                throw new IOException("An element cannot be written: " + encoder + " failed on it: " + e, e);
            }
            return out.length() - added;
        }

        private int put(byte[] bytes, int length) throws IOException {
            out.setPosition(added);
            out.write(bytes, 0, length);
            return length;
        }

        private void add(int index) {
            if (index == lengths.length) {
                lengths = Arrays.copyOf(lengths, index * 2);
            }
            lengths[index] = out.length() - added;
            added = out.length();
        }

        private void take(int size, ByteBuffer body) throws IOException {
            body.asIntBuffer().put(lengths, 0, size);
            body.position(body.position() + size * Integer.BYTES);
            byte[] buffer = out.getSharedBuffer();
            body.put(buffer, 0, added);
            int pending = out.length() - added;
            if (buffer.length > KEPT_BYTES) {
                out = new DataOutputSerializer(Math.max(INITIAL_BYTES, pending));
            } else {
                out.setPosition(0);
            }
            out.write(buffer, added, pending);
            added = 0;
        }
    }
}
