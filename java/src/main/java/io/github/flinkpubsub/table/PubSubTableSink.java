package io.github.flinkpubsub.table;

import io.github.flinkpubsub.bridge.PythonSink;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.format.EncodingFormat;
import org.apache.flink.table.connector.sink.DynamicTableSink;
import org.apache.flink.table.connector.sink.SinkV2Provider;
import org.apache.flink.table.connector.sink.abilities.SupportsWritingMetadata;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.types.DataType;

/** Publishes rows that are inserted: the physical columns as the format encodes them, and metadata columns beside. */
final class PubSubTableSink implements DynamicTableSink, SupportsWritingMetadata {
    private final DataType physicalType;
    private final EncodingFormat<SerializationSchema<RowData>> format;
    private final BuiltConnector built;
    private final Integer parallelism;
    /** Keys of the metadata columns that are written; in the order of the rows once the planner has said it. */
    private List<String> metadata;

    /**
     * @param built the connector, for a table with these metadata columns
     * @param parallelism of the sink; null for that of its input
     */
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
    public Map<String, DataType> listWritableMetadata() {
        return WrittenColumns.writable();
    }

    @Override
    public void applyWritableMetadata(List<String> keys, DataType consumed) {
        metadata = keys;
    }

    @Override
    public SinkRuntimeProvider getSinkRuntimeProvider(Context context) {
        WrittenColumns columns = new WrittenColumns(DataType.getFieldCount(physicalType), metadata);
        RowEncoder rows = new RowEncoder(format.createRuntimeEncoder(context, physicalType), columns);
        RouteEncoder routes = columns.routes() ? new RouteEncoder(columns) : null;
        PythonSink<RowData> sink =
                new PythonSink<>(built.connector, built.workerSpec, routes, rows).withLineage(built.lineage);
        return columns.orderingKey < 0
                ? SinkV2Provider.of(sink, parallelism)
                : new OrderedSinkProvider(sink, columns.orderingKey, parallelism);
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
