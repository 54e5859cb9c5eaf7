import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;

import kafka.server.KafkaConfig;

import org.apache.kafka.storage.internals.log.LogConfig;

import scala.Option;

/**
 * Answers which configurations Kafka accepts, and which values they give the log of a topic.
 *
 * <p>A request is a line of properties separated by tabs. Each is SOURCE:BASE64, where the source is {@code topic},
 * {@code broker} (its dynamic configuration), {@code cluster} (the dynamic configuration of all brokers) or
 * {@code file}, and the content is KEY=VALUE. An answer is lines of a name, a tab and a text, and an empty line: the
 * values of a {@link LogConfig}, or {@code refused} and the reason.
 */
public final class ConfigServer {
    private static final int NODE = 1;
    private static final Map<String, String> STARTABLE = Map.of(
        "node.id", String.valueOf(NODE),
        "process.roles", "broker,controller",
        "listeners", "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "controller.listener.names", "CONTROLLER",
        "controller.quorum.bootstrap.servers", "127.0.0.1:9093");

    private ConfigServer() {
    }

    public static void main(String[] unused) throws IOException {
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answer(line.isEmpty() ? List.of() : List.of(line.split("\t"))).forEach(answers::println);
            answers.println();
            answers.flush();
        }
    }

    private static List<String> answer(List<String> words) {
        Map<String, Properties> places = new HashMap<>();
        for (String word : words) {
            String[] parts = word.split(":", 2);
            String[] property =
                new String(Base64.getDecoder().decode(parts[1]), StandardCharsets.UTF_8).split("=", 2);
            places.computeIfAbsent(parts[0], place -> new Properties()).setProperty(property[0], property[1]);
        }
        List<String> said = new ArrayList<>();
        try {
            resolve(places).forEach((name, value) -> said.add(name + "\t" + value));
        } catch (RuntimeException refused) {
            return List.of("refused\t" + String.valueOf(refused.getMessage()).replaceAll("\\s+", " "));
        }
        return said;
    }

    private static Map<String, String> resolve(Map<String, Properties> places) {
        Properties file = places.getOrDefault("file", new Properties());
        STARTABLE.forEach(file::putIfAbsent);
        KafkaConfig config = KafkaConfig.fromProps(file, false);
        LogConfig.validateBrokerLogConfigValues(config.extractLogConfigMap(), false);
        config.dynamicConfig().initialize(Option.empty());
        config.dynamicConfig().updateDefaultConfig(places.getOrDefault("cluster", new Properties()), false);
        config.dynamicConfig().updateBrokerConfig(NODE, places.getOrDefault("broker", new Properties()), false);
        Properties topic = places.getOrDefault("topic", new Properties());
        Map<String, String> own = new HashMap<>();
        topic.stringPropertyNames().forEach(name -> own.put(name, topic.getProperty(name)));
        LogConfig.validate(own);
        LogConfig effective = LogConfig.fromProps(config.extractLogConfigMap(), topic);
        Map<String, String> values = new TreeMap<>();
        effective.values().forEach((name, value) -> values.put(name, String.valueOf(
            value instanceof List<?> list ? String.join(",", list.stream().map(String::valueOf).toList()) : value)));
        return values;
    }
}
