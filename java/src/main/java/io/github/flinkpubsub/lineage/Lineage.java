package io.github.flinkpubsub.lineage;

import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.connector.source.Boundedness;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.streaming.api.lineage.LineageDataset;
import org.apache.flink.streaming.api.lineage.LineageDatasetFacet;
import org.apache.flink.streaming.api.lineage.LineageVertex;
import org.apache.flink.streaming.api.lineage.SourceLineageVertex;

/**
 * The resources that a source or sink touches, as Flink's lineage shows them.
 *
 * <p>Written where the job is built, from its configuration; to show it is to read these few strings, so it needs no credentials
 * and starts nothing. Flink's interfaces are implemented here since older versions have no classes for them.
 */
public final class Lineage implements Serializable {
    private static final long serialVersionUID = 1L;
    private static final ObjectMapper JSON = new ObjectMapper();

    /** No known resource. */
    public static final Lineage NONE = new Lineage(Collections.emptyList());

    private final List<Dataset> datasets;

    private Lineage(List<Dataset> datasets) {
        this.datasets = Collections.unmodifiableList(datasets);
    }

    /**
     * Reads {@code {"namespace", "facet", "dynamic", "datasets": [{"name", "resources": [...]}]}}: datasets of one namespace,
     * each with a facet of that name, see {@link ResourcesFacet}.
     *
     * @throws IllegalArgumentException if it is not such JSON
     */
    public static Lineage parse(String json) {
        try {
            return of(JSON.readTree(json));
        } catch (IOException e) {
            throw new IllegalArgumentException("the lineage is not JSON: " + e.getMessage(), e);
        }
    }

    private static Lineage of(JsonNode lineage) {
        ArrayList<Dataset> datasets = new ArrayList<>();
        for (JsonNode dataset : required(lineage, "datasets")) {
            ArrayList<String> resources = new ArrayList<>();
            required(dataset, "resources").forEach(resource -> resources.add(resource.asText()));
            String facet = required(lineage, "facet").asText();
            boolean dynamic = required(lineage, "dynamic").asBoolean();
            datasets.add(
                    new Dataset(
                            required(lineage, "namespace").asText(),
                            required(dataset, "name").asText(),
                            new ResourcesFacet(facet, resources, dynamic)));
        }
        return new Lineage(datasets);
    }

    private static JsonNode required(JsonNode object, String field) {
        JsonNode value = object.get(field);
        if (value == null) {
            throw new IllegalArgumentException("the lineage has no \"" + field + "\"");
        }
        return value;
    }

    /** The same with a single dataset, under that name. */
    public Lineage named(String name) {
        if (datasets.size() != 1) {
            throw new IllegalStateException("one name for " + datasets.size() + " datasets");
        }
        Dataset dataset = datasets.get(0);
        return new Lineage(List.of(new Dataset(dataset.namespace, name, dataset.facet)));
    }

    /** The lineage of a source. */
    public SourceLineageVertex ofSource(Boundedness boundedness) {
        return new SourceVertex(datasets, boundedness);
    }

    /** The lineage of a sink. */
    public LineageVertex ofSink() {
        return new Vertex(datasets);
    }

    private static class Vertex implements LineageVertex {
        private final List<Dataset> datasets;

        Vertex(List<Dataset> datasets) {
            this.datasets = datasets;
        }

        @Override
        public List<LineageDataset> datasets() {
            return Collections.unmodifiableList(datasets);
        }
    }

    private static final class SourceVertex extends Vertex implements SourceLineageVertex {
        private final Boundedness boundedness;

        SourceVertex(List<Dataset> datasets, Boundedness boundedness) {
            super(datasets);
            this.boundedness = boundedness;
        }

        @Override
        public Boundedness boundedness() {
            return boundedness;
        }
    }

    private static final class Dataset implements LineageDataset, Serializable {
        private static final long serialVersionUID = 1L;

        private final String namespace;
        private final String name;
        private final ResourcesFacet facet;

        Dataset(String namespace, String name, ResourcesFacet facet) {
            this.namespace = namespace;
            this.name = name;
            this.facet = facet;
        }

        @Override
        public String namespace() {
            return namespace;
        }

        @Override
        public String name() {
            return name;
        }

        @Override
        public Map<String, LineageDatasetFacet> facets() {
            return Collections.singletonMap(facet.name(), facet);
        }
    }
}
