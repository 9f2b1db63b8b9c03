package io.github.flinkpubsub.bridge;

import java.util.concurrent.atomic.AtomicLong;
import org.apache.flink.metrics.Gauge;
import org.apache.flink.metrics.MetricGroup;

/**
 * What came from the worker and was not emitted yet: the batch that waits for the fetcher, those in Flink's queue, and all of the
 * one the task is working through. Read by reporters at any time, also while the task is blocked.
 */
final class BufferedBatches {
    private final AtomicLong messages = new AtomicLong();
    private final AtomicLong bytes = new AtomicLong();

    BufferedBatches(MetricGroup metrics) {
        metrics.gauge("fetcherBufferedMessages", (Gauge<Long>) messages::get);
        metrics.gauge("fetcherBufferedBytes", (Gauge<Long>) bytes::get);
    }

    void add(RecordBatch batch) {
        messages.addAndGet(batch.messages());
        bytes.addAndGet(batch.bytes());
    }

    void remove(RecordBatch batch) {
        messages.addAndGet(-batch.messages());
        bytes.addAndGet(-batch.bytes());
    }
}
