import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.LogCleanerManager;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Compacts every partition of clean log directories, for any number of requests in one JVM.
 *
 * <p>A request is a line on standard input with fields separated by tabs: the log directory, the time in milliseconds,
 * and topic properties as {@code KEY=VALUE}. Each partition is loaded, compacted over the range that
 * {@code LogCleanerManager} chooses, and closed; the checkpoints are written as a broker writes them.
 *
 * <p>An answer is a line for each partition that the cleaner failed on ({@code NAME}, a tab and the error), and an empty
 * line. The clock is stopped, and nothing runs in the background.
 */
public final class CleanerServer {
    private static final String CLEANER_OFFSETS = "cleaner-offset-checkpoint";
    private static final int MAP_BYTES = 16 << 20;
    private static final int BUFFER_BYTES = 512 << 10;
    private static final int LARGEST_BUFFER_BYTES = 32 << 20;
    private static final double LOAD_FACTOR = 0.9;

    private final File directory;
    private final Time time;
    private final LogConfig config;
    private final Map<TopicPartition, Long> cleanerOffsets;
    private final Map<TopicPartition, Long> recoveryPoints = new HashMap<>();
    private final Map<TopicPartition, Long> logStarts = new HashMap<>();
    private final Map<String, String> failed = new TreeMap<>();

    private CleanerServer(File directory, Time time, LogConfig config) throws IOException {
        this.directory = directory;
        this.time = time;
        this.config = config;
        this.cleanerOffsets = new HashMap<>(LoaderServer.offsets(directory, CLEANER_OFFSETS));
    }

    public static void main(String[] unused) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] fields = line.split("\t");
            LogConfig config = LoaderServer.config(Arrays.asList(fields).subList(2, fields.length));
            Time time = new LoaderServer.StoppedClock(Long.parseLong(fields[1]));
            CleanerServer server = new CleanerServer(new File(fields[0]).getAbsoluteFile(), time, config);
            server.compactAll();
            server.failed.forEach((name, why) -> answers.println(name + "\t" + why.replaceAll("\\s+", " ")));
            answers.println();
            answers.flush();
        }
    }

    private void compactAll() throws Exception {
        Map<TopicPartition, Long> starts = LoaderServer.offsets(directory, LoaderServer.LOG_STARTS);
        Map<TopicPartition, Long> ends = LoaderServer.offsets(directory, LoaderServer.RECOVERY_POINTS);
        Map<TopicPartition, Long> marks = LoaderServer.offsets(directory, LoaderServer.HIGH_WATERMARKS);
        for (File partition : directory.listFiles(File::isDirectory)) {
            TopicPartition name = UnifiedLog.parseTopicPartitionName(partition);
            UnifiedLog log = UnifiedLog.create(partition, config, starts.getOrDefault(name, 0L),
                ends.getOrDefault(name, 0L), new LoaderServer.AtOnce(), new BrokerTopicStats(false), time,
                LoaderServer.MAX_TRANSACTION_MS, new ProducerStateManagerConfig(Integer.MAX_VALUE, false),
                Integer.MAX_VALUE, new LogDirFailureChannel(1), true, Optional.empty());
            log.updateHighWatermark(Math.min(marks.getOrDefault(name, 0L), log.logEndOffset()));
            try {
                compact(log);
            } catch (Throwable failure) {
                failed.put(partition.getName(), failure.toString());
            }
            log.flush(true);
            log.close();
            recoveryPoints.put(name, log.recoveryPoint());
            if (log.logStartOffset() > log.logSegments().get(0).baseOffset()) {
                logStarts.put(name, log.logStartOffset());
            }
        }
        write(LoaderServer.RECOVERY_POINTS, recoveryPoints);
        write(LoaderServer.LOG_STARTS, logStarts);
        write(CLEANER_OFFSETS, cleanerOffsets);
    }

    private void compact(UnifiedLog log) throws Exception {
        Optional<Long> cleaned = Optional.ofNullable(cleanerOffsets.get(log.topicPartition()));
        Method choose = LogCleanerManager.class.getDeclaredMethod("cleanableOffsets", UnifiedLog.class, Optional.class,
            long.class);
        choose.setAccessible(true);
        Object range = choose.invoke(null, log, cleaned, time.milliseconds());
        long firstDirty = (long) component(range, "firstDirtyOffset");
        if ((boolean) component(range, "forceUpdateCheckpoint")) {
            cleanerOffsets.put(log.topicPartition(), firstDirty);
        }
        LogToClean toClean = new LogToClean(log, firstDirty, (long) component(range, "firstUncleanableDirtyOffset"), true);
        if (toClean.firstUncleanableOffset() <= firstDirty) {
            return;
        }
        Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(MAP_BYTES), BUFFER_BYTES, LARGEST_BUFFER_BYTES, LOAD_FACTOR,
            new Throttler(Double.MAX_VALUE, 300, "io", "bytes", Time.SYSTEM), time, name -> { });
        cleanerOffsets.put(log.topicPartition(), cleaner.clean(toClean).getKey());
    }

    private static Object component(Object record, String name) throws ReflectiveOperationException {
        Method method = record.getClass().getDeclaredMethod(name);
        method.setAccessible(true);
        return method.invoke(record);
    }

    private void write(String name, Map<TopicPartition, Long> offsets) throws IOException {
        new OffsetCheckpointFile(new File(directory, name), null).write(offsets);
    }
}
