import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.UserScramCredentialAlteration;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Clients of a cluster; requests of {@link ClusterHost}.
 *
 * <p>{@code connect} says where the cluster is. Producers and members of groups stay until they are closed, or the JVM
 * ends. A partition is {@code [topic, number]}.
 */
final class ClusterClients {
    private static final Duration PATIENCE = Duration.ofMillis(ClusterHost.PATIENCE_MS);
    private static final long GLANCE_MS = 20;

    private final Map<String, KafkaProducer<String, String>> producers = new HashMap<>();
    private final Map<String, KafkaConsumer<String, String>> members = new HashMap<>();
    private Map<String, Object> address = Map.of();
    private Admin admin;

    Object answer(JsonNode request) throws Exception {
        return switch (request.get("do").textValue()) {
            case "connect" -> connect(request);
            case "committed" -> awaitCommitted(text(request, "controllers"));
            case "describe" -> answered(() -> new ClusterDescription(admin).all(request.get("wait_for")));
            case "offsets" -> new ClusterDescription(admin).offsets(request);
            case "wait" -> awaitReplicas(request.get("replicas").textValue(), request.get("topics"));
            case "leads" -> awaitLeader(partition(request.get("partition")), request.get("leader").intValue());
            case "ends" -> awaitEnds(partition(request.get("partition")));
            case "transaction" -> awaitTransaction(text(request, "transactional_id"), text(request, "state"));
            case "producers" -> admin.describeProducers(List.of(partition(request.get("partition"))))
                .partitionResult(partition(request.get("partition"))).get().activeProducers().stream()
                .map(each -> List.of(each.producerId(), each.producerEpoch(), each.lastSequence())).toList();
            case "state" -> awaitState(text(request, "state"), ClusterHost.words(request.get("groups")));
            case "create" -> create(request);
            case "expand" -> done(admin.createPartitions(Map.of(text(request, "topic"),
                NewPartitions.increaseTo(request.get("partitions").intValue()))).all());
            case "delete" -> done(admin.deleteTopics(List.of(text(request, "topic"))).all());
            case "delete_records" -> done(admin.deleteRecords(Map.of(partition(request.get("partition")),
                RecordsToDelete.beforeOffset(request.get("offset").longValue()))).all());
            case "elect" -> elect(Set.copyOf(partitions(request.get("partitions"))), request.get("leader").intValue());
            case "configure" -> configure(request);
            case "acl" -> done(admin.createAcls(List.of(new AclBinding(
                new ResourcePattern(ResourceType.fromString(text(request, "resource_type")), text(request, "name"),
                    PatternType.fromString(text(request, "pattern"))),
                new AccessControlEntry(text(request, "principal"), "*", AclOperation.fromString(
                    text(request, "operation")), AclPermissionType.ALLOW)))).all());
            case "scram" -> scram(request);
            case "quota" -> done(admin.alterClientQuotas(List.of(new ClientQuotaAlteration(
                new ClientQuotaEntity(Map.of("user", text(request, "user"))), List.of(new ClientQuotaAlteration.Op(
                    text(request, "name"), request.get("value").doubleValue()))))).all());
            case "commit_offsets" -> done(admin.alterConsumerGroupOffsets(
                text(request, "group"), offsets(request.get("offsets"))).all());
            default -> ofClients(request);
        };
    }

    private Object ofClients(JsonNode request) throws Exception {
        switch (request.get("do").textValue()) {
            case "open" -> open(request);
            case "begin" -> producer(request).beginTransaction();
            case "commit" -> producer(request).commitTransaction();
            case "abort" -> producer(request).abortTransaction();
            case "close" -> producers.remove(text(request, "producer")).close();
            case "send" -> {
                return send(request);
            }
            case "transactional_offsets" -> producer(request).sendOffsetsToTransaction(
                offsets(request.get("offsets")), new ConsumerGroupMetadata(text(request, "group")));
            case "read" -> {
                return read(request);
            }
            case "join" -> join(request);
            case "leave" -> members.remove(text(request, "member")).close();
            case "share" -> {
                return share(request);
            }
            case "topics" -> {
                try (Admin other = Admin.create(configs(request))) {
                    return other.listTopics().names().get();
                }
            }
            default -> throw new IllegalArgumentException(request.toString());
        }
        return true;
    }

    private static Object done(Future<?> what) throws Exception {
        what.get();
        return true;
    }

    private static String text(JsonNode request, String name) {
        return request.get(name).textValue();
    }

    private static TopicPartition partition(JsonNode pair) {
        return new TopicPartition(pair.get(0).textValue(), pair.get(1).intValue());
    }

    private static List<TopicPartition> partitions(JsonNode pairs) {
        List<TopicPartition> found = new ArrayList<>();
        pairs.forEach(pair -> found.add(partition(pair)));
        return found;
    }

    /** Committed offsets: [topic, partition, offset, text]. */
    private static Map<TopicPartition, OffsetAndMetadata> offsets(JsonNode rows) {
        Map<TopicPartition, OffsetAndMetadata> found = new HashMap<>();
        rows.forEach(row -> found.put(partition(row), new OffsetAndMetadata(
            row.get(2).longValue(), Optional.empty(), row.get(3).textValue())));
        return found;
    }

    /** The configuration of a client: the address, and what the request says. */
    private Map<String, Object> configs(JsonNode request) {
        Map<String, Object> all = new HashMap<>(address);
        if (request.has("configs")) {
            request.get("configs").properties().forEach(each -> all.put(each.getKey(), each.getValue().asText()));
        }
        return all;
    }

    // ---- The cluster -----------------------------------------------------------------------------------------------

    private Object connect(JsonNode request) {
        if (admin != null) {
            admin.close(Duration.ZERO);
        }
        address = address("bootstrap.servers", text(request, "bootstrap"));
        admin = Admin.create(address);
        return true;
    }

    private static Map<String, Object> address(String property, String addresses) {
        return Map.of(property, addresses, "reconnect.backoff.max.ms", "200",
            "reconnect.backoff.ms", "20", "retry.backoff.ms", "20", "retry.backoff.max.ms", "200");
    }

    /**
     * Waits until controllers have a leader, and have committed the first records that it wrote. Those that have not
     * read these records yet refuse the question, and a client that was refused never asks again: each has two seconds.
     */
    private static Object awaitCommitted(String controllers) throws Exception {
        return await(() -> {
            long committed = 0;
            Map<String, Object> client = new HashMap<>(address("bootstrap.controllers", controllers));
            client.put("request.timeout.ms", "2000");
            client.put("default.api.timeout.ms", "2000");
            try (Admin quorum = Admin.create(client)) {
                committed = quorum.describeMetadataQuorum().quorumInfo().get().highWatermark();
            } catch (ExecutionException failure) {
                if (!(failure.getCause() instanceof UnsupportedVersionException)) {
                    throw failure;
                }
            }
            return committed > 0 ? null : "the controllers have committed nothing";
        });
    }

    /** Asks what is still missing until nothing is, which is null. */
    private static Object await(Callable<String> missing) throws Exception {
        String found = "";
        for (long deadline = System.currentTimeMillis() + PATIENCE.toMillis(); System.currentTimeMillis() < deadline;) {
            found = answered(missing);
            if (found == null) {
                return true;
            }
            Thread.sleep(GLANCE_MS);
        }
        throw new IllegalStateException(found);
    }

    /**
     * Asks until nothing fails that passes by itself: a broker that has not read all of the metadata yet does not know
     * what another one has just named.
     */
    private static <T> T answered(Callable<T> question) throws Exception {
        long deadline = System.currentTimeMillis() + PATIENCE.toMillis();
        while (true) {
            try {
                return question.call();
            } catch (ExecutionException failure) {
                boolean passes = failure.getCause() instanceof RetriableException;
                if (!passes || System.currentTimeMillis() > deadline) {
                    throw failure;
                }
            }
            Thread.sleep(GLANCE_MS);
        }
    }

    /** Waits until partitions have leaders, and all their replicas are in sync if {@code replicas} is "all". */
    private Object awaitReplicas(String replicas, JsonNode topics) throws Exception {
        return await(() -> {
            Set<String> names = new HashSet<>(
                topics.isNull() ? admin.listTopics().names().get() : ClusterHost.words(topics));
            Collection<String> unready = new ArrayList<>();
            for (TopicDescription topic : admin.describeTopics(names).allTopicNames().get().values()) {
                for (TopicPartitionInfo each : topic.partitions()) {
                    boolean isReady = each.leader() != null && !each.leader().isEmpty()
                        && (!replicas.equals("all") || each.isr().size() == each.replicas().size());
                    if (!isReady) {
                        unready.add(topic.name() + "-" + each.partition());
                    }
                }
            }
            return unready.isEmpty() ? null : "not ready: " + unready;
        });
    }

    /** Waits until no transaction is open in a partition: a commit returns before its markers are written. */
    private Object awaitEnds(TopicPartition partition) throws Exception {
        return await(() -> {
            long[] ends = new long[2];
            for (IsolationLevel level : IsolationLevel.values()) {
                ends[level.ordinal()] = admin.listOffsets(
                    Map.of(partition, OffsetSpec.latest()), new ListOffsetsOptions(level)
                ).partitionResult(partition).get().offset();
            }
            return ends[0] == ends[1] ? null : "a transaction is open in " + partition;
        });
    }

    /** Waits until the coordinator of a transactional id has it in a state. */
    private Object awaitTransaction(String id, String state) throws Exception {
        return await(() -> {
            String found = admin.describeTransactions(List.of(id)).description(id).get().state().toString();
            return found.equals(state) ? null : id + " is " + found;
        });
    }

    /** Waits until groups are listed in a state. */
    private Object awaitState(String state, List<String> groups) throws Exception {
        return await(() -> {
            long count = admin.listGroups().all().get().stream().filter(each -> groups.contains(each.groupId())
                && each.groupState().map(Object::toString).orElse("").equals(state)).count();
            return count == groups.size() ? null : "groups are not " + state;
        });
    }

    private Object awaitLeader(TopicPartition partition, int leader) throws Exception {
        return await(() -> {
            Node found = admin.describeTopics(List.of(partition.topic())).allTopicNames().get().get(partition.topic())
                .partitions().get(partition.partition()).leader();
            int id = found == null ? -1 : found.id();
            return id == leader ? null : "broker " + leader + " does not lead " + partition;
        });
    }

    /** Elects leaders, clean or not, until a broker leads all these partitions: the only one that is not fenced. */
    private Object elect(Set<TopicPartition> partitions, int leader) throws Exception {
        Set<String> topics = new HashSet<>();
        partitions.forEach(each -> topics.add(each.topic()));
        return await(() -> {
            admin.electLeaders(ElectionType.UNCLEAN, partitions).partitions().get();
            boolean isElected = true;
            for (TopicDescription topic : admin.describeTopics(topics).allTopicNames().get().values()) {
                for (TopicPartitionInfo each : topic.partitions()) {
                    isElected &= !partitions.contains(new TopicPartition(topic.name(), each.partition()))
                        || each.leader() != null && each.leader().id() == leader;
                }
            }
            return isElected ? null : "broker " + leader + " is not elected";
        });
    }

    private Object create(JsonNode request) throws Exception {
        List<NewTopic> topics = new ArrayList<>();
        for (JsonNode each : request.get("topics")) {
            Map<String, String> configs = new HashMap<>();
            each.get("configs").properties().forEach(one -> configs.put(one.getKey(), one.getValue().asText()));
            String name = text(each, "name");
            NewTopic topic;
            if (each.get("assignment").isNull()) {
                topic = new NewTopic(name, each.get("partitions").intValue(), each.get("replicas").shortValue());
            } else {
                Map<Integer, List<Integer>> assignment = new TreeMap<>();
                for (JsonNode replicas : each.get("assignment")) {
                    List<Integer> ids = new ArrayList<>();
                    replicas.forEach(id -> ids.add(id.intValue()));
                    assignment.put(assignment.size(), ids);
                }
                topic = new NewTopic(name, assignment);
            }
            topics.add(topic.configs(configs));
        }
        return done(admin.createTopics(topics).all());
    }

    private Object configure(JsonNode request) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        request.get("set").properties().forEach(each -> changes.add(new AlterConfigOp(
            new ConfigEntry(each.getKey(), each.getValue().asText()), AlterConfigOp.OpType.SET)));
        ConfigResource resource =
            new ConfigResource(ConfigResource.Type.valueOf(text(request, "type")), text(request, "name"));
        return done(admin.incrementalAlterConfigs(Map.of(resource, changes)).all());
    }

    private Object scram(JsonNode request) throws Exception {
        UserScramCredentialAlteration change = new UserScramCredentialUpsertion(text(request, "user"),
            new ScramCredentialInfo(ScramMechanism.fromMechanismName(text(request, "mechanism")), 4096),
            text(request, "password"));
        return done(admin.alterUserScramCredentials(List.of(change)).all());
    }

    // ---- Producers -------------------------------------------------------------------------------------------------

    private KafkaProducer<String, String> producer(JsonNode request) {
        return producers.get(text(request, "producer"));
    }

    private void open(JsonNode request) {
        Map<String, Object> all = configs(request);
        KafkaProducer<String, String> producer =
            new KafkaProducer<>(all, new StringSerializer(), new StringSerializer());
        producers.put(text(request, "producer"), producer);
        if (all.containsKey("transactional.id")) {
            producer.initTransactions();
        }
    }

    /** Sends [topic, partition, time, key, value]; returns their offsets when all are acknowledged. */
    private List<Long> send(JsonNode request) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode row : request.get("records")) {
            Long timestampMs = row.get(2).isNull() ? null : row.get(2).longValue();
            sent.add(producer(request).send(new ProducerRecord<>(row.get(0).textValue(), row.get(1).intValue(),
                timestampMs, row.get(3).textValue(), row.get(4).textValue())));
        }
        producer(request).flush();
        List<Long> offsets = new ArrayList<>();
        for (Future<RecordMetadata> each : sent) {
            offsets.add(each.get().offset());
        }
        return offsets;
    }

    // ---- Consumers -------------------------------------------------------------------------------------------------

    /** Reads partitions from their beginning to their end: [offset, time, key, value] by partition. */
    private Object read(JsonNode request) {
        List<TopicPartition> partitions = partitions(request.get("partitions"));
        Map<String, Object> all = new HashMap<>(address);
        all.put("isolation.level", text(request, "isolation"));
        all.put("auto.offset.reset", "none");
        all.put("enable.auto.commit", false);
        Map<String, List<Object>> found = new LinkedHashMap<>();
        partitions.forEach(each -> found.put(each.toString(), new ArrayList<>()));
        try (KafkaConsumer<String, String> consumer = consumer(all)) {
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions, PATIENCE);
            consumer.assign(partitions);
            consumer.beginningOffsets(partitions, PATIENCE).forEach(consumer::seek);
            long deadline = System.currentTimeMillis() + PATIENCE.toMillis();
            while (partitions.stream().anyMatch(each -> consumer.position(each) < ends.get(each))) {
                requireTime(deadline, "the consumer makes no progress");
                for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(GLANCE_MS))) {
                    found.get(each.topic() + "-" + each.partition())
                        .add(Arrays.asList(each.offset(), each.timestamp(), each.key(), each.value()));
                }
            }
        }
        return found;
    }

    /** Lets a member join its group, read at least a number of records, and commit its positions. */
    private void join(JsonNode request) {
        Map<String, Object> all = configs(request);
        all.putIfAbsent("auto.offset.reset", "earliest");
        all.put("enable.auto.commit", false);
        all.put("max.poll.records", request.get("records").intValue());
        KafkaConsumer<String, String> consumer = consumer(all);
        members.put(text(request, "member"), consumer);
        consumer.subscribe(ClusterHost.words(request.get("topics")));
        long deadline = System.currentTimeMillis() + PATIENCE.toMillis();
        for (int count = 0; count < request.get("records").intValue();) {
            requireTime(deadline, "the member has read " + count + " records");
            count += consumer.poll(Duration.ofMillis(GLANCE_MS)).count();
        }
        consumer.commitSync(PATIENCE);
    }

    /** Lets a member of a share group read at least a number of records, accept them, and leave. */
    /** Accepts records, except those with values that are left: the values that it accepted. */
    private List<String> share(JsonNode request) {
        Map<String, Object> all = configs(request);
        List<String> left = ClusterHost.words(request.get("left"));
        all.put("share.acknowledgement.mode", "explicit");
        List<String> accepted = new ArrayList<>();
        all.put("max.poll.records", request.get("records").intValue());
        try (KafkaShareConsumer<String, String> consumer =
                 new KafkaShareConsumer<>(all, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(ClusterHost.words(request.get("topics")));
            long deadline = System.currentTimeMillis() + PATIENCE.toMillis();
            while (accepted.size() < request.get("records").intValue()) {
                requireTime(deadline, "the member has accepted " + accepted.size() + " records");
                consumer.poll(Duration.ofMillis(GLANCE_MS)).forEach(each -> {
                    boolean isLeft = left.contains(each.value());
                    consumer.acknowledge(each, isLeft ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
                    if (!isLeft) {
                        accepted.add(each.value());
                    }
                });
                consumer.commitSync(PATIENCE);
            }
        }
        return accepted;
    }

    private static KafkaConsumer<String, String> consumer(Map<String, Object> configs) {
        return new KafkaConsumer<>(configs, new StringDeserializer(), new StringDeserializer());
    }

    private static void requireTime(long deadline, String otherwise) {
        if (System.currentTimeMillis() > deadline) {
            throw new IllegalStateException(otherwise);
        }
    }
}
