package io.github.flinkpubsub.bridge;

/** Takes the records of a message, in order, while {@link RecordDecoder#decode} runs and on its thread. */
public interface RecordOutput<T> {

    /**
     * Emits a record. What the job's operators throw at it comes out of this call and must reach the caller of the decoder.
     *
     * @param timestamp event time in milliseconds, {@link Frames#NO_TIMESTAMP} for none
     */
    void collect(T record, long timestamp);
}
