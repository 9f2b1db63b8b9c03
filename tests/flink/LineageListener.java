package tests;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeMap;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ConfigOptions;
import org.apache.flink.core.execution.JobStatusChangedEvent;
import org.apache.flink.core.execution.JobStatusChangedListener;
import org.apache.flink.core.execution.JobStatusChangedListenerFactory;
import org.apache.flink.streaming.api.lineage.DatasetConfigFacet;
import org.apache.flink.streaming.api.lineage.LineageDataset;
import org.apache.flink.streaming.api.lineage.LineageDatasetFacet;
import org.apache.flink.streaming.api.lineage.LineageEdge;
import org.apache.flink.streaming.api.lineage.LineageGraph;
import org.apache.flink.streaming.api.lineage.LineageVertex;
import org.apache.flink.streaming.api.lineage.SourceLineageVertex;
import org.apache.flink.streaming.runtime.execution.JobCreatedEvent;

/** Writes the lineage of every job that is created to a file. Knows Flink's classes only. */
public final class LineageListener implements JobStatusChangedListenerFactory {
    private static final ConfigOption<String> FILE = ConfigOptions.key("tests.lineage.file").stringType().noDefaultValue();

    @Override
    public JobStatusChangedListener createListener(Context context) {
        Path file = Path.of(context.getConfiguration().get(FILE));
        return event -> onEvent(event, file);
    }

    private static void onEvent(JobStatusChangedEvent event, Path file) {
        if (!(event instanceof JobCreatedEvent)) {
            return;
        }
        LineageGraph graph = ((JobCreatedEvent) event).lineageGraph();
        List<String> lines = new ArrayList<>();
        for (SourceLineageVertex source : graph.sources()) {
            lines.add("source " + source.boundedness() + describe(source));
        }
        for (LineageVertex sink : graph.sinks()) {
            lines.add("sink" + describe(sink));
        }
        for (LineageEdge edge : graph.relations()) {
            lines.add("edge" + describe(edge.source()) + " ->" + describe(edge.sink()));
        }
        try {
            // Whole or not at all: the test looks while this writes.
            Path part = file.resolveSibling(file.getFileName() + ".part");
            Files.write(part, lines);
            Files.move(part, file);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static String describe(LineageVertex vertex) {
        StringBuilder text = new StringBuilder();
        for (LineageDataset dataset : vertex.datasets()) {
            text.append(' ').append(dataset.namespace()).append('/').append(dataset.name());
            LineageDatasetFacet facet = dataset.facets().get("gcp");
            if (facet instanceof DatasetConfigFacet) {
                text.append(' ').append(facet.name()).append(new TreeMap<>(((DatasetConfigFacet) facet).config()));
            }
        }
        return text.toString();
    }
}
