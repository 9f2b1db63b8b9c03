package io.github.flinkpubsub.table;

import java.io.IOException;
import java.io.InputStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ConfigOptions;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.configuration.ReadableConfig;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.table.api.ValidationException;

/**
 * The connector's options, as its Python side declares them: the build writes that list into the jar.
 *
 * <p>No option has a default here. What is absent is left to the Python side, which also knows what a value may be; this class
 * knows types only.
 */
final class TableOptions {
    private static final String RESOURCE = "/META-INF/flink-pubsub-options.json";
    private static final ObjectMapper JSON = new ObjectMapper();

    private final List<Declared> all = new ArrayList<>();

    TableOptions() {
        try (InputStream in = TableOptions.class.getResourceAsStream(RESOURCE)) {
            if (in == null) {
                throw new ValidationException("The flink-pubsub jar lacks " + RESOURCE + ": use the jar that flink_pubsub.jar() names.");
            }
            for (JsonNode option : JSON.readTree(in)) {
                all.add(new Declared(
                        option.path("key").asText(), option.path("kind").asText(), option.path("direction").asText()));
            }
        } catch (IOException e) {
            throw new ValidationException("The flink-pubsub jar cannot be read: " + e.getMessage(), e);
        }
    }

    /** All of them, as Flink wants to know them. */
    Set<ConfigOption<?>> declared() {
        Set<ConfigOption<?>> options = new HashSet<>();
        all.forEach(option -> options.add(option.option));
        return options;
    }

    /** The option of that key. */
    ConfigOption<?> get(String key) {
        return all.stream()
                .filter(option -> option.option.key().equals(key))
                .findFirst()
                .orElseThrow(() -> new IllegalArgumentException("there is no option " + key))
                .option;
    }

    /**
     * What is set of one direction, and of both, by key: durations in microseconds, sizes in bytes, all else as it is in JSON.
     *
     * @param direction source or sink
     * @param texts the options as they are written
     * @throws ValidationException if a list has an empty entry, or a map is given in both of its forms: Flink would ignore that
     */
    ObjectNode given(String direction, ReadableConfig options, Map<String, String> texts) {
        ObjectNode given = JSON.createObjectNode();
        for (Declared declared : all) {
            if (declared.direction.equals("shared") || declared.direction.equals(direction)) {
                declared.put(given, options, texts);
            }
        }
        return given;
    }

    private static final class Declared {
        private final ConfigOption<?> option;
        private final String kind;
        private final String direction;

        private Declared(String key, String kind, String direction) {
            this.option = option(ConfigOptions.key(key), kind);
            this.kind = kind;
            this.direction = direction;
        }

        private static ConfigOption<?> option(ConfigOptions.OptionBuilder builder, String kind) {
            switch (kind) {
                case "count":
                    return builder.longType().noDefaultValue();
                case "duration":
                    return builder.durationType().noDefaultValue();
                case "factor":
                    return builder.doubleType().noDefaultValue();
                case "flag":
                    return builder.booleanType().noDefaultValue();
                case "list":
                    return builder.stringType().asList().noDefaultValue();
                case "map":
                    return builder.mapType().noDefaultValue();
                case "size":
                    return builder.memoryType().noDefaultValue();
                case "enum":
                case "text":
                    return builder.stringType().noDefaultValue();
                default:
                    throw new IllegalArgumentException("options of the kind " + kind + " are not known");
            }
        }

        private void put(ObjectNode given, ReadableConfig options, Map<String, String> texts) {
            String key = option.key();
            Object value = options.getOptional(option).orElse(null);
            if (value instanceof Duration) {
                Duration duration = (Duration) value;
                given.put(key, duration.getSeconds() * 1_000_000 + duration.getNano() / 1000);
            } else if (value instanceof MemorySize) {
                given.put(key, ((MemorySize) value).getBytes());
            } else if (value instanceof List) {
                requireNoEmptyEntry(key, texts.get(key), ";");
                ArrayNode values = given.putArray(key);
                ((List<?>) value).forEach(each -> values.add((String) each));
            } else if (value instanceof Map) {
                requireOneForm(key, texts);
                requireNoEmptyEntry(key, texts.get(key), ",");
                ObjectNode values = given.putObject(key);
                ((Map<?, ?>) value).forEach((name, each) -> values.put((String) name, (String) each));
            } else if (value != null) {
                given.set(key, JSON.valueToTree(value));
            }
        }

        /** Flink leaves such entries out, which hides a missing name. */
        private static void requireNoEmptyEntry(String key, String text, String separator) {
            if (text != null && Arrays.stream(text.split(separator, -1)).anyMatch(String::isBlank)) {
                throw new ValidationException("'" + key + "' must not have an empty entry (got '" + text + "').");
            }
        }

        private static void requireOneForm(String key, Map<String, String> texts) {
            String entry = texts.keySet().stream().filter(each -> each.startsWith(key + ".")).findFirst().orElse(null);
            if (texts.containsKey(key) && entry != null) {
                throw new ValidationException("'" + key + "' and '" + entry
                        + "' are two forms of one map, of which the second would be ignored: use one of them.");
            }
        }
    }
}
