package io.github.flinkpubsub.bridge;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.function.ToIntFunction;
import org.apache.flink.metrics.Gauge;
import org.apache.flink.metrics.groups.SplitEnumeratorMetricGroup;

/**
 * What an enumerator shows of itself. The coordinator thread sets the values, reporters read them at any time.
 *
 * <p>A failover of the whole job makes another enumerator on the same metric group, where Flink keeps the gauges of the first.
 * So gauges belong to the group, and show the enumerator that is current there.
 */
final class EnumeratorMetrics {
    private static final ConcurrentMap<Map<String, String>, EnumeratorMetrics> CURRENT = new ConcurrentHashMap<>();

    private final Map<String, String> group;
    private volatile int assignedSplits;
    private volatile int unassignedSplits;
    private volatile int unassignedReaders;

    EnumeratorMetrics(SplitEnumeratorMetricGroup metrics) {
        Map<String, String> key = Map.copyOf(metrics.getAllVariables());
        group = key;
        CURRENT.put(key, this);
        metrics.gauge("assignedSplits", gauge(key, values -> values.assignedSplits));
        metrics.gauge("unassignedReaders", gauge(key, values -> values.unassignedReaders));
        metrics.setUnassignedSplitsGauge(gauge(key, values -> values.unassignedSplits));
    }

    private static Gauge<Long> gauge(Map<String, String> key, ToIntFunction<EnumeratorMetrics> value) {
        return () -> {
            EnumeratorMetrics values = CURRENT.get(key);
            return values == null ? 0L : value.applyAsInt(values);
        };
    }

    /**
     * @param assigned splits that running readers have
     * @param unassigned splits whose reader is not there
     * @param waiting readers that are there while there is no plan
     */
    void set(int assigned, int unassigned, int waiting) {
        assignedSplits = assigned;
        unassignedSplits = unassigned;
        unassignedReaders = waiting;
    }

    void close() {
        CURRENT.remove(group, this);
    }
}
