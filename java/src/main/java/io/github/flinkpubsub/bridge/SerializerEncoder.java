package io.github.flinkpubsub.bridge;

import java.io.IOException;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.core.memory.DataOutputSerializer;

/** Writes elements with a Flink serializer whose format the worker can read. */
public final class SerializerEncoder<T> implements ElementEncoder<T> {
    private static final long serialVersionUID = 1L;

    private final TypeSerializer<T> serializer;

    public SerializerEncoder(TypeSerializer<T> serializer) {
        this.serializer = serializer;
    }

    @Override
    public void encode(T element, DataOutputSerializer out) throws IOException {
        serializer.serialize(element, out);
    }

    @Override
    public String toString() {
        return "the serializer " + serializer.getClass().getName();
    }
}
