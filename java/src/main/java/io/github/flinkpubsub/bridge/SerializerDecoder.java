package io.github.flinkpubsub.bridge;

import java.io.IOException;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.core.memory.DataInputDeserializer;

/** Decodes with a Flink serializer: explicit types, whose bytes PyFlink's own coders made in the worker. */
public final class SerializerDecoder<T> implements RecordDecoder<T> {
    private static final long serialVersionUID = 1L;

    private final TypeSerializer<T> serializer;
    private transient DataInputDeserializer in;

    public SerializerDecoder(TypeSerializer<T> serializer) {
        this.serializer = serializer;
    }

    @Override
    public boolean decodesMessages() {
        return false;
    }

    @Override
    public void decode(PythonSplit split, byte[] buffer, int offset, int length, long timestamp, RecordOutput<T> out)
            throws IOException {
        if (in == null) {
            in = new DataInputDeserializer();
        }
        in.setBuffer(buffer, offset, length);
        T record = serializer.deserialize(in);
        if (in.available() > 0) {
            throw new IOException(
                    in.available() + " of a record's " + length + " bytes were left by " + serializer.getClass().getName());
        }
        out.collect(record, timestamp);
    }
}
