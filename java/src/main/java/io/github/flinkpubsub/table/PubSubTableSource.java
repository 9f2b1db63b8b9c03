package io.github.flinkpubsub.table;

import io.github.flinkpubsub.bridge.PythonSource;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.IntStream;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.dag.Transformation;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.DataStreamSource;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.transformations.SourceTransformationWrapper;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.Projection;
import org.apache.flink.table.connector.ProviderContext;
import org.apache.flink.table.connector.format.DecodingFormat;
import org.apache.flink.table.connector.format.ProjectableDecodingFormat;
import org.apache.flink.table.connector.source.DataStreamScanProvider;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.connector.source.ScanTableSource;
import org.apache.flink.table.connector.source.abilities.SupportsProjectionPushDown;
import org.apache.flink.table.connector.source.abilities.SupportsReadingMetadata;
import org.apache.flink.table.connector.source.abilities.SupportsWatermarkPushDown;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.types.DataType;
import org.apache.flink.types.RowKind;

/**
 * Reads subscriptions as a table: the payload as the format decodes it, the format's metadata, then the message's.
 *
 * <p>Rows are put together in exactly that order, whatever of it a query wants, so nothing is ever rearranged.
 */
final class PubSubTableSource
        implements ScanTableSource, SupportsReadingMetadata, SupportsProjectionPushDown, SupportsWatermarkPushDown {
    private final String table;
    private final DataType physicalType;
    private final DecodingFormat<DeserializationSchema<RowData>> format;
    private final BuiltConnector built;
    private final Integer parallelism;

    private int[][] projection;
    private DataType producedType;
    private List<String> formatMetadata = List.of();
    private List<String> metadata = List.of();
    private WatermarkStrategy<RowData> watermarks = WatermarkStrategy.noWatermarks();

    /**
     * @param table name for the operator
     * @param physicalType row of the columns that the format decodes
     * @param parallelism of the source; null for the job's
     */
    PubSubTableSource(
            String table,
            DataType physicalType,
            DecodingFormat<DeserializationSchema<RowData>> format,
            BuiltConnector built,
            Integer parallelism) {
        this.table = table;
        this.physicalType = physicalType;
        this.format = format;
        this.built = built;
        this.parallelism = parallelism;
        this.projection = Projection.all(physicalType).toNestedIndexes();
        this.producedType = physicalType;
    }

    /** The format's: redelivered messages aside, the source takes nothing away from what it decodes. */
    @Override
    public ChangelogMode getChangelogMode() {
        return format.getChangelogMode();
    }

    @Override
    public Map<String, DataType> listReadableMetadata() {
        Map<String, DataType> readable = new LinkedHashMap<>(format.listReadableMetadata());
        for (ReadableMetadata each : ReadableMetadata.values()) {
            readable.put(each.key, each.type);
        }
        return readable;
    }

    @Override
    public void applyReadableMetadata(List<String> keys, DataType produced) {
        int ofFormat = (int) keys.stream().filter(key -> ReadableMetadata.of(key) == null).count();
        formatMetadata = List.copyOf(keys.subList(0, ofFormat));
        metadata = List.copyOf(keys.subList(ofFormat, keys.size()));
        producedType = produced;
    }

    @Override
    public boolean supportsNestedProjection() {
        return format instanceof ProjectableDecodingFormat
                && ((ProjectableDecodingFormat<?>) format).supportsNestedProjection();
    }

    @Override
    public void applyProjection(int[][] fields, DataType produced) {
        projection = fields;
        producedType = produced;
    }

    @Override
    public void applyWatermark(WatermarkStrategy<RowData> strategy) {
        watermarks = strategy;
    }

    @Override
    public ScanRuntimeProvider getScanRuntimeProvider(ScanContext context) {
        TypeInformation<RowData> type = context.createTypeInformation(producedType);
        PythonSource<RowData> source =
                new PythonSource<>(built.connector, built.workerSpec, decoder(context), type, false);
        return new Provider(source.withLineage(built.lineage), watermarks, "PubSubSource-" + table, parallelism);
    }

    private RowDecoder decoder(ScanContext context) {
        ReadableMetadata[] ofMessage = metadata.stream().map(ReadableMetadata::of).toArray(ReadableMetadata[]::new);
        int columns = DataType.getFieldCount(physicalType);
        if (columns == 0 && formatMetadata.isEmpty() && getChangelogMode().containsOnly(RowKind.INSERT)) {
            return new RowDecoder(null, null, ofMessage);
        }
        if (!format.listReadableMetadata().isEmpty()) {
            // Also when there is none, for a copy of this source may have asked the same format for some.
            format.applyReadableMetadata(formatMetadata);
        }
        if (format instanceof ProjectableDecodingFormat) {
            return new RowDecoder(
                    ((ProjectableDecodingFormat<DeserializationSchema<RowData>>) format)
                            .createRuntimeDecoder(context, physicalType, projection),
                    null,
                    ofMessage);
        }
        IntStream wanted = Arrays.stream(projection).mapToInt(path -> path[0]);
        int[] all = IntStream.concat(wanted, IntStream.range(columns, columns + formatMetadata.size())).toArray();
        boolean asItIs = Arrays.equals(all, IntStream.range(0, columns + formatMetadata.size()).toArray());
        return new RowDecoder(format.createRuntimeDecoder(context, physicalType), asItIs ? null : all, ofMessage);
    }

    @Override
    public DynamicTableSource copy() {
        PubSubTableSource copy = new PubSubTableSource(table, physicalType, format, built, parallelism);
        copy.projection = projection;
        copy.producedType = producedType;
        copy.formatMetadata = formatMetadata;
        copy.metadata = metadata;
        copy.watermarks = watermarks;
        return copy;
    }

    @Override
    public String asSummaryString() {
        return "Pub/Sub";
    }

    /**
     * Unlike Flink's own provider of a source, it lets the source make the watermarks of each split.
     *
     * <p>The planner knows the lineage of its own provider only, and would give a stream that is a source a lineage without
     * facets. So it gets a stream behind the source: Flink's wrapper for sources of another parallelism, which is nothing in the
     * job.
     */
    private static final class Provider implements DataStreamScanProvider {
        private final PythonSource<RowData> source;
        private final WatermarkStrategy<RowData> watermarks;
        private final String name;
        private final Integer parallelism;

        private Provider(
                PythonSource<RowData> source, WatermarkStrategy<RowData> watermarks, String name, Integer parallelism) {
            this.source = source;
            this.watermarks = watermarks;
            this.name = name;
            this.parallelism = parallelism;
        }

        @Override
        public DataStream<RowData> produceDataStream(ProviderContext context, StreamExecutionEnvironment env) {
            DataStreamSource<RowData> stream = env.fromSource(source, watermarks, name);
            context.generateUid("pubsub").ifPresent(stream::uid);
            if (parallelism != null) {
                stream.setParallelism(parallelism);
            }
            Transformation<RowData> wrapper = new SourceTransformationWrapper<>(stream.getTransformation());
            wrapper.setParallelism(stream.getParallelism(), false);
            return new DataStream<>(env, wrapper);
        }

        @Override
        public boolean isBounded() {
            return false;
        }

        @Override
        public Optional<Integer> getParallelism() {
            return Optional.ofNullable(parallelism);
        }
    }
}
