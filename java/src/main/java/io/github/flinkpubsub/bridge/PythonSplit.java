package io.github.flinkpubsub.bridge;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import org.apache.flink.api.connector.source.SourceSplit;
import org.apache.flink.core.io.SimpleVersionedSerializer;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.core.memory.DataOutputSerializer;

/** A part of the source that one reader owns. What its data means only the connector knows. */
public final class PythonSplit implements SourceSplit {
    private final String id;
    private final String data;

    public PythonSplit(String id, String data) {
        this.id = id;
        this.data = data;
    }

    @Override
    public String splitId() {
        return id;
    }

    /** The connector's description of the split. */
    public String data() {
        return data;
    }

    @Override
    public String toString() {
        return id;
    }

    /** Writes splits for the way from the enumerator to a reader; readers store none. */
    static final class Serializer implements SimpleVersionedSerializer<PythonSplit> {
        private static final int VERSION = 1;

        @Override
        public int getVersion() {
            return VERSION;
        }

        @Override
        public byte[] serialize(PythonSplit split) throws IOException {
            DataOutputSerializer out = new DataOutputSerializer(64 + split.data.length());
            Text.write(out, split.id);
            Text.write(out, split.data);
            return out.getCopyOfBuffer();
        }

        @Override
        public PythonSplit deserialize(int version, byte[] serialized) throws IOException {
            if (version != VERSION) {
                throw new IOException("splits of version " + version + " are not known, only " + VERSION);
            }
            DataInputDeserializer in = new DataInputDeserializer(serialized);
            return new PythonSplit(Text.read(in), Text.read(in));
        }
    }

    /** Text of any length; {@code writeUTF} ends at 64 KiB. */
    private static final class Text {
        private static void write(DataOutputSerializer out, String text) throws IOException {
            byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
            out.writeInt(bytes.length);
            out.write(bytes);
        }

        private static String read(DataInputDeserializer in) throws IOException {
            int length = in.readInt();
            if (length < 0 || length > in.available()) {
                throw new IOException("a split's text claims " + length + " bytes, " + in.available() + " are there");
            }
            byte[] bytes = new byte[length];
            in.readFully(bytes);
            return new String(bytes, StandardCharsets.UTF_8);
        }
    }
}
