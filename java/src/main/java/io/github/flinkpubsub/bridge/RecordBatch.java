package io.github.flinkpubsub.bridge;

import java.io.IOException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.flink.connector.base.source.reader.RecordsWithSplitIds;

/**
 * The messages of a RECORDS frame, read in place.
 *
 * <p>{@link #parse} checks every length of the frame, so that iterating needs no further checks and cannot leave the frame. The
 * layout is documented at {@code RecordBlock} in {@code flink_pubsub/bridge/frames.py}. One {@link Message} object walks over
 * all messages: nothing is allocated per message.
 */
public final class RecordBatch implements RecordsWithSplitIds<RecordBatch.Message> {
    /** A batch without anything: what a fetch that was woken up returns. */
    static final RecordBatch EMPTY = new RecordBatch(new byte[0], Collections.emptyList(), Collections.emptySet());

    private static final VarHandle INT = MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.BIG_ENDIAN);
    private static final VarHandle LONG = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.BIG_ENDIAN);

    private static final String MALFORMED = "a RECORDS frame is malformed: ";

    private static final int HEAD_BYTES = 19;
    private static final int COUNTS = 1;
    private static final int TIMESTAMPS = 2;
    private static final int FINISHED = 4;
    private static final int SERIALIZED = 8;

    /** Tag of the field whose values are the records of a serialized block. */
    private static final int RECORD = 1 << 3 | FieldReader.BYTES;

    private final byte[] body;
    private final List<Block> blocks;
    private final Set<String> finished;
    private final Message message = new Message();
    private final long messages;
    private BufferedBatches account;
    private int nextBlock;

    private RecordBatch(byte[] body, List<Block> blocks, Set<String> finished) {
        this.body = body;
        this.blocks = blocks;
        this.finished = finished;
        this.messages = blocks.stream().mapToLong(block -> block.messages).sum();
    }

    /** Messages in the batch, whether or not they have records. */
    long messages() {
        return messages;
    }

    /** Size of the batch. */
    int bytes() {
        return body.length;
    }

    /** Counts the batch until Flink is done with it. */
    RecordBatch countedIn(BufferedBatches buffered) {
        account = buffered;
        buffered.add(this);
        return this;
    }

    @Override
    public void recycle() {
        if (account != null) {
            account.remove(this);
            account = null;
        }
    }

    /**
     * Checks and opens the body of a RECORDS frame.
     *
     * @param splits the reader's splits by ordinal
     * @throws ProtocolException if the frame's numbers do not add up
     */
    public static RecordBatch parse(byte[] body, List<PythonSplit> splits) throws ProtocolException {
        List<Block> blocks = new ArrayList<>();
        Set<String> finished = new HashSet<>();
        for (int at = 0; at < body.length; at = blocks.get(blocks.size() - 1).end) {
            Block block = parseBlock(body, at, splits);
            require(!finished.contains(block.split.splitId()), "a block follows the last one of split " + block.split);
            if (block.finished) {
                finished.add(block.split.splitId());
            }
            blocks.add(block);
        }
        return new RecordBatch(body, blocks, finished);
    }

    private static Block parseBlock(byte[] body, int at, List<PythonSplit> splits) throws ProtocolException {
        require(body.length - at >= HEAD_BYTES, "its last block is cut off");
        int ordinal = (body[at] & 0xFF) << 8 | (body[at + 1] & 0xFF);
        int flags = body[at + 2] & 0xFF;
        long first = (long) LONG.get(body, at + 3);
        long messages = unsigned(body, at + 11);
        long records = unsigned(body, at + 15);
        require(ordinal < splits.size(), "it names split " + ordinal + " of " + splits.size());
        require(flags <= (COUNTS | TIMESTAMPS | FINISHED) || flags == SERIALIZED, "it has unknown flags " + flags);
        boolean counted = (flags & COUNTS) != 0;
        boolean timed = (flags & TIMESTAMPS) != 0;
        require(counted || messages == records, messages + " messages claim " + records + " records without saying whose");
        require(first >= 0 && first <= Long.MAX_VALUE - messages, "the sequence number " + first + " is out of range");
        long room = (long) body.length - at - HEAD_BYTES;
        if (flags == SERIALIZED) {
            require(messages <= room / 2, "a serialized block claims " + messages + " records in " + room + " bytes");
            return parseSerialized(body, at + HEAD_BYTES, new Block(splits.get(ordinal), first, (int) messages, false));
        }
        long columns = (counted ? 4 * messages : 0) + (timed ? 8 * records : 0) + 4 * records;
        require(columns <= room, "a block claims " + messages + " messages and " + records + " records in " + room + " bytes");

        Block block = new Block(splits.get(ordinal), first, (int) messages, (flags & FINISHED) != 0);
        int column = at + HEAD_BYTES;
        if (counted) {
            block.countsAt = column;
            column += 4 * (int) messages;
            long sum = sum(body, block.countsAt, (int) messages);
            require(sum == records, "the messages of a block have " + sum + " records, the block " + records);
        }
        if (timed) {
            block.timestampsAt = column;
            column += 8 * (int) records;
        }
        block.lengthsAt = column;
        block.dataAt = column + 4 * (int) records;
        long data = sum(body, block.lengthsAt, (int) records);
        int left = body.length - block.dataAt;
        require(data <= left, "records claim " + data + " bytes, " + left + " are there");
        block.end = block.dataAt + (int) data;
        return block;
    }

    /** Finds the records, which no column describes. */
    private static Block parseSerialized(byte[] body, int at, Block block) throws ProtocolException {
        long size = body.length - at < Integer.BYTES ? -1 : unsigned(body, at);
        block.dataAt = at + Integer.BYTES;
        require(size >= 0 && size <= body.length - block.dataAt, "a serialized block is cut off");
        block.end = block.dataAt + (int) size;
        int found = 0;
        try {
            FieldReader fields = new FieldReader("block");
            fields.enter(body, block.dataAt);
            int[] bounds = new int[2 * block.messages];
            for (int tag = fields.next(block.end); tag != 0; tag = fields.next(block.end)) {
                if (tag == RECORD && found++ < block.messages) {
                    bounds[2 * found - 2] = fields.start();
                    bounds[2 * found - 1] = fields.start() + fields.length();
                }
            }
            block.bounds = bounds;
        } catch (IOException e) {
            throw new ProtocolException(MALFORMED + e.getMessage());
        }
        require(found == block.messages, "a serialized block has " + found + " records and claims " + block.messages);
        return block;
    }

    private static long unsigned(byte[] body, int at) {
        return (int) INT.get(body, at) & 0xFFFFFFFFL;
    }

    private static long sum(byte[] body, int at, int values) {
        long sum = 0;
        for (int i = 0; i < values; i++) {
            sum += unsigned(body, at + 4 * i);
        }
        return sum;
    }

    private static void require(boolean condition, String otherwise) throws ProtocolException {
        if (!condition) {
            throw new ProtocolException(MALFORMED + otherwise);
        }
    }

    @Override
    public String nextSplit() {
        if (nextBlock == blocks.size()) {
            return null;
        }
        Block block = blocks.get(nextBlock++);
        message.enter(block);
        return block.split.splitId();
    }

    @Override
    public Message nextRecordFromSplit() {
        return message.advance() ? message : null;
    }

    @Override
    public Set<String> finishedSplits() {
        return finished;
    }

    private static final class Block {
        private final PythonSplit split;
        private final long first;
        private final int messages;
        private final boolean finished;
        private int countsAt = -1;
        private int timestampsAt = -1;
        private int lengthsAt;
        private int dataAt;
        private int end;
        /** Start and end of every record of a serialized block. */
        private int[] bounds;

        private Block(PythonSplit split, long first, int messages, boolean finished) {
            this.split = split;
            this.first = first;
            this.messages = messages;
            this.finished = finished;
        }
    }

    /** The current message, and within it the current record. Valid until the next message is asked for. */
    public final class Message {
        private Block block;
        private int index;
        private int recordsLeft;
        private int record;
        private int offset;
        private int end;

        private Message() {}

        private void enter(Block entered) {
            block = entered;
            index = -1;
            recordsLeft = 0;
            record = -1;
            offset = entered.dataAt;
            end = entered.dataAt;
        }

        private boolean advance() {
            while (nextRecord()) {
                // Skips what the caller left of the last message.
            }
            if (index + 1 >= block.messages) {
                return false;
            }
            index++;
            recordsLeft = block.countsAt < 0 ? 1 : (int) INT.get(body, block.countsAt + 4 * index);
            return true;
        }

        /** Goes to the next record of this message; false if there is none. */
        public boolean nextRecord() {
            if (recordsLeft == 0) {
                return false;
            }
            recordsLeft--;
            record++;
            if (block.bounds != null) {
                offset = block.bounds[2 * record];
                end = block.bounds[2 * record + 1];
                return true;
            }
            offset = end;
            end += (int) INT.get(body, block.lengthsAt + 4 * record);
            return true;
        }

        /** Position of the message in its split. */
        public long sequence() {
            return block.first + index;
        }

        /** The array that holds the current record. */
        public byte[] buffer() {
            return body;
        }

        /** Where the current record starts in {@link #buffer}. */
        public int offset() {
            return offset;
        }

        /** Size of the current record in bytes. */
        public int length() {
            return end - offset;
        }

        /** Event time of the current record in milliseconds, {@link Frames#NO_TIMESTAMP} for none. */
        public long timestamp() {
            return block.timestampsAt < 0 ? Frames.NO_TIMESTAMP : (long) LONG.get(body, block.timestampsAt + 8 * record);
        }
    }
}
