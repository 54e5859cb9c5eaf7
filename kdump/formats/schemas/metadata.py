"""The records of ``__cluster_metadata`` and of its snapshots: the state of a KRaft cluster.

Each record begins with its type and version (``MetadataRecordSerde``).
"""

from __future__ import annotations

from typing import Final

from kdump.formats.schema import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    RecordType,
    array,
    by_id,
    field,
    message,
    struct,
)

_BROKER_ENDPOINT: Final = struct(
    "BrokerEndpoint",
    field("name", STRING),
    field("host", STRING),
    field("port", UINT16),
    field("securityProtocol", INT16),
)

_BROKER_FEATURE: Final = struct(
    "BrokerFeature",
    field("name", STRING),
    field("minSupportedVersion", INT16),
    field("maxSupportedVersion", INT16),
)

REGISTER_BROKER_RECORD: Final = message(
    "RegisterBrokerRecord",
    field("brokerId", INT32),
    field("isMigratingZkBroker", BOOL, "2+"),
    field("incarnationId", UUID),
    field("brokerEpoch", INT64),
    field("endPoints", array(_BROKER_ENDPOINT)),
    field("features", array(_BROKER_FEATURE)),
    field("rack", STRING, nullable=True),
    field("fenced", BOOL, default=True),
    field("inControlledShutdown", BOOL, "1+"),
    field("logDirs", array(UUID), "3+", tag=0),
    field("cordonedLogDirs", array(UUID), "4+", nullable=True, tag=1, default=None),
    versions="0-4",
)

UNREGISTER_BROKER_RECORD: Final = message(
    "UnregisterBrokerRecord",
    field("brokerId", INT32),
    field("brokerEpoch", INT64),
)

TOPIC_RECORD: Final = message(
    "TopicRecord",
    field("name", STRING),
    field("topicId", UUID),
)

PARTITION_RECORD: Final = message(
    "PartitionRecord",
    field("partitionId", INT32, default=-1),
    field("topicId", UUID),
    field("replicas", array(INT32)),
    field("isr", array(INT32)),
    field("removingReplicas", array(INT32)),
    field("addingReplicas", array(INT32)),
    field("leader", INT32, default=-1),
    field("leaderRecoveryState", INT8, tag=0),
    field("leaderEpoch", INT32, default=-1),
    field("partitionEpoch", INT32, default=-1),
    field("directories", array(UUID), "1+"),
    field("eligibleLeaderReplicas", array(INT32), "2+", nullable=True, tag=1, default=None),
    field("lastKnownElr", array(INT32), "2+", nullable=True, tag=2, default=None),
    versions="0-2",
)

CONFIG_RECORD: Final = message(
    "ConfigRecord",
    field("resourceType", INT8),
    field("resourceName", STRING),
    field("name", STRING),
    field("value", STRING, nullable=True),
)

PARTITION_CHANGE_RECORD: Final = message(
    "PartitionChangeRecord",
    field("partitionId", INT32, default=-1),
    field("topicId", UUID),
    field("isr", array(INT32), nullable=True, tag=0, default=None),
    field("leader", INT32, tag=1, default=-2),
    field("replicas", array(INT32), nullable=True, tag=2, default=None),
    field("removingReplicas", array(INT32), nullable=True, tag=3, default=None),
    field("addingReplicas", array(INT32), nullable=True, tag=4, default=None),
    field("leaderRecoveryState", INT8, tag=5, default=-1),
    field("directories", array(UUID), "1+", nullable=True, tag=8, default=None),
    field("eligibleLeaderReplicas", array(INT32), "2+", nullable=True, tag=6, default=None),
    field("lastKnownElr", array(INT32), "2+", nullable=True, tag=7, default=None),
    versions="0-2",
)

FENCE_BROKER_RECORD: Final = message(
    "FenceBrokerRecord",
    field("id", INT32),
    field("epoch", INT64),
)

UNFENCE_BROKER_RECORD: Final = message(
    "UnfenceBrokerRecord",
    field("id", INT32),
    field("epoch", INT64),
)

REMOVE_TOPIC_RECORD: Final = message(
    "RemoveTopicRecord",
    field("topicId", UUID),
)

DELEGATION_TOKEN_RECORD: Final = message(
    "DelegationTokenRecord",
    field("owner", STRING),
    field("requester", STRING),
    field("renewers", array(STRING)),
    field("issueTimestamp", INT64),
    field("maxTimestamp", INT64),
    field("expirationTimestamp", INT64),
    field("tokenId", STRING),
)

USER_SCRAM_CREDENTIAL_RECORD: Final = message(
    "UserScramCredentialRecord",
    field("name", STRING),
    field("mechanism", INT8),
    field("salt", BYTES),
    field("storedKey", BYTES),
    field("serverKey", BYTES),
    field("iterations", INT32),
)

FEATURE_LEVEL_RECORD: Final = message(
    "FeatureLevelRecord",
    field("name", STRING),
    field("featureLevel", INT16),
)

_ENTITY_DATA: Final = struct(
    "EntityData",
    field("entityType", STRING),
    field("entityName", STRING, nullable=True),
)

CLIENT_QUOTA_RECORD: Final = message(
    "ClientQuotaRecord",
    field("entity", array(_ENTITY_DATA)),
    field("key", STRING),
    field("value", FLOAT64),
    field("remove", BOOL),
)

PRODUCER_IDS_RECORD: Final = message(
    "ProducerIdsRecord",
    field("brokerId", INT32),
    field("brokerEpoch", INT64, default=-1),
    field("nextProducerId", INT64),
)

BROKER_REGISTRATION_CHANGE_RECORD: Final = message(
    "BrokerRegistrationChangeRecord",
    field("brokerId", INT32),
    field("brokerEpoch", INT64),
    field("fenced", INT8, tag=0),
    field("inControlledShutdown", INT8, "1+", tag=1),
    field("logDirs", array(UUID), "2+", tag=2),
    field("cordonedLogDirs", array(UUID), "3+", nullable=True, tag=3, default=None),
    versions="0-3",
)

ACCESS_CONTROL_ENTRY_RECORD: Final = message(
    "AccessControlEntryRecord",
    field("id", UUID),
    field("resourceType", INT8),
    field("resourceName", STRING),
    field("patternType", INT8),
    field("principal", STRING),
    field("host", STRING),
    field("operation", INT8),
    field("permissionType", INT8),
)

REMOVE_ACCESS_CONTROL_ENTRY_RECORD: Final = message(
    "RemoveAccessControlEntryRecord",
    field("id", UUID),
)

NO_OP_RECORD: Final = message("NoOpRecord")

ZK_MIGRATION_STATE_RECORD: Final = message(
    "ZkMigrationStateRecord",
    field("zkMigrationState", INT8),
)

REMOVE_USER_SCRAM_CREDENTIAL_RECORD: Final = message(
    "RemoveUserScramCredentialRecord",
    field("name", STRING),
    field("mechanism", INT8),
)

BEGIN_TRANSACTION_RECORD: Final = message(
    "BeginTransactionRecord",
    field("name", STRING, nullable=True, tag=0, default=None),
)

END_TRANSACTION_RECORD: Final = message("EndTransactionRecord")

ABORT_TRANSACTION_RECORD: Final = message(
    "AbortTransactionRecord",
    field("reason", STRING, nullable=True, tag=0, default=None),
)

REMOVE_DELEGATION_TOKEN_RECORD: Final = message(
    "RemoveDelegationTokenRecord",
    field("tokenId", STRING),
)

_CONTROLLER_ENDPOINT: Final = struct(
    "ControllerEndpoint",
    field("name", STRING),
    field("host", STRING),
    field("port", UINT16),
    field("securityProtocol", INT16),
)

_CONTROLLER_FEATURE: Final = struct(
    "ControllerFeature",
    field("name", STRING),
    field("minSupportedVersion", INT16),
    field("maxSupportedVersion", INT16),
)

REGISTER_CONTROLLER_RECORD: Final = message(
    "RegisterControllerRecord",
    field("controllerId", INT32),
    field("incarnationId", UUID),
    field("zkMigrationReady", BOOL),
    field("endPoints", array(_CONTROLLER_ENDPOINT)),
    field("features", array(_CONTROLLER_FEATURE)),
)

CLEAR_ELR_RECORD: Final = message(
    "ClearElrRecord",
    field("topicName", STRING),
)

UNREGISTER_CONTROLLER_RECORD: Final = message(
    "UnregisterControllerRecord",
    field("controllerId", INT32),
)

RECORD_TYPES: Final = by_id(
    RecordType(0, "REGISTER_BROKER_RECORD", REGISTER_BROKER_RECORD),
    RecordType(1, "UNREGISTER_BROKER_RECORD", UNREGISTER_BROKER_RECORD),
    RecordType(2, "TOPIC_RECORD", TOPIC_RECORD),
    RecordType(3, "PARTITION_RECORD", PARTITION_RECORD),
    RecordType(4, "CONFIG_RECORD", CONFIG_RECORD),
    RecordType(5, "PARTITION_CHANGE_RECORD", PARTITION_CHANGE_RECORD),
    RecordType(7, "FENCE_BROKER_RECORD", FENCE_BROKER_RECORD),
    RecordType(8, "UNFENCE_BROKER_RECORD", UNFENCE_BROKER_RECORD),
    RecordType(9, "REMOVE_TOPIC_RECORD", REMOVE_TOPIC_RECORD),
    RecordType(10, "DELEGATION_TOKEN_RECORD", DELEGATION_TOKEN_RECORD),
    RecordType(11, "USER_SCRAM_CREDENTIAL_RECORD", USER_SCRAM_CREDENTIAL_RECORD),
    RecordType(12, "FEATURE_LEVEL_RECORD", FEATURE_LEVEL_RECORD),
    RecordType(14, "CLIENT_QUOTA_RECORD", CLIENT_QUOTA_RECORD),
    RecordType(15, "PRODUCER_IDS_RECORD", PRODUCER_IDS_RECORD),
    RecordType(17, "BROKER_REGISTRATION_CHANGE_RECORD", BROKER_REGISTRATION_CHANGE_RECORD),
    RecordType(18, "ACCESS_CONTROL_ENTRY_RECORD", ACCESS_CONTROL_ENTRY_RECORD),
    RecordType(19, "REMOVE_ACCESS_CONTROL_ENTRY_RECORD", REMOVE_ACCESS_CONTROL_ENTRY_RECORD),
    RecordType(20, "NO_OP_RECORD", NO_OP_RECORD),
    RecordType(21, "ZK_MIGRATION_STATE_RECORD", ZK_MIGRATION_STATE_RECORD),
    RecordType(22, "REMOVE_USER_SCRAM_CREDENTIAL_RECORD", REMOVE_USER_SCRAM_CREDENTIAL_RECORD),
    RecordType(23, "BEGIN_TRANSACTION_RECORD", BEGIN_TRANSACTION_RECORD),
    RecordType(24, "END_TRANSACTION_RECORD", END_TRANSACTION_RECORD),
    RecordType(25, "ABORT_TRANSACTION_RECORD", ABORT_TRANSACTION_RECORD),
    RecordType(26, "REMOVE_DELEGATION_TOKEN_RECORD", REMOVE_DELEGATION_TOKEN_RECORD),
    RecordType(27, "REGISTER_CONTROLLER_RECORD", REGISTER_CONTROLLER_RECORD),
    RecordType(28, "CLEAR_ELR_RECORD", CLEAR_ELR_RECORD),
    RecordType(29, "UNREGISTER_CONTROLLER_RECORD", UNREGISTER_CONTROLLER_RECORD),
)
