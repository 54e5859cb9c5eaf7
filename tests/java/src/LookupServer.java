import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Optional;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.internal.FileRecords.TimestampAndOffset;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Asks Kafka's {@code UnifiedLog} for the offsets of times, and for the ends of leader epochs.
 *
 * <p>A request is a line: a log directory after a clean shutdown, a tab, and questions separated by tabs: {@code time
 * TIME}, {@code end EPOCH} or {@code log-end}. The answer has a line for each partition and question: {@code PARTITION/QUESTION}, a tab,
 * and {@code OFFSET TIME EPOCH}, -1 for what there is not; or {@code EPOCH OFFSET}; or {@code OFFSET}. For a log
 * that is not loaded it is {@code PARTITION/refused}, and the exception. An empty line ends it. The logs are
 * not stopped, so that their files stay as they are loaded.
 */
public final class LookupServer {
    private LookupServer() { }

    public static void main(String[] unused) throws IOException {
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] words = line.split("\t");
            File directory = new File(words[0]).getAbsoluteFile();
            Map<TopicPartition, Long> starts = LoaderServer.offsets(directory, LoaderServer.LOG_STARTS);
            Map<TopicPartition, Long> flushed = LoaderServer.offsets(directory, LoaderServer.RECOVERY_POINTS);
            for (File partition : directory.listFiles(File::isDirectory)) {
                TopicPartition name = UnifiedLog.parseTopicPartitionName(partition);
                UnifiedLog log;
                try {
                    log = load(partition, starts.getOrDefault(name, 0L), flushed.getOrDefault(name, 0L));
                } catch (RuntimeException refused) {
                    answers.println(partition.getName() + "/refused\t" + refused.getClass().getSimpleName());
                    continue;
                }
                for (int number = 1; number < words.length; number++) {
                    answers.println(partition.getName() + "/" + words[number] + "\t" + answer(log, words[number]));
                }
                log.closeHandlers();
            }
            answers.println();
            answers.flush();
        }
    }

    private static UnifiedLog load(File partition, long start, long flushed) throws IOException {
        LogConfig config = LoaderServer.config(List.of());
        return UnifiedLog.create(partition, config, start, flushed, new LoaderServer.AtOnce(),
            new BrokerTopicStats(false), new LoaderServer.StoppedClock(0), LoaderServer.MAX_TRANSACTION_MS,
            new ProducerStateManagerConfig(Integer.MAX_VALUE, false), Integer.MAX_VALUE,
            new LogDirFailureChannel(1), true, Optional.empty());
    }

    private static String answer(UnifiedLog log, String question) {
        String[] words = question.split(" ");
        if (words[0].equals("log-end")) {
            return Long.toString(log.logEndOffset());
        }
        if (words[0].equals("end")) {
            return log.endOffsetForEpoch(Integer.parseInt(words[1]))
                .map(end -> end.epoch() + " " + end.offset()).orElse("-1 -1");
        }
        Optional<TimestampAndOffset> found =
            log.fetchOffsetByTimestamp(Long.parseLong(words[1]), Optional.empty()).timestampAndOffsetOpt();
        return found.map(each -> each.offset + " " + each.timestamp + " " + each.leaderEpoch.orElse(-1))
            .orElse("-1 -1 -1");
    }
}
