import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListConfigResourcesOptions;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.clients.admin.StreamsGroupDescription;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaFilter;

/** What an {@link Admin} client says of a cluster, as lists and maps for JSON. */
final class ClusterDescription {
    private final Admin admin;

    ClusterDescription(Admin admin) {
        this.admin = admin;
    }

    /** Everything. The coordinators of the groups {@code expected} are waited for: others may not be listed yet. */
    Map<String, Object> all(JsonNode expected) throws Exception {
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("cluster_id", admin.describeCluster().clusterId().get());
        List<Integer> brokers = admin.describeCluster().nodes().get().stream().map(Node::id).sorted().toList();
        found.put("brokers", brokers);
        found.put("topics", topics());
        found.put("groups", groups(ClusterHost.words(expected)));
        found.put("transactions", transactions());
        found.put("configs", configs(brokers));
        found.put("whole_configs", wholeConfigs(brokers));
        found.put("acls", admin.describeAcls(AclBindingFilter.ANY).values().get().stream()
            .map(AclBinding::toString).sorted().toList());
        found.put("scram", scram());
        found.put("quotas", quotas());
        Map<String, Object> features = new TreeMap<>();
        admin.describeFeatures().featureMetadata().get().finalizedFeatures()
            .forEach((name, range) -> features.put(name, range.maxVersionLevel()));
        found.put("features", features);
        found.put("quorum", quorum());
        Map<Integer, Object> logDirs = new TreeMap<>();
        admin.describeLogDirs(brokers).allDescriptions().get().forEach((broker, dirs) -> {
            Map<String, Object> partitions = new TreeMap<>();
            dirs.forEach((path, dir) -> partitions.put(path, names(dir.replicaInfos().keySet())));
            logDirs.put(broker, partitions);
        });
        found.put("log_dirs", logDirs);
        return found;
    }

    private static Set<String> names(Set<TopicPartition> partitions) {
        Set<String> found = new TreeSet<>();
        partitions.forEach(each -> found.add(each.toString()));
        return found;
    }

    private Map<String, Object> topics() throws Exception {
        Set<String> names = admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
        Map<String, TopicDescription> topics = admin.describeTopics(names).allTopicNames().get();
        List<TopicPartition> led = new ArrayList<>();
        topics.values().forEach(topic -> topic.partitions().stream()
            .filter(each -> each.leader() != null && !each.leader().isEmpty())
            .forEach(each -> led.add(new TopicPartition(topic.name(), each.partition()))));
        var starts = ends(led, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED);
        var ends = ends(led, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED);
        var stable = ends(led, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED);
        Map<String, Object> found = new TreeMap<>();
        for (TopicDescription topic : topics.values()) {
            List<Object> partitions = new ArrayList<>();
            for (TopicPartitionInfo each : topic.partitions()) {
                TopicPartition name = new TopicPartition(topic.name(), each.partition());
                Map<String, Object> row = new LinkedHashMap<>();
                row.put("partition", each.partition());
                row.put("leader", each.leader() == null ? -1 : each.leader().id());
                row.put("replicas", each.replicas().stream().map(Node::id).toList());
                row.put("isr", each.isr().stream().map(Node::id).sorted().toList());
                if (ends.containsKey(name)) {
                    row.put("start", starts.get(name).offset());
                    row.put("end", ends.get(name).offset());
                    row.put("stable", stable.get(name).offset());
                }
                partitions.add(row);
            }
            found.put(topic.name(), Map.of("id", topic.topicId().toString(), "partitions", partitions));
        }
        return found;
    }

    private Map<TopicPartition, ListOffsetsResultInfo> ends(
        List<TopicPartition> partitions, OffsetSpec spec, IsolationLevel level
    ) throws Exception {
        Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
        partitions.forEach(each -> asked.put(each, spec));
        return admin.listOffsets(asked, new ListOffsetsOptions(level)).all().get();
    }

    /**
     * Answers of {@code listOffsets}, [offset, time, leader epoch], to rounds of questions [topic, partition, special or
     * time]; a round asks a partition once.
     */
    Object offsets(JsonNode request) throws Exception {
        IsolationLevel level = IsolationLevel.valueOf(request.get("isolation").textValue());
        List<Object> found = new ArrayList<>();
        for (JsonNode round : request.get("rounds")) {
            Map<TopicPartition, OffsetSpec> asked = new LinkedHashMap<>();
            round.forEach(row -> asked.put(
                new TopicPartition(row.get(0).textValue(), row.get(1).intValue()), spec(row.get(2))));
            var answers = admin.listOffsets(asked, new ListOffsetsOptions(level)).all().get();
            List<Object> rows = new ArrayList<>();
            asked.keySet().forEach(each -> rows.add(Arrays.asList(answers.get(each).offset(),
                answers.get(each).timestamp(), answers.get(each).leaderEpoch().orElse(null))));
            found.add(rows);
        }
        return found;
    }

    private static OffsetSpec spec(JsonNode asked) {
        return asked.isNumber() ? OffsetSpec.forTimestamp(asked.longValue()) : switch (asked.textValue()) {
            case "earliest" -> OffsetSpec.earliest();
            case "latest" -> OffsetSpec.latest();
            case "max" -> OffsetSpec.maxTimestamp();
            case "earliest-local" -> OffsetSpec.earliestLocal();
            case "latest-tiered" -> OffsetSpec.latestTiered();
            case "earliest-pending-upload" -> OffsetSpec.earliestPendingUpload();
            default -> throw new IllegalArgumentException(asked.textValue());
        };
    }

    private Map<String, Object> groups(List<String> expected) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        for (String group : expected) {
            admin.listConsumerGroupOffsets(Map.of(group, new ListConsumerGroupOffsetsSpec())).all().get();
        }
        for (GroupListing each : admin.listGroups().all().get()) {
            Map<String, Object> row = new LinkedHashMap<>();
            GroupType type = each.type().orElse(GroupType.UNKNOWN);
            row.put("type", type.toString());
            row.put("state", each.groupState().map(Object::toString).orElse(null));
            row.put("protocol_type", each.protocol());
            Map<String, Object> offsets = new TreeMap<>();
            if (type == GroupType.SHARE) {
                admin.listShareGroupOffsets(Map.of(each.groupId(), new ListShareGroupOffsetsSpec())).all().get()
                    .get(each.groupId()).forEach((partition, info) -> offsets.put(partition.toString(),
                        info == null ? null : Arrays.asList(info.startOffset(), info.lag().orElse(null))));
            } else {
                admin.listConsumerGroupOffsets(each.groupId()).partitionsToOffsetAndMetadata().get()
                    .forEach((partition, committed) -> offsets.put(partition.toString(), committed == null ? null
                        : Arrays.asList(committed.offset(), committed.leaderEpoch().orElse(null), committed.metadata())));
            }
            row.put("offsets", offsets);
            if (type == GroupType.STREAMS) {
                row.put("topology", topology(each.groupId()));
            }
            found.put(each.groupId(), row);
        }
        return found;
    }

    private Object topology(String group) throws Exception {
        StreamsGroupDescription description = admin.describeStreamsGroups(Set.of(group)).all().get().get(group);
        List<Object> subtopologies = new ArrayList<>();
        description.subtopologies().forEach(each -> subtopologies.add(List.of(each.subtopologyId(),
            List.copyOf(each.sourceTopics()), List.copyOf(each.stateChangelogTopics().keySet()))));
        return Map.of("epochs", List.of(description.groupEpoch(), description.targetAssignmentEpoch(),
            description.topologyEpoch()), "subtopologies", subtopologies, "members", description.members().size());
    }

    private Map<String, Object> transactions() throws Exception {
        Map<String, Object> found = new TreeMap<>();
        List<String> ids = admin.listTransactions().all().get().stream()
            .map(TransactionListing::transactionalId).toList();
        Map<String, TransactionDescription> all = admin.describeTransactions(ids).all().get();
        all.forEach((id, each) -> found.put(id, Map.of("state", each.state().toString(),
            "producer_id", each.producerId(), "producer_epoch", each.producerEpoch(),
            "partitions", names(each.topicPartitions()))));
        return found;
    }

    /** What was set of topics, brokers and groups: names and values by resource. */
    private Map<String, Object> configs(List<Integer> brokers) throws Exception {
        List<ConfigResource> resources = resources(brokers);
        Map<String, Object> found = new TreeMap<>();
        admin.describeConfigs(resources).all().get().forEach((resource, config) -> {
            Map<String, String> own = new TreeMap<>();
            config.entries().stream().filter(each -> isOwn(resource, each))
                .forEach(each -> own.put(each.name(), each.value()));
            if (!own.isEmpty()) {
                found.put(resource.type() + " " + resource.name(), own);
            }
        });
        return found;
    }

    private List<ConfigResource> resources(List<Integer> brokers) throws Exception {
        List<ConfigResource> resources = new ArrayList<>();
        for (String topic : admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get()) {
            resources.add(new ConfigResource(ConfigResource.Type.TOPIC, topic));
        }
        brokers.forEach(id -> resources.add(new ConfigResource(ConfigResource.Type.BROKER, id.toString())));
        resources.add(new ConfigResource(ConfigResource.Type.BROKER, ""));
        resources.addAll(admin.listConfigResources(Set.of(ConfigResource.Type.GROUP),
            new ListConfigResourcesOptions()).all().get());
        return resources;
    }

    /** All properties of topics, brokers, groups and client metrics, as {@code kafka-configs --describe --all} has them. */
    private Map<String, Object> wholeConfigs(List<Integer> brokers) throws Exception {
        List<ConfigResource> resources = new ArrayList<>(resources(brokers));
        resources.add(new ConfigResource(ConfigResource.Type.GROUP, "nobody"));
        resources.add(new ConfigResource(ConfigResource.Type.CLIENT_METRICS, "nothing"));
        DescribeConfigsOptions options = new DescribeConfigsOptions().includeSynonyms(true);
        Map<String, Object> found = new TreeMap<>();
        admin.describeConfigs(resources, options).all().get().forEach((resource, config) -> {
            Map<String, String> all = new TreeMap<>();
            config.entries().forEach(each -> all.put(each.name(), each.toString()));
            found.put(resource.type() + " " + resource.name(), all);
        });
        return found;
    }

    private static boolean isOwn(ConfigResource resource, ConfigEntry entry) {
        return switch (resource.type()) {
            case TOPIC -> entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG;
            case GROUP -> entry.source() == ConfigEntry.ConfigSource.DYNAMIC_GROUP_CONFIG;
            default -> entry.source() == (resource.name().isEmpty()
                ? ConfigEntry.ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
                : ConfigEntry.ConfigSource.DYNAMIC_BROKER_CONFIG);
        };
    }

    private Map<String, Object> scram() throws Exception {
        Map<String, Object> found = new TreeMap<>();
        admin.describeUserScramCredentials().all().get().forEach((user, credentials) -> found.put(user,
            credentials.credentialInfos().stream()
                .map(each -> each.mechanism().mechanismName() + " " + each.iterations()).sorted().toList()));
        return found;
    }

    private Map<String, Object> quotas() throws Exception {
        Map<String, Object> found = new TreeMap<>();
        admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().forEach((entity, values) ->
            found.put(new TreeMap<>(entity.entries()).toString(), new TreeMap<>(values)));
        return found;
    }

    private Map<String, Object> quorum() throws Exception {
        QuorumInfo info = admin.describeMetadataQuorum().quorumInfo().get();
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("leader", info.leaderId());
        found.put("epoch", info.leaderEpoch());
        found.put("high_watermark", info.highWatermark());
        for (String role : List.of("voters", "observers")) {
            Map<Integer, Object> nodes = new TreeMap<>();
            (role.equals("voters") ? info.voters() : info.observers()).forEach(each ->
                nodes.put(each.replicaId(), each.replicaDirectoryId().toString()));
            found.put(role, nodes);
        }
        return found;
    }
}
