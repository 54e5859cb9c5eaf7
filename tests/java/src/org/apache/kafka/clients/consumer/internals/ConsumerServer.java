package org.apache.kafka.clients.consumer.internals;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import java.util.StringJoiner;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
// Kafka 4.4 has BufferSupplier and LogContext in the second package, 4.3 in the first.
import org.apache.kafka.common.utils.*;
import org.apache.kafka.common.utils.internals.*;

/**
 * Gives bytes of a log to Kafka's consumer, and says which records it returns.
 *
 * <p>A request is a line: the path of a log, and ranges {@code START-END} of its bytes, separated by tabs. The answer has
 * a line for each range: the range, a tab, the offsets that a consumer returns, and {@code error} if it stops there. An
 * empty line ends it.
 */
public final class ConsumerServer {
    private static final TopicPartition PARTITION = new TopicPartition("topic", 0);

    private ConsumerServer() { }

    public static void main(String[] unused) throws IOException {
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (Metrics metrics = new Metrics()) {
            for (String line = requests.readLine(); line != null; line = requests.readLine()) {
                String[] words = line.split("\t");
                byte[] log = Files.readAllBytes(Path.of(words[0]));
                for (int number = 1; number < words.length; number++) {
                    String[] ends = words[number].split("-");
                    int start = Integer.parseInt(ends[0]);
                    ByteBuffer bytes = ByteBuffer.wrap(log, start, Integer.parseInt(ends[1]) - start).slice();
                    String found;
                    try {
                        found = consumed(bytes, metrics);
                    } catch (RuntimeException | Error stopped) {
                        stopped.printStackTrace();
                        found = "error";
                    }
                    answers.println(words[number] + "\t" + found);
                }
                answers.println();
                answers.flush();
            }
        }
    }

    private static String consumed(ByteBuffer bytes, Metrics metrics) {
        StringJoiner found = new StringJoiner(" ");
        FetchMetricsManager manager = new FetchMetricsManager(metrics, new FetchMetricsRegistry());
        FetchConfig config = new FetchConfig(1, 1 << 30, 0, 1 << 30, 1, true, "", IsolationLevel.READ_UNCOMMITTED);
        LogContext context = new LogContext();
        SubscriptionState subscriptions = new SubscriptionState(context, AutoOffsetResetStrategy.NONE);
        subscriptions.assignFromUser(Set.of(PARTITION));
        subscriptions.seek(PARTITION, 0);
        FetchResponseData.PartitionData data = new FetchResponseData.PartitionData()
            .setPartitionIndex(0).setRecords(MemoryRecords.readableRecords(bytes));
        CompletedFetch fetch = new CompletedFetch(context.logger(ConsumerServer.class), subscriptions,
            BufferSupplier.NO_CACHING, PARTITION, data, new FetchMetricsAggregator(manager, Set.of(PARTITION)), 0L);
        try (Deserializers<byte[], byte[]> readers =
                 new Deserializers<>(new ByteArrayDeserializer(), new ByteArrayDeserializer(), metrics)) {
            // Kafka 4.4 leaves it to the caller to end a fetch that has no more records.
            List<ConsumerRecord<byte[], byte[]>> records;
            while (!(records = fetch.fetchRecords(config, readers, 1)).isEmpty()) {
                for (ConsumerRecord<byte[], byte[]> each : records) {
                    found.add(Long.toString(each.offset()));
                }
            }
        } catch (RuntimeException stopped) {
            found.add("error");
        }
        return found.toString();
    }
}
