package io.github.flinkpubsub.bridge;

import java.io.IOException;
import org.apache.flink.core.memory.DataOutputSerializer;

/** Takes elements that are bytes already, pickled Python objects above all. */
public final class BytesEncoder implements ElementEncoder<byte[]> {
    private static final long serialVersionUID = 1L;

    @Override
    public void encode(byte[] element, DataOutputSerializer out) throws IOException {
        out.write(element);
    }

    @Override
    public String toString() {
        return "the encoder of bytes";
    }
}
