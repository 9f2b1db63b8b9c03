package io.github.flinkpubsub.bridge;

import java.io.Serializable;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.core.memory.DataOutputSerializer;

/**
 * Turns the elements of a sink into one column of the batches that go to the worker.
 *
 * <p>Its {@code toString} names what encodes, for errors.
 */
public interface ElementEncoder<T> extends Serializable {
    /** Called once per writer, on the task thread, before the first element. */
    default void open(WriterInitContext context) throws Exception {}

    /** Appends the element's bytes. Task thread. Throwing fails the job; what was appended by then is not sent. */
    void encode(T element, DataOutputSerializer out) throws Exception;
}
