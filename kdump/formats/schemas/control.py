"""Control records, which coordinators and the Raft layer write between data records.

The key of each is an int16 version and its type (``ControlRecordType``). The value of an end
transaction marker also begins with its version; the other values are read as version 0, and have a
version field of their own.
"""

from __future__ import annotations

from typing import Final

from kdump.formats.schema import (
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

END_TXN_MARKER: Final = message(
    "EndTxnMarker",
    field("coordinatorEpoch", INT32),
    flexible="none",
)

_VOTER: Final = struct(
    "Voter",
    field("voterId", INT32),
    field("voterDirectoryId", UUID, "1+"),
)

LEADER_CHANGE_MESSAGE: Final = message(
    "LeaderChangeMessage",
    field("version", INT16),
    field("leaderId", INT32),
    field("voters", array(_VOTER)),
    field("grantingVoters", array(_VOTER)),
    versions="0-1",
)

SNAPSHOT_HEADER_RECORD: Final = message(
    "SnapshotHeaderRecord",
    field("version", INT16),
    field("lastContainedLogTimestamp", INT64),
)

SNAPSHOT_FOOTER_RECORD: Final = message(
    "SnapshotFooterRecord",
    field("version", INT16),
)

KRAFT_VERSION_RECORD: Final = message(
    "KRaftVersionRecord",
    field("version", INT16),
    field("kRaftVersion", INT16),
)

_ENDPOINT: Final = struct(
    "Endpoint",
    field("name", STRING),
    field("host", STRING),
    field("port", UINT16),
)

_KRAFT_VERSION_FEATURE: Final = struct(
    "KRaftVersionFeature",
    field("minSupportedVersion", INT16),
    field("maxSupportedVersion", INT16),
)

_VOTER_WITH_ENDPOINTS: Final = struct(
    "Voter",
    field("voterId", INT32),
    field("voterDirectoryId", UUID),
    field("endpoints", array(_ENDPOINT)),
    field("kRaftVersionFeature", _KRAFT_VERSION_FEATURE),
)

VOTERS_RECORD: Final = message(
    "VotersRecord",
    field("version", INT16),
    field("voters", array(_VOTER_WITH_ENDPOINTS)),
)

RECORD_TYPES: Final = by_id(
    RecordType(0, "ABORT", END_TXN_MARKER),
    RecordType(1, "COMMIT", END_TXN_MARKER),
    RecordType(2, "LEADER_CHANGE", LEADER_CHANGE_MESSAGE),
    RecordType(3, "SNAPSHOT_HEADER", SNAPSHOT_HEADER_RECORD),
    RecordType(4, "SNAPSHOT_FOOTER", SNAPSHOT_FOOTER_RECORD),
    RecordType(5, "KRAFT_VERSION", KRAFT_VERSION_RECORD),
    RecordType(6, "KRAFT_VOTERS", VOTERS_RECORD),
)
