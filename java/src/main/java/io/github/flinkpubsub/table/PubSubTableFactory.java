package io.github.flinkpubsub.table;

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.table.api.ValidationException;
import org.apache.flink.table.catalog.Column;
import org.apache.flink.table.connector.format.DecodingFormat;
import org.apache.flink.table.connector.format.EncodingFormat;
import org.apache.flink.table.connector.sink.DynamicTableSink;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.factories.DeserializationFormatFactory;
import org.apache.flink.table.factories.DynamicTableSinkFactory;
import org.apache.flink.table.factories.DynamicTableSourceFactory;
import org.apache.flink.table.factories.FactoryUtil;
import org.apache.flink.table.factories.SerializationFormatFactory;

/**
 * Makes {@code pubsub} tables, to be read and to be written. Found by Flink through the service file in the jar.
 *
 * <p>What only Flink can know is checked here; the options are checked, and the connector is made, by the Python side. One table
 * may serve both directions, so what one of them needs is asked for when it is used.
 */
public final class PubSubTableFactory implements DynamicTableSourceFactory, DynamicTableSinkFactory {
    private TableOptions declared;

    @Override
    public String factoryIdentifier() {
        return "pubsub";
    }

    @Override
    public Set<ConfigOption<?>> requiredOptions() {
        return Set.of(options().get("project"), FactoryUtil.FORMAT);
    }

    @Override
    public Set<ConfigOption<?>> optionalOptions() {
        Set<ConfigOption<?>> optional = options().declared();
        optional.removeAll(requiredOptions());
        optional.add(FactoryUtil.SOURCE_PARALLELISM);
        optional.add(FactoryUtil.SINK_PARALLELISM);
        return optional;
    }

    @Override
    public DynamicTableSource createDynamicTableSource(Context context) {
        FactoryUtil.TableFactoryHelper helper = FactoryUtil.createTableFactoryHelper(this, context);
        DecodingFormat<DeserializationSchema<RowData>> format =
                helper.discoverDecodingFormat(DeserializationFormatFactory.class, FactoryUtil.FORMAT);
        helper.validate();
        for (String key : format.listReadableMetadata().keySet()) {
            if (ReadableMetadata.of(key) != null) {
                throw new ValidationException("The format '" + helper.getOptions().get(FactoryUtil.FORMAT)
                        + "' and the connector 'pubsub' both have metadata '" + key + "', so the meaning of a column of it would"
                        + " depend on the format: use another format.");
            }
        }
        return new PubSubTableSource(
                context.getObjectIdentifier().getObjectName(),
                context.getPhysicalRowDataType(),
                format,
                builder("source", helper, context).build(List.of()),
                parallelism(helper, FactoryUtil.SOURCE_PARALLELISM));
    }

    @Override
    public DynamicTableSink createDynamicTableSink(Context context) {
        FactoryUtil.TableFactoryHelper helper = FactoryUtil.createTableFactoryHelper(this, context);
        EncodingFormat<SerializationSchema<RowData>> format =
                helper.discoverEncodingFormat(SerializationFormatFactory.class, FactoryUtil.FORMAT);
        helper.validate();
        List<String> metadata = writtenMetadata(context);
        return new PubSubTableSink(
                context.getPhysicalRowDataType(),
                format,
                builder("sink", helper, context).build(metadata),
                metadata,
                parallelism(helper, FactoryUtil.SINK_PARALLELISM));
    }

    private ConnectorBuilder builder(String direction, FactoryUtil.TableFactoryHelper helper, Context context) {
        return new ConnectorBuilder(
                context.getObjectIdentifier().asSummaryString(),
                direction,
                options().given(direction, helper.getOptions(), context.getCatalogTable().getOptions()),
                context.getConfiguration());
    }

    /** Null where the table leaves it to Flink. */
    private static Integer parallelism(FactoryUtil.TableFactoryHelper helper, ConfigOption<Integer> option) {
        Integer parallelism = helper.getOptions().get(option);
        if (parallelism != null && parallelism < 1) {
            throw new ValidationException("'" + option.key() + "' must be at least 1 (got " + parallelism + ")");
        }
        return parallelism;
    }

    /** Keys of the metadata columns that take part in an INSERT, in the table's order. */
    private static List<String> writtenMetadata(Context context) {
        List<String> keys = new ArrayList<>();
        for (Column column : context.getCatalogTable().getResolvedSchema().getColumns()) {
            if (column instanceof Column.MetadataColumn && column.isPersisted()) {
                keys.add(((Column.MetadataColumn) column).getMetadataKey().orElse(column.getName()));
            }
        }
        return keys;
    }

    /** Read when they are first wanted: Flink makes every factory on its classpath to find one. */
    private TableOptions options() {
        if (declared == null) {
            declared = new TableOptions();
        }
        return declared;
    }
}
