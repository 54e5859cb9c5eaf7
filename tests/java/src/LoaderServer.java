import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Delayed;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import java.util.stream.Collectors;

import kafka.server.builders.LogManagerBuilder;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Timer;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.checkpoint.CleanShutdownFileHandler;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.log.CleanerConfig;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Loads log directories as a starting broker does and shuts down cleanly, for any number of requests in one JVM.
 *
 * <p>A request is a line on standard input with fields separated by tabs: {@code whole} or {@code each}, the log
 * directory, the time in milliseconds, the expiration time of producers in milliseconds, and topic properties as
 * {@code KEY=VALUE}. With {@code whole}, Kafka's own {@code LogManager} loads everything, and the answer is a line for
 * the directory if the broker does not start, or takes it offline. With {@code each}, every partition is loaded
 * separately: partitions that do not load do not affect the others, and the checkpoints have lines for those that do.
 * {@code retain} is {@code each} that deletes old segments before the shutdown; {@code delete-records=OFFSET} also
 * deletes the records before that offset first.
 * {@code truncate=OFFSET} is {@code each} that truncates every log to that offset before the shutdown.
 * {@code bounds} is {@code each} that answers for every log that loads, too: its first offset, its end, its last stable
 * offset if all of it is replicated, and its aborted transactions as {@code PRODUCER:FIRST:LAST}.
 *
 * <p>An answer is a line for each partition that did not load ({@code NAME}, a tab and the error), and an empty line.
 * The clock is stopped, and nothing runs in the background. Logs are recovered by one thread, or by the number of
 * threads in the system property {@code recovery.threads}.
 */
public final class LoaderServer {
    static final String RECOVERY_POINTS = "recovery-point-offset-checkpoint";
    static final String LOG_STARTS = "log-start-offset-checkpoint";
    static final String HIGH_WATERMARKS = "replication-offset-checkpoint";
    static final int MAX_TRANSACTION_MS = 15 * 60 * 1000;

    private LoaderServer() { }

    /** Runs one-time tasks immediately, and periodic tasks never. */
    static final class AtOnce implements Scheduler {
        @Override
        public void startup() { }

        @Override
        public void shutdown() { }

        @Override
        public void resizeThreadPool(int size) { }

        @Override
        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            if (periodMs <= 0) {
                task.run();
            }
            return new Done();
        }
    }

    /** A finished task. */
    static final class Done extends CompletableFuture<Void> implements ScheduledFuture<Void> {
        Done() {
            complete(null);
        }

        @Override
        public long getDelay(TimeUnit unit) {
            return 0;
        }

        @Override
        public int compareTo(Delayed other) {
            return 0;
        }
    }

    /** A stopped clock. */
    static final class StoppedClock implements Time {
        private final long nowMs;

        StoppedClock(long nowMs) {
            this.nowMs = nowMs;
        }

        @Override
        public long milliseconds() {
            return nowMs;
        }

        @Override
        public long hiResClockMs() {
            return nowMs;
        }

        @Override
        public long nanoseconds() {
            return nowMs * 1_000_000;
        }

        @Override
        public void sleep(long ms) {
            Time.SYSTEM.sleep(ms);
        }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) throws InterruptedException {
            Time.SYSTEM.waitObject(object, condition, deadlineMs);
        }

        @Override
        public Timer timer(long timeoutMs) {
            return Time.SYSTEM.timer(timeoutMs);
        }
    }

    public static void main(String[] unused) throws IOException {
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] fields = line.split("\t");
            File directory = new File(fields[1]).getAbsoluteFile();
            Time time = new StoppedClock(Long.parseLong(fields[2]));
            ProducerStateManagerConfig producers = new ProducerStateManagerConfig(Integer.parseInt(fields[3]), false);
            LogConfig config = config(Arrays.asList(fields).subList(4, fields.length));
            Map<String, String> refused;
            if (fields[0].equals("whole")) {
                refused = loadWhole(directory, config, time, producers);
            } else if (fields[0].equals("bounds")) {
                Map<String, String> bounds = new TreeMap<>();
                refused = loadEach(directory, config, time, producers, log -> bounds.put(log.dir().getName(), bounds(log)));
                refused.replaceAll((name, why) -> "refused " + why);
                bounds.putAll(refused);
                refused = bounds;
            } else {
                refused = loadEach(directory, config, time, producers, work(fields[0]));
            }
            refused.forEach((name, why) -> answers.println(name + "\t" + why.replaceAll("\\s+", " ")));
            answers.println();
            answers.flush();
        }
    }

    /** An operation on each log between loading and shutdown. */
    private interface Work {
        void on(UnifiedLog log) throws IOException;
    }

    private static String bounds(UnifiedLog log) throws IOException {
        log.updateHighWatermark(log.logEndOffset());
        String aborted = log.collectAbortedTransactions(log.logStartOffset(), log.logEndOffset()).stream()
            .map(txn -> txn.producerId() + ":" + txn.firstOffset() + ":" + txn.lastOffset())
            .sorted()
            .collect(Collectors.joining(","));
        return log.logStartOffset() + " " + log.logEndOffset() + " " + log.lastStableOffset() + " " + readable(log) + " " + aborted;
    }

    /** The number of offsets that fetches return, each of a single batch; -1 where one fails. */
    private static long readable(UnifiedLog log) {
        long offset = log.logStartOffset();
        long found = 0;
        try {
            while (offset < log.logEndOffset()) {
                long before = offset;
                for (RecordBatch batch : log.read(offset, 1, FetchIsolation.LOG_END, true).records.batches()) {
                    if (batch.lastOffset() >= offset) {
                        found += batch.lastOffset() - Math.max(batch.baseOffset(), offset) + 1;
                        offset = batch.lastOffset() + 1;
                    }
                }
                if (offset == before) {
                    break;
                }
            }
        } catch (Exception failure) {
            return -1;
        }
        return found;
    }

    private static Work work(String what) {
        if (what.equals("retain")) {
            return UnifiedLog::deleteOldSegments;
        }
        if (what.startsWith("delete-records=")) {
            long offset = Long.parseLong(what.substring(what.indexOf('=') + 1));
            return log -> {
                log.maybeIncrementLogStartOffset(offset, LogStartOffsetIncrementReason.ClientRecordDeletion);
                log.deleteOldSegments();
            };
        }
        if (what.startsWith("truncate=")) {
            long offset = Long.parseLong(what.substring(what.indexOf('=') + 1));
            return log -> log.truncateTo(offset);
        }
        return log -> { };
    }

    static LogConfig config(List<String> properties) {
        Map<String, Object> values = new HashMap<>();
        values.put("file.delete.delay.ms", "0");
        for (String property : properties) {
            String[] pair = property.split("=", 2);
            values.put(pair[0], pair[1]);
        }
        return new LogConfig(values);
    }

    private static Map<String, String> loadWhole(File directory, LogConfig config, Time time,
                                                 ProducerStateManagerConfig producers) {
        LogDirFailureChannel failures = new LogDirFailureChannel(1);
        LogManagerBuilder manager = new LogManagerBuilder()
            .setLogDirs(List.of(directory))
            .setConfigRepository(resource -> new Properties())
            .setInitialDefaultConfig(config)
            .setCleanerConfig(new CleanerConfig(false))
            .setRecoveryThreadsPerDataDir(Integer.getInteger("recovery.threads", 1))
            .setProducerStateManagerConfig(producers.producerIdExpirationMs(), false)
            .setScheduler(new AtOnce())
            .setBrokerTopicStats(new BrokerTopicStats(false))
            .setLogDirFailureChannel(failures)
            .setTime(time);
        Map<String, String> refused = new TreeMap<>();
        try {
            WholeLoad.run(manager, config);
            if (failures.hasOfflineLogDir(directory.getPath())) {
                refused.put(directory.getName(), "offline");
            }
        } catch (Throwable failure) {
            refused.put(directory.getName(), failure.toString());
        }
        return refused;
    }

    private static Map<String, String> loadEach(File directory, LogConfig config, Time time,
                                                ProducerStateManagerConfig producers, Work work) throws IOException {
        boolean isClean = new CleanShutdownFileHandler(directory.getPath()).exists();
        Map<TopicPartition, Long> recoveryPoints = offsets(directory, RECOVERY_POINTS);
        Map<TopicPartition, Long> logStarts = offsets(directory, LOG_STARTS);
        Map<TopicPartition, Long> highWatermarks = offsets(directory, HIGH_WATERMARKS);
        Map<TopicPartition, Long> newRecoveryPoints = new HashMap<>();
        Map<TopicPartition, Long> newLogStarts = new HashMap<>();
        Map<String, String> refused = new TreeMap<>();
        for (File partition : directory.listFiles(File::isDirectory)) {
            try {
                TopicPartition name = UnifiedLog.parseTopicPartitionName(partition);
                UnifiedLog log = UnifiedLog.create(partition, config, logStarts.getOrDefault(name, 0L),
                    recoveryPoints.getOrDefault(name, 0L), new AtOnce(), new BrokerTopicStats(false), time,
                    MAX_TRANSACTION_MS, producers, Integer.MAX_VALUE,
                    new LogDirFailureChannel(1), isClean, Optional.empty());
                log.updateHighWatermark(Math.min(highWatermarks.getOrDefault(name, 0L), log.logEndOffset()));
                work.on(log);
                log.flush(true);
                log.close();
                newRecoveryPoints.put(name, log.recoveryPoint());
                if (log.logStartOffset() > log.logSegments().get(0).baseOffset()) {
                    newLogStarts.put(name, log.logStartOffset());
                }
            } catch (Throwable failure) {
                refused.put(partition.getName(), failure.toString());
            }
        }
        new OffsetCheckpointFile(new File(directory, RECOVERY_POINTS), null).write(newRecoveryPoints);
        new OffsetCheckpointFile(new File(directory, LOG_STARTS), null).write(newLogStarts);
        return refused;
    }

    static Map<TopicPartition, Long> offsets(File directory, String name) throws IOException {
        File file = new File(directory, name);
        return file.exists() ? new OffsetCheckpointFile(file, null).read() : Map.of();
    }
}
