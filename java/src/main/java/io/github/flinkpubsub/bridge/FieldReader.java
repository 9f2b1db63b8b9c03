package io.github.flinkpubsub.bridge;

import java.io.IOException;

/** Walks over the fields of a serialized Protocol Buffers message, whatever they mean, without making an object per field. */
public final class FieldReader {
    public static final int VARINT = 0;
    public static final int FIXED64 = 1;
    public static final int BYTES = 2;
    public static final int FIXED32 = 5;

    private final String type;
    private byte[] buffer;
    private int position;
    private int start;
    private int length;
    private long number;

    /** @param type what the message is called when it turns out to be none */
    public FieldReader(String type) {
        this.type = type;
    }

    /** Goes to the first field of the message that begins here. */
    public void enter(byte[] bytes, int offset) {
        buffer = bytes;
        position = offset;
    }

    /** Goes to the first field of the message that is the current field's value. */
    public void enterValue() {
        position = start;
    }

    /**
     * Goes to the next field of the message that ends there.
     *
     * @return its tag, 0 when there is none
     * @throws IOException if the bytes are not a serialized message
     */
    public int next(int end) throws IOException {
        if (position >= end) {
            return 0;
        }
        long tag = varint(end);
        if (tag >>> 3 == 0 || tag >>> 32 != 0) {
            throw malformed("tag " + tag + " is none");
        }
        long size;
        switch ((int) tag & 7) {
            case VARINT:
                number = varint(end);
                return (int) tag;
            case FIXED64:
                size = Long.BYTES;
                break;
            case FIXED32:
                size = Integer.BYTES;
                break;
            case BYTES:
                size = varint(end);
                break;
            default:
                throw malformed("wire type " + (tag & 7) + " is not supported");
        }
        if (size < 0 || size > end - position) {
            throw malformed("a field claims " + Long.toUnsignedString(size) + " bytes where " + (end - position) + " are left");
        }
        start = position;
        length = (int) size;
        position += length;
        return (int) tag;
    }

    /** Value of the current field, a varint. */
    public long number() {
        return number;
    }

    /** Where the value of the current field, no varint, begins. */
    public int start() {
        return start;
    }

    /** Size of the value of the current field, no varint, in bytes. */
    public int length() {
        return length;
    }

    private long varint(int end) throws IOException {
        long value = 0;
        for (int shift = 0; shift < Long.SIZE; shift += 7) {
            if (position >= end) {
                throw malformed("it ends within a number");
            }
            byte next = buffer[position++];
            value |= (next & 0x7FL) << shift;
            if (next >= 0) {
                return value;
            }
        }
        throw malformed("a number has more than 64 bits");
    }

    /** What is thrown for bytes that are not such a message. */
    public IOException malformed(String why) {
        return new IOException("not a serialized " + type + ": " + why);
    }
}
