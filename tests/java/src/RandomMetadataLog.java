import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.function.IntFunction;
import java.util.stream.IntStream;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.KRaftVersionRecord;
import org.apache.kafka.common.message.VotersRecord;
import org.apache.kafka.common.metadata.AbortTransactionRecord;
import org.apache.kafka.common.metadata.AccessControlEntryRecord;
import org.apache.kafka.common.metadata.BeginTransactionRecord;
import org.apache.kafka.common.metadata.BrokerRegistrationChangeRecord;
import org.apache.kafka.common.metadata.ClearElrRecord;
import org.apache.kafka.common.metadata.ClientQuotaRecord;
import org.apache.kafka.common.metadata.ConfigRecord;
import org.apache.kafka.common.metadata.DelegationTokenRecord;
import org.apache.kafka.common.metadata.EndTransactionRecord;
import org.apache.kafka.common.metadata.FeatureLevelRecord;
import org.apache.kafka.common.metadata.FenceBrokerRecord;
import org.apache.kafka.common.metadata.NoOpRecord;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.ProducerIdsRecord;
import org.apache.kafka.common.metadata.RegisterBrokerRecord;
import org.apache.kafka.common.metadata.RegisterControllerRecord;
import org.apache.kafka.common.metadata.RemoveAccessControlEntryRecord;
import org.apache.kafka.common.metadata.RemoveDelegationTokenRecord;
import org.apache.kafka.common.metadata.RemoveTopicRecord;
import org.apache.kafka.common.metadata.RemoveUserScramCredentialRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.metadata.UnfenceBrokerRecord;
import org.apache.kafka.common.metadata.UnregisterBrokerRecord;
import org.apache.kafka.common.metadata.UserScramCredentialRecord;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/**
 * A metadata log of random records of all types and versions, metadata transactions and control records among them.
 *
 * <p>Now and then a record does not apply: it names a partition, a topic, a broker or an ACL that does not exist. In a
 * transaction, which Kafka applies as a whole, there is no topic that does not exist, since Kafka would apply nothing of
 * it, and no deletion, since Kafka keeps what it deletes if the same transaction created it.
 */
final class RandomMetadataLog {
    private static final Uuid NOBODY = new Uuid(0, 999);

    private final Random random;
    private final ByteArrayOutputStream log = new ByteArrayOutputStream();
    private final List<Uuid> topics = new ArrayList<>();
    private final List<Uuid> acls = new ArrayList<>();
    private final long[] brokerEpochs = {-1, -1, -1, -1};
    private long endOffset = 0;
    private int created = 0;
    private boolean isInTransaction = false;
    private int topicsBefore = 0;

    RandomMetadataLog(long seed) {
        random = new Random(seed);
    }

    long endOffset() {
        return endOffset;
    }

    byte[] write(int batches) {
        for (int batch = 0; batch < batches; batch++) {
            int kind = random.nextInt(30);
            if (kind == 0) {
                writeControl();
            } else if (kind < 4 && !isInTransaction) {
                append(new BeginTransactionRecord().setName(random.nextBoolean() ? null : "t"), 0);
                isInTransaction = true;
                topicsBefore = topics.size();
            } else if (kind < 7) {
                // Without a transaction this does not apply.
                boolean isCommitted = random.nextBoolean();
                append(isCommitted ? new EndTransactionRecord() : new AbortTransactionRecord(), 0);
                if (isInTransaction && !isCommitted) {
                    topics.subList(topicsBefore, topics.size()).clear();
                }
                isInTransaction = false;
            } else {
                appendRandom();
            }
        }
        return log.toByteArray();
    }

    private void writeControl() {
        ByteBuffer buffer = ByteBuffer.allocate(1 << 16);
        if (random.nextBoolean()) {
            write(MemoryRecords.withKRaftVersionRecord(endOffset, timestamp(), epoch(), buffer,
                new KRaftVersionRecord().setKRaftVersion((short) 1)));
        } else {
            VotersRecord voters = new VotersRecord();
            for (int id = 0; id <= random.nextInt(3); id++) {
                VotersRecord.EndpointCollection endpoints = new VotersRecord.EndpointCollection();
                endpoints.add(new VotersRecord.Endpoint().setName("C").setHost("h" + id).setPort(9000 + id));
                voters.voters().add(new VotersRecord.Voter().setVoterId(3000 + id).setVoterDirectoryId(id(id))
                    .setEndpoints(endpoints));
            }
            write(MemoryRecords.withVotersRecord(endOffset, timestamp(), epoch(), buffer, voters));
        }
    }

    private void append(ApiMessage message, int version) {
        ApiMessageAndVersion record = new ApiMessageAndVersion(message, (short) version);
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer value = ByteBuffer.allocate(MetadataRecordSerde.INSTANCE.recordSize(record, cache));
        MetadataRecordSerde.INSTANCE.write(record, cache, new ByteBufferAccessor(value));
        value.flip();
        write(MemoryRecords.withRecords(endOffset, Compression.NONE, epoch(),
            new SimpleRecord(timestamp(), null, value.array())));
    }

    private void write(MemoryRecords records) {
        ByteBuffer buffer = records.buffer();
        log.write(buffer.array(), buffer.arrayOffset() + buffer.position(), buffer.remaining());
        endOffset++;
    }

    private int epoch() {
        return (int) (endOffset / 40);
    }

    private long timestamp() {
        return 1_700_000_000_000L + 1000 * endOffset;
    }

    private void appendRandom() {
        switch (random.nextInt(22)) {
            case 0, 1 -> append(newTopic(), 0);
            case 2, 3, 4 -> partition();
            case 5, 6, 7, 8 -> partitionChange();
            case 9 -> removeTopic();
            case 10 -> append(new ConfigRecord().setResourceType(one((byte) 2, (byte) 4, (byte) 16, (byte) 32))
                .setResourceName(random.nextInt(4) == 0 ? "" : "t" + random.nextInt(3)).setName("c" + random.nextInt(3))
                .setValue(random.nextInt(3) == 0 ? null : "v" + random.nextInt(9)), 0);
            case 11 -> registerBroker();
            case 12, 13 -> changeBroker();
            case 14 -> append(random.nextBoolean()
                ? new FeatureLevelRecord().setName("metadata.version")
                    .setFeatureLevel((short) (7 + random.nextInt(20)))
                : new FeatureLevelRecord().setName(one("a.version", "kraft.version", "eligible.leader.replicas.version"))
                    .setFeatureLevel((short) random.nextInt(2)), 0);
            case 15 -> append(new ClientQuotaRecord().setEntity(entity()).setKey("q" + random.nextInt(2))
                .setValue(random.nextInt(9)).setRemove(random.nextInt(3) == 0), 0);
            case 16 -> append(new ProducerIdsRecord().setBrokerId(1).setNextProducerId(random.nextInt(99999)), 0);
            case 17 -> acl();
            case 18 -> scram();
            case 19 -> token();
            case 20 -> append(random.nextBoolean() ? new NoOpRecord()
                : new ClearElrRecord().setTopicName(one("", "nobody")), 0);
            default -> append(newController(), 0);
        }
    }

    private TopicRecord newTopic() {
        Uuid topic = id(100 + created);
        topics.add(topic);
        return new TopicRecord().setName("t" + created++).setTopicId(topic);
    }

    private void removeTopic() {
        if (isInTransaction || topics.isEmpty()) {
            append(new RemoveTopicRecord().setTopicId(NOBODY), 0);
        } else {
            append(new RemoveTopicRecord().setTopicId(topics.remove(random.nextInt(topics.size()))), 0);
        }
    }

    private void partition() {
        int replicas = 1 + random.nextInt(3);
        PartitionRecord record = new PartitionRecord().setTopicId(topic()).setPartitionId(random.nextInt(3))
            .setReplicas(numbers(replicas)).setIsr(numbers(random.nextInt(replicas + 1)))
            .setLeader(random.nextInt(4) - 1).setLeaderEpoch(random.nextInt(5)).setPartitionEpoch(random.nextInt(5))
            .setLeaderRecoveryState((byte) random.nextInt(2));
        if (random.nextInt(3) == 0) {
            record.setAddingReplicas(numbers(1)).setRemovingReplicas(numbers(1));
        }
        int version = random.nextInt(3);
        if (version >= 1 && random.nextBoolean()) {
            // Sometimes one too few.
            record.setDirectories(ids(replicas - (random.nextInt(6) == 0 ? 1 : 0)));
        }
        if (version >= 2) {
            record.setEligibleLeaderReplicas(one(null, numbers(1))).setLastKnownElr(one(null, numbers(1)));
        }
        append(record, version);
    }

    private void partitionChange() {
        PartitionChangeRecord record =
            new PartitionChangeRecord().setTopicId(topic()).setPartitionId(random.nextInt(3));
        if (random.nextBoolean()) {
            record.setIsr(numbers(random.nextInt(4)));
        }
        if (random.nextBoolean()) {
            record.setLeader(random.nextInt(4) - 1);
        }
        if (random.nextInt(4) == 0) {
            record.setReplicas(numbers(1 + random.nextInt(3)));
        }
        if (random.nextInt(4) == 0) {
            record.setAddingReplicas(numbers(random.nextInt(2))).setRemovingReplicas(numbers(random.nextInt(2)));
        }
        if (random.nextInt(4) == 0) {
            record.setLeaderRecoveryState((byte) (random.nextInt(4) - 1));
        }
        int version = random.nextInt(3);
        if (version >= 1 && random.nextInt(3) == 0) {
            record.setDirectories(ids(random.nextInt(4)));
        }
        if (version >= 2 && random.nextBoolean()) {
            record.setEligibleLeaderReplicas(numbers(random.nextInt(2))).setLastKnownElr(numbers(random.nextInt(2)));
        }
        append(record, version);
    }

    private void registerBroker() {
        int id = random.nextInt(brokerEpochs.length);
        brokerEpochs[id] = endOffset;
        RegisterBrokerRecord record = new RegisterBrokerRecord().setBrokerId(id).setBrokerEpoch(endOffset)
            .setIncarnationId(id(random.nextInt(99))).setRack(one(null, "r")).setFenced(random.nextBoolean());
        record.features().add(new RegisterBrokerRecord.BrokerFeature().setName("metadata.version")
            .setMinSupportedVersion((short) 7).setMaxSupportedVersion((short) (7 + random.nextInt(9))));
        RegisterBrokerRecord.BrokerEndpointCollection endpoints = new RegisterBrokerRecord.BrokerEndpointCollection();
        for (String name : List.of("P", "A")) {
            endpoints.add(new RegisterBrokerRecord.BrokerEndpoint().setName(name).setHost("h").setPort(id)
                .setSecurityProtocol((short) random.nextInt(4)));
        }
        record.setEndPoints(endpoints);
        int version = random.nextInt(5);
        if (version >= 2) {
            record.setIsMigratingZkBroker(random.nextInt(4) == 0);
        }
        if (version >= 3) {
            record.setLogDirs(ids(random.nextInt(3)));
        }
        if (version >= 4 && random.nextBoolean()) {
            record.setCordonedLogDirs(ids(1));
        }
        append(record, version);
    }

    private RegisterControllerRecord newController() {
        RegisterControllerRecord record = new RegisterControllerRecord().setControllerId(3000 + random.nextInt(3))
            .setIncarnationId(id(random.nextInt(9))).setZkMigrationReady(random.nextBoolean());
        record.endPoints().add(new RegisterControllerRecord.ControllerEndpoint().setName("C").setHost("h")
            .setPort(random.nextInt(65536)).setSecurityProtocol((short) random.nextInt(4)));
        record.features().add(new RegisterControllerRecord.ControllerFeature().setName("kraft.version")
            .setMinSupportedVersion((short) 0).setMaxSupportedVersion((short) random.nextInt(2)));
        return record;
    }

    private void changeBroker() {
        int id = random.nextInt(brokerEpochs.length);
        long epoch = random.nextInt(6) == 0 ? 12345 : brokerEpochs[id];
        switch (random.nextInt(4)) {
            case 0 -> append(new FenceBrokerRecord().setId(id).setEpoch(epoch), 0);
            case 1 -> append(new UnfenceBrokerRecord().setId(id).setEpoch(epoch), 0);
            case 2 -> append(new UnregisterBrokerRecord().setBrokerId(id).setBrokerEpoch(epoch), 0);
            default -> {
                int version = random.nextInt(4);
                BrokerRegistrationChangeRecord record = new BrokerRegistrationChangeRecord().setBrokerId(id)
                    .setBrokerEpoch(epoch).setFenced((byte) (random.nextInt(4) - 1));
                if (version >= 1) {
                    record.setInControlledShutdown((byte) random.nextInt(2));
                }
                if (version >= 2) {
                    record.setLogDirs(ids(random.nextInt(3)));
                }
                if (version >= 3 && random.nextBoolean()) {
                    record.setCordonedLogDirs(ids(random.nextInt(2)));
                }
                append(record, version);
            }
        }
    }

    private List<ClientQuotaRecord.EntityData> entity() {
        List<ClientQuotaRecord.EntityData> entity = new ArrayList<>();
        entity.add(new ClientQuotaRecord.EntityData().setEntityType("user").setEntityName(one(null, "u")));
        if (random.nextBoolean()) {
            entity.add(0, new ClientQuotaRecord.EntityData().setEntityType("client-id").setEntityName("c"));
        }
        return entity;
    }

    private void acl() {
        if (!acls.isEmpty() && random.nextBoolean()) {
            boolean isKnown = random.nextInt(4) > 0 && !isInTransaction;
            Uuid id = isKnown ? acls.remove(random.nextInt(acls.size())) : NOBODY;
            append(new RemoveAccessControlEntryRecord().setId(id), 0);
            return;
        }
        Uuid id = id(random.nextInt(1000) + 5000);
        if (!acls.contains(id)) {
            acls.add(id);
        }
        append(new AccessControlEntryRecord().setId(id).setResourceType((byte) random.nextInt(9))
            .setResourceName("r").setPatternType((byte) random.nextInt(6)).setPrincipal("User:a").setHost("*")
            .setOperation((byte) random.nextInt(18)).setPermissionType((byte) random.nextInt(5)), 0);
    }

    private void scram() {
        byte mechanism = (byte) (1 + random.nextInt(2));
        String name = "u" + random.nextInt(3);
        if (random.nextInt(3) == 0) {
            append(new RemoveUserScramCredentialRecord().setName(name).setMechanism(mechanism), 0);
        } else {
            append(new UserScramCredentialRecord().setName(name).setMechanism(mechanism).setSalt(bytes())
                .setStoredKey(bytes()).setServerKey(bytes()).setIterations(random.nextInt(9999)), 0);
        }
    }

    private byte[] bytes() {
        byte[] bytes = new byte[random.nextInt(40)];
        random.nextBytes(bytes);
        return bytes;
    }

    private void token() {
        String id = "k" + random.nextInt(3);
        if (random.nextInt(3) == 0) {
            append(new RemoveDelegationTokenRecord().setTokenId(id), 0);
        } else {
            append(new DelegationTokenRecord().setTokenId(id).setOwner("User:o").setRequester("User:q")
                .setRenewers(List.of("User:r")).setIssueTimestamp(1).setMaxTimestamp(3)
                .setExpirationTimestamp(random.nextInt(99)), 0);
        }
    }

    private Uuid topic() {
        if (isInTransaction) {
            if (topics.isEmpty()) {
                append(newTopic(), 0);
            }
            return topics.get(random.nextInt(topics.size()));
        }
        return topics.isEmpty() || random.nextInt(12) == 0 ? NOBODY : topics.get(random.nextInt(topics.size()));
    }

    private List<Integer> numbers(int count) {
        int first = random.nextInt(3);
        return IntStream.range(first, first + count).boxed().toList();
    }

    private List<Uuid> ids(int count) {
        IntFunction<Uuid> any = unused -> new Uuid(random.nextLong(), random.nextLong());
        return IntStream.range(0, count).mapToObj(any).toList();
    }

    private static Uuid id(long number) {
        return new Uuid(0, number);
    }

    @SafeVarargs
    private <T> T one(T... choices) {
        return choices[random.nextInt(choices.length)];
    }
}
