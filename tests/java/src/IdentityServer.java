import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;

import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;

import org.apache.kafka.metadata.properties.MetaPropertiesEnsemble;

import org.slf4j.LoggerFactory;

/**
 * Answers whether Kafka starts on log directories, before it reads a log.
 *
 * <p>A request is a line of properties KEY=VALUE separated by tabs. An answer is a line {@code refused}, a tab and the
 * reason; or a line for each readable directory, with its path, a tab and its directory id; and an empty line.
 */
public final class IdentityServer {
    private IdentityServer() {
    }

    public static void main(String[] unused) throws IOException {
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answer(line.split("\t")).forEach(answers::println);
            answers.println();
            answers.flush();
        }
    }

    private static List<String> answer(String[] words) {
        Properties file = new Properties();
        for (String word : words) {
            String[] property = word.split("=", 2);
            file.setProperty(property[0], property[1]);
        }
        List<String> said = new ArrayList<>();
        try {
            KafkaConfig config = KafkaConfig.fromProps(file, false);
            MetaPropertiesEnsemble found = KafkaRaftServer.initializeLogDirs(
                config, LoggerFactory.getLogger(IdentityServer.class), "")._1();
            found.logDirProps().forEach((path, properties) ->
                said.add(path + "\t" + properties.directoryId().get()));
        } catch (Exception refused) {
            return List.of("refused\t" + String.valueOf(refused.getMessage()).replaceAll("\\s+", " "));
        }
        return said;
    }
}
