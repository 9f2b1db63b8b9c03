package io.github.flinkpubsub.table;

import java.io.Serializable;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.table.api.DataTypes;
import org.apache.flink.table.types.DataType;

/** Where a sink's rows have what: the physical columns come first, then the metadata columns. */
final class WrittenColumns implements Serializable {
    private static final long serialVersionUID = 1L;

    static final String ATTRIBUTES = "attributes";
    static final String ORDERING_KEY = "ordering-key";
    static final String TOPIC = "topic";

    /** How many physical columns there are. */
    final int physical;
    /** Position of a metadata column in a row; -1 when the table has none. */
    final int attributes;

    final int orderingKey;
    final int topic;

    /** @param metadata keys of the metadata columns, in the order of the rows */
    WrittenColumns(int physical, List<String> metadata) {
        this.physical = physical;
        attributes = position(metadata, ATTRIBUTES);
        orderingKey = position(metadata, ORDERING_KEY);
        topic = position(metadata, TOPIC);
    }

    /** The metadata that a table can write, with the types it is written as. Of any of it NULL is none. */
    static Map<String, DataType> writable() {
        Map<String, DataType> writable = new LinkedHashMap<>();
        writable.put(ATTRIBUTES, DataTypes.MAP(DataTypes.STRING(), DataTypes.STRING()).nullable());
        writable.put(ORDERING_KEY, DataTypes.STRING().nullable());
        writable.put(TOPIC, DataTypes.STRING().nullable());
        return writable;
    }

    boolean hasMetadata() {
        return attributes >= 0 || routes();
    }

    /** Whether rows differ in where they go, or in the order they keep. */
    boolean routes() {
        return orderingKey >= 0 || topic >= 0;
    }

    private int position(List<String> metadata, String key) {
        int index = metadata.indexOf(key);
        return index < 0 ? -1 : physical + index;
    }
}
