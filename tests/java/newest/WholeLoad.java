import java.util.HashMap;

import kafka.server.builders.LogManagerBuilder;

import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogManager;

/** Loads all logs with the LogManager of Kafka 4.4, and shuts down; {@code src} has that of 4.3. */
final class WholeLoad {
    private WholeLoad() { }

    static void run(LogManagerBuilder builder, LogConfig config) throws Exception {
        LogManager manager = builder.build();
        try {
            manager.loadLogs(config, new HashMap<String, LogConfig>(), log -> false);
        } finally {
            manager.shutdown(-1L);
        }
    }
}
