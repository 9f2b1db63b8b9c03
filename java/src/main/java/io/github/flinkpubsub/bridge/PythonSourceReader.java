package io.github.flinkpubsub.bridge;

import java.io.IOException;
import java.util.Collection;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.connector.source.ReaderOutput;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.connector.base.source.reader.RecordsWithSplitIds;
import org.apache.flink.connector.base.source.reader.SingleThreadMultiplexSourceReaderBase;
import org.apache.flink.connector.base.source.reader.splitreader.SplitReader;
import org.apache.flink.connector.base.source.reader.splitreader.SplitsChange;
import org.apache.flink.core.io.InputStatus;

/**
 * Flink's half of a reader: emits what the worker fetched, and tells the worker which messages each checkpoint covers.
 *
 * <p>Queue, split outputs, watermarks and alignment are Flink's own. The reader puts no split into checkpoints: the enumerator
 * plans them anew on every start, and Flink would add restored ones to those.
 */
final class PythonSourceReader<T>
        extends SingleThreadMultiplexSourceReaderBase<RecordBatch.Message, T, PythonSplit, SplitProgress> {
    private final ReaderWorker worker;
    private final Map<String, SplitProgress> progress = new LinkedHashMap<>();

    PythonSourceReader(ReaderWorker worker, RecordDecoder<T> decoder, SourceReaderContext context) {
        super(
                () -> new Fetcher(worker),
                new MessageEmitter<>(decoder, worker, context.metricGroup()),
                context.getConfiguration(),
                context);
        this.worker = worker;
    }

    @Override
    public void addSplits(List<PythonSplit> splits) {
        super.addSplits(splits);
        worker.assign(splits);
    }

    @Override
    public InputStatus pollNext(ReaderOutput<T> output) throws Exception {
        worker.throwIfFailed();
        return super.pollNext(output);
    }

    @Override
    public void pauseOrResumeSplits(Collection<String> pause, Collection<String> resume) {
        worker.pauseOrResume(pause, resume);
    }

    @Override
    public List<PythonSplit> snapshotState(long checkpoint) {
        worker.snapshot(checkpoint, progress.values());
        return Collections.emptyList();
    }

    @Override
    public void notifyCheckpointComplete(long checkpoint) throws Exception {
        worker.checkpointComplete(checkpoint);
    }

    @Override
    public void close() throws Exception {
        worker.stop();
        try {
            super.close();
        } finally {
            worker.close();
        }
    }

    @Override
    protected SplitProgress initializedState(PythonSplit split) {
        SplitProgress state = new SplitProgress(split);
        progress.put(split.splitId(), state);
        return state;
    }

    @Override
    protected PythonSplit toSplitType(String splitId, SplitProgress state) {
        return state.split;
    }

    @Override
    protected void onSplitFinished(Map<String, SplitProgress> finished) {
        // Their progress stays: the next checkpoint covers their last messages.
    }

    /** Flink's fetcher thread, waiting for batches; splits reach the worker from the task thread. */
    private static final class Fetcher implements SplitReader<RecordBatch.Message, PythonSplit> {
        private final ReaderWorker worker;

        private Fetcher(ReaderWorker worker) {
            this.worker = worker;
        }

        @Override
        public RecordsWithSplitIds<RecordBatch.Message> fetch() throws IOException {
            return worker.fetch();
        }

        @Override
        public void handleSplitsChanges(SplitsChange<PythonSplit> change) {}

        @Override
        public void wakeUp() {
            worker.wakeUp();
        }

        @Override
        public void close() {}
    }
}
