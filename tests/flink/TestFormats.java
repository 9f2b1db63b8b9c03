package tests;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.flink.api.common.serialization.AbstractDeserializationSchema;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ReadableConfig;
import org.apache.flink.table.api.DataTypes;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.format.DecodingFormat;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.factories.DeserializationFormatFactory;
import org.apache.flink.table.factories.DynamicTableFactory;
import org.apache.flink.table.types.DataType;
import org.apache.flink.util.Collector;

/**
 * Formats for what Flink's own do not do: metadata without projection, several rows and null ones, a key of the connector's.
 *
 * <p>Every line of a payload is a row of strings, separated by commas; "null" is a null row, and "!" cannot be decoded.
 */
public final class TestFormats {
    private TestFormats() {}

    /** The format {@code lines}, with the metadata {@code line-number}. */
    public static final class Lines implements DeserializationFormatFactory {
        @Override
        public String factoryIdentifier() {
            return "lines";
        }

        @Override
        public Set<ConfigOption<?>> requiredOptions() {
            return Set.of();
        }

        @Override
        public Set<ConfigOption<?>> optionalOptions() {
            return Set.of();
        }

        @Override
        public DecodingFormat<DeserializationSchema<RowData>> createDecodingFormat(
                DynamicTableFactory.Context context, ReadableConfig options) {
            return new Format("line-number");
        }
    }

    /** The format {@code clashing}, which has the metadata {@code attributes} as the connector has. */
    public static final class Clashing implements DeserializationFormatFactory {
        @Override
        public String factoryIdentifier() {
            return "clashing";
        }

        @Override
        public Set<ConfigOption<?>> requiredOptions() {
            return Set.of();
        }

        @Override
        public Set<ConfigOption<?>> optionalOptions() {
            return Set.of();
        }

        @Override
        public DecodingFormat<DeserializationSchema<RowData>> createDecodingFormat(
                DynamicTableFactory.Context context, ReadableConfig options) {
            return new Format("attributes");
        }
    }

    private static final class Format implements DecodingFormat<DeserializationSchema<RowData>> {
        private final String key;
        private boolean numbered;

        private Format(String key) {
            this.key = key;
        }

        @Override
        public Map<String, DataType> listReadableMetadata() {
            return Map.of(key, DataTypes.INT().notNull());
        }

        @Override
        public void applyReadableMetadata(List<String> keys) {
            numbered = keys.contains(key);
        }

        @Override
        public DeserializationSchema<RowData> createRuntimeDecoder(DynamicTableSource.Context context, DataType type) {
            return new Schema(DataType.getFieldCount(type), numbered);
        }

        @Override
        public ChangelogMode getChangelogMode() {
            return ChangelogMode.insertOnly();
        }
    }

    private static final class Schema extends AbstractDeserializationSchema<RowData> {
        private static final long serialVersionUID = 1L;

        private final int columns;
        private final boolean numbered;

        private Schema(int columns, boolean numbered) {
            super(RowData.class);
            this.columns = columns;
            this.numbered = numbered;
        }

        @Override
        public RowData deserialize(byte[] payload) {
            throw new UnsupportedOperationException("a payload has several rows");
        }

        @Override
        public void deserialize(byte[] payload, Collector<RowData> out) throws IOException {
            String[] lines = new String(payload, StandardCharsets.UTF_8).split("\n");
            for (int number = 0; number < lines.length; number++) {
                if (lines[number].equals("!")) {
                    throw new IOException("line " + number + " is broken");
                }
                out.collect(lines[number].equals("null") ? null : row(lines[number].split(","), number));
            }
        }

        private RowData row(String[] values, int number) {
            GenericRowData row = new GenericRowData(columns + (numbered ? 1 : 0));
            for (int i = 0; i < columns; i++) {
                row.setField(i, StringData.fromString(values[i]));
            }
            if (numbered) {
                row.setField(columns, number);
            }
            return row;
        }
    }
}
