package io.github.flinkpubsub.message;

import io.github.flinkpubsub.bridge.PythonSplit;
import io.github.flinkpubsub.bridge.RecordDecoder;
import io.github.flinkpubsub.bridge.RecordOutput;
import java.io.IOException;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.types.Row;

/**
 * Decodes messages to rows of all they have: data, attributes, ordering_key, message_id, publish_time, delivery_attempt and
 * subscription. Without an ordering key or a delivery attempt the field is null. The publish time is the event time too.
 */
public final class MessageRowDecoder implements RecordDecoder<Row> {
    private static final long serialVersionUID = 1L;

    private static final ObjectMapper JSON = new ObjectMapper();

    private transient MessageReader message;
    private transient PythonSplit split;
    private transient String subscription;

    /** The rows' type, of parts that PyFlink knows. */
    public static TypeInformation<Row> type() {
        return Types.ROW_NAMED(
                new String[] {
                    "data", "attributes", "ordering_key", "message_id", "publish_time", "delivery_attempt", "subscription"
                },
                Types.PRIMITIVE_ARRAY(Types.BYTE),
                Types.MAP(Types.STRING, Types.STRING),
                Types.STRING,
                Types.STRING,
                Types.INSTANT,
                Types.INT,
                Types.STRING);
    }

    @Override
    public void open(SourceReaderContext context) {
        message = new MessageReader();
    }

    @Override
    public void decode(PythonSplit from, byte[] buffer, int offset, int length, long timestamp, RecordOutput<Row> out)
            throws IOException {
        if (from != split) {
            subscription = JSON.readTree(from.data()).path("subscription").asText();
            split = from;
        }
        message.read(buffer, offset, length);
        String orderingKey = message.orderingKey();
        int deliveryAttempt = message.deliveryAttempt();
        Row row =
                Row.of(
                        message.data(),
                        message.attributes(),
                        orderingKey.isEmpty() ? null : orderingKey,
                        message.messageId(),
                        message.publishTime(),
                        deliveryAttempt == 0 ? null : deliveryAttempt,
                        subscription);
        out.collect(row, message.publishMillis());
    }
}
