package io.github.flinkpubsub.message;

import io.github.flinkpubsub.bridge.PythonSplit;
import io.github.flinkpubsub.bridge.RecordDecoder;
import io.github.flinkpubsub.bridge.RecordOutput;
import java.io.IOException;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.util.Collector;

/** Decodes the data of messages with a Flink schema. Records have the publish time as event time. */
public final class PayloadDecoder<T> implements RecordDecoder<T> {
    private static final long serialVersionUID = 1L;

    private final DeserializationSchema<T> schema;
    private transient MessageReader message;
    private transient Records<T> records;

    public PayloadDecoder(DeserializationSchema<T> schema) {
        this.schema = schema;
    }

    @Override
    public void open(SourceReaderContext context) throws Exception {
        message = new MessageReader();
        records = new Records<>(schema);
        schema.open(new DeserializerContext(context));
    }

    @Override
    public void decode(PythonSplit split, byte[] buffer, int offset, int length, long timestamp, RecordOutput<T> out)
            throws IOException {
        message.read(buffer, offset, length);
        records.out = out;
        records.timestamp = message.publishMillis();
        try {
            schema.deserialize(message.data(), records);
        } finally {
            records.out = null;
        }
    }

    private static final class Records<T> implements Collector<T> {
        private final DeserializationSchema<T> schema;
        /** Null between two messages. */
        private RecordOutput<T> out;
        private long timestamp;

        private Records(DeserializationSchema<T> schema) {
            this.schema = schema;
        }

        @Override
        public void collect(T record) {
            if (record == null) {
                throw new IllegalArgumentException(
                        schema.getClass().getName() + " emitted null; to drop a message, a DeserializationSchema emits nothing");
            }
            if (out == null) {
                throw new IllegalStateException(
                        schema.getClass().getName() + " emitted a record outside of deserialize; its collector must not be kept");
            }
            out.collect(record, timestamp);
        }

        @Override
        public void close() {}
    }
}
