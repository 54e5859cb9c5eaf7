import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.LogCleanerManager;
import org.apache.kafka.storage.internals.log.LogCleaningException;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.PreCleanStats;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Says in which order the log cleaner of a broker takes its logs, and what it knows of each.
 *
 * <p>A request is a line on standard input, its fields separated by tabs: the log directories of a broker, separated by
 * {@code :}, the time in milliseconds, and topic properties, as {@code KEY=VALUE} for all topics or as
 * {@code TOPIC/KEY=VALUE}. All logs are loaded; the manager is asked for the next log until it has none.
 *
 * <p>An answer is lines of a name, a tab and a text about it, and an empty line. For each compacted partition: its
 * first dirty and first uncleanable offset, the base offset of the segment with the latter, clean bytes, cleanable
 * bytes, by how much the maximum lag is exceeded, its bucket in the map of all logs, and its turn or {@code -}; or
 * {@code uncleanable}, or {@code refused} if the log does not load. The name {@code thread} says with which exception the cleaner's thread ended. The directories
 * are changed as a running broker would change them.
 */
public final class CleanerManagerServer {
    private final List<File> directories;
    private final Time time;
    private final ConcurrentHashMap<TopicPartition, UnifiedLog> logs = new ConcurrentHashMap<>();
    private final Map<String, List<String>> said = new TreeMap<>();

    private CleanerManagerServer(List<File> directories, Time time) {
        this.directories = directories;
        this.time = time;
    }

    public static void main(String[] unused) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            List<String> fields = Arrays.asList(line.split("\t"));
            List<File> directories = Arrays.stream(fields.get(0).split(":")).map(File::new).toList();
            Time time = new LoaderServer.StoppedClock(Long.parseLong(fields.get(1)));
            CleanerManagerServer server = new CleanerManagerServer(directories, time);
            server.load(fields.subList(2, fields.size()));
            server.askAll();
            for (UnifiedLog log : server.logs.values()) {
                log.closeHandlers();
            }
            server.said.forEach((name, words) -> answers.println(name + "\t" + String.join(" ", words)));
            answers.println();
            answers.flush();
        }
    }

    private void load(List<String> properties) throws Exception {
        for (File directory : directories) {
            Map<TopicPartition, Long> starts = LoaderServer.offsets(directory, LoaderServer.LOG_STARTS);
            Map<TopicPartition, Long> ends = LoaderServer.offsets(directory, LoaderServer.RECOVERY_POINTS);
            Map<TopicPartition, Long> marks = LoaderServer.offsets(directory, LoaderServer.HIGH_WATERMARKS);
            boolean isClean = new File(directory, ".kafka_cleanshutdown").exists();
            for (File partition : directory.listFiles(File::isDirectory)) {
                TopicPartition name = UnifiedLog.parseTopicPartitionName(partition);
                LogConfig config = config(name.topic(), properties);
                try {
                    UnifiedLog log = UnifiedLog.create(partition, config, starts.getOrDefault(name, 0L),
                        ends.getOrDefault(name, 0L), new LoaderServer.AtOnce(), new BrokerTopicStats(false), time,
                        LoaderServer.MAX_TRANSACTION_MS, new ProducerStateManagerConfig(Integer.MAX_VALUE, false),
                        Integer.MAX_VALUE, new LogDirFailureChannel(1), isClean, Optional.empty());
                    log.updateHighWatermark(Math.min(marks.getOrDefault(name, 0L), log.logEndOffset()));
                    logs.put(name, log);
                } catch (RuntimeException refusal) {
                    if (config.compact) {
                        said.put(name.toString(), List.of("refused"));
                    }
                }
            }
        }
    }

    private static LogConfig config(String topic, List<String> properties) {
        List<String> own = new ArrayList<>();
        for (String property : properties) {
            String[] parts = property.split("=", 2)[0].split("/", 2);
            if (parts.length == 1) {
                own.add(0, property);
            } else if (parts[0].equals(topic)) {
                own.add(property.substring(topic.length() + 1));
            }
        }
        return LoaderServer.config(own);
    }

    private void askAll() throws Exception {
        LogCleanerManager manager = new LogCleanerManager(directories, logs, new LogDirFailureChannel(directories.size()));
        Map<TopicPartition, Long> cleaned;
        try {
            cleaned = manager.allCleanerCheckpoints();
        } catch (IllegalStateException end) {
            said.put("thread", List.of(end.getClass().getSimpleName()));
            return;
        }
        int buckets = buckets();
        for (Map.Entry<TopicPartition, UnifiedLog> each : logs.entrySet()) {
            if (each.getValue().config().compact) {
                said.put(each.getKey().toString(), facts(each.getValue(), cleaned.get(each.getKey()), buckets));
            }
        }
        for (int turn = 1, tries = 0; tries <= logs.size(); tries++) {
            try {
                Optional<LogToClean> next = manager.grabFilthiestCompactedLog(time, new PreCleanStats());
                if (next.isEmpty()) {
                    break;
                }
                said.get(next.get().topicPartition().toString()).add(String.valueOf(turn++));
                long end = next.get().firstDirtyOffset();
                manager.updateCheckpoints(next.get().log().parentDirFile(),
                    Optional.of(Map.entry(next.get().topicPartition(), end)), Optional.empty());
            } catch (IllegalStateException end) {
                said.put("thread", List.of(end.getClass().getSimpleName()));
                break;
            } catch (LogCleaningException failure) {
                manager.markPartitionUncleanable(failure.log.parentDir(), failure.log.topicPartition());
            }
        }
        manager.removeMetrics();
    }

    private List<String> facts(UnifiedLog log, Long cleaned, int buckets) throws Exception {
        try {
            Object range = call("cleanableOffsets", new Class<?>[] {UnifiedLog.class, Optional.class, long.class},
                log, Optional.ofNullable(cleaned), time.milliseconds());
            long firstDirty = (long) component(range, "firstDirtyOffset");
            long uncleanable = (long) component(range, "firstUncleanableDirtyOffset");
            long delayMs = (long) call("maxCompactionDelay", new Class<?>[] {UnifiedLog.class, long.class, long.class},
                log, firstDirty, time.milliseconds());
            LogToClean found = new LogToClean(log, firstDirty, uncleanable, delayMs > 0);
            int code = log.topicPartition().hashCode();
            int bucket = (code ^ code >>> 16) & buckets - 1;
            List<String> facts = new ArrayList<>();
            for (long fact : new long[] {firstDirty, uncleanable, found.firstUncleanableOffset(), found.cleanBytes(),
                found.cleanableBytes(), delayMs, bucket}) {
                facts.add(String.valueOf(fact));
            }
            return facts;
        } catch (ReflectiveOperationException failure) {
            return new ArrayList<>(List.of("uncleanable"));
        }
    }

    private static Object call(String name, Class<?>[] types, Object... arguments) throws ReflectiveOperationException {
        Method method = LogCleanerManager.class.getDeclaredMethod(name, types);
        method.setAccessible(true);
        return method.invoke(null, arguments);
    }

    private static Object component(Object record, String name) throws ReflectiveOperationException {
        Method method = record.getClass().getDeclaredMethod(name);
        method.setAccessible(true);
        return method.invoke(record);
    }

    private int buckets() throws ReflectiveOperationException {
        Field table = ConcurrentHashMap.class.getDeclaredField("table");
        table.setAccessible(true);
        return ((Object[]) table.get(logs)).length;
    }
}
