package io.github.flinkpubsub.bridge;

import java.util.Arrays;

/** Hands the bytes on as they are. PyFlink takes pickled Python objects so. */
public final class BytesDecoder implements RecordDecoder<byte[]> {
    private static final long serialVersionUID = 1L;

    @Override
    public boolean decodesMessages() {
        return false;
    }

    @Override
    public void decode(PythonSplit split, byte[] buffer, int offset, int length, long timestamp, RecordOutput<byte[]> out) {
        out.collect(Arrays.copyOfRange(buffer, offset, offset + length), timestamp);
    }
}
