import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Map;
import java.util.OptionalInt;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;

/**
 * Runs operations on Kafka's {@code LeaderEpochFileCache}.
 *
 * <p>A request is a line of operations on an empty cache, separated by tabs: {@code assign EPOCH OFFSET},
 * {@code truncate-from-end OFFSET}, {@code truncate-from-start OFFSET}, {@code end EPOCH LOG_END_OFFSET},
 * {@code epoch OFFSET} or {@code entries}. The answer has a line for each of the last three: the operation's number, a
 * tab, and numbers separated by blanks. An empty line ends it.
 */
public final class EpochServer {
    private EpochServer() { }

    public static void main(String[] unused) throws IOException {
        PrintStream answers = System.out;
        System.setOut(System.err);
        File directory = Files.createTempDirectory("epochs").toFile();
        File path = LeaderEpochCheckpointFile.newFile(directory);
        LeaderEpochCheckpointFile file = new LeaderEpochCheckpointFile(path, new LogDirFailureChannel(1));
        LeaderEpochFileCache cache =
            new LeaderEpochFileCache(new TopicPartition("topic", 0), file, new LoaderServer.AtOnce());
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            cache.clearAndFlush();
            String[] operations = line.split("\t");
            for (int number = 0; number < operations.length; number++) {
                String answer = answer(cache, operations[number].split(" "));
                if (!answer.isEmpty()) {
                    answers.println(number + "\t" + answer);
                }
            }
            answers.println();
            answers.flush();
        }
    }

    private static String answer(LeaderEpochFileCache cache, String[] words) {
        switch (words[0]) {
            case "assign":
                cache.assign(Integer.parseInt(words[1]), Long.parseLong(words[2]));
                return "";
            case "truncate-from-end":
                cache.truncateFromEndAsyncFlush(Long.parseLong(words[1]));
                return "";
            case "truncate-from-start":
                cache.truncateFromStartAsyncFlush(Long.parseLong(words[1]));
                return "";
            case "end":
                Map.Entry<Integer, Long> end =
                    cache.endOffsetFor(Integer.parseInt(words[1]), Long.parseLong(words[2]));
                return end.getKey() + " " + end.getValue();
            case "epoch":
                OptionalInt epoch = cache.epochForOffset(Long.parseLong(words[1]));
                return epoch.isPresent() ? Integer.toString(epoch.getAsInt()) : "none";
            case "entries":
                StringBuilder entries = new StringBuilder("entries");
                cache.epochEntries().forEach(each ->
                    entries.append(' ').append(each.epoch()).append(':').append(each.startOffset()));
                return entries.toString();
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }
}
