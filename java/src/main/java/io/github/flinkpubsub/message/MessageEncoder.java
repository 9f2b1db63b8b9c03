package io.github.flinkpubsub.message;

import io.github.flinkpubsub.bridge.ElementEncoder;
import java.io.IOException;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.core.memory.DataOutputSerializer;

/** Encodes elements with a Flink schema to messages with data only, as entries of a PublishRequest. */
public final class MessageEncoder<T> implements ElementEncoder<T> {
    private static final long serialVersionUID = 1L;

    private final SerializationSchema<T> schema;
    private transient MessageWriter message;

    public MessageEncoder(SerializationSchema<T> schema) {
        this.schema = schema;
    }

    @Override
    public void open(WriterInitContext context) throws Exception {
        message = new MessageWriter();
        schema.open(context.asSerializationSchemaInitializationContext());
    }

    @Override
    public void encode(T element, DataOutputSerializer out) throws IOException {
        message.write(PayloadEncoder.serialize(schema, element), out);
    }

    @Override
    public String toString() {
        return "the serialization schema " + schema.getClass().getName();
    }
}
