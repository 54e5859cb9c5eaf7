"""The records of ``__consumer_offsets``: groups of all kinds, their members and their offsets.

A record's key begins with its type, its value with a version of its own
(``GroupCoordinatorRecordSerde``). The numbers 9 and 18 are not in use.
"""

from __future__ import annotations

from typing import Final

from kdump.formats.schema import (
    BYTES,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    array,
    by_id,
    coordinator_record,
    field,
    struct,
)

_GROUP_KEY: Final = [field("groupId", STRING)]
_MEMBER_KEY: Final = [field("groupId", STRING), field("memberId", STRING)]
_OFFSET_KEY: Final = [field("group", STRING), field("topic", STRING), field("partition", INT32)]

LEGACY_OFFSET_COMMIT: Final = coordinator_record(
    0,
    "LegacyOffsetCommit",
    key=_OFFSET_KEY,
    value=[
        field("offset", INT64),
        field("metadata", STRING),
        field("commitTimestamp", INT64),
    ],
    flexible="none",
)

OFFSET_COMMIT: Final = coordinator_record(
    1,
    "OffsetCommit",
    key=_OFFSET_KEY,
    value=[
        field("offset", INT64),
        field("leaderEpoch", INT32, "3+", default=-1),
        field("metadata", STRING),
        field("commitTimestamp", INT64),
        field("expireTimestamp", INT64, "1", default=-1),
        field("topicId", UUID, "4+", tag=0),
    ],
    versions="0-4",
    flexible="4+",
)

_MEMBER_METADATA: Final = struct(
    "MemberMetadata",
    field("memberId", STRING),
    field("groupInstanceId", STRING, "3+", nullable=True, default=None),
    field("clientId", STRING),
    field("clientHost", STRING),
    field("rebalanceTimeout", INT32, "1+", default=-1),
    field("sessionTimeout", INT32),
    field("subscription", BYTES),
    field("assignment", BYTES),
)

GROUP_METADATA: Final = coordinator_record(
    2,
    "GroupMetadata",
    key=[field("group", STRING)],
    value=[
        field("protocolType", STRING),
        field("generation", INT32),
        field("protocol", STRING, nullable=True),
        field("leader", STRING, nullable=True),
        field("currentStateTimestamp", INT64, "2+", default=-1),
        field("members", array(_MEMBER_METADATA)),
    ],
    versions="0-4",
    flexible="4+",
)

CONSUMER_GROUP_METADATA: Final = coordinator_record(
    3,
    "ConsumerGroupMetadata",
    key=_GROUP_KEY,
    value=[
        field("epoch", INT32),
        field("metadataHash", INT64, tag=0),
    ],
)

_PARTITION_METADATA: Final = struct(
    "PartitionMetadata",
    field("partition", INT32),
    field("racks", array(STRING)),
)

_TOPIC_METADATA: Final = struct(
    "TopicMetadata",
    field("topicId", UUID),
    field("topicName", STRING),
    field("numPartitions", INT32),
    field("partitionMetadata", array(_PARTITION_METADATA)),
)

CONSUMER_GROUP_PARTITION_METADATA: Final = coordinator_record(
    4,
    "ConsumerGroupPartitionMetadata",
    key=_GROUP_KEY,
    value=[field("topics", array(_TOPIC_METADATA))],
)

_CLASSIC_PROTOCOL: Final = struct(
    "ClassicProtocol",
    field("name", STRING),
    field("metadata", BYTES),
)

_CLASSIC_MEMBER_METADATA: Final = struct(
    "ClassicMemberMetadata",
    field("sessionTimeoutMs", INT32),
    field("supportedProtocols", array(_CLASSIC_PROTOCOL)),
)

CONSUMER_GROUP_MEMBER_METADATA: Final = coordinator_record(
    5,
    "ConsumerGroupMemberMetadata",
    key=_MEMBER_KEY,
    value=[
        field("instanceId", STRING, nullable=True),
        field("rackId", STRING, nullable=True),
        field("clientId", STRING),
        field("clientHost", STRING),
        field("subscribedTopicNames", array(STRING)),
        field("subscribedTopicRegex", STRING, nullable=True),
        field("rebalanceTimeoutMs", INT32, default=-1),
        field("serverAssignor", STRING, nullable=True),
        field("classicMemberMetadata", _CLASSIC_MEMBER_METADATA, nullable=True, tag=0),
    ],
)

CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA: Final = coordinator_record(
    6,
    "ConsumerGroupTargetAssignmentMetadata",
    key=_GROUP_KEY,
    value=[
        field("assignmentEpoch", INT32),
        field("assignmentTimestamp", INT64, tag=0),
    ],
)

_TOPIC_PARTITION: Final = struct(
    "TopicPartition",
    field("topicId", UUID),
    field("partitions", array(INT32)),
)

CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: Final = coordinator_record(
    7,
    "ConsumerGroupTargetAssignmentMember",
    key=_MEMBER_KEY,
    value=[field("topicPartitions", array(_TOPIC_PARTITION))],
)

_TOPIC_PARTITIONS: Final = struct(
    "TopicPartitions",
    field("topicId", UUID),
    field("partitions", array(INT32)),
    field("assignmentEpochs", array(INT32), nullable=True, tag=0),
)

CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: Final = coordinator_record(
    8,
    "ConsumerGroupCurrentMemberAssignment",
    key=_MEMBER_KEY,
    value=[
        field("memberEpoch", INT32),
        field("previousMemberEpoch", INT32),
        field("state", INT8),
        field("assignedPartitions", array(_TOPIC_PARTITIONS)),
        field("partitionsPendingRevocation", array(_TOPIC_PARTITIONS)),
    ],
)

SHARE_GROUP_MEMBER_METADATA: Final = coordinator_record(
    10,
    "ShareGroupMemberMetadata",
    key=_MEMBER_KEY,
    value=[
        field("rackId", STRING, nullable=True),
        field("clientId", STRING),
        field("clientHost", STRING),
        field("subscribedTopicNames", array(STRING)),
    ],
)

SHARE_GROUP_METADATA: Final = coordinator_record(
    11,
    "ShareGroupMetadata",
    key=_GROUP_KEY,
    value=[
        field("epoch", INT32),
        field("metadataHash", INT64),
    ],
)

SHARE_GROUP_TARGET_ASSIGNMENT_METADATA: Final = coordinator_record(
    12,
    "ShareGroupTargetAssignmentMetadata",
    key=_GROUP_KEY,
    value=[
        field("assignmentEpoch", INT32),
        field("assignmentTimestamp", INT64, tag=0),
    ],
)

SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER: Final = coordinator_record(
    13,
    "ShareGroupTargetAssignmentMember",
    key=_MEMBER_KEY,
    value=[field("topicPartitions", array(_TOPIC_PARTITION))],
)

_SHARE_TOPIC_PARTITIONS: Final = struct(
    "TopicPartitions",
    field("topicId", UUID),
    field("partitions", array(INT32)),
)

SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT: Final = coordinator_record(
    14,
    "ShareGroupCurrentMemberAssignment",
    key=_MEMBER_KEY,
    value=[
        field("memberEpoch", INT32),
        field("previousMemberEpoch", INT32),
        field("state", INT8),
        field("assignedPartitions", array(_SHARE_TOPIC_PARTITIONS)),
    ],
)

_TOPIC_PARTITIONS_INFO: Final = struct(
    "TopicPartitionsInfo",
    field("topicId", UUID),
    field("topicName", STRING),
    field("partitions", array(INT32)),
)

_TOPIC_INFO: Final = struct(
    "TopicInfo",
    field("topicId", UUID),
    field("topicName", STRING),
)

SHARE_GROUP_STATE_PARTITION_METADATA: Final = coordinator_record(
    15,
    "ShareGroupStatePartitionMetadata",
    key=_GROUP_KEY,
    value=[
        field("initializingTopics", array(_TOPIC_PARTITIONS_INFO)),
        field("initializedTopics", array(_TOPIC_PARTITIONS_INFO)),
        field("deletingTopics", array(_TOPIC_INFO)),
    ],
)

CONSUMER_GROUP_REGULAR_EXPRESSION: Final = coordinator_record(
    16,
    "ConsumerGroupRegularExpression",
    key=[
        field("groupId", STRING),
        field("regularExpression", STRING),
    ],
    value=[
        field("topics", array(STRING)),
        field("version", INT64),
        field("timestamp", INT64),
    ],
)

_LAST_ASSIGNMENT_CONFIG: Final = struct(
    "LastAssignmentConfig",
    field("key", STRING),
    field("value", STRING),
)

STREAMS_GROUP_METADATA: Final = coordinator_record(
    17,
    "StreamsGroupMetadata",
    key=_GROUP_KEY,
    value=[
        field("epoch", INT32),
        field("metadataHash", INT64),
        field("validatedTopologyEpoch", INT32, tag=0, default=-1),
        field("lastAssignmentConfigs", array(_LAST_ASSIGNMENT_CONFIG), nullable=True, tag=1),
        field("storedDescriptionTopologyEpoch", INT32, tag=2, default=-1),
        field("failedDescriptionTopologyEpoch", INT32, tag=3, default=-1),
    ],
)

_ENDPOINT: Final = struct(
    "Endpoint",
    field("host", STRING),
    field("port", UINT16),
)

_KEY_VALUE: Final = struct(
    "KeyValue",
    field("key", STRING),
    field("value", STRING),
)

STREAMS_GROUP_MEMBER_METADATA: Final = coordinator_record(
    19,
    "StreamsGroupMemberMetadata",
    key=_MEMBER_KEY,
    value=[
        field("instanceId", STRING, nullable=True),
        field("rackId", STRING, nullable=True),
        field("clientId", STRING),
        field("clientHost", STRING),
        field("rebalanceTimeoutMs", INT32, default=-1),
        field("topologyEpoch", INT32),
        field("processId", STRING),
        field("userEndpoint", _ENDPOINT, nullable=True, default=None),
        field("clientTags", array(_KEY_VALUE)),
    ],
)

STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA: Final = coordinator_record(
    20,
    "StreamsGroupTargetAssignmentMetadata",
    key=_GROUP_KEY,
    value=[
        field("assignmentEpoch", INT32),
        field("assignmentTimestamp", INT64, tag=0),
    ],
)

_TASK_IDS: Final = struct(
    "TaskIds",
    field("subtopologyId", STRING),
    field("partitions", array(INT32)),
)

STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER: Final = coordinator_record(
    21,
    "StreamsGroupTargetAssignmentMember",
    key=_MEMBER_KEY,
    value=[
        field("activeTasks", array(_TASK_IDS)),
        field("standbyTasks", array(_TASK_IDS)),
        field("warmupTasks", array(_TASK_IDS)),
    ],
)

_CURRENT_TASK_IDS: Final = struct(
    "TaskIds",
    field("subtopologyId", STRING),
    field("partitions", array(INT32)),
    field("assignmentEpochs", array(INT32), nullable=True, tag=0),
)

STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT: Final = coordinator_record(
    22,
    "StreamsGroupCurrentMemberAssignment",
    key=_MEMBER_KEY,
    value=[
        field("memberEpoch", INT32),
        field("previousMemberEpoch", INT32),
        field("state", INT8),
        field("activeTasks", array(_CURRENT_TASK_IDS)),
        field("standbyTasks", array(_CURRENT_TASK_IDS)),
        field("warmupTasks", array(_CURRENT_TASK_IDS)),
        field("activeTasksPendingRevocation", array(_CURRENT_TASK_IDS)),
        field("standbyTasksPendingRevocation", array(_CURRENT_TASK_IDS)),
        field("warmupTasksPendingRevocation", array(_CURRENT_TASK_IDS)),
    ],
)

_TOPIC_CONFIG: Final = struct(
    "TopicConfig",
    field("key", STRING),
    field("value", STRING),
)

_TOPOLOGY_TOPIC_INFO: Final = struct(
    "TopicInfo",
    field("name", STRING),
    field("partitions", INT32),
    field("replicationFactor", INT16),
    field("topicConfigs", array(_TOPIC_CONFIG)),
)

_COPARTITION_GROUP: Final = struct(
    "CopartitionGroup",
    field("sourceTopics", array(INT16)),
    field("sourceTopicRegex", array(INT16)),
    field("repartitionSourceTopics", array(INT16)),
)

_SUBTOPOLOGY: Final = struct(
    "Subtopology",
    field("subtopologyId", STRING),
    field("sourceTopics", array(STRING)),
    field("sourceTopicRegex", array(STRING)),
    field("stateChangelogTopics", array(_TOPOLOGY_TOPIC_INFO)),
    field("repartitionSinkTopics", array(STRING)),
    field("repartitionSourceTopics", array(_TOPOLOGY_TOPIC_INFO)),
    field("copartitionGroups", array(_COPARTITION_GROUP)),
)

STREAMS_GROUP_TOPOLOGY: Final = coordinator_record(
    23,
    "StreamsGroupTopology",
    key=_GROUP_KEY,
    value=[
        field("epoch", INT32),
        field("subtopologies", array(_SUBTOPOLOGY)),
    ],
)

RECORD_TYPES: Final = by_id(
    LEGACY_OFFSET_COMMIT,
    OFFSET_COMMIT,
    GROUP_METADATA,
    CONSUMER_GROUP_METADATA,
    CONSUMER_GROUP_PARTITION_METADATA,
    CONSUMER_GROUP_MEMBER_METADATA,
    CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
    CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
    CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    SHARE_GROUP_MEMBER_METADATA,
    SHARE_GROUP_METADATA,
    SHARE_GROUP_TARGET_ASSIGNMENT_METADATA,
    SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER,
    SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    SHARE_GROUP_STATE_PARTITION_METADATA,
    CONSUMER_GROUP_REGULAR_EXPRESSION,
    STREAMS_GROUP_METADATA,
    STREAMS_GROUP_MEMBER_METADATA,
    STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA,
    STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER,
    STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    STREAMS_GROUP_TOPOLOGY,
)
