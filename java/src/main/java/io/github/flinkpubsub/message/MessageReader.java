package io.github.flinkpubsub.message;

import io.github.flinkpubsub.bridge.FieldReader;
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
 * Reads serialized ReceivedMessages, one at a time, without making an object per field.
 *
 * <p>{@link #read} walks over a message once and remembers where its fields are; the accessors copy out what is asked for,
 * as long as the buffer is as it was. As in Protocol Buffers, unknown fields are skipped and the last value of a field counts.
 */
public final class MessageReader {
    private static final int MESSAGE = 2 << 3 | FieldReader.BYTES;
    private static final int DELIVERY_ATTEMPT = 3 << 3 | FieldReader.VARINT;
    private static final int DATA = 1 << 3 | FieldReader.BYTES;
    private static final int ATTRIBUTES = 2 << 3 | FieldReader.BYTES;
    private static final int MESSAGE_ID = 3 << 3 | FieldReader.BYTES;
    private static final int PUBLISH_TIME = 4 << 3 | FieldReader.BYTES;
    private static final int ORDERING_KEY = 5 << 3 | FieldReader.BYTES;
    private static final int ENTRY_KEY = 1 << 3 | FieldReader.BYTES;
    private static final int ENTRY_VALUE = 2 << 3 | FieldReader.BYTES;
    private static final int SECONDS = 1 << 3 | FieldReader.VARINT;
    private static final int NANOS = 2 << 3 | FieldReader.VARINT;

    /** What a Timestamp may be: the years 1 to 9999. */
    private static final long MIN_SECONDS = -62_135_596_800L;

    private static final long MAX_SECONDS = 253_402_300_799L;

    private final FieldReader fields = new FieldReader("PubsubMessage");
    private byte[] buffer;
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
        fields.enter(bytes, offset);
        int end = offset + count;
        for (int tag = fields.next(end); tag != 0; tag = fields.next(end)) {
            if (tag == MESSAGE) {
                readMessage();
            } else if (tag == DELIVERY_ATTEMPT) {
                deliveryAttempt = (int) fields.number();
            }
        }
    }

    private void readMessage() throws IOException {
        int end = fields.start() + fields.length();
        fields.enterValue();
        for (int tag = fields.next(end); tag != 0; tag = fields.next(end)) {
            switch (tag) {
                case DATA:
                    dataStart = fields.start();
                    dataLength = fields.length();
                    break;
                case ATTRIBUTES:
                    addEntry();
                    break;
                case MESSAGE_ID:
                    messageIdStart = fields.start();
                    messageIdLength = fields.length();
                    break;
                case PUBLISH_TIME:
                    readPublishTime();
                    break;
                case ORDERING_KEY:
                    orderingKeyStart = fields.start();
                    orderingKeyLength = fields.length();
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
            fields.enter(buffer, entries[2 * i]);
            int end = entries[2 * i + 1];
            String key = "";
            String text = "";
            for (int tag = fields.next(end); tag != 0; tag = fields.next(end)) {
                if (tag == ENTRY_KEY) {
                    key = string(fields.start(), fields.length());
                } else if (tag == ENTRY_VALUE) {
                    text = string(fields.start(), fields.length());
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
        entries[2 * entryCount] = fields.start();
        entries[2 * entryCount + 1] = fields.start() + fields.length();
        entryCount++;
    }

    private void readPublishTime() throws IOException {
        int end = fields.start() + fields.length();
        fields.enterValue();
        hasPublishTime = true;
        for (int tag = fields.next(end); tag != 0; tag = fields.next(end)) {
            if (tag == SECONDS) {
                publishSeconds = fields.number();
            } else if (tag == NANOS) {
                publishNanos = (int) fields.number();
            }
        }
        if (publishSeconds < MIN_SECONDS || publishSeconds > MAX_SECONDS || publishNanos < 0 || publishNanos >= 1_000_000_000) {
            throw fields.malformed("its publish time is " + publishSeconds + " s and " + publishNanos + " ns after 1970");
        }
    }

    private String string(int from, int count) throws IOException {
        String text = new String(buffer, from, count, StandardCharsets.UTF_8);
        // What is not UTF-8 becomes this character, so only texts that have it are looked at twice.
        if (text.indexOf('\uFFFD') >= 0) {
            try {
                StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(buffer, from, count));
            } catch (CharacterCodingException e) {
                throw fields.malformed("a text is not UTF-8");
            }
        }
        return text;
    }
}
