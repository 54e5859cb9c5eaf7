import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads topics with the consumer of Kafka 0.11, as {@code ADDRESS LEVEL GROUP TOPIC...}: first all partitions, which are
 * assigned, then all as a member of a group, which commits. Prints {@code HOW PARTITION RECORDS POSITION} for each.
 */
public final class OldestConsumer {
    private OldestConsumer() { }

    public static void main(String[] args) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        properties.put("isolation.level", args[1]);
        properties.put("group.id", args[2]);
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        List<String> topics = Arrays.asList(args).subList(3, args.length);
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties, bytes, bytes)) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (String topic : topics) {
                for (PartitionInfo each : consumer.partitionsFor(topic)) {
                    partitions.add(new TopicPartition(topic, each.partition()));
                }
            }
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            read("assigned", consumer, partitions);
            consumer.unsubscribe();
            consumer.subscribe(topics);
            while (consumer.assignment().isEmpty()) {
                consumer.poll(0);
            }
            consumer.seekToBeginning(consumer.assignment());
            read("subscribed", consumer, partitions);
            consumer.commitSync();
            for (TopicPartition each : partitions) {
                System.out.println("committed " + each + " 0 " + consumer.committed(each).offset());
            }
        }
    }

    private static void read(
            String how, KafkaConsumer<byte[], byte[]> consumer, List<TopicPartition> partitions) {
        Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
        Map<TopicPartition, Integer> counts = new HashMap<>();
        while (partitions.stream().anyMatch(each -> consumer.position(each) < ends.get(each))) {
            for (ConsumerRecord<byte[], byte[]> each : consumer.poll(1000)) {
                counts.merge(new TopicPartition(each.topic(), each.partition()), 1, Integer::sum);
            }
        }
        for (TopicPartition each : partitions) {
            System.out.println(how + " " + each + " " + counts.getOrDefault(each, 0) + " " + consumer.position(each));
        }
    }
}
