"""The tables of a report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from kdump.check.findings import Finding
from kdump.cli.output.report.island import PageTable
from kdump.cli.output.report.redaction import Redaction
from kdump.jobs.report.consumer_lag import GroupLag
from kdump.jobs.report.freeable_space import FreeablePartition
from kdump.jobs.report.open_transactions_found import JudgedTransaction, UnstablePartition
from kdump.jobs.verify.finding_row import FINDING
from kdump.jobs.verify.verify_partition import PartitionReport
from kdump.rows.row_type import INTEGER, SIZE, TEXT, TIME, Field

_PARTITION_COLUMNS: Final = (
    Field("worst", TEXT, "", "Worst"),
    Field("directory", TEXT, "", "Partition"),
    Field("log_dir", TEXT, "", "Log dir"),
    Field("size_bytes", SIZE, "", "Size"),
    Field("damaged_bytes", SIZE, "", "Damaged"),
    Field("findings", INTEGER, "", "Findings"),
    Field("segments", INTEGER, "", "Segments"),
    Field("batches", INTEGER, "", "Batches"),
    Field("records", INTEGER, "", "Records"),
    Field("log_end_offset", INTEGER, "", "End offset"),
    Field("verdict", TEXT, "", "What a starting broker would do"),
)
_LAG_COLUMNS: Final = (
    Field("group", TEXT, "", "Group"),
    Field("state", TEXT, "", "State"),
    Field("partition", TEXT, "", "Partition"),
    Field("offset", INTEGER, "", "Committed"),
    Field("end_offset", INTEGER, "", "End offset"),
    Field("lag", INTEGER, "", "Lag"),
    Field("note", TEXT, "", "Note"),
)
_TRANSACTION_COLUMNS: Final = (
    Field("partition", TEXT, "", "Partition"),
    Field("state", TEXT, "", "State"),
    Field("transactional_id", TEXT, "", "Transactional id"),
    Field("producer_id", INTEGER, "", "Producer id"),
    Field("first_offset", INTEGER, "", "First offset"),
    Field("last_stable_offset", INTEGER, "", "Last stable"),
    Field("high_watermark", INTEGER, "", "High watermark"),
    Field("log_end_offset", INTEGER, "", "End offset"),
    Field("start_time_ms", TIME, "", "Began"),
    Field("last_time_ms", TIME, "", "Last batch"),
)
_FREEABLE_COLUMNS: Final = (
    Field("directory", TEXT, "", "Partition"),
    Field("log_dir", TEXT, "", "Log dir"),
    Field("log_bytes", SIZE, "", "Log"),
    Field("retention_bytes", SIZE, "", "Retention frees"),
    Field("cleanable_bytes", SIZE, "", "Cleanable"),
    Field("cleaner_state", TEXT, "", "Log cleaner"),
)
_OTHER_END: Final = "a starting broker may end the log elsewhere"


def finding_table(findings: Sequence[Finding], most: int, redaction: Redaction) -> PageTable:
    """The findings, the worst first; of more than ``most`` only those."""
    worst_first = sorted(findings, key=lambda each: -each.severity)
    rows = [_finding_row(each, redaction) for each in worst_first[:most]]
    return PageTable(FINDING.columns, rows, max(0, len(findings) - most))


def _finding_row(finding: Finding, redaction: Redaction) -> dict[str, Any]:
    texts = {"expected": finding.expected, "found": finding.found, "loss": finding.loss}
    return {
        "severity": finding.severity.label,
        "code": finding.code,
        "path": redaction.path(finding.place.path),
        "position": finding.place.position,
        "offset": finding.place.offset,
        "what": redaction.text(finding.what),
        **{name: None if text is None else redaction.text(text) for name, text in texts.items()},
    }


def partition_table(reports: Iterable[PartitionReport], redaction: Redaction) -> PageTable:
    """All partitions, the worst first."""
    worst_first = sorted(reports, key=lambda each: -1 if each.worst is None else -2 - each.worst)
    return PageTable(_PARTITION_COLUMNS, [_partition_row(each, redaction) for each in worst_first])


def _partition_row(report: PartitionReport, redaction: Redaction) -> dict[str, Any]:
    return {
        "worst": "none" if report.worst is None else report.worst.label,
        "directory": redaction.text(report.partition.path.name),
        "log_dir": redaction.path(report.log_dir),
        "size_bytes": report.partition.total_bytes,
        "damaged_bytes": report.account.damaged_bytes,
        "findings": sum(report.findings.values()),
        "segments": len(report.partition.segments),
        "batches": report.batches,
        "records": report.records,
        "log_end_offset": report.end_offset,
        "verdict": redaction.text(report.verdict),
    }


def lag_table(lags: Iterable[GroupLag], redaction: Redaction) -> PageTable:
    """What groups have committed, the largest lag first and unknown lag last."""
    largest_first = sorted(lags, key=lambda each: -1 if each.lag is None else each.lag)
    rows = [
        {
            "group": redaction.text(each.group),
            "state": each.state,
            "partition": None if each.partition is None else redaction.text(str(each.partition)),
            "offset": each.offset,
            "end_offset": each.end_offset,
            "lag": each.lag,
            "note": _OTHER_END if each.is_end_certain is False else None,
        }
        for each in reversed(largest_first)
    ]
    return PageTable(_LAG_COLUMNS, rows)


def transaction_table(partitions: Iterable[UnstablePartition], redaction: Redaction) -> PageTable:
    """The transactions without a marker."""
    rows = [
        {
            "partition": redaction.text(str(each.key)),
            "state": _state(txn),
            "transactional_id": _transactional_id(txn, redaction),
            "producer_id": txn.txn.producer_id,
            "first_offset": txn.txn.first_offset,
            "last_stable_offset": each.stability.last_stable_offset,
            "high_watermark": each.high_watermark,
            "log_end_offset": each.log_end_offset,
            "start_time_ms": txn.txn.start_timestamp,
            "last_time_ms": txn.txn.last_timestamp,
        }
        for each in partitions
        for txn in each.transactions
    ]
    return PageTable(_TRANSACTION_COLUMNS, rows)


def _state(txn: JudgedTransaction) -> str:
    if not txn.is_certain:
        return "open, or its marker is damaged"
    if txn.judgement.is_hanging:
        return "hanging"
    return "open" if txn.judgement.is_hanging is False else "open, perhaps hanging"


def _transactional_id(txn: JudgedTransaction, redaction: Redaction) -> str | None:
    known = txn.judgement.transaction
    return None if known is None else redaction.transactional_id(known.transactional_id)


def freeable_table(partitions: Iterable[FreeablePartition], redaction: Redaction) -> PageTable:
    """The partitions with something to free, the most first."""
    most_first = sorted(partitions, key=lambda each: -each.retention_bytes - each.cleanable_bytes)
    rows = [
        {
            "directory": redaction.text(each.directory),
            "log_dir": redaction.path(each.log_dir),
            "log_bytes": each.log_bytes,
            "retention_bytes": each.retention_bytes,
            "cleanable_bytes": each.cleanable_bytes,
            "cleaner_state": None if each.cleaner_state is None else each.cleaner_state.value,
        }
        for each in most_first
    ]
    return PageTable(_FREEABLE_COLUMNS, rows)
