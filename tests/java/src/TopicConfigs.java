import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * Prints the names of all topic properties in one line. Then prints for each line {@code NAME=VALUE}
 * of its input whether Kafka loads a topic with that configuration: {@code true} or {@code false}.
 */
public class TopicConfigs {
    public static void main(String[] args) throws IOException {
        System.out.println(String.join(" ", LogConfig.configNames()));
        BufferedReader input =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            int at = line.indexOf('=');
            Properties topic = new Properties();
            topic.setProperty(line.substring(0, at), line.substring(at + 1));
            System.out.println(isAccepted(topic));
        }
    }

    private static boolean isAccepted(Properties topic) {
        try {
            LogConfig.fromProps(Map.of(), topic);
            return true;
        } catch (ConfigException refused) {
            return false;
        }
    }
}
