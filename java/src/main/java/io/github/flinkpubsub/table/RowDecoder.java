package io.github.flinkpubsub.table;

import io.github.flinkpubsub.bridge.PythonSplit;
import io.github.flinkpubsub.bridge.RecordDecoder;
import io.github.flinkpubsub.bridge.RecordOutput;
import io.github.flinkpubsub.message.DeserializerContext;
import io.github.flinkpubsub.message.MessageReader;
import java.io.IOException;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.utils.JoinedRowData;
import org.apache.flink.table.data.utils.ProjectedRowData;
import org.apache.flink.util.Collector;

/**
 * Decodes messages to the rows of a table: what the format makes of the payload, followed by metadata.
 *
 * <p>All rows of a message share its metadata, and a row is never copied. The publish time is the event time.
 */
final class RowDecoder implements RecordDecoder<RowData> {
    private static final long serialVersionUID = 1L;

    private static final ObjectMapper JSON = new ObjectMapper();
    private static final RowData NO_COLUMNS = new GenericRowData(0);

    private final DeserializationSchema<RowData> schema;
    private final int[] projection;
    private final ReadableMetadata[] metadata;

    private transient MessageReader message;
    private transient Rows rows;
    private transient PythonSplit split;
    private transient StringData subscription;

    /**
     * @param schema the format's; null when nothing of the payload is wanted, so that every message is one row
     * @param projection which of the schema's columns the table has, in its order; null for all as they are
     * @param metadata what follows them
     */
    RowDecoder(DeserializationSchema<RowData> schema, int[] projection, ReadableMetadata[] metadata) {
        this.schema = schema;
        this.projection = projection;
        this.metadata = metadata;
    }

    @Override
    public void open(SourceReaderContext context) throws Exception {
        message = new MessageReader();
        rows = new Rows();
        if (schema != null) {
            schema.open(new DeserializerContext(context));
        }
    }

    @Override
    public void decode(PythonSplit from, byte[] buffer, int offset, int length, long timestamp, RecordOutput<RowData> out)
            throws IOException {
        if (from != split) {
            subscription = StringData.fromString(JSON.readTree(from.data()).path("subscription").asText());
            split = from;
        }
        message.read(buffer, offset, length);
        rows.start(out);
        try {
            if (schema == null) {
                rows.collect(NO_COLUMNS);
            } else {
                schema.deserialize(message.data(), rows);
            }
        } finally {
            rows.end();
        }
    }

    private RowData readMetadata() throws IOException {
        GenericRowData row = new GenericRowData(metadata.length);
        for (int i = 0; i < metadata.length; i++) {
            row.setField(i, metadata[i].read(message, subscription));
        }
        return row;
    }

    /** Completes the rows of one message after the other. */
    private final class Rows implements Collector<RowData> {
        /** Null between two messages. */
        private RecordOutput<RowData> out;
        private RowData ofMessage;
        private long timestamp;

        private void start(RecordOutput<RowData> output) throws IOException {
            out = output;
            ofMessage = metadata.length == 0 ? null : readMetadata();
            timestamp = message.publishMillis();
        }

        private void end() {
            out = null;
        }

        @Override
        public void collect(RowData row) {
            if (row == null) {
                throw new IllegalArgumentException(schema.getClass().getName() + " emitted null instead of a row");
            }
            if (out == null) {
                throw new IllegalStateException(schema.getClass().getName() + " emitted a row outside of deserialize");
            }
            RowData projected = projection == null ? row : ProjectedRowData.from(projection).replaceRow(row);
            out.collect(ofMessage == null ? projected : new JoinedRowData(row.getRowKind(), projected, ofMessage), timestamp);
        }

        @Override
        public void close() {}
    }
}
