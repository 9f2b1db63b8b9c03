package io.github.flinkpubsub.bridge;

import io.github.flinkpubsub.lineage.Lineage;
import java.io.IOException;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.streaming.api.lineage.LineageVertex;
import org.apache.flink.streaming.api.lineage.LineageVertexProvider;

/** A sink whose writers run in Python workers, one per subtask. */
public final class PythonSink<T> implements Sink<T>, LineageVertexProvider {
    private static final long serialVersionUID = 1L;

    private final byte[] connector;
    private final String workerSpec;
    private final ElementEncoder<T> elements;
    private final ElementEncoder<T> payloads;
    private final Lineage lineage;

    /**
     * @param connector the pickled connector
     * @param workerSpec how to start a worker, see {@link WorkerSpec}
     * @param elements fills the column of elements; null when the worker does not need them
     * @param payloads fills the column of payloads; null when payloads are made in the worker
     */
    public PythonSink(byte[] connector, String workerSpec, ElementEncoder<T> elements, ElementEncoder<T> payloads) {
        this(connector, workerSpec, elements, payloads, Lineage.NONE);
    }

    private PythonSink(
            byte[] connector, String workerSpec, ElementEncoder<T> elements, ElementEncoder<T> payloads, Lineage lineage) {
        if (elements == null && payloads == null) {
            throw new IllegalArgumentException("a sink needs an encoder of elements, of payloads, or both");
        }
        this.connector = connector;
        this.workerSpec = workerSpec;
        this.elements = elements;
        this.payloads = payloads;
        this.lineage = lineage;
    }

    /** This sink, showing the resources it writes to. */
    public PythonSink<T> withLineage(Lineage resources) {
        return new PythonSink<>(connector, workerSpec, elements, payloads, resources);
    }

    @Override
    public LineageVertex getLineageVertex() {
        return lineage.ofSink();
    }

    @Override
    public SinkWriter<T> createWriter(WriterInitContext context) throws IOException {
        open(elements, context);
        open(payloads, context);
        PythonSinkWriter<T> writer =
                new PythonSinkWriter<>(
                        new WriteBatch<>(elements, payloads), context.getMailboxExecutor(), context.getProcessingTimeService());
        writer.start(
                WorkerProcess.start(
                        WorkerSpec.parse(workerSpec),
                        "writer",
                        context.getTaskInfo().getIndexOfThisSubtask(),
                        context.getTaskInfo().getNumberOfParallelSubtasks(),
                        connector,
                        context.metricGroup(),
                        writer));
        return writer;
    }

    private void open(ElementEncoder<T> encoder, WriterInitContext context) throws IOException {
        if (encoder == null) {
            return;
        }
        try {
            encoder.open(context);
        } catch (Exception e) {
            throw new IOException("The sink cannot be opened: " + encoder + " failed: " + e, e);
        }
    }
}
