package io.github.flinkpubsub.bridge;

import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;

/** What a worker tells the role it plays. Nothing here may block: the worker's stdout is not read meanwhile. */
interface WorkerListener {

    /** The connector is open; these are the settings it asks the JVM to honour. Once, on the worker's stdout thread. */
    void onReady(JsonNode settings) throws ProtocolException;

    /** A frame of the role. On the worker's stdout thread, after {@link #onReady}. The body is the listener's to keep. */
    void onFrame(int kind, byte[] body) throws ProtocolException;

    /** The worker failed or died, and no frame follows. At most once, on any thread, and never because of a close. */
    void onFailure(WorkerException cause);
}
