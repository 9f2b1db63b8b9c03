package io.github.flinkpubsub.bridge;

import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.connector.source.Boundedness;
import org.apache.flink.api.connector.source.Source;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.api.java.typeutils.ResultTypeQueryable;
import org.apache.flink.core.io.SimpleVersionedSerializer;

/** A Flink source whose planner and readers are written in Python. */
public final class PythonSource<T> implements Source<T, PythonSplit, byte[]>, ResultTypeQueryable<T> {
    private static final long serialVersionUID = 1L;

    private final byte[] connector;
    private final WorkerSpec spec;
    private final RecordDecoder<T> decoder;
    private final TypeInformation<T> type;
    private final boolean bounded;

    /**
     * @param connector the pickled {@code SourceConnector}
     * @param workerSpec how to start a worker, see {@link WorkerSpec}
     * @param decoder makes records of the bytes that readers send
     * @param type of the records
     * @param bounded whether the splits end
     */
    public PythonSource(
            byte[] connector, String workerSpec, RecordDecoder<T> decoder, TypeInformation<T> type, boolean bounded) {
        this.connector = connector;
        this.spec = WorkerSpec.parse(workerSpec);
        this.decoder = decoder;
        this.type = type;
        this.bounded = bounded;
    }

    @Override
    public Boundedness getBoundedness() {
        return bounded ? Boundedness.BOUNDED : Boundedness.CONTINUOUS_UNBOUNDED;
    }

    @Override
    public SourceReader<T, PythonSplit> createReader(SourceReaderContext context) throws Exception {
        decoder.open(context);
        return new PythonSourceReader<>(new ReaderWorker(spec, connector, context), decoder, context);
    }

    @Override
    public SplitEnumerator<PythonSplit, byte[]> createEnumerator(SplitEnumeratorContext<PythonSplit> context) {
        return restoreEnumerator(context, PythonEnumerator.NO_STATE);
    }

    @Override
    public SplitEnumerator<PythonSplit, byte[]> restoreEnumerator(
            SplitEnumeratorContext<PythonSplit> context, byte[] state) {
        return new PythonEnumerator(context, spec, connector, state);
    }

    @Override
    public SimpleVersionedSerializer<PythonSplit> getSplitSerializer() {
        return new PythonSplit.Serializer();
    }

    @Override
    public SimpleVersionedSerializer<byte[]> getEnumeratorCheckpointSerializer() {
        return new PythonEnumerator.StateSerializer();
    }

    @Override
    public TypeInformation<T> getProducedType() {
        return type;
    }
}
