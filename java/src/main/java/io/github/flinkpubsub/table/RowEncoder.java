package io.github.flinkpubsub.table;

import io.github.flinkpubsub.bridge.ElementEncoder;
import io.github.flinkpubsub.message.MessageWriter;
import java.io.IOException;
import java.util.stream.IntStream;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.table.data.ArrayData;
import org.apache.flink.table.data.MapData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.utils.ProjectedRowData;

/**
 * Encodes rows to messages, as entries of a PublishRequest: the data is what the format makes of the physical columns, which
 * come first in a row; attributes and ordering key are in the metadata columns.
 */
final class RowEncoder implements ElementEncoder<RowData> {
    private static final long serialVersionUID = 1L;

    private final SerializationSchema<RowData> format;
    private final WrittenColumns columns;
    private transient ProjectedRowData physical;
    private transient MessageWriter message;

    RowEncoder(SerializationSchema<RowData> format, WrittenColumns columns) {
        this.format = format;
        this.columns = columns;
    }

    @Override
    public void open(WriterInitContext context) throws Exception {
        message = new MessageWriter();
        if (columns.hasMetadata()) {
            physical = ProjectedRowData.from(IntStream.range(0, columns.physical).toArray());
        }
        format.open(context.asSerializationSchemaInitializationContext());
    }

    @Override
    public void encode(RowData row, DataOutputSerializer out) throws IOException {
        message.clear();
        if (columns.attributes >= 0 && !row.isNullAt(columns.attributes)) {
            addAttributes(row.getMap(columns.attributes));
        }
        if (columns.orderingKey >= 0 && !row.isNullAt(columns.orderingKey)) {
            message.setOrderingKey(row.getString(columns.orderingKey).toBytes());
        }
        byte[] data = format.serialize(physical == null ? row : physical.replaceRow(row));
        if (data == null) {
            throw new IllegalArgumentException(
                    "the format makes no payload of it, as 'raw' does of NULL; replace the NULL, say with COALESCE");
        }
        message.write(data, out);
    }

    private void addAttributes(MapData attributes) throws IOException {
        ArrayData keys = attributes.keyArray();
        ArrayData values = attributes.valueArray();
        int size = attributes.size();
        for (int i = 0; i < size; i++) {
            if (keys.isNullAt(i) || values.isNullAt(i)) {
                throw new IllegalArgumentException(
                        "the map in the metadata column '" + WrittenColumns.ATTRIBUTES + "' has a NULL "
                                + (keys.isNullAt(i) ? "key" : "value")
                                + ", and an attribute needs both; leave the entry out, or replace the NULL, say with COALESCE");
            }
            message.addAttribute(keys.getString(i).toBytes(), values.getString(i).toBytes());
        }
    }

    @Override
    public String toString() {
        return "the encoder of table rows";
    }
}
