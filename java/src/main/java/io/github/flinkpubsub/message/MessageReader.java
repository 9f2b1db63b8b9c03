package io.github.flinkpubsub.message;

import io.github.flinkpubsub.bridge.Frames;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;

/**
 * Reads serialized PubsubMessages, one at a time, without making an object per field.
 *
 * <p>{@link #read} walks over a message once and remembers where its fields are; the accessors copy out what is asked for,
 * as long as the buffer is as it was. As in Protocol Buffers, unknown fields are skipped and the last value of a field counts.
 * Field 15 is not Pub/Sub's: the worker puts the delivery attempt there.
 */
public final class MessageReader {
    private static final int VARINT = 0;
    private static final int FIXED64 = 1;
    private static final int BYTES = 2;
    private static final int FIXED32 = 5;

    private static final int DATA = 1 << 3 | BYTES;
    private static final int ATTRIBUTES = 2 << 3 | BYTES;
    private static final int MESSAGE_ID = 3 << 3 | BYTES;
    private static final int PUBLISH_TIME = 4 << 3 | BYTES;
    private static final int ORDERING_KEY = 5 << 3 | BYTES;
    private static final int DELIVERY_ATTEMPT = 15 << 3 | VARINT;
    private static final int ENTRY_KEY = 1 << 3 | BYTES;
    private static final int ENTRY_VALUE = 2 << 3 | BYTES;
    private static final int SECONDS = 1 << 3 | VARINT;
    private static final int NANOS = 2 << 3 | VARINT;

    /** What a Timestamp may be: the years 1 to 9999. */
    private static final long MIN_SECONDS = -62_135_596_800L;

    private static final long MAX_SECONDS = 253_402_300_799L;

    private byte[] buffer;
    private int position;

    /** Start and length of the value read last. */
    private int start;
    private int length;

    private int dataStart;
    private int dataLength;
    private int messageIdStart;
    private int messageIdLength;
    private int orderingKeyStart;
    private int orderingKeyLength;
    private boolean hasPublishTime;
    private long publishSeconds;
    private int publishNanos;
    private int deliveryAttempt;
    /** Start and end of every attribute's map entry. */
    private int[] entries = new int[16];
    private int entryCount;

    /**
     * Takes up a message.
     *
     * @throws IOException the bytes are not a serialized message
     */
    public void read(byte[] bytes, int offset, int count) throws IOException {
        buffer = bytes;
        position = offset;
        dataStart = offset;
        dataLength = 0;
        messageIdStart = offset;
        messageIdLength = 0;
        orderingKeyStart = offset;
        orderingKeyLength = 0;
        hasPublishTime = false;
        publishSeconds = 0;
        publishNanos = 0;
        deliveryAttempt = 0;
        entryCount = 0;
        int end = offset + count;
        while (position < end) {
            int tag = tag(end);
            long value = value(tag, end);
            switch (tag) {
                case DATA:
                    dataStart = start;
                    dataLength = length;
                    break;
                case ATTRIBUTES:
                    addEntry();
                    break;
                case MESSAGE_ID:
                    messageIdStart = start;
                    messageIdLength = length;
                    break;
                case PUBLISH_TIME:
                    readPublishTime();
                    break;
                case ORDERING_KEY:
                    orderingKeyStart = start;
                    orderingKeyLength = length;
                    break;
                case DELIVERY_ATTEMPT:
                    deliveryAttempt = (int) value;
                    break;
                default:
            }
        }
    }

    public byte[] data() {
        return Arrays.copyOfRange(buffer, dataStart, dataStart + dataLength);
    }

    public String messageId() throws IOException {
        return string(messageIdStart, messageIdLength);
    }

    /** Empty when the message has none. */
    public String orderingKey() throws IOException {
        return string(orderingKeyStart, orderingKeyLength);
    }

    /** Null when the message does not say. */
    public Instant publishTime() {
        return hasPublishTime ? Instant.ofEpochSecond(publishSeconds, publishNanos) : null;
    }

    /** In milliseconds since the epoch; {@link Frames#NO_TIMESTAMP} when the message does not say. */
    public long publishMillis() {
        return hasPublishTime ? publishSeconds * 1000 + publishNanos / 1_000_000 : Frames.NO_TIMESTAMP;
    }

    /** 0 when the service does not count. */
    public int deliveryAttempt() {
        return deliveryAttempt;
    }

    public Map<String, String> attributes() throws IOException {
        Map<String, String> attributes = new HashMap<>(Math.max(4, entryCount * 2));
        for (int i = 0; i < entryCount; i++) {
            position = entries[2 * i];
            int end = entries[2 * i + 1];
            String key = "";
            String text = "";
            while (position < end) {
                int tag = tag(end);
                value(tag, end);
                if (tag == ENTRY_KEY) {
                    key = string(start, length);
                } else if (tag == ENTRY_VALUE) {
                    text = string(start, length);
                }
            }
            attributes.put(key, text);
        }
        return attributes;
    }

    private void addEntry() {
        if (entries.length == 2 * entryCount) {
            entries = Arrays.copyOf(entries, entries.length * 2);
        }
        entries[2 * entryCount] = start;
        entries[2 * entryCount + 1] = start + length;
        entryCount++;
    }

    private void readPublishTime() throws IOException {
        int end = start + length;
        position = start;
        hasPublishTime = true;
        while (position < end) {
            int tag = tag(end);
            long value = value(tag, end);
            if (tag == SECONDS) {
                publishSeconds = value;
            } else if (tag == NANOS) {
                publishNanos = (int) value;
            }
        }
        if (publishSeconds < MIN_SECONDS || publishSeconds > MAX_SECONDS || publishNanos < 0 || publishNanos >= 1_000_000_000) {
            throw malformed("its publish time is " + publishSeconds + " s and " + publishNanos + " ns after 1970");
        }
    }

    private int tag(int end) throws IOException {
        long tag = varint(end);
        if (tag >>> 3 == 0 || tag >>> 32 != 0) {
            throw malformed("tag " + tag + " is none");
        }
        return (int) tag;
    }

    /** Goes past the value of a field: returns it when it is a varint, else 0 and {@link #start} and {@link #length} are set. */
    private long value(int tag, int end) throws IOException {
        long size;
        switch (tag & 7) {
            case VARINT:
                return varint(end);
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
        return 0;
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

    private String string(int from, int count) throws IOException {
        String text = new String(buffer, from, count, StandardCharsets.UTF_8);
        // What is not UTF-8 becomes this character, so only texts that have it are looked at twice.
        if (text.indexOf('\uFFFD') >= 0) {
            try {
                StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(buffer, from, count));
            } catch (CharacterCodingException e) {
                throw malformed("a text is not UTF-8");
            }
        }
        return text;
    }

    private static IOException malformed(String why) {
        return new IOException("not a serialized PubsubMessage: " + why);
    }
}
