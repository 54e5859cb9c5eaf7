"""The offsets of groups as rows for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kdump.jobs.groups.consumed_logs import ConsumedLog
    from kdump.jobs.groups.group_report import OffsetReport, OtherOffset
    from kdump.state.groups.group_image import Group, PendingOffset


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
        **log_fields(report.log),
        "lag": report.lag,
        "metadata": None if committed is None else committed.metadata,
        "commit_timestamp_ms": None if committed is None else committed.commit_timestamp_ms,
        "expires_ms": expires_ms,
        "is_expired": expires_ms is not None and expires_ms <= now_ms,
        "topic_id": None if committed is None else committed.topic_id,
        "topic_state": report.topic_state,
        "pending": [_pending(each) for each in report.offsets.pending],
        "is_uncertain": report.is_uncertain,
        "elsewhere": [_other_offset(each) for each in report.elsewhere],
        "note": _offset_note(report, now_ms),
    }


def log_fields(log: ConsumedLog | None) -> dict[str, Any]:
    """Return where a log begins and ends that a group consumes; None for one that is not here."""
    return {
        "log_start_offset": None if log is None else log.log_start_offset,
        "high_watermark": None if log is None else log.high_watermark,
        "log_end_offset": None if log is None else log.end_offset,
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


def _other_offset(each: OtherOffset) -> dict[str, Any]:
    return {
        "log_dir": str(each.replica.log_directory.path),
        "offset": each.committed.offset,
        "metadata": each.committed.metadata,
        "commit_timestamp_ms": each.committed.commit_timestamp_ms,
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
