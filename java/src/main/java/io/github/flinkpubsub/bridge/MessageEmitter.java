package io.github.flinkpubsub.bridge;

import java.io.IOException;
import java.util.Objects;
import org.apache.flink.api.connector.source.SourceOutput;
import org.apache.flink.connector.base.source.reader.RecordEmitter;
import org.apache.flink.metrics.Counter;
import org.apache.flink.metrics.SimpleCounter;
import org.apache.flink.metrics.groups.SourceReaderMetricGroup;
import org.apache.flink.util.ExceptionUtils;

/**
 * Decodes messages and emits their records, and tells the two ways apart in which that can fail.
 *
 * <p>What comes out of {@link SourceOutput#collect} is the job's own failure: the worker hears of it, so that it can give the
 * message back at once, and it fails the task. Anything else is a message that cannot be decoded: the worker's settings say
 * whether that fails the task too or is the worker's to decide; it may then withdraw later messages, which are passed over. Task
 * thread only.
 */
final class MessageEmitter<T> implements RecordEmitter<RecordBatch.Message, T, SplitProgress>, RecordOutput<T> {
    private final RecordDecoder<T> decoder;
    private final ReaderWorker worker;
    private final Counter failed;
    private final Counter skipped;
    private SourceOutput<T> output;
    private Throwable downstreamFailure;
    private long collected;

    MessageEmitter(RecordDecoder<T> decoder, ReaderWorker worker, SourceReaderMetricGroup metrics) {
        this.decoder = decoder;
        this.worker = worker;
        this.failed = metrics.getNumRecordsInErrorsCounter();
        // What the worker decodes, the worker counts.
        this.skipped = decoder.decodesMessages() ? metrics.counter("recordsSkipped") : new SimpleCounter();
    }

    @Override
    public void emitRecord(RecordBatch.Message message, SourceOutput<T> splitOutput, SplitProgress progress) throws Exception {
        output = splitOutput;
        PythonSplit split = progress.split;
        if (progress.withdrew(message.sequence())) {
            progress.advance(message.sequence());
            return;
        }
        try {
            while (message.nextRecord()) {
                long before = collected;
                decoder.decode(split, message.buffer(), message.offset(), message.length(), message.timestamp(), this);
                if (collected == before) {
                    skipped.inc();
                }
            }
        } catch (Throwable e) {
            if (downstreamFailure == null) {
                refuse(progress, message.sequence(), e);
            }
        }
        if (downstreamFailure != null) {
            reportDownstreamFailure(split, message.sequence());
            ExceptionUtils.rethrowException(downstreamFailure);
        }
        progress.advance(message.sequence());
    }

    @Override
    public void collect(T record, long timestamp) {
        Objects.requireNonNull(record, "a decoder emitted null");
        collected++;
        try {
            output.collect(record, timestamp);
        } catch (Throwable e) {
            downstreamFailure = e;
            throw e;
        }
    }

    private void refuse(SplitProgress progress, long sequence, Throwable cause) throws IOException, InterruptedException {
        if (cause instanceof Error) {
            throw (Error) cause;
        }
        failed.inc();
        if (worker.failsOnRecordFailure()) {
            throw new IOException(
                    "Message " + sequence + " of split " + progress.split + " cannot be decoded: " + ReaderWorker.kind(cause), cause);
        }
        worker.recordFailed(progress.split, sequence, cause, false);
        progress.withdraw(worker.awaitWithdrawn(progress.split, sequence));
    }

    private void reportDownstreamFailure(PythonSplit split, long sequence) {
        try {
            worker.recordFailed(split, sequence, downstreamFailure, true);
        } catch (WorkerException e) {
            downstreamFailure.addSuppressed(e);
        }
    }
}
