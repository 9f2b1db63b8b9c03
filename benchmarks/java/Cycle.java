package io.github.flinkpubsub.benchmarks;

import java.util.List;
import org.apache.flink.connector.datagen.source.GeneratorFunction;

/** Hands out the same elements over and over: a source that costs next to nothing, so that the sink is what is measured. */
public final class Cycle<T> implements GeneratorFunction<Long, T> {
    private static final long serialVersionUID = 1L;

    private final Object[] elements;

    public Cycle(List<T> elements) {
        this.elements = elements.toArray();
    }

    @Override
    @SuppressWarnings("unchecked")
    public T map(Long index) {
        return (T) elements[(int) (index % elements.length)];
    }
}
