package io.github.flinkpubsub.table;

import java.util.Optional;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.DataStreamSink;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.table.connector.ProviderContext;
import org.apache.flink.table.connector.sink.DataStreamSinkProvider;
import org.apache.flink.table.connector.sink.SinkV2Provider;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.util.Collector;
import org.apache.flink.util.OutputTag;

/**
 * A sink whose rows reach one writer per ordering key, and any writer when they have none.
 *
 * <p>Rows with a key and rows without go separate ways, so that each has one of Flink's own partitioners: by hash, and in turn.
 * One partitioner of our own for both would make Flink refuse unaligned checkpoints, which it can only restore at another
 * parallelism when it knows where a row belongs.
 *
 * <p>The planner is not told of the sink's parallelism: it would put operators at that parallelism before the split, and rows
 * of a key that are spread there are in no order any more. It takes the sink itself for the lineage only.
 */
final class OrderedSinkProvider implements SinkV2Provider, DataStreamSinkProvider {
    private static final StringData EMPTY = StringData.fromBytes(new byte[0]);

    private final Sink<RowData> sink;
    private final int orderingKey;
    private final Integer parallelism;

    /**
     * @param orderingKey position of the ordering key in the rows
     * @param parallelism of the sink; null for that of its input
     */
    OrderedSinkProvider(Sink<RowData> sink, int orderingKey, Integer parallelism) {
        this.sink = sink;
        this.orderingKey = orderingKey;
        this.parallelism = parallelism;
    }

    @Override
    public Sink<RowData> createSink() {
        return sink;
    }

    @Override
    public Optional<Integer> getParallelism() {
        return Optional.empty();
    }

    @Override
    public DataStreamSink<?> consumeDataStream(ProviderContext context, DataStream<RowData> rows) {
        // Behind a source of a parallelism of its own the rows do not say theirs: it is the job's.
        int upstream = rows.getParallelism() > 0 ? rows.getParallelism() : rows.getExecutionEnvironment().getParallelism();
        int writers = parallelism == null ? upstream : parallelism;
        DataStreamSink<RowData> written = (writers == 1 ? rows : partitioned(context, rows, upstream)).sinkTo(sink);
        written.getTransformation().setParallelism(writers, parallelism != null);
        context.generateUid("sink").ifPresent(written::uid);
        return written.name(context.getName()).setDescription(context.getDescription());
    }

    private DataStream<RowData> partitioned(ProviderContext context, DataStream<RowData> rows, int upstream) {
        OutputTag<RowData> unordered = new OutputTag<>("unordered", rows.getType());
        SingleOutputStreamOperator<RowData> split =
                rows.process(new Split(orderingKey, unordered)).returns(rows.getType()).name("Split by ordering key");
        split.getTransformation().setParallelism(upstream, false);
        context.generateUid("split").ifPresent(split::uid);
        int key = orderingKey;
        return split.keyBy(row -> row.getString(key).hashCode(), Types.INT).union(split.getSideOutput(unordered).rebalance());
    }

    /** Rows with an ordering key go on, rows without to the side. */
    private static final class Split extends ProcessFunction<RowData, RowData> {
        private static final long serialVersionUID = 1L;

        private final int orderingKey;
        private final OutputTag<RowData> unordered;

        private Split(int orderingKey, OutputTag<RowData> unordered) {
            this.orderingKey = orderingKey;
            this.unordered = unordered;
        }

        @Override
        public void processElement(RowData row, Context context, Collector<RowData> ordered) {
            if (row.isNullAt(orderingKey) || EMPTY.equals(row.getString(orderingKey))) {
                context.output(unordered, row);
            } else {
                ordered.collect(row);
            }
        }
    }
}
