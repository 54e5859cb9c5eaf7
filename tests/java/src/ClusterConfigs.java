import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.function.Function;
import java.util.function.Predicate;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import kafka.server.ConfigHelper;
import kafka.server.KafkaConfig;

import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.message.DescribeConfigsRequestData.DescribeConfigsResource;
import org.apache.kafka.common.message.DescribeConfigsResponseData.DescribeConfigsResourceResult;
import org.apache.kafka.common.message.DescribeConfigsResponseData.DescribeConfigsResult;
import org.apache.kafka.common.requests.DescribeConfigsResponse;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.metadata.MetadataCache;
import org.apache.kafka.server.config.ConfigSynonym;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.DynamicConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Answers what a broker tells of configurations ({@link ConfigHelper}).
 *
 * <p>A request is a line of JSON with properties by their source: {@code file}, {@code cluster} (of all brokers),
 * {@code broker} (its own), and {@code resource} with its {@code type} and {@code name}. An answer is a line of JSON.
 * The line {@code definitions} is answered with all properties that there are.
 */
public final class ClusterConfigs {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int NODE = 1;
    private static final Map<String, String> STARTABLE = Map.of(
        "node.id", String.valueOf(NODE),
        "process.roles", "broker",
        "listeners", "PLAINTEXT://127.0.0.1:9092",
        "controller.listener.names", "CONTROLLER",
        "controller.quorum.bootstrap.servers", "127.0.0.1:9093");

    private ClusterConfigs() {
    }

    public static void main(String[] unused) throws IOException {
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            Object answer = line.equals("definitions") ? definitions() : describe(JSON.readTree(line));
            answers.println(JSON.writeValueAsString(answer));
            answers.flush();
        }
    }

    private static Properties properties(JsonNode node) {
        Properties found = new Properties();
        if (node != null) {
            node.properties().forEach(each -> found.setProperty(each.getKey(), each.getValue().asText()));
        }
        return found;
    }

    private static Object describe(JsonNode request) {
        Properties file = properties(request.get("file"));
        STARTABLE.forEach(file::putIfAbsent);
        Properties cluster = properties(request.get("cluster"));
        Properties broker = properties(request.get("broker"));
        KafkaConfig config;
        try {
            // A broker never stores what it refuses.
            DynamicBrokerConfig.validateConfigTypes(cluster);
            DynamicBrokerConfig.validateConfigTypes(broker);
            Properties all = new Properties();
            List.of(file, cluster, broker).forEach(all::putAll);
            KafkaConfig.fromProps(all, false);
            config = KafkaConfig.fromProps(file, false);
        } catch (RuntimeException refused) {
            return Map.of("refused", String.valueOf(refused.getMessage()));
        }
        config.dynamicConfig().initialize(Option.empty());
        config.dynamicConfig().updateDefaultConfig(cluster, false);
        config.dynamicConfig().updateBrokerConfig(NODE, broker, false);
        Properties own = properties(request.get("own"));
        MetadataCache cache = (MetadataCache) Proxy.newProxyInstance(ClusterConfigs.class.getClassLoader(),
            new Class<?>[] {MetadataCache.class}, (proxy, method, arguments) -> {
                if (!method.getName().equals("contains")) {
                    throw new UnsupportedOperationException(method.getName());
                }
                return true;
            });
        ConfigResource.Type type = ConfigResource.Type.valueOf(request.get("type").asText());
        DescribeConfigsResource asked = new DescribeConfigsResource().setConfigurationKeys(null)
            .setResourceType(type.id()).setResourceName(request.get("name").asText());
        List<DescribeConfigsResult> results = CollectionConverters.asJava(new ConfigHelper(cache, config, resource -> own)
            .describeConfigs(CollectionConverters.asScala(List.of(asked)).toList(), true, false));
        Map<String, Object> found = new TreeMap<>();
        for (DescribeConfigsResourceResult each : results.get(0).configs()) {
            found.put(each.name(), entry(each));
        }
        return results.get(0).errorCode() == 0 ? found : Map.of("refused", String.valueOf(results.get(0).errorMessage()));
    }

    private static Map<String, Object> entry(DescribeConfigsResourceResult each) {
        Map<String, Object> found = new TreeMap<>();
        found.put("value", each.value());
        found.put("source", each.configSource());
        found.put("sensitive", each.isSensitive());
        found.put("read_only", each.readOnly());
        found.put("type", each.configType());
        List<Object> synonyms = new ArrayList<>();
        each.synonyms().forEach(one -> {
            List<Object> row = new ArrayList<>();
            row.add(one.name());
            row.add(one.value());
            row.add(one.source());
            synonyms.add(row);
        });
        found.put("synonyms", synonyms);
        return found;
    }

    private static Object definitions() {
        Map<String, Object> found = new TreeMap<>();
        found.put("topic", defined("TOPIC", ClusterConfigs::factors));
        found.put("group", defined("GROUP", ClusterConfigs::ofBrokers));
        found.put("client-metrics", defined("CLIENT_METRICS", name -> Map.of()));
        found.put("broker", defined("BROKER", name -> {
            Map<String, Integer> synonyms = new LinkedHashMap<>();
            DynamicBrokerConfig.brokerConfigSynonyms(name, true).forEach(each -> synonyms.put(each, 1));
            return synonyms.size() > 1 ? synonyms : Map.of();
        }));
        Map<String, ConfigDef.ConfigKey> quotas = new TreeMap<>(DynamicConfig.Broker.configKeys());
        quotas.keySet().removeAll(KafkaConfig.configDef().names());
        found.put("unlisted", Map.of(
            "topic", unlisted(LogConfig.configKeys(), key -> key.internalConfig, name -> Map.of()),
            "group", unlisted(GroupConfig.CONFIG_DEF.configKeys(), key -> key.internalConfig, ClusterConfigs::ofBrokers),
            "broker", unlisted(KafkaConfig.configDef().configKeys(), key -> key.internalConfig, name -> Map.of()),
            "quota", unlisted(quotas, key -> true, name -> Map.of())));
        return found;
    }

    /** The property of brokers from which a property of groups is taken. */
    private static Map<String, Integer> ofBrokers(String name) {
        return GroupConfig.brokerSynonym(name).map(each -> Map.of(each, 1)).orElse(Map.of());
    }

    /** How the metadata can set a property of brokers. */
    private static String update(String name) {
        Properties properties = new Properties();
        properties.setProperty(name, "");
        return DynamicBrokerConfig.securityConfigsWithoutListenerPrefix(properties).isEmpty()
            ? DynamicBrokerConfig.dynamicConfigUpdateModes().getOrDefault(name, "read-only") : "per-listener";
    }

    private static Object unlisted(Map<String, ConfigDef.ConfigKey> keys, Predicate<ConfigDef.ConfigKey> isUnlisted,
            Function<String, Object> synonyms) {
        Map<String, Object> found = new TreeMap<>();
        keys.forEach((name, key) -> {
            if (isUnlisted.test(key)) {
                Map<String, Object> each = new TreeMap<>();
                each.put("type", DescribeConfigsResponse.ConfigType.valueOf(key.type.toString()).id());
                each.put("value", key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : null);
                each.put("update", update(name));
                each.put("from", synonyms.apply(name));
                found.put(name, each);
            }
        });
        return found;
    }

    /** The broker's names of a property of topics, with what their values are multiplied by. */
    private static Object factors(String name) {
        Map<String, Object> found = new LinkedHashMap<>();
        for (ConfigSynonym each : ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.getOrDefault(name, List.of())) {
            found.put(each.name(), Long.parseLong(each.converter().apply("1")));
        }
        return found;
    }

    private static Object defined(String type, Function<String, Object> synonyms) {
        JsonNode asked = JSON.valueToTree(Map.of("type", type, "name", type.equals("BROKER") ? "1" : "x"));
        @SuppressWarnings("unchecked")
        Map<String, Object> found = (Map<String, Object>) describe(asked);
        found.forEach((name, value) -> {
            @SuppressWarnings("unchecked")
            Map<String, Object> each = (Map<String, Object>) value;
            each.put("from", synonyms.apply(name));
            each.put("update", type.equals("BROKER") ? update(name) : "read-only");
        });
        return found;
    }
}
