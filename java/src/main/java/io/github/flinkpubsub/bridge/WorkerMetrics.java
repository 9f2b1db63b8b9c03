package io.github.flinkpubsub.bridge;

import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongConsumer;
import org.apache.flink.metrics.Counter;
import org.apache.flink.metrics.Gauge;
import org.apache.flink.metrics.MetricGroup;
import org.apache.flink.metrics.groups.OperatorMetricGroup;
import org.apache.flink.metrics.groups.SinkWriterMetricGroup;
import org.apache.flink.metrics.groups.SourceReaderMetricGroup;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;

/**
 * Shows the worker's values as Flink metrics. A metric is registered when it is first seen; Flink removes it with its group.
 *
 * <p>The worker sends totals since its start, so a counter grows by the difference to the last total. Only the worker's stdout
 * thread updates; reporters read at any time.
 *
 * <p>Some totals say what went wrong when workers ended, and their metrics end with them: a lasting one is shown as the sum over
 * all workers that this class's loader has seen, past ones included, so that it can still be read.
 */
final class WorkerMetrics {
    private static final Map<String, AtomicLong> LASTING = new ConcurrentHashMap<>();

    private final MetricGroup root;
    private final Map<String, Total> counters = new HashMap<>();
    private final Map<String, AtomicLong> gauges = new HashMap<>();
    private final Map<String, Total> lasting = new HashMap<>();

    WorkerMetrics(MetricGroup root) {
        this.root = root;
    }

    /** Takes over the values of a METRICS frame. */
    void update(JsonNode body) throws ProtocolException {
        JsonNode totals = body.path("counters");
        for (Iterator<String> names = totals.fieldNames(); names.hasNext(); ) {
            String name = names.next();
            long total = Frames.integer(Frames.METRICS, totals, name);
            counters.computeIfAbsent(name, key -> new Total(counter(key)::inc)).advance(name, total);
        }
        JsonNode ours = body.path("lasting");
        for (Iterator<String> names = ours.fieldNames(); names.hasNext(); ) {
            String name = names.next();
            long total = Frames.integer(Frames.METRICS, ours, name);
            lasting.computeIfAbsent(name, key -> new Total(shown(key, LASTING.computeIfAbsent(key, sum -> new AtomicLong()))::addAndGet)).advance(name, total);
        }
        JsonNode values = body.path("gauges");
        for (Iterator<String> names = values.fieldNames(); names.hasNext(); ) {
            String name = names.next();
            long value = Frames.integer(Frames.METRICS, values, name);
            gauges.computeIfAbsent(name, this::gauge).set(value);
        }
    }

    private Counter counter(String name) {
        Counter standard = standardCounter(name);
        return standard != null ? standard : group(name).counter(leaf(name));
    }

    /** Flink registers these itself, under the group that belongs to them; a second registration would be dropped. */
    private Counter standardCounter(String name) {
        if (root instanceof OperatorMetricGroup && name.equals("numBytesIn")) {
            return ((OperatorMetricGroup) root).getIOMetricGroup().getNumBytesInCounter();
        }
        if (root instanceof SourceReaderMetricGroup && name.equals("numRecordsInErrors")) {
            return ((SourceReaderMetricGroup) root).getNumRecordsInErrorsCounter();
        }
        if (root instanceof SinkWriterMetricGroup) {
            SinkWriterMetricGroup writer = (SinkWriterMetricGroup) root;
            switch (name) {
                case "numRecordsSend":
                    return writer.getNumRecordsSendCounter();
                case "numBytesSend":
                    return writer.getNumBytesSendCounter();
                case "numRecordsSendErrors":
                    return writer.getNumRecordsSendErrorsCounter();
                case "numRecordsOutErrors":
                    return writer.getNumRecordsOutErrorsCounter();
                default:
                    return null;
            }
        }
        return null;
    }

    private AtomicLong gauge(String name) {
        return shown(name, new AtomicLong());
    }

    private AtomicLong shown(String name, AtomicLong value) {
        group(name).gauge(leaf(name), (Gauge<Long>) value::get);
        return value;
    }

    private MetricGroup group(String name) {
        MetricGroup group = root;
        String[] path = name.split("\\.");
        for (int i = 0; i < path.length - 1; i++) {
            group = group.addGroup(path[i]);
        }
        return group;
    }

    private static String leaf(String name) {
        return name.substring(name.lastIndexOf('.') + 1);
    }

    private static final class Total {
        private final LongConsumer increase;
        private long last;

        private Total(LongConsumer increase) {
            this.increase = increase;
        }

        private void advance(String name, long total) throws ProtocolException {
            if (total < last) {
                throw new ProtocolException("the counter " + name + " went back from " + last + " to " + total);
            }
            increase.accept(total - last);
            last = total;
        }
    }
}
