package io.github.flinkpubsub.bridge;

import java.io.Serializable;
import org.apache.flink.api.connector.source.SourceReaderContext;

/** Makes Flink's records of the bytes a worker sends. One instance per reader, called by the task thread only. */
public interface RecordDecoder<T> extends Serializable {

    /** Prepares for decoding. Once, before the first record. Throwing fails the job. */
    default void open(SourceReaderContext context) throws Exception {}

    /** Whether the records are messages that are decoded only here, or else what the worker has decoded. */
    default boolean decodesMessages() {
        return true;
    }

    /**
     * Decodes one record of a batch.
     *
     * @param split where it comes from
     * @param buffer holds the record from {@code offset} on; valid only during the call, and not to be changed
     * @param timestamp event time in milliseconds, {@link Frames#NO_TIMESTAMP} for none
     * @param out takes any number of records
     * @throws Exception if the bytes are refused: a failure of this record, which the worker's failure policy decides about
     */
    void decode(PythonSplit split, byte[] buffer, int offset, int length, long timestamp, RecordOutput<T> out) throws Exception;
}
