package io.github.flinkpubsub.message;

import io.github.flinkpubsub.bridge.ElementEncoder;
import java.io.IOException;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.core.memory.DataOutputSerializer;

/** Encodes elements with a Flink schema to the data of messages. */
public final class PayloadEncoder<T> implements ElementEncoder<T> {
    private static final long serialVersionUID = 1L;

    private final SerializationSchema<T> schema;

    public PayloadEncoder(SerializationSchema<T> schema) {
        this.schema = schema;
    }

    @Override
    public void open(WriterInitContext context) throws Exception {
        schema.open(context.asSerializationSchemaInitializationContext());
    }

    @Override
    public void encode(T element, DataOutputSerializer out) throws IOException {
        out.write(serialize(schema, element));
    }

    static <T> byte[] serialize(SerializationSchema<T> schema, T element) {
        byte[] payload = schema.serialize(element);
        if (payload == null) {
            throw new IllegalArgumentException("a SerializationSchema must not return null");
        }
        return payload;
    }

    @Override
    public String toString() {
        return "the serialization schema " + schema.getClass().getName();
    }
}
