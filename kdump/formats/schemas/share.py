"""The records of ``__share_group_state``: snapshots of share group state, and updates to them.

They are laid out like those of ``__consumer_offsets`` (``ShareCoordinatorRecordSerde``).
"""

from __future__ import annotations

from typing import Final

from kdump.formats.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    array,
    by_id,
    coordinator_record,
    field,
    struct,
)

_SHARE_PARTITION_KEY: Final = [
    field("groupId", STRING),
    field("topicId", UUID),
    field("partition", INT32),
]

_STATE_BATCH: Final = struct(
    "StateBatch",
    field("firstOffset", INT64),
    field("lastOffset", INT64),
    field("deliveryState", INT8),
    field("deliveryCount", INT16),
)

SHARE_SNAPSHOT: Final = coordinator_record(
    0,
    "ShareSnapshot",
    key=_SHARE_PARTITION_KEY,
    value=[
        field("snapshotEpoch", INT32),
        field("stateEpoch", INT32),
        field("leaderEpoch", INT32),
        field("startOffset", INT64),
        field("deliveryCompleteCount", INT32, tag=0, default=-1),
        field("createTimestamp", INT64),
        field("writeTimestamp", INT64),
        field("stateBatches", array(_STATE_BATCH)),
    ],
)

SHARE_UPDATE: Final = coordinator_record(
    1,
    "ShareUpdate",
    key=_SHARE_PARTITION_KEY,
    value=[
        field("snapshotEpoch", INT32),
        field("leaderEpoch", INT32),
        field("startOffset", INT64),
        field("deliveryCompleteCount", INT32, tag=0, default=-1),
        field("stateBatches", array(_STATE_BATCH)),
    ],
)

RECORD_TYPES: Final = by_id(
    SHARE_SNAPSHOT,
    SHARE_UPDATE,
)
