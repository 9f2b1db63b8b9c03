package io.github.flinkpubsub.table;

import io.github.flinkpubsub.bridge.Frames;
import io.github.flinkpubsub.message.MessageReader;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import org.apache.flink.table.api.DataTypes;
import org.apache.flink.table.data.GenericMapData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.types.DataType;

/** What a table can have of a message besides its payload. In the order in which the columns follow the format's. */
enum ReadableMetadata {
    MESSAGE_ID("message-id", DataTypes.STRING().notNull()) {
        @Override
        Object read(MessageReader message, StringData subscription) throws IOException {
            return StringData.fromString(message.messageId());
        }
    },
    /** Cut to milliseconds, which watermarks are in too. */
    PUBLISH_TIME("publish-time", DataTypes.TIMESTAMP_WITH_LOCAL_TIME_ZONE(3).notNull()) {
        @Override
        Object read(MessageReader message, StringData subscription) throws IOException {
            long millis = message.publishMillis();
            if (millis == Frames.NO_TIMESTAMP) {
                throw new IOException("the message has no publish time, which the service gives to every message");
            }
            return TimestampData.fromEpochMillis(millis);
        }
    },
    ATTRIBUTES("attributes", DataTypes.MAP(DataTypes.STRING(), DataTypes.STRING()).notNull()) {
        @Override
        Object read(MessageReader message, StringData subscription) throws IOException {
            Map<StringData, StringData> attributes = new HashMap<>();
            for (Map.Entry<String, String> entry : message.attributes().entrySet()) {
                attributes.put(StringData.fromString(entry.getKey()), StringData.fromString(entry.getValue()));
            }
            return new GenericMapData(attributes);
        }
    },
    /** NULL when the message has none. */
    ORDERING_KEY("ordering-key", DataTypes.STRING()) {
        @Override
        Object read(MessageReader message, StringData subscription) throws IOException {
            String key = message.orderingKey();
            return key.isEmpty() ? null : StringData.fromString(key);
        }
    },
    /** The full resource name. */
    SUBSCRIPTION("subscription", DataTypes.STRING().notNull()) {
        @Override
        Object read(MessageReader message, StringData subscription) {
            return subscription;
        }
    };

    final String key;
    final DataType type;

    ReadableMetadata(String key, DataType type) {
        this.key = key;
        this.type = type;
    }

    /** The value in Flink's internal form, which does not refer to the message's buffer. */
    abstract Object read(MessageReader message, StringData subscription) throws IOException;

    /** The metadata of that key; null if there is none. */
    static ReadableMetadata of(String key) {
        for (ReadableMetadata each : values()) {
            if (each.key.equals(key)) {
                return each;
            }
        }
        return null;
    }
}
