"""The records of ``__remote_log_metadata``: segments in tiered storage.

(``RemoteLogMetadataSerde`` of the topic-based metadata manager)
"""

from __future__ import annotations

from typing import Final

from kdump.formats.schema import (
    BOOL,
    BYTES,
    INT8,
    INT32,
    INT64,
    STRING,
    UUID,
    RecordType,
    array,
    by_id,
    field,
    message,
    struct,
)

_TOPIC_ID_PARTITION_ENTRY: Final = struct(
    "TopicIdPartitionEntry",
    field("name", STRING),
    field("id", UUID),
    field("partition", INT32),
)

_REMOTE_LOG_SEGMENT_ID_ENTRY: Final = struct(
    "RemoteLogSegmentIdEntry",
    field("topicIdPartition", _TOPIC_ID_PARTITION_ENTRY),
    field("id", UUID),
)

_SEGMENT_LEADER_EPOCH_ENTRY: Final = struct(
    "SegmentLeaderEpochEntry",
    field("leaderEpoch", INT32),
    field("offset", INT64),
)

REMOTE_LOG_SEGMENT_METADATA_RECORD: Final = message(
    "RemoteLogSegmentMetadataRecord",
    field("remoteLogSegmentId", _REMOTE_LOG_SEGMENT_ID_ENTRY),
    field("startOffset", INT64),
    field("endOffset", INT64),
    field("brokerId", INT32),
    field("maxTimestampMs", INT64),
    field("eventTimestampMs", INT64),
    field("segmentLeaderEpochs", array(_SEGMENT_LEADER_EPOCH_ENTRY)),
    field("segmentSizeInBytes", INT32),
    field("customMetadata", BYTES, nullable=True, default=None),
    field("remoteLogSegmentState", INT8),
    field("txnIndexEmpty", BOOL, tag=0),
)

REMOTE_LOG_SEGMENT_METADATA_UPDATE_RECORD: Final = message(
    "RemoteLogSegmentMetadataUpdateRecord",
    field("remoteLogSegmentId", _REMOTE_LOG_SEGMENT_ID_ENTRY),
    field("brokerId", INT32),
    field("eventTimestampMs", INT64),
    field("customMetadata", BYTES, nullable=True, default=None),
    field("remoteLogSegmentState", INT8),
)

REMOTE_PARTITION_DELETE_METADATA_RECORD: Final = message(
    "RemotePartitionDeleteMetadataRecord",
    field("topicIdPartition", _TOPIC_ID_PARTITION_ENTRY),
    field("brokerId", INT32),
    field("eventTimestampMs", INT64),
    field("remotePartitionDeleteState", INT8),
)

REMOTE_LOG_SEGMENT_METADATA_SNAPSHOT_RECORD: Final = message(
    "RemoteLogSegmentMetadataSnapshotRecord",
    field("segmentId", UUID),
    field("startOffset", INT64),
    field("endOffset", INT64),
    field("brokerId", INT32),
    field("maxTimestampMs", INT64),
    field("eventTimestampMs", INT64),
    field("segmentLeaderEpochs", array(_SEGMENT_LEADER_EPOCH_ENTRY)),
    field("segmentSizeInBytes", INT32),
    field("customMetadata", BYTES, nullable=True, default=None),
    field("remoteLogSegmentState", INT8),
    field("txnIndexEmpty", BOOL, tag=0),
)

RECORD_TYPES: Final = by_id(
    RecordType(0, "REMOTE_LOG_SEGMENT_METADATA_RECORD", REMOTE_LOG_SEGMENT_METADATA_RECORD),
    RecordType(
        1, "REMOTE_LOG_SEGMENT_METADATA_UPDATE_RECORD", REMOTE_LOG_SEGMENT_METADATA_UPDATE_RECORD
    ),
    RecordType(
        2, "REMOTE_PARTITION_DELETE_METADATA_RECORD", REMOTE_PARTITION_DELETE_METADATA_RECORD
    ),
    RecordType(
        3,
        "REMOTE_LOG_SEGMENT_METADATA_SNAPSHOT_RECORD",
        REMOTE_LOG_SEGMENT_METADATA_SNAPSHOT_RECORD,
    ),
)
