package io.github.flinkpubsub.message;

import io.github.flinkpubsub.bridge.ElementEncoder;
import java.io.IOException;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.core.memory.DataOutputSerializer;

/**
 * Encodes elements with a Flink schema to entries of a PublishRequest's messages, each with data only, so that many elements
 * in a row are the tail of a serialized request as they are.
 */
public final class MessageEncoder<T> implements ElementEncoder<T> {
    private static final long serialVersionUID = 1L;

    /** PublishRequest.messages, length-delimited. */
    private static final int MESSAGES = 2 << 3 | 2;
    /** PubsubMessage.data, length-delimited. */
    private static final int DATA = 1 << 3 | 2;

    private final SerializationSchema<T> schema;

    public MessageEncoder(SerializationSchema<T> schema) {
        this.schema = schema;
    }

    @Override
    public void open(WriterInitContext context) throws Exception {
        schema.open(context.asSerializationSchemaInitializationContext());
    }

    @Override
    public void encode(T element, DataOutputSerializer out) throws IOException {
        byte[] data = PayloadEncoder.serialize(schema, element);
        out.write(MESSAGES);
        if (data.length == 0) {
            out.write(0);
            return;
        }
        writeVarint(1 + varintBytes(data.length) + data.length, out);
        out.write(DATA);
        writeVarint(data.length, out);
        out.write(data);
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

    @Override
    public String toString() {
        return "the serialization schema " + schema.getClass().getName();
    }
}
