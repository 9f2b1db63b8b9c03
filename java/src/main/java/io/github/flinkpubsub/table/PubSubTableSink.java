package io.github.flinkpubsub.table;

import io.github.flinkpubsub.bridge.PythonSink;
import io.github.flinkpubsub.message.MessageEncoder;
import java.util.List;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.format.EncodingFormat;
import org.apache.flink.table.connector.sink.DynamicTableSink;
import org.apache.flink.table.connector.sink.SinkV2Provider;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.types.DataType;

/** Publishes rows that are inserted, as the format encodes them. */
final class PubSubTableSink implements DynamicTableSink {
    private final DataType physicalType;
    private final EncodingFormat<SerializationSchema<RowData>> format;
    private final BuiltConnector built;
    private final List<String> metadata;
    private final Integer parallelism;

    PubSubTableSink(
            DataType physicalType,
            EncodingFormat<SerializationSchema<RowData>> format,
            BuiltConnector built,
            List<String> metadata,
            Integer parallelism) {
        this.physicalType = physicalType;
        this.format = format;
        this.built = built;
        this.metadata = metadata;
        this.parallelism = parallelism;
    }

    /** Pub/Sub cannot take back a message, so the planner refuses queries that update. */
    @Override
    public ChangelogMode getChangelogMode(ChangelogMode requested) {
        return ChangelogMode.insertOnly();
    }

    @Override
    public SinkRuntimeProvider getSinkRuntimeProvider(Context context) {
        MessageEncoder<RowData> messages = new MessageEncoder<>(format.createRuntimeEncoder(context, physicalType));
        PythonSink<RowData> sink = new PythonSink<>(built.connector, built.workerSpec, null, messages);
        return SinkV2Provider.of(sink.withLineage(built.lineage), parallelism);
    }

    @Override
    public DynamicTableSink copy() {
        return new PubSubTableSink(physicalType, format, built, metadata, parallelism);
    }

    @Override
    public String asSummaryString() {
        return "Pub/Sub";
    }
}
