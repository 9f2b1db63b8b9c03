package io.github.flinkpubsub.message;

import java.io.IOException;
import org.apache.flink.core.memory.DataOutputSerializer;

/**
 * Writes messages as entries of PublishRequest.messages, so that many in a row are the tail of a serialized request as they
 * are. A message's attributes and ordering key are gathered first, and {@link #write} puts them behind the data. Texts are
 * UTF-8.
 */
public final class MessageWriter {
    /** PublishRequest.messages, length-delimited, as are all that follow. */
    private static final int MESSAGES = 2 << 3 | 2;
    /** PubsubMessage.data. */
    private static final int DATA = 1 << 3 | 2;
    /** PubsubMessage.attributes, and key and value of such an entry. */
    private static final int ATTRIBUTES = 2 << 3 | 2;

    private static final int ENTRY_KEY = 1 << 3 | 2;
    private static final int ENTRY_VALUE = 2 << 3 | 2;
    /** PubsubMessage.ordering_key. */
    private static final int ORDERING_KEY = 5 << 3 | 2;

    private final DataOutputSerializer gathered = new DataOutputSerializer(256);

    /** Forgets what was gathered and not written. */
    public void clear() {
        gathered.clear();
    }

    public void addAttribute(byte[] key, byte[] value) throws IOException {
        gathered.write(ATTRIBUTES);
        writeVarint(fieldBytes(key) + fieldBytes(value), gathered);
        writeField(ENTRY_KEY, key, gathered);
        writeField(ENTRY_VALUE, value, gathered);
    }

    /** Once per message at most; an empty one is none. */
    public void setOrderingKey(byte[] key) throws IOException {
        if (key.length > 0) {
            writeField(ORDERING_KEY, key, gathered);
        }
    }

    /** Appends the entry of a message with this data and what was gathered, which is forgotten then. */
    public void write(byte[] data, DataOutputSerializer out) throws IOException {
        out.write(MESSAGES);
        writeVarint((data.length == 0 ? 0 : fieldBytes(data)) + gathered.length(), out);
        if (data.length > 0) {
            writeField(DATA, data, out);
        }
        if (gathered.length() > 0) {
            out.write(gathered.getSharedBuffer(), 0, gathered.length());
            gathered.clear();
        }
    }

    private static int fieldBytes(byte[] value) {
        return 1 + varintBytes(value.length) + value.length;
    }

    private static void writeField(int tag, byte[] value, DataOutputSerializer out) throws IOException {
        out.write(tag);
        writeVarint(value.length, out);
        out.write(value);
    }

    private static int varintBytes(int value) {
        return (Integer.SIZE - Integer.numberOfLeadingZeros(value | 1) + 6) / 7;
    }

    private static void writeVarint(int value, DataOutputSerializer out) throws IOException {
        int rest = value;
        while ((rest & ~0x7F) != 0) {
            out.write(rest & 0x7F | 0x80);
            rest >>>= 7;
        }
        out.write(rest);
    }
}
