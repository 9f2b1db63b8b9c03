package io.github.flinkpubsub.lineage;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.streaming.api.lineage.DatasetConfigFacet;

/**
 * The physical resources behind a dataset.
 *
 * <p>Flink's own {@code DatasetConfigFacet}, so that a listener reads it as {@link #config()} without a class of this jar, whatever
 * class loader it lives in.
 */
public final class ResourcesFacet implements DatasetConfigFacet, Serializable {
    private static final long serialVersionUID = 1L;

    private final String name;
    private final List<String> resources;
    private final boolean dynamic;

    ResourcesFacet(String name, List<String> resources, boolean dynamic) {
        this.name = name;
        this.resources = Collections.unmodifiableList(new ArrayList<>(resources));
        this.dynamic = dynamic;
    }

    @Override
    public String name() {
        return name;
    }

    /** The names of all resources that the configuration names. */
    public List<String> resources() {
        return resources;
    }

    /** Whether the records may name further resources, which nobody knows before. */
    public boolean dynamic() {
        return dynamic;
    }

    /** {@code resources}, separated by semicolons, and {@code dynamic}. */
    @Override
    public Map<String, String> config() {
        Map<String, String> config = new LinkedHashMap<>();
        config.put("resources", String.join(";", resources));
        config.put("dynamic", Boolean.toString(dynamic));
        return config;
    }

    @Override
    public String toString() {
        return name + config();
    }
}
