import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;

import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.common.Endpoint;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.message.KRaftVersionRecord;
import org.apache.kafka.common.message.VotersRecord;
import org.apache.kafka.common.metadata.MetadataJsonConverters;
import org.apache.kafka.common.metadata.MetadataRecordType;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.ControlRecordUtils;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.image.TopicImage;
import org.apache.kafka.image.loader.MetadataBatchLoader;
import org.apache.kafka.image.writer.ImageWriterOptions;
import org.apache.kafka.image.writer.RaftSnapshotWriter;
import org.apache.kafka.image.writer.RecordListWriter;
import org.apache.kafka.metadata.BrokerRegistration;
import org.apache.kafka.metadata.ControllerRegistration;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.metadata.SupportedConfigChecker;
import org.apache.kafka.raft.Batch;
import org.apache.kafka.raft.KafkaRaftClient;
import org.apache.kafka.raft.LeaderAndEpoch;
import org.apache.kafka.raft.MetadataLogConfig;
import org.apache.kafka.raft.VoterSet;
import org.apache.kafka.raft.internals.BatchMemoryPool;
import org.apache.kafka.raft.internals.KafkaRaftLog;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.KRaftVersion;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.common.OffsetAndEpoch;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.snapshot.FileRawSnapshotReader;
import org.apache.kafka.snapshot.FileRawSnapshotWriter;
import org.apache.kafka.snapshot.RecordsSnapshotReader;
import org.apache.kafka.snapshot.RecordsSnapshotWriter;

/**
 * Says what image Kafka has of a metadata log at an offset, and writes random metadata logs.
 *
 * <p>A request is a line of words with tabs between them: {@code image LOG OFFSET}, for the image after the record at
 * the offset, {@code records LOG OFFSET LEVEL}, for the records of that image at a level of {@code metadata.version},
 * {@code write LOG SEED BATCHES}, {@code encode TYPE VERSION JSON}, for the bytes of a record, {@code snapshot FROM
 * OFFSET EPOCH TO NOW}, for the image in a snapshot of the directory FROM, which is written again to the directory TO, or
 * {@code load DIRECTORY}, for the end of the log that the Raft layer loads. An answer is lines of a name, a tab and a
 * value: {@code image} as JSON, {@code records} and {@code losses} as JSON, the {@code end} offset of the log (with a
 * space and its epoch), or {@code bytes} in hex; then an empty line.
 */
public final class MetadataServer {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** What control records say. */
    private static final class Quorum {
        private int version = 0;
        private List<Map<String, Object>> voters = List.of();
    }

    private MetadataServer() {
    }

    public static void main(String[] unused) throws IOException {
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] words = line.split("\t");
            if (words[0].equals("image")) {
                Quorum quorum = new Quorum();
                MetadataImage image = image(new File(words[1]), Long.parseLong(words[2]), quorum);
                answers.println("image\t" + JSON.writeValueAsString(described(image, quorum)));
            } else if (words[0].equals("records")) {
                MetadataImage image = image(new File(words[1]), Long.parseLong(words[2]), new Quorum());
                printRecords(image, MetadataVersion.fromFeatureLevel(Short.parseShort(words[3])), answers);
            } else if (words[0].equals("snapshot")) {
                OffsetAndEpoch id = new OffsetAndEpoch(Long.parseLong(words[2]), Integer.parseInt(words[3]));
                Quorum quorum = new Quorum();
                MetadataImage image =
                    copied(Path.of(words[1]), id, Path.of(words[4]), Long.parseLong(words[5]), quorum);
                answers.println("image\t" + JSON.writeValueAsString(described(image, quorum)));
            } else if (words[0].equals("load")) {
                answers.println("end\t" + loaded(new File(words[1])));
            } else if (words[0].equals("encode")) {
                answers.println("bytes\t" + HexFormat.of().formatHex(
                    encoded(Short.parseShort(words[1]), Short.parseShort(words[2]), words[3])));
            } else {
                RandomMetadataLog log = new RandomMetadataLog(Long.parseLong(words[2]));
                Files.write(Path.of(words[1]), log.write(Integer.parseInt(words[3])));
                answers.println("end\t" + log.endOffset());
            }
            answers.println();
            answers.flush();
        }
    }

    private static String loaded(File directory) throws IOException {
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        MetadataLogConfig config = new MetadataLogConfig(new AbstractConfig(MetadataLogConfig.CONFIG_DEF, Map.of()));
        try {
            KafkaRaftLog log = KafkaRaftLog.createLog(new TopicPartition("__cluster_metadata", 0), Uuid.METADATA_TOPIC_ID,
                directory, Time.SYSTEM, scheduler, config, 1);
            String end = log.endOffset().offset() + " " + log.lastFetchedEpoch();
            log.close();
            return end;
        } finally {
            shutDown(scheduler);
        }
    }

    private static void shutDown(KafkaScheduler scheduler) {
        try {
            scheduler.shutdown();
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    private static byte[] encoded(short type, short version, String json) throws IOException {
        ApiMessageAndVersion record = new ApiMessageAndVersion(
            MetadataJsonConverters.readJson(JSON.readTree(json), type, version), version);
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer value = ByteBuffer.allocate(MetadataRecordSerde.INSTANCE.recordSize(record, cache));
        MetadataRecordSerde.INSTANCE.write(record, cache, new ByteBufferAccessor(value));
        return value.array();
    }

    private static void printRecords(MetadataImage image, MetadataVersion version, PrintStream answers)
            throws IOException {
        List<String> losses = new ArrayList<>();
        RecordListWriter writer = new RecordListWriter();
        image.write(writer, new ImageWriterOptions.Builder(version)
            .setEligibleLeaderReplicasEnabled(image.features().isElrEnabled() && version.isElrSupported())
            .setLossHandler(loss -> losses.add(loss.loss())).build());
        List<Object> records = new ArrayList<>();
        for (ApiMessageAndVersion each : writer.records()) {
            records.add(Map.of("type", MetadataRecordType.fromId(each.message().apiKey()).name(),
                "version", each.version(),
                "data", MetadataJsonConverters.writeJson(each.message(), each.version())));
        }
        answers.println("records\t" + JSON.writeValueAsString(records));
        answers.println("losses\t" + JSON.writeValueAsString(losses));
    }

    private static MetadataImage image(File log, long last, Quorum quorum) throws IOException {
        MetadataImage[] image = {MetadataImage.EMPTY};
        MetadataBatchLoader loader = new MetadataBatchLoader(new LogContext(), Time.SYSTEM,
            (what, fault) -> new RuntimeException(what, fault), (delta, changed, manifest) -> image[0] = changed,
            SupportedConfigChecker.TRUE);
        try (FileRecords records = FileRecords.open(log)) {
            for (RecordBatch batch : records.batches()) {
                if (batch.baseOffset() > last) {
                    break;
                }
                List<ApiMessageAndVersion> messages = new ArrayList<>();
                for (Record record : batch) {
                    if (record.offset() > last) {
                        break;
                    }
                    if (batch.isControlBatch()) {
                        take(record, quorum);
                    } else {
                        messages.add(MetadataRecordSerde.INSTANCE.read(
                            new ByteBufferAccessor(record.value()), record.valueSize()));
                    }
                }
                if (!messages.isEmpty()) {
                    loader.loadBatch(Batch.data(batch.baseOffset(), batch.partitionLeaderEpoch(), batch.maxTimestamp(),
                        batch.sizeInBytes(), messages), LeaderAndEpoch.UNKNOWN);
                    loader.maybeFlushBatches(LeaderAndEpoch.UNKNOWN, true);
                }
            }
        }
        return image[0];
    }

    private static MetadataImage copied(Path from, OffsetAndEpoch id, Path to, long now, Quorum quorum) {
        MetadataDelta delta = new MetadataDelta.Builder().setImage(MetadataImage.EMPTY).build();
        List<ApiMessageAndVersion> records = new ArrayList<>();
        long timestamp;
        VotersRecord[] voters = {null};
        try (RecordsSnapshotReader<ApiMessageAndVersion> reader = RecordsSnapshotReader.of(
                FileRawSnapshotReader.open(from, id), MetadataRecordSerde.INSTANCE, BufferSupplier.create(),
                KafkaRaftClient.MAX_BATCH_SIZE_BYTES, true, new LogContext())) {
            timestamp = reader.lastContainedLogTimestamp();
            while (reader.hasNext()) {
                Batch<ApiMessageAndVersion> batch = reader.next();
                records.addAll(batch.records());
                batch.controlRecords().forEach(each -> {
                    if (each.type() == ControlRecordType.KRAFT_VERSION) {
                        quorum.version = ((KRaftVersionRecord) each.message()).kRaftVersion();
                    } else if (each.type() == ControlRecordType.KRAFT_VOTERS) {
                        voters[0] = (VotersRecord) each.message();
                        take(voters[0], quorum);
                    }
                });
            }
        }
        records.forEach(each -> delta.replay(each.message()));
        RecordsSnapshotWriter<ApiMessageAndVersion> writer = new RecordsSnapshotWriter.Builder()
            .setLastContainedLogTimestamp(timestamp).setTime(new LoaderServer.StoppedClock(now))
            .setMaxBatchSizeBytes(KafkaRaftClient.MAX_BATCH_SIZE_BYTES)
            .setMemoryPool(new BatchMemoryPool(5, KafkaRaftClient.MAX_BATCH_SIZE_BYTES))
            .setRawSnapshotWriter(FileRawSnapshotWriter.create(to, id))
            .setKraftVersion(KRaftVersion.fromFeatureLevel((short) quorum.version))
            .setVoterSet(Optional.ofNullable(voters[0]).map(VoterSet::fromVotersRecord))
            .build(MetadataRecordSerde.INSTANCE);
        RaftSnapshotWriter snapshot = new RaftSnapshotWriter(writer, 1024);
        records.forEach(snapshot::write);
        snapshot.close(true);
        return delta.apply(new MetadataProvenance(id.offset() - 1, id.epoch(), timestamp, true));
    }

    private static void take(Record record, Quorum quorum) {
        switch (ControlRecordType.parse(record.key())) {
            case KRAFT_VERSION:
                quorum.version = ControlRecordUtils.deserializeKRaftVersionRecord(record).kRaftVersion();
                break;
            case KRAFT_VOTERS:
                take(ControlRecordUtils.deserializeVotersRecord(record), quorum);
                break;
            default:
        }
    }

    private static void take(VotersRecord record, Quorum quorum) {
        quorum.voters = record.voters().stream()
            .sorted(Comparator.comparingInt(voter -> voter.voterId()))
            .map(voter -> Map.<String, Object>of(
                "id", voter.voterId(),
                "directory_id", voter.voterDirectoryId().toString(),
                "endpoints", voter.endpoints().stream()
                    .map(each -> each.name() + "://" + each.host() + ":" + each.port()).sorted().toList()))
            .toList();
    }

    private static Map<String, Object> described(MetadataImage image, Quorum quorum) {
        Map<String, Object> all = new TreeMap<>();
        all.put("kraft_version", quorum.version);
        all.put("voters", quorum.voters);
        all.put("next_producer_id", image.producerIds().nextProducerId());
        all.put("topics", image.topics().topicsById().values().stream()
            .sorted(Comparator.comparing(TopicImage::name)).map(MetadataServer::described).toList());
        Map<String, Object> configs = new TreeMap<>();
        image.configs().resourceData().forEach((resource, config) -> configs.put(
            resource.type().name().toLowerCase() + ":" + resource.name(), new TreeMap<>(config.data())));
        all.put("configs", configs);
        Map<String, Object> features = new TreeMap<>(image.features().finalizedVersions());
        image.features().metadataVersion().ifPresent(it -> features.put("metadata.version", it.featureLevel()));
        if (quorum.version > 0) {
            features.put("kraft.version", quorum.version);
        }
        all.put("features", features);
        Map<Uuid, Object> acls = new LinkedHashMap<>();
        image.acls().acls().forEach((id, acl) -> acls.put(id, Map.of("id", id.toString(), "resource_type",
            acl.resourceType().name(), "resource_name", acl.resourceName(), "pattern_type", acl.patternType().name(),
            "principal", acl.principal(), "host", acl.host(), "operation", acl.operation().name(),
            "permission_type", acl.permissionType().name())));
        all.put("acls", acls.values());
        List<Object> users = new ArrayList<>();
        image.scram().mechanisms().forEach((mechanism, byName) -> byName.forEach((name, credential) -> users.add(
            Map.of("name", name, "mechanism", mechanism.name().replace('_', '-'), "iterations",
                credential.iterations()))));
        all.put("scram", users);
        List<Object> quotas = new ArrayList<>();
        image.clientQuotas().entities().forEach((entity, quota) -> quotas.add(
            Map.of("entity", new TreeMap<>(entity.entries()), "quotas", new TreeMap<>(quota.quotas()))));
        all.put("quotas", quotas);
        all.put("delegation_tokens", image.delegationTokens().tokens().values().stream()
            .map(each -> each.tokenInformation())
            .map(each -> Map.of("token_id", each.tokenId(), "owner", each.ownerAsString(), "requester",
                each.tokenRequester().toString(), "renewers", List.copyOf(each.renewersAsString()),
                "issue_timestamp_ms", each.issueTimestamp(), "max_timestamp_ms", each.maxTimestamp(),
                "expiration_timestamp_ms", each.expiryTimestamp()))
            .toList());
        all.put("brokers", new TreeMap<>(image.cluster().brokers()).values().stream()
            .map(MetadataServer::described).toList());
        all.put("controllers", new TreeMap<>(image.cluster().controllers()).values().stream()
            .map(MetadataServer::described).toList());
        return all;
    }

    private static Map<String, Object> described(TopicImage topic) {
        List<Object> partitions = new ArrayList<>();
        new TreeMap<>(topic.partitions()).forEach((number, partition) -> {
            Map<String, Object> row = described(partition);
            row.put("partition", number);
            partitions.add(row);
        });
        return Map.of("name", topic.name(), "id", topic.id().toString(), "partitions", partitions);
    }

    private static Map<String, Object> described(PartitionRegistration partition) {
        Map<String, Object> row = new TreeMap<>();
        row.put("replicas", partition.replicas);
        row.put("isr", partition.isr);
        row.put("elr", partition.elr);
        row.put("last_known_elr", partition.lastKnownElr);
        row.put("removing_replicas", partition.removingReplicas);
        row.put("adding_replicas", partition.addingReplicas);
        row.put("directories", texts(List.of(partition.directories)));
        row.put("leader", partition.leader);
        row.put("leader_epoch", partition.leaderEpoch);
        row.put("partition_epoch", partition.partitionEpoch);
        row.put("leader_recovery_state", partition.leaderRecoveryState.name());
        return row;
    }

    private static Map<String, Object> described(BrokerRegistration broker) {
        Map<String, Object> row = new TreeMap<>();
        row.put("id", broker.id());
        row.put("epoch", broker.epoch());
        row.put("fenced", broker.fenced());
        row.put("in_controlled_shutdown", broker.inControlledShutdown());
        row.put("directories", texts(broker.directories()));
        row.put("cordoned_directories",
            broker.cordonedDirectories() == null ? null : texts(broker.cordonedDirectories()));
        row.put("rack", broker.rack().orElse(null));
        row.put("incarnation_id", broker.incarnationId().toString());
        row.put("endpoints", endpoints(broker.listeners()));
        return row;
    }

    private static Map<String, Object> described(ControllerRegistration controller) {
        return Map.of("id", controller.id(), "incarnation_id", controller.incarnationId().toString(),
            "zk_migration_ready", controller.zkMigrationReady(), "endpoints", endpoints(controller.listeners()));
    }

    private static List<String> endpoints(Map<String, Endpoint> listeners) {
        return new TreeMap<>(listeners).values().stream()
            .map(each -> each.listener() + "://" + each.host() + ":" + each.port()).toList();
    }

    private static List<String> texts(List<Uuid> ids) {
        return ids.stream().map(Uuid::toString).toList();
    }
}
