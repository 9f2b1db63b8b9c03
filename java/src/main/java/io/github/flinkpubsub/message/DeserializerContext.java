package io.github.flinkpubsub.message;

import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.metrics.MetricGroup;
import org.apache.flink.util.UserCodeClassLoader;

/** What a schema learns of the reader that opens it. */
public final class DeserializerContext implements DeserializationSchema.InitializationContext {
    private final SourceReaderContext reader;

    public DeserializerContext(SourceReaderContext reader) {
        this.reader = reader;
    }

    @Override
    public MetricGroup getMetricGroup() {
        return reader.metricGroup().addGroup("deserializer");
    }

    @Override
    public UserCodeClassLoader getUserCodeClassLoader() {
        return reader.getUserCodeClassLoader();
    }
}
