package org.apache.kafka.coordinator.group;

import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.TreeSet;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.message.StreamsGroupDescribeResponseDataJsonConverter.DescribedGroupJsonConverter;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.requests.TransactionResult;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.coordinator.common.runtime.CoordinatorExecutor;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.common.runtime.CoordinatorTimer;
import org.apache.kafka.coordinator.group.classic.ClassicGroup;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupCurrentMemberAssignmentKey;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupCurrentMemberAssignmentValue;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupMemberMetadataKey;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupMemberMetadataValue;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupMetadataKey;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupMetadataValue;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupTargetAssignmentMetadataKey;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupTargetAssignmentMetadataValue;
import org.apache.kafka.coordinator.group.generated.GroupMetadataKey;
import org.apache.kafka.coordinator.group.generated.GroupMetadataValue;
import org.apache.kafka.coordinator.group.generated.LegacyOffsetCommitKey;
import org.apache.kafka.coordinator.group.generated.LegacyOffsetCommitValue;
import org.apache.kafka.coordinator.group.generated.OffsetCommitKey;
import org.apache.kafka.coordinator.group.generated.OffsetCommitValue;
import org.apache.kafka.coordinator.group.generated.ShareGroupMemberMetadataKey;
import org.apache.kafka.coordinator.group.generated.ShareGroupMemberMetadataValue;
import org.apache.kafka.coordinator.group.generated.ShareGroupMetadataKey;
import org.apache.kafka.coordinator.group.generated.ShareGroupMetadataValue;
import org.apache.kafka.coordinator.group.generated.StreamsGroupCurrentMemberAssignmentKey;
import org.apache.kafka.coordinator.group.generated.StreamsGroupCurrentMemberAssignmentValue;
import org.apache.kafka.coordinator.group.generated.StreamsGroupMemberMetadataKey;
import org.apache.kafka.coordinator.group.generated.StreamsGroupMemberMetadataValue;
import org.apache.kafka.coordinator.group.generated.StreamsGroupMetadataKey;
import org.apache.kafka.coordinator.group.generated.StreamsGroupMetadataValue;
import org.apache.kafka.coordinator.group.generated.StreamsGroupTargetAssignmentMemberKey;
import org.apache.kafka.coordinator.group.generated.StreamsGroupTargetAssignmentMemberValue;
import org.apache.kafka.coordinator.group.generated.StreamsGroupTargetAssignmentMetadataKey;
import org.apache.kafka.coordinator.group.generated.StreamsGroupTopologyKey;
import org.apache.kafka.coordinator.group.generated.StreamsGroupTopologyValue;
import org.apache.kafka.coordinator.group.metrics.GroupCoordinatorMetrics;
import org.apache.kafka.coordinator.group.modern.ModernGroup;
import org.apache.kafka.coordinator.group.modern.share.ShareGroupConfig;
import org.apache.kafka.coordinator.group.streams.StreamsGroup;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.timeline.SnapshotRegistry;

/**
 * Writes random logs of {@code __consumer_offsets}, and what a group coordinator has in memory after each batch.
 *
 * <p>{@code java GroupReplays DIRECTORY SEED COUNT} writes {@code DIRECTORY/NUMBER/00000000000000000000.log} and
 * {@code DIRECTORY/NUMBER/states} for the numbers 0 to COUNT - 1. The states are lines of words separated by tabs:
 * {@code after} with the byte where a batch ends, then {@code group}, {@code offset} and {@code pending}; also
 * {@code committed}, with the offsets that a marker commits, and {@code streams}, with the description of a group of
 * Kafka Streams as JSON.
 */
public final class GroupReplays {
    private static final int BATCHES = 50;
    private static final int PRODUCERS = 3;
    private static final long NOW = 1_767_225_600_000L;
    private static final String[] TYPES = {"classic", "consumer", "share", "streams"};

    private final Random random;
    private final GroupMetadataManager groups;
    private final OffsetMetadataManager offsets;
    private final GroupCoordinatorShard shard;
    private final GroupCoordinatorRecordSerde serde = new GroupCoordinatorRecordSerde();
    private final Map<String, TreeSet<String>> members = new HashMap<>();
    private final Map<String, String> types = new HashMap<>();
    private long nextOffset;

    private GroupReplays(Random random) {
        this.random = random;
        SnapshotRegistry registry = new SnapshotRegistry(new LogContext());
        GroupCoordinatorConfig config = GroupCoordinatorConfig.fromProps(Map.of());
        GroupCoordinatorMetrics metrics = new GroupCoordinatorMetrics();
        TopicPartition partition = new TopicPartition("__consumer_offsets", 0);
        var metricsShard = metrics.newMetricsShard(registry, partition);
        CoordinatorTimer<CoordinatorRecord> timer = idle(CoordinatorTimer.class);
        CoordinatorExecutor<CoordinatorRecord> executor = idle(CoordinatorExecutor.class);
        groups = new GroupMetadataManager.Builder()
            .withSnapshotRegistry(registry)
            .withTimer(timer)
            .withExecutor(executor)
            .withConfig(config)
            .withGroupConfigManager(new GroupConfigManager(Map.of(), config,
                new ShareGroupConfig(new AbstractConfig(Utils.mergeConfigs(List.of(
                    GroupCoordinatorConfig.CONFIG_DEF, ShareGroupConfig.CONFIG_DEF)), Map.of()))))
            .withGroupCoordinatorMetricsShard(metricsShard)
            .build();
        offsets = new OffsetMetadataManager.Builder()
            .withSnapshotRegistry(registry)
            .withGroupMetadataManager(groups)
            .withGroupCoordinatorConfig(config)
            .withGroupCoordinatorMetricsShard(metricsShard)
            .build();
        shard = new GroupCoordinatorShard(
            new LogContext(), groups, offsets, Time.SYSTEM, timer, config, metrics, metricsShard);
    }

    @SuppressWarnings("unchecked")
    private static <T> T idle(Class<?> type) {
        return (T) Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type},
            (self, method, args) -> method.getReturnType() == boolean.class ? Boolean.FALSE : null);
    }

    public static void main(String[] args) throws Exception {
        long seed = Long.parseLong(args[1]);
        int count = Integer.parseInt(args[2]);
        for (int number = 0; number < count; number++) {
            Path directory = Files.createDirectories(Path.of(args[0]).resolve(String.valueOf(number)));
            new GroupReplays(new Random(seed * 1_000_003L + number)).write(directory);
        }
    }

    private void write(Path directory) throws IOException, ReflectiveOperationException {
        List<String> states = new ArrayList<>();
        long position = 0;
        try (FileChannel log = FileChannel.open(directory.resolve("00000000000000000000.log"),
                StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)) {
            for (int number = 0; number < BATCHES; number++) {
                MemoryRecords batch = batch();
                position += batch.sizeInBytes();
                log.write(batch.buffer().duplicate());
                addCommitted(states, batch);
                replay(batch);
                states.add("after\t" + position);
                addGroups(states);
                addOffsets(states);
            }
        }
        Files.write(directory.resolve("states"), states);
    }

    private MemoryRecords batch() {
        int kind = random.nextInt(10);
        long producer = 1_000 + random.nextInt(PRODUCERS);
        if (kind == 0) {
            var result = random.nextInt(3) == 0 ? ControlRecordType.ABORT : ControlRecordType.COMMIT;
            return MemoryRecords.withEndTransactionMarker(nextOffset, NOW, 0, producer, (short) 0,
                new EndTransactionMarker(result, 0));
        }
        List<CoordinatorRecord> records = new ArrayList<>();
        if (kind < 7) {
            for (int left = 1 + random.nextInt(4); left > 0; left--) {
                records.add(offset());
            }
        } else {
            changeGroup(records);
        }
        SimpleRecord[] simple = records.stream()
            .map(record -> new SimpleRecord(NOW, serde.serializeKey(record), serde.serializeValue(record)))
            .toArray(SimpleRecord[]::new);
        Compression codec = random.nextInt(4) == 0 ? Compression.lz4().build() : Compression.NONE;
        return kind < 4
            ? MemoryRecords.withTransactionalRecords(nextOffset, codec, producer, (short) 0, 0, 0, simple)
            : MemoryRecords.withRecords(nextOffset, codec, 0, simple);
    }

    /** A committed offset, or a tombstone of one, of any version. */
    private CoordinatorRecord offset() {
        String group = "g" + random.nextInt(8);
        String topic = "t" + random.nextInt(2);
        int partition = random.nextInt(2);
        boolean isLegacy = random.nextInt(8) == 0;
        ApiMessage key = isLegacy
            ? new LegacyOffsetCommitKey().setGroup(group).setTopic(topic).setPartition(partition)
            : new OffsetCommitKey().setGroup(group).setTopic(topic).setPartition(partition);
        if (random.nextInt(7) == 0) {
            return CoordinatorRecord.tombstone(key);
        }
        long committed = random.nextInt(1_000);
        String metadata = "m" + random.nextInt(100);
        if (isLegacy) {
            return record(key, new LegacyOffsetCommitValue()
                .setOffset(committed).setMetadata(metadata).setCommitTimestamp(NOW + committed), 0);
        }
        int version = random.nextInt(5);
        OffsetCommitValue value = new OffsetCommitValue()
            .setOffset(committed).setMetadata(metadata).setCommitTimestamp(NOW + committed);
        if (version == 1) {
            value.setExpireTimestamp(NOW + 2 * committed);
        }
        if (version >= 3) {
            value.setLeaderEpoch(random.nextInt(4) - 1);
        }
        if (version == 4 && random.nextBoolean()) {
            value.setTopicId(new Uuid(7, committed));
        }
        return record(key, value, version);
    }

    private static CoordinatorRecord record(ApiMessage key, ApiMessage value, int version) {
        return CoordinatorRecord.record(key, new ApiMessageAndVersion(value, (short) version));
    }

    /** Changes a group, or removes it, as a coordinator may. */
    private void changeGroup(List<CoordinatorRecord> records) {
        String group = "g" + random.nextInt(8);
        // A share group never takes the place of offsets: those have groups of their own.
        String type = types.computeIfAbsent(group, name -> TYPES[random.nextInt(TYPES.length)]);
        if (type.equals("share")) {
            group = "s" + group;
        }
        TreeSet<String> own = members.computeIfAbsent(group, name -> new TreeSet<>());
        if (random.nextInt(4) == 0 && (type.equals("classic") || own.isEmpty())) {
            if (type.equals("consumer")) {
                records.add(CoordinatorRecord.tombstone(
                    new ConsumerGroupTargetAssignmentMetadataKey().setGroupId(group)));
            } else if (type.equals("streams")) {
                records.add(CoordinatorRecord.tombstone(
                    new StreamsGroupTargetAssignmentMetadataKey().setGroupId(group)));
            }
            records.add(CoordinatorRecord.tombstone(keyOf(group, type)));
            own.clear();
            types.remove(group);
            return;
        }
        String member = "m" + random.nextInt(3);
        int epoch = 1 + random.nextInt(3);
        switch (type) {
            case "consumer" -> changeConsumers(records, group, own, member, epoch);
            case "share" -> changeShares(records, group, member, epoch);
            case "streams" -> changeStreams(records, group, member, epoch);
            default -> records.add(record(keyOf(group, type), classic(epoch), random.nextInt(5)));
        }
    }

    private static ApiMessage keyOf(String group, String type) {
        return switch (type) {
            case "consumer" -> new ConsumerGroupMetadataKey().setGroupId(group);
            case "share" -> new ShareGroupMetadataKey().setGroupId(group);
            case "streams" -> new StreamsGroupMetadataKey().setGroupId(group);
            default -> new GroupMetadataKey().setGroup(group);
        };
    }

    private GroupMetadataValue classic(int generation) {
        List<GroupMetadataValue.MemberMetadata> list = new ArrayList<>();
        for (int number = random.nextInt(3); number > 0; number--) {
            list.add(new GroupMetadataValue.MemberMetadata()
                .setMemberId("m" + number).setClientId("c").setClientHost("h")
                .setSubscription(new byte[] {0, 0, 0, 0, 0, 0}).setAssignment(new byte[0]));
        }
        return new GroupMetadataValue().setProtocolType("consumer").setGeneration(generation)
            .setProtocol(list.isEmpty() ? null : "range").setLeader(list.isEmpty() ? null : "m1").setMembers(list);
    }

    private void changeConsumers(
        List<CoordinatorRecord> records, String group, TreeSet<String> own, String member, int epoch
    ) {
        if (own.contains(member) && random.nextInt(3) == 0) {
            records.add(CoordinatorRecord.tombstone(
                new ConsumerGroupCurrentMemberAssignmentKey().setGroupId(group).setMemberId(member)));
            records.add(CoordinatorRecord.tombstone(
                new ConsumerGroupMemberMetadataKey().setGroupId(group).setMemberId(member)));
            own.remove(member);
            if (own.isEmpty() && random.nextBoolean()) {
                records.add(CoordinatorRecord.tombstone(
                    new ConsumerGroupTargetAssignmentMetadataKey().setGroupId(group)));
                records.add(CoordinatorRecord.tombstone(keyOf(group, "consumer")));
                types.remove(group);
            }
            return;
        }
        own.add(member);
        records.add(record(new ConsumerGroupMemberMetadataKey().setGroupId(group).setMemberId(member),
            new ConsumerGroupMemberMetadataValue().setClientId("c").setClientHost("h")
                .setSubscribedTopicNames(List.of("t0")), 0));
        records.add(record(keyOf(group, "consumer"), new ConsumerGroupMetadataValue().setEpoch(epoch), 0));
        records.add(record(new ConsumerGroupTargetAssignmentMetadataKey().setGroupId(group),
            new ConsumerGroupTargetAssignmentMetadataValue().setAssignmentEpoch(1 + random.nextInt(3)), 0));
        records.add(record(new ConsumerGroupCurrentMemberAssignmentKey().setGroupId(group).setMemberId(member),
            new ConsumerGroupCurrentMemberAssignmentValue().setMemberEpoch(epoch).setState((byte) random.nextInt(3)),
            0));
    }

    private void changeShares(List<CoordinatorRecord> records, String group, String member, int epoch) {
        members.get(group).add(member);
        records.add(record(new ShareGroupMemberMetadataKey().setGroupId(group).setMemberId(member),
            new ShareGroupMemberMetadataValue().setClientId("c").setClientHost("h")
                .setSubscribedTopicNames(List.of("t0")), 0));
        records.add(record(keyOf(group, "share"), new ShareGroupMetadataValue().setEpoch(epoch), 0));
    }

    private void changeStreams(List<CoordinatorRecord> records, String group, String member, int epoch) {
        members.get(group).add(member);
        records.add(record(new StreamsGroupMemberMetadataKey().setGroupId(group).setMemberId(member),
            new StreamsGroupMemberMetadataValue().setClientId("c").setClientHost("h")
                .setProcessId("p" + random.nextInt(2)).setTopologyEpoch(random.nextInt(2))
                .setInstanceId(random.nextBoolean() ? "i" : null).setRackId(random.nextBoolean() ? "r" : null)
                .setUserEndpoint(random.nextBoolean() ? null
                    : new StreamsGroupMemberMetadataValue.Endpoint().setHost("host").setPort(random.nextInt(65_536)))
                .setClientTags(random.nextBoolean() ? List.of()
                    : List.of(new StreamsGroupMemberMetadataValue.KeyValue().setKey("zone").setValue("z"))),
            0));
        StreamsGroupMetadataValue value = new StreamsGroupMetadataValue().setEpoch(epoch);
        records.add(record(keyOf(group, "streams"), value.setValidatedTopologyEpoch(random.nextInt(2)), 0));
        if (random.nextBoolean()) {
            records.add(record(new StreamsGroupTopologyKey().setGroupId(group),
                new StreamsGroupTopologyValue().setEpoch(random.nextInt(2)).setSubtopologies(subtopologies()), 0));
        }
        if (random.nextBoolean()) {
            records.add(record(
                new StreamsGroupTargetAssignmentMemberKey().setGroupId(group).setMemberId(member),
                new StreamsGroupTargetAssignmentMemberValue().setActiveTasks(
                    List.of(new StreamsGroupTargetAssignmentMemberValue.TaskIds()
                        .setSubtopologyId("1").setPartitions(List.of(2, 0)))), 0));
        }
        records.add(record(new StreamsGroupCurrentMemberAssignmentKey().setGroupId(group).setMemberId(member),
            new StreamsGroupCurrentMemberAssignmentValue().setMemberEpoch(epoch)
                .setState((byte) (1 + random.nextInt(3)))
                .setActiveTasks(tasks("1", "0")).setStandbyTasks(tasks("0")).setWarmupTasks(tasks()), 0));
    }

    private List<StreamsGroupCurrentMemberAssignmentValue.TaskIds> tasks(String... subtopologies) {
        List<StreamsGroupCurrentMemberAssignmentValue.TaskIds> found = new ArrayList<>();
        for (String subtopology : subtopologies) {
            if (random.nextBoolean()) {
                found.add(new StreamsGroupCurrentMemberAssignmentValue.TaskIds()
                    .setSubtopologyId(subtopology).setPartitions(List.of(3, 1)));
            }
        }
        return found;
    }

    private List<StreamsGroupTopologyValue.Subtopology> subtopologies() {
        List<StreamsGroupTopologyValue.Subtopology> found = new ArrayList<>();
        for (int number = random.nextInt(3); number > 0; number--) {
            found.add(new StreamsGroupTopologyValue.Subtopology().setSubtopologyId(String.valueOf(number))
                .setSourceTopics(List.of("t1", "t0")).setSourceTopicRegex(List.of("x.*"))
                .setRepartitionSinkTopics(List.of("sink-b", "sink-a"))
                .setRepartitionSourceTopics(List.of(topic("source-b", 3), topic("source-a", 0)))
                .setStateChangelogTopics(List.of(topic("state-b", 0), topic("state-a", 0))));
        }
        return found;
    }

    private StreamsGroupTopologyValue.TopicInfo topic(String name, int partitions) {
        return new StreamsGroupTopologyValue.TopicInfo().setName(name).setPartitions(partitions)
            .setReplicationFactor((short) random.nextInt(4))
            .setTopicConfigs(List.of(
                new StreamsGroupTopologyValue.TopicConfig().setKey("retention.ms").setValue("7")));
    }

    /** Follows what a broker does with the batches of a log when it loads a coordinator. */
    private void replay(MemoryRecords records) {
        for (MutableRecordBatch batch : records.batches()) {
            for (Record record : batch) {
                nextOffset = record.offset() + 1;
                if (batch.isControlBatch()) {
                    boolean isCommit = ControlRecordType.parse(record.key()) == ControlRecordType.COMMIT;
                    shard.replayEndTransactionMarker(batch.producerId(), batch.producerEpoch(),
                        isCommit ? TransactionResult.COMMIT : TransactionResult.ABORT);
                } else {
                    shard.replay(record.offset(), batch.producerId(), batch.producerEpoch(),
                        serde.deserialize(copy(record.key()), copy(record.value())));
                }
            }
        }
    }

    private static ByteBuffer copy(ByteBuffer buffer) {
        return buffer == null ? null : buffer.duplicate();
    }

    private void addGroups(List<String> states) throws ReflectiveOperationException {
        Map<?, ?> all = (Map<?, ?>) read(groups, "groups");
        for (Map.Entry<?, ?> each : new TreeMap<>(all).entrySet()) {
            Group group = (Group) each.getValue();
            List<String> words = new ArrayList<>(List.of("group", group.groupId(), group.type().toString(),
                group.stateAsString()));
            if (group instanceof ClassicGroup classic) {
                words.add(classic.protocolType().isEmpty() ? "" : String.valueOf(classic.generationId()));
                words.add(String.valueOf(classic.numMembers()));
            } else if (group instanceof ModernGroup<?> modern) {
                words.add(String.valueOf(modern.groupEpoch()));
                words.add(String.valueOf(modern.members().size()));
            } else if (group instanceof StreamsGroup streams) {
                words.add(String.valueOf(streams.groupEpoch()));
                words.add(String.valueOf(streams.members().size()));
                if (streams.topology().isPresent()) {
                    states.add("streams\t" + DescribedGroupJsonConverter.write(
                        streams.asDescribedGroup(Long.MAX_VALUE), (short) 0));
                }
            }
            states.add(String.join("\t", words));
        }
    }

    private void addOffsets(List<String> states) throws ReflectiveOperationException {
        addAll(states, "offset", read(offsets, "offsets"));
        Map<?, ?> pending = (Map<?, ?>) read(offsets, "pendingTransactionalOffsets");
        for (Map.Entry<?, ?> each : new TreeMap<>(pending).entrySet()) {
            addAll(states, "pending\t" + each.getKey(), each.getValue());
        }
    }

    /** The offsets that a marker commits, even if later ones count. */
    private void addCommitted(List<String> states, MemoryRecords records) throws ReflectiveOperationException {
        MutableRecordBatch batch = records.batches().iterator().next();
        Object pending = ((Map<?, ?>) read(offsets, "pendingTransactionalOffsets")).get(batch.producerId());
        if (batch.isControlBatch() && pending != null
                && ControlRecordType.parse(batch.iterator().next().key()) == ControlRecordType.COMMIT) {
            addAll(states, "committed", pending);
        }
    }

    private static void addAll(List<String> states, String name, Object found) throws ReflectiveOperationException {
        Map<?, ?> byGroup = (Map<?, ?>) read(found, "offsetsByGroup");
        byGroup.forEach((group, byTopic) -> ((Map<?, ?>) byTopic).forEach((topic, byPartition) ->
            ((Map<?, ?>) byPartition).forEach((partition, value) -> {
                OffsetAndMetadata offset = (OffsetAndMetadata) value;
                states.add(String.join("\t", name, group.toString(), topic.toString(), partition.toString(),
                    String.valueOf(offset.committedOffset), String.valueOf(offset.leaderEpoch.orElse(-1)),
                    offset.metadata, String.valueOf(offset.commitTimestampMs),
                    String.valueOf(offset.expireTimestampMs.orElse(-1)), offset.topicId.toString(),
                    String.valueOf(offset.recordOffset)));
            })));
    }

    private static Object read(Object owner, String name) throws ReflectiveOperationException {
        Field field = owner.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(owner);
    }
}
