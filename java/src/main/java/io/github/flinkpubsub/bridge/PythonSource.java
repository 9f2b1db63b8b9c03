package io.github.flinkpubsub.bridge;

import io.github.flinkpubsub.lineage.Lineage;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.connector.source.Boundedness;
import org.apache.flink.api.connector.source.Source;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.api.java.typeutils.ResultTypeQueryable;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.streaming.api.lineage.LineageVertex;
import org.apache.flink.streaming.api.lineage.LineageVertexProvider;

/** A Flink source whose planner and readers are written in Python. */
public final class PythonSource<T>
        implements Source<T, PythonSplit, byte[]>, ResultTypeQueryable<T>, LineageVertexProvider {
    private static final long serialVersionUID = 1L;

    private final byte[] connector;
    private final WorkerSpec spec;
    private final RecordDecoder<T> decoder;
    private final TypeInformation<T> type;
    private final boolean bounded;
    private final Lineage lineage;

    /**
     * @param connector the pickled {@code SourceConnector}
     * @param workerSpec how to start a worker, see {@link WorkerSpec}
     * @param decoder makes records of the bytes that readers send
     * @param type of the records
     * @param bounded whether the splits end
     */
    public PythonSource(
            byte[] connector, String workerSpec, RecordDecoder<T> decoder, TypeInformation<T> type, boolean bounded) {
        this(connector, WorkerSpec.parse(workerSpec), decoder, type, bounded, Lineage.NONE);
    }

    private PythonSource(
            byte[] connector,
            WorkerSpec spec,
            RecordDecoder<T> decoder,
            TypeInformation<T> type,
            boolean bounded,
            Lineage lineage) {
        this.connector = connector;
        this.spec = spec;
        this.decoder = decoder;
        this.type = type;
        this.bounded = bounded;
        this.lineage = lineage;
    }

    /** This source, showing the resources it reads. */
    public PythonSource<T> withLineage(Lineage resources) {
        return new PythonSource<>(connector, spec, decoder, type, bounded, resources);
    }

    @Override
    public LineageVertex getLineageVertex() {
        return lineage.ofSource(getBoundedness());
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
