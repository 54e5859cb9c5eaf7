package org.apache.kafka.coordinator.share;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.common.runtime.Deserializer;
import org.apache.kafka.coordinator.share.generated.ShareSnapshotKey;
import org.apache.kafka.coordinator.share.generated.ShareSnapshotValue;
import org.apache.kafka.coordinator.share.generated.ShareUpdateKey;
import org.apache.kafka.coordinator.share.generated.ShareUpdateValue;
import org.apache.kafka.coordinator.share.metrics.ShareCoordinatorMetrics;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.share.SharePartitionKey;
import org.apache.kafka.server.share.persister.PersisterStateBatch;
import org.apache.kafka.timeline.SnapshotRegistry;

/**
 * Writes random logs of {@code __share_group_state}, and what a share coordinator has in memory after each batch.
 *
 * <p>{@code java ShareReplays DIRECTORY SEED COUNT} writes {@code DIRECTORY/NUMBER/00000000000000000000.log} and
 * {@code DIRECTORY/NUMBER/states} for the numbers 0 to COUNT - 1. The states are lines of words separated by tabs:
 * {@code after} with the byte where a batch ends, then {@code share} for each partition of a group.
 */
public final class ShareReplays {
    private static final int BATCHES = 60;
    private static final long NOW = 1_767_225_600_000L;
    private static final int GROUPS = 3;
    private static final int TOPICS = 2;
    private static final int PARTITIONS = 2;
    private static final byte[] STATES = {0, 2, 4};

    private final Random random;
    private final ShareCoordinatorShard shard;
    private final ShareCoordinatorRecordSerde serde = new ShareCoordinatorRecordSerde();
    private long nextOffset;

    private ShareReplays(Random random) {
        this.random = random;
        shard = new ShareCoordinatorShard.Builder(
                new ShareCoordinatorConfig(new AbstractConfig(ShareCoordinatorConfig.CONFIG_DEF, Map.of())))
            .withLogContext(new LogContext())
            .withSnapshotRegistry(new SnapshotRegistry(new LogContext()))
            .withCoordinatorMetrics(new ShareCoordinatorMetrics())
            .withTopicPartition(new TopicPartition("__share_group_state", 0))
            .withTime(Time.SYSTEM)
            .build();
    }

    public static void main(String[] args) throws Exception {
        long seed = Long.parseLong(args[1]);
        int count = Integer.parseInt(args[2]);
        for (int number = 0; number < count; number++) {
            Path directory = Files.createDirectories(Path.of(args[0]).resolve(String.valueOf(number)));
            new ShareReplays(new Random(seed * 1_000_003L + number)).write(directory);
        }
        System.exit(0);
    }

    private void write(Path directory) throws IOException {
        List<String> states = new ArrayList<>();
        long position = 0;
        try (FileChannel log = FileChannel.open(directory.resolve("00000000000000000000.log"),
                StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)) {
            for (int number = 0; number < BATCHES; number++) {
                MemoryRecords batch = batch();
                position += batch.sizeInBytes();
                log.write(batch.buffer().duplicate());
                replay(batch);
                states.add("after\t" + position);
                addStates(states);
            }
        }
        Files.write(directory.resolve("states"), states);
    }

    private MemoryRecords batch() {
        if (random.nextInt(12) == 0) {
            return MemoryRecords.withEndTransactionMarker(nextOffset, NOW, 0, 1_000, (short) 0,
                new EndTransactionMarker(ControlRecordType.COMMIT, 0));
        }
        SimpleRecord[] records = new SimpleRecord[1 + random.nextInt(4)];
        for (int number = 0; number < records.length; number++) {
            records[number] = record();
        }
        Compression codec = random.nextInt(4) == 0 ? Compression.lz4().build() : Compression.NONE;
        return MemoryRecords.withRecords(nextOffset, codec, 0, records);
    }

    private SimpleRecord record() {
        if (random.nextInt(15) == 0) {
            // A type that this release does not know.
            return new SimpleRecord(NOW, new byte[] {0, 99, 1}, new byte[] {0, 0});
        }
        CoordinatorRecord record = change();
        return new SimpleRecord(NOW, serde.serializeKey(record), serde.serializeValue(record));
    }

    /** A snapshot, the tombstone of one, or an update, also before any snapshot. */
    private CoordinatorRecord change() {
        String group = "g" + random.nextInt(GROUPS);
        Uuid topic = new Uuid(7, random.nextInt(TOPICS));
        int partition = random.nextInt(PARTITIONS);
        int kind = random.nextInt(10);
        if (kind < 7) {
            return record(new ShareUpdateKey().setGroupId(group).setTopicId(topic).setPartition(partition),
                update());
        }
        ApiMessage key = new ShareSnapshotKey().setGroupId(group).setTopicId(topic).setPartition(partition);
        return kind == 7 ? CoordinatorRecord.tombstone(key) : record(key, snapshot());
    }

    private ShareUpdateValue update() {
        long start = random.nextInt(4) - 1;
        ShareUpdateValue value = new ShareUpdateValue().setSnapshotEpoch(random.nextInt(5))
            .setLeaderEpoch(random.nextInt(4) - 1).setStartOffset(start);
        long next = Math.max(start, 0);
        for (int number = random.nextInt(4); number > 0; number--) {
            long first = next + random.nextInt(3);
            next = first + 1 + random.nextInt(5);
            value.stateBatches().add(new ShareUpdateValue.StateBatch().setFirstOffset(first)
                .setLastOffset(next - 1).setDeliveryCount((short) (1 + random.nextInt(3)))
                .setDeliveryState(STATES[random.nextInt(STATES.length)]));
        }
        return random.nextBoolean() ? value : value.setDeliveryCompleteCount(random.nextInt(6) - 1);
    }

    private ShareSnapshotValue snapshot() {
        long start = random.nextInt(10) - 1;
        ShareSnapshotValue value = new ShareSnapshotValue().setSnapshotEpoch(random.nextInt(5))
            .setStateEpoch(random.nextInt(5)).setLeaderEpoch(random.nextInt(5)).setStartOffset(start)
            .setCreateTimestamp(NOW + random.nextInt(9)).setWriteTimestamp(NOW + random.nextInt(1_000));
        if (start >= 0 && random.nextBoolean()) {
            value.stateBatches().add(new ShareSnapshotValue.StateBatch().setFirstOffset(start)
                .setLastOffset(start + random.nextInt(12)).setDeliveryCount((short) (1 + random.nextInt(2)))
                .setDeliveryState(STATES[random.nextInt(STATES.length)]));
        }
        return random.nextBoolean() ? value : value.setDeliveryCompleteCount(random.nextInt(6) - 1);
    }

    private static CoordinatorRecord record(ApiMessage key, ApiMessage value) {
        return CoordinatorRecord.record(key, new ApiMessageAndVersion(value, (short) 0));
    }

    /** Follows what a broker does with the batches of a log when it loads a coordinator. */
    private void replay(MemoryRecords records) {
        for (MutableRecordBatch batch : records.batches()) {
            for (Record record : batch) {
                nextOffset = record.offset() + 1;
                if (batch.isControlBatch()) {
                    continue;
                }
                try {
                    shard.replay(record.offset(), batch.producerId(), batch.producerEpoch(),
                        serde.deserialize(copy(record.key()), copy(record.value())));
                } catch (Deserializer.UnknownRecordTypeException unknown) {
                    // A broker skips it, too.
                }
            }
        }
    }

    private static ByteBuffer copy(ByteBuffer buffer) {
        return buffer == null ? null : buffer.duplicate();
    }

    /** What holds for each offset; how it is cut into batches depends on the order of merges. */
    private static String batchesOf(ShareGroupOffset found) {
        StringBuilder text = new StringBuilder();
        for (PersisterStateBatch each : found.stateBatches()) {
            for (long offset = each.firstOffset(); offset <= each.lastOffset(); offset++) {
                text.append(offset).append(':').append(each.deliveryState()).append(':')
                    .append(each.deliveryCount()).append(' ');
            }
        }
        return text.toString().strip();
    }

    private void addStates(List<String> states) {
        for (int group = 0; group < GROUPS; group++) {
            for (int topic = 0; topic < TOPICS; topic++) {
                for (int partition = 0; partition < PARTITIONS; partition++) {
                    SharePartitionKey key =
                        SharePartitionKey.getInstance("g" + group, new Uuid(7, topic), partition);
                    ShareGroupOffset found = shard.getShareStateMapValue(key);
                    if (found != null) {
                        states.add(String.join("\t", "share", key.groupId(), key.topicId().toString(),
                            String.valueOf(key.partition()), String.valueOf(found.startOffset()),
                            String.valueOf(found.deliveryCompleteCount()), String.valueOf(found.snapshotEpoch()),
                            String.valueOf(found.stateEpoch()), String.valueOf(found.leaderEpoch()),
                            String.valueOf(found.writeTimestamp()), String.valueOf(found.createTimestamp()),
                            batchesOf(found)));
                    }
                }
            }
        }
    }
}
