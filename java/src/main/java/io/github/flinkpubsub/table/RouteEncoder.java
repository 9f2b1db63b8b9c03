package io.github.flinkpubsub.table;

import io.github.flinkpubsub.bridge.ElementEncoder;
import java.io.IOException;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.table.data.RowData;

/**
 * Encodes where rows go, for the worker, which does not read the messages: the length of the topic id in four bytes, -1 when
 * the row has none, the topic id, and the rest is the ordering key. Texts are UTF-8.
 */
final class RouteEncoder implements ElementEncoder<RowData> {
    private static final long serialVersionUID = 1L;

    private final WrittenColumns columns;

    RouteEncoder(WrittenColumns columns) {
        this.columns = columns;
    }

    @Override
    public void encode(RowData row, DataOutputSerializer out) throws IOException {
        if (columns.topic >= 0 && !row.isNullAt(columns.topic)) {
            byte[] topic = row.getString(columns.topic).toBytes();
            out.writeInt(topic.length);
            out.write(topic);
        } else {
            out.writeInt(-1);
        }
        if (columns.orderingKey >= 0 && !row.isNullAt(columns.orderingKey)) {
            out.write(row.getString(columns.orderingKey).toBytes());
        }
    }

    @Override
    public String toString() {
        return "the encoder of topics and ordering keys";
    }
}
