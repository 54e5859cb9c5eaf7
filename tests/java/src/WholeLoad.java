import java.util.HashMap;

import kafka.log.LogManager;
import kafka.server.builders.LogManagerBuilder;

import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;

import scala.jdk.javaapi.CollectionConverters;

/** Loads all logs with the LogManager of Kafka 4.3, and shuts down; {@code newest} has that of 4.4. */
final class WholeLoad {
    private WholeLoad() { }

    static void run(LogManagerBuilder builder, LogConfig config) throws Exception {
        LogManager manager = builder.build();
        try {
            scala.Function1<UnifiedLog, Object> isStray = log -> false;
            manager.loadLogs(config, CollectionConverters.asScala(new HashMap<String, LogConfig>()), isStray);
        } finally {
            manager.shutdown(-1L);
        }
    }
}
