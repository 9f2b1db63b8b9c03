package io.github.flinkpubsub.bridge;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.util.Arrays;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonProcessingException;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.DeserializationFeature;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;

/**
 * Frames: the only thing that crosses the pipes between Flink's JVM and a worker.
 *
 * <p>A frame is a 4-byte big-endian length (of what follows it), one kind byte, and a body. The layout of every body is
 * documented in {@code flink_pubsub/bridge/frames.py}, whose twin this class is. A length is checked against {@link
 * #MAX_FRAME_BYTES} before anything is allocated, and a long body is read piece by piece, so a damaged length can neither
 * exhaust memory nor overrun a buffer: every defect is one {@link ProtocolException}.
 */
public final class Frames {
    /** Raised by every change of a frame's layout or meaning; both sides refuse any other. */
    public static final int PROTOCOL_VERSION = 2;

    /** Longest frame, kind byte included. */
    public static final int MAX_FRAME_BYTES = 64 * 1024 * 1024;

    /** Stands for a record without an event time; Flink's own value for it. */
    public static final long NO_TIMESTAMP = Long.MIN_VALUE;

    // Sent by the JVM.
    public static final int INIT = 0x01;
    public static final int CONNECTOR = 0x02;
    public static final int CLOSE = 0x03;
    public static final int PLAN = 0x10;
    public static final int ASSIGN = 0x20;
    public static final int FETCH = 0x21;
    public static final int PAUSE_RESUME = 0x22;
    public static final int SNAPSHOT = 0x23;
    public static final int CHECKPOINT_COMPLETE = 0x24;
    public static final int RECORD_FAILED = 0x25;
    public static final int WRITE = 0x30;
    public static final int FLUSH = 0x31;
    public static final int SEND_NOW = 0x32;
    public static final int BUILD = 0x40;
    // Sent by the worker.
    public static final int HELLO = 0x80;
    public static final int READY = 0x81;
    public static final int METRICS = 0x82;
    public static final int LOG = 0x83;
    public static final int FAILED = 0x84;
    public static final int CLOSED = 0x85;
    public static final int PLANNED = 0x90;
    public static final int RECORDS = 0xA0;
    public static final int CHECKPOINT_SETTLED = 0xA1;
    public static final int RECORDS_WITHDRAWN = 0xA2;
    public static final int SETTLED = 0xB0;
    public static final int FLUSHED = 0xB1;
    public static final int BUILT = 0xC0;

    private static final int HEADER_BYTES = 5;

    /**
     * A body up to this size is allocated at once; a batch of 1,000 messages of 1 KiB fits, so the usual body is never copied.
     */
    private static final int WHOLE_BYTES = 4 * 1024 * 1024;

    /** Linux gives at most a pipe's capacity in one read, and the JDK allocates a native buffer of the size asked for. */
    private static final int READ_BYTES = 64 * 1024;

    private static final ObjectMapper JSON = new ObjectMapper().enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS);

    private Frames() {}

    /** A frame as it was read. */
    public static final class Frame {
        public final int kind;
        public final byte[] body;

        Frame(int kind, byte[] body) {
            this.kind = kind;
            this.body = body;
        }
    }

    /**
     * Reads the next frame, or returns null when the stream ended between two frames.
     *
     * @throws ProtocolException if the stream ended within a frame, the length is 0 or too large, or the kind is unknown
     */
    public static Frame read(InputStream in) throws IOException {
        byte[] header = new byte[HEADER_BYTES];
        int got = fill(in, header, 0, HEADER_BYTES);
        if (got == 0) {
            return null;
        }
        requireWhole(HEADER_BYTES - got);
        long length = (header[0] & 0xFFL) << 24 | (header[1] & 0xFF) << 16 | (header[2] & 0xFF) << 8 | (header[3] & 0xFF);
        if (length < 1 || length > MAX_FRAME_BYTES) {
            throw new ProtocolException(
                    "a frame claims " + length + " bytes; between 1 and " + MAX_FRAME_BYTES + " are allowed");
        }
        int kind = header[4] & 0xFF;
        if (name(kind) == null) {
            throw new ProtocolException(String.format("unknown frame kind 0x%02x", kind));
        }
        return new Frame(kind, readBody(in, (int) length - 1));
    }

    private static byte[] readBody(InputStream in, int size) throws IOException {
        byte[] body = new byte[Math.min(size, WHOLE_BYTES)];
        int filled = fill(in, body, 0, body.length);
        while (filled == body.length && filled < size) {
            body = Arrays.copyOf(body, Math.min(2 * body.length, size));
            filled += fill(in, body, filled, body.length - filled);
        }
        requireWhole(size - filled);
        return body;
    }

    /** Reads until the range is full or the stream ends, and returns how many bytes were read. */
    private static int fill(InputStream in, byte[] target, int offset, int size) throws IOException {
        int filled = 0;
        while (filled < size) {
            int read = in.read(target, offset + filled, Math.min(size - filled, READ_BYTES));
            if (read < 0) {
                break;
            }
            filled += read;
        }
        return filled;
    }

    private static void requireWhole(int missing) throws ProtocolException {
        if (missing > 0) {
            throw new ProtocolException("the stream ended within a frame, " + missing + " bytes short", true);
        }
    }

    /** Writes one frame without flushing. */
    public static void write(OutputStream out, int kind, byte[] body) throws IOException {
        write(out, kind, body, 0, body.length);
    }

    /**
     * Writes one frame whose body is a range of an array, without flushing.
     *
     * @throws ProtocolException if the frame would be longer than {@link #MAX_FRAME_BYTES}
     */
    public static void write(OutputStream out, int kind, byte[] body, int offset, int size) throws IOException {
        requireAllowed(kind, size);
        int length = size + 1;
        out.write(new byte[] {
            (byte) (length >>> 24), (byte) (length >>> 16), (byte) (length >>> 8), (byte) length, (byte) kind
        });
        out.write(body, offset, size);
    }

    /** Refuses a body that no frame can hold. */
    static void requireAllowed(int kind, int size) throws ProtocolException {
        if (size >= MAX_FRAME_BYTES) {
            throw new ProtocolException("a " + name(kind) + " frame of " + (size + 1L) + " bytes exceeds the limit of "
                    + MAX_FRAME_BYTES);
        }
    }

    /** An object to be filled and sent as a control body. */
    static ObjectNode newJson() {
        return JSON.createObjectNode();
    }

    /** The control body of an object: a JsonNode, or anything Jackson writes as one. */
    public static byte[] encodeJson(Object body) {
        try {
            return JSON.writeValueAsBytes(body);
        } catch (JsonProcessingException e) {
            throw new IllegalArgumentException("not a JSON value: " + e.getMessage(), e);
        }
    }

    /**
     * The object in a control frame's body.
     *
     * @throws ProtocolException if the body is not a JSON object
     */
    public static JsonNode decodeJson(int kind, byte[] body) throws ProtocolException {
        JsonNode value;
        try {
            value = JSON.readTree(body);
        } catch (IOException e) {
            throw new ProtocolException("the body of a " + name(kind) + " frame is not JSON: " + e.getMessage());
        }
        if (value == null || !value.isObject()) {
            throw new ProtocolException("the body of a " + name(kind) + " frame is not a JSON object");
        }
        return value;
    }

    /** A JSON value that is not a frame, such as stored state. */
    static JsonNode parse(byte[] json) throws IOException {
        return JSON.readTree(json);
    }

    /** The integer of that name in a control body. */
    static long integer(int kind, JsonNode body, String field) throws ProtocolException {
        JsonNode value = body.path(field);
        if (!value.canConvertToLong() || !value.isIntegralNumber()) {
            throw malformed(kind, field, "an integer");
        }
        return value.longValue();
    }

    /** The number of that name in a control body. */
    static double number(int kind, JsonNode body, String field) throws ProtocolException {
        JsonNode value = body.path(field);
        if (!value.isNumber()) {
            throw malformed(kind, field, "a number");
        }
        return value.doubleValue();
    }

    /** The text of that name in a control body. */
    static String text(int kind, JsonNode body, String field) throws ProtocolException {
        JsonNode value = body.path(field);
        if (!value.isTextual()) {
            throw malformed(kind, field, "a string");
        }
        return value.textValue();
    }

    /** The boolean of that name in a control body. */
    static boolean flag(int kind, JsonNode body, String field) throws ProtocolException {
        JsonNode value = body.path(field);
        if (!value.isBoolean()) {
            throw malformed(kind, field, "a boolean");
        }
        return value.booleanValue();
    }

    private static ProtocolException malformed(int kind, String field, String expected) {
        return new ProtocolException("a " + name(kind) + " frame has no \"" + field + "\" that is " + expected);
    }

    /** The name of a kind, or null if there is no such kind. */
    public static String name(int kind) {
        switch (kind) {
            case INIT: return "INIT";
            case CONNECTOR: return "CONNECTOR";
            case CLOSE: return "CLOSE";
            case PLAN: return "PLAN";
            case ASSIGN: return "ASSIGN";
            case FETCH: return "FETCH";
            case PAUSE_RESUME: return "PAUSE_RESUME";
            case SNAPSHOT: return "SNAPSHOT";
            case CHECKPOINT_COMPLETE: return "CHECKPOINT_COMPLETE";
            case RECORD_FAILED: return "RECORD_FAILED";
            case WRITE: return "WRITE";
            case FLUSH: return "FLUSH";
            case SEND_NOW: return "SEND_NOW";
            case BUILD: return "BUILD";
            case HELLO: return "HELLO";
            case READY: return "READY";
            case METRICS: return "METRICS";
            case LOG: return "LOG";
            case FAILED: return "FAILED";
            case CLOSED: return "CLOSED";
            case PLANNED: return "PLANNED";
            case RECORDS: return "RECORDS";
            case CHECKPOINT_SETTLED: return "CHECKPOINT_SETTLED";
            case RECORDS_WITHDRAWN: return "RECORDS_WITHDRAWN";
            case SETTLED: return "SETTLED";
            case FLUSHED: return "FLUSHED";
            case BUILT: return "BUILT";
            default: return null;
        }
    }
}
