"""What groups committed and share groups delivered of partitions, as rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kdump.jobs.listing.certain_end import IS_VALID_END_CERTAIN
from kdump.rows.row_type import (
    FLAG,
    INT,
    INTEGER,
    TEXT,
    TIME,
    Field,
    RowType,
    objects_of,
    one_of,
)

if TYPE_CHECKING:
    from kdump.jobs.groups.consumed_logs import ConsumedLog
    from kdump.jobs.groups.group_report import (
        OffsetReport,
        ShareOffsetReport,
    )
    from kdump.state.groups.group_image import Group, PendingOffset

IS_UNCERTAIN: Final = Field(
    "is_uncertain",
    FLAG,
    "Whether a later record may be in damaged bytes, or cannot be decoded.",
)
_LOG_FIELDS: Final = (
    Field(
        "log_start_offset",
        INTEGER.or_null,
        "Log start offset of the most advanced replica; null if there is none, as the next ones.",
        "Start",
        dropped=8,
    ),
    Field(
        "high_watermark",
        INTEGER.or_null,
        "High watermark, from the checkpoint; old after a crash.",
        "HW",
        dropped=7,
    ),
    Field("log_end_offset", INTEGER.or_null, "Offset after the last valid batch.", "End"),
    IS_VALID_END_CERTAIN,
)
_REPLICA: Final = Field("replica_log_dir", TEXT.or_null, "Log directory of that replica.")

OFFSET: Final = RowType(
    "offset",
    "What a group committed for a partition.",
    (
        Field("group", TEXT, "The group.", "Group"),
        Field("topic", TEXT, "The topic.", "Topic"),
        Field("partition", INT, "The partition.", "Part"),
        Field(
            "committed_offset",
            INTEGER.or_none,
            "Next offset that the group reads; null if only an open transaction has one, or if its"
            " record"
            " cannot be decoded.",
            "Committed",
        ),
        Field(
            "leader_epoch",
            INTEGER.or_none,
            "Leader epoch of the last record that the group read.",
            "Epoch",
            dropped=3,
        ),
        *_LOG_FIELDS,
        Field(
            "lag",
            INTEGER.or_null,
            "From the committed offset to the end of the log; null if unknown, or if the offset"
            " belongs to another topic.",
            "Lag",
        ),
        Field(
            "metadata",
            TEXT.or_null_as(""),
            "Text that the consumer stored with it.",
            "Metadata",
            dropped=1,
        ),
        Field(
            "commit_timestamp_ms", TIME.or_none, "When it was committed.", "Committed at", dropped=5
        ),
        Field(
            "expires_ms",
            TIME.or_none,
            "When a coordinator deletes it; null if it does not while the group is as it is.",
            "Expires",
            dropped=2,
        ),
        Field("is_expired", FLAG, "Whether that was before the current time."),
        Field(
            "topic_id",
            TEXT.or_null,
            "Id of the topic that the group read; null if it was not committed with one.",
        ),
        Field(
            "topic_state",
            one_of("live", "recreated", "unlisted").or_null,
            "Whether the topic is the one for which the offset was committed; null if unknown.",
        ),
        Field(
            "pending",
            objects_of(
                Field("producer_id", INTEGER, "Of the transaction."),
                Field("offset", INTEGER, "What it would commit."),
                Field("metadata", TEXT, "Text of the consumer's."),
                Field("commit_timestamp_ms", TIME, "When it was written."),
                Field(
                    "is_undecided",
                    FLAG,
                    "Whether the end of the transaction may be in damaged bytes.",
                ),
            ),
            "Offsets of transactions that have not ended.",
        ),
        IS_UNCERTAIN,
        Field(
            "elsewhere",
            objects_of(
                Field("log_dir", TEXT, "Log directory of the replica."),
                Field("offset", INTEGER, "The committed offset there."),
                Field("metadata", TEXT, "Text of the consumer's."),
                Field("commit_timestamp_ms", TIME, "When it was committed."),
            ),
            "Other offsets, from replicas of the coordinator's log that are not believed.",
        ),
        _REPLICA,
        Field("note", TEXT, "A sentence for people.", "Note", alert=True, dropped=6),
    ),
    title="Committed offsets",
)

SHARE_OFFSET: Final = RowType(
    "share_offset",
    "What a share group has delivered of a partition.",
    (
        Field("group", TEXT, "The group.", "Group"),
        Field("topic", TEXT.or_null, "Null if no topic with that id is known.", "Topic"),
        Field("topic_id", TEXT, "The topic's id."),
        Field("partition", INT, "The partition.", "Part"),
        Field(
            "start_offset",
            INTEGER.or_none,
            "First offset that may still be delivered; null before the first delivery.",
            "Start offset",
        ),
        Field(
            "delivery_complete_count",
            INTEGER.or_null,
            "Records from there on that are done; null if not recorded.",
            "Done after it",
            dropped=4,
        ),
        Field("leader_epoch", INTEGER.or_none, "Of the partition's leader.", "Epoch", dropped=1),
        Field("state_epoch", INTEGER.or_null, "Of the group's state."),
        Field(
            "snapshot_epoch",
            INTEGER.or_null,
            "Of the latest snapshot; null if only another replica has one.",
        ),
        Field(
            "write_timestamp_ms", TIME.or_none, "When that was written.", "Snapshot at", dropped=2
        ),
        *_LOG_FIELDS,
        Field(
            "lag",
            INTEGER.or_null,
            "Records that are still to be delivered; null if unknown.",
            "Lag",
        ),
        IS_UNCERTAIN,
        Field(
            "elsewhere",
            objects_of(
                Field("log_dir", TEXT, "Log directory of the replica."),
                Field(
                    "start_offset",
                    INTEGER.or_null,
                    "First offset that may still be delivered there; null before the first"
                    " delivery.",
                ),
            ),
            "Other states, from replicas of the coordinator's log that are not believed.",
        ),
        _REPLICA,
        Field("note", TEXT, "A sentence for people.", "Note", alert=True, dropped=3),
    ),
    title="Share groups",
)


def offset_row(group: Group, report: OffsetReport, now_ms: int) -> dict[str, Any]:
    """Return what a group committed for a partition, with the names of the JSON output."""
    committed, expires_ms = report.offsets.committed, report.expires_ms
    return {
        "type": "offset",
        "group": group.group_id,
        "topic": report.partition.topic,
        "partition": report.partition.partition,
        "committed_offset": None if committed is None else committed.offset,
        "leader_epoch": None if committed is None else committed.leader_epoch,
        **_log_fields(report.log),
        "lag": report.lag,
        "metadata": None if committed is None else committed.metadata,
        "commit_timestamp_ms": None if committed is None else committed.commit_timestamp_ms,
        "expires_ms": expires_ms,
        "is_expired": expires_ms is not None and expires_ms <= now_ms,
        "topic_id": None if committed is None else committed.topic_id,
        "topic_state": report.topic_state,
        "pending": [_pending(each) for each in report.offsets.pending],
        "is_uncertain": report.is_uncertain,
        "elsewhere": [
            {
                "log_dir": str(each.replica.log_directory.path),
                "offset": each.committed.offset,
                "metadata": each.committed.metadata,
                "commit_timestamp_ms": each.committed.commit_timestamp_ms,
            }
            for each in report.elsewhere
        ],
        "note": _offset_note(report, now_ms),
    }


def _log_fields(log: ConsumedLog | None) -> dict[str, Any]:
    """Where a log begins and ends that a group consumes; None for one that is not here."""
    return {
        "log_start_offset": None if log is None else log.log_start_offset,
        "high_watermark": None if log is None else log.high_watermark,
        "log_end_offset": None if log is None else log.end_offset,
        IS_VALID_END_CERTAIN.name: None if log is None else log.is_end_certain,
        "replica_log_dir": None if log is None else str(log.replica.log_directory.path),
    }


def _pending(each: PendingOffset) -> dict[str, Any]:
    return {
        "producer_id": each.producer_id,
        "offset": each.committed.offset,
        "metadata": each.committed.metadata,
        "commit_timestamp_ms": each.committed.commit_timestamp_ms,
        "is_undecided": each.is_undecided,
    }


def _offset_note(report: OffsetReport, now_ms: int) -> str:
    notes = []
    committed = report.offsets.committed
    for each in report.offsets.pending:
        what = "pending in an open transaction"
        if each.is_undecided:
            what = "in a transaction whose end may be in damaged bytes"
        notes.append(f"{each.committed.offset} {what}, producer {each.producer_id}")
    if report.offsets.unreadable_offset is not None:
        notes.append("its last record cannot be decoded")
    elif report.is_uncertain and not report.offsets.pending:
        notes.append("a later commit may be in damaged bytes")
    if report.topic_state == "recreated":
        notes.append("committed for an earlier topic of this name")
    elif report.topic_state == "unlisted":
        notes.append("the cluster has no such topic")
    if report.expires_ms is not None and report.expires_ms <= now_ms:
        notes.append("expired")
    log = report.log
    start = None if log is None else log.log_start_offset
    if committed is not None and start is not None and committed.offset < start:
        notes.append("below the start of the log")
    end = None if log is None else log.end_offset
    if committed is not None and end is not None and committed.offset > end:
        notes.append("past the end of the log")
    notes += [
        f"{other.committed.offset} in {other.replica.log_directory.path}"
        for other in report.elsewhere
    ]
    return "; ".join(notes)


def share_row(report: ShareOffsetReport) -> dict[str, Any]:
    """Return what a share group delivered of a partition, with the names of the JSON output."""
    state = report.state
    unknown = -1
    return {
        "type": "share_offset",
        "group": state.group_id,
        "topic": report.topic,
        "topic_id": state.topic_id,
        "partition": state.partition,
        "start_offset": None if state.start_offset == unknown else state.start_offset,
        "delivery_complete_count": None
        if state.delivery_complete_count == unknown
        else state.delivery_complete_count,
        "leader_epoch": None if state.leader_epoch == unknown else state.leader_epoch,
        "state_epoch": None if state.state_epoch == unknown else state.state_epoch,
        "snapshot_epoch": None if state.snapshot_epoch == unknown else state.snapshot_epoch,
        "write_timestamp_ms": state.write_timestamp_ms,
        **_log_fields(report.log),
        "lag": report.lag,
        "is_uncertain": report.is_uncertain,
        "elsewhere": [
            {
                "log_dir": str(each.replica.log_directory.path),
                "start_offset": None if each.state.start_offset == -1 else each.state.start_offset,
            }
            for each in report.elsewhere
        ],
        "note": _share_note(report),
    }


def _share_note(report: ShareOffsetReport) -> str:
    notes = ["a later change may be in damaged bytes"] if report.is_uncertain else []
    notes += [
        f"{other.state.start_offset} in {other.replica.log_directory.path}"
        for other in report.elsewhere
    ]
    return "; ".join(notes)
