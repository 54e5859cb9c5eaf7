"""The rows of ``kdump verify`` about partitions, and the totals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kdump.jobs.verify.finding_row import FINDING, SEVERITY
from kdump.rows.common_rows import (
    DIRECTORY_FIELDS,
    INTERRUPTED,
    KAFKA,
    OPERATION,
    PLANNED_DIRECTORY,
    directory_values,
)
from kdump.rows.row_type import (
    COUNT,
    FLAG,
    INTEGER,
    NUMBER,
    SIZE,
    TEXT,
    TIME,
    Field,
    JsonAnswer,
    RowType,
    map_of,
    object_of,
    objects_of,
    values_of,
)

if TYPE_CHECKING:
    from kdump.jobs.verify.scrub import Coverage
    from kdump.jobs.verify.verify import VerifySummary
    from kdump.jobs.verify.verify_partition import PartitionReport

_ACCOUNT: Final = (
    Field("total_bytes", SIZE, "Bytes of all files that were checked."),
    Field("valid_bytes", SIZE, "Valid bytes."),
    Field("padding_bytes", SIZE, "Space that was never written."),
    Field("damaged_bytes", SIZE, "Damaged bytes."),
    Field("foreign_bytes", SIZE, "Bytes of foreign files."),
)
VERIFIED_PARTITION: Final = RowType(
    "partition",
    "A partition, after its findings.",
    (
        Field("log_dir", TEXT, "The log directory.", "Log dir", dropped=4),
        Field("directory", TEXT, "Name of the partition's directory in it.", "Partition"),
        *DIRECTORY_FIELDS[2:],
        Field(
            "worst", SEVERITY.or_none, "The worst severity of its findings.", "Worst", alert=True
        ),
        Field("findings", map_of(COUNT), "Findings by code.", "Findings", dropped=1),
        Field("batches", COUNT, "How many batches it has."),
        Field("records", COUNT.or_null, "Null if not all were counted.", "Records", dropped=2),
        Field("not_decoded", COUNT, "Batches that were not decoded because they are over a limit."),
        Field(
            "log_end_offset",
            INTEGER.or_none,
            "Log end offset; null if the last segment was left out.",
            "End",
            dropped=3,
        ),
        Field("verdict", TEXT, "What a starting broker does, in one sentence.", "Verdict"),
        Field(
            "verdict_kind",
            TEXT,
            "The same in one word, see kdump-recover(1); remote for the remote segments of a"
            " partition.",
        ),
        *_ACCOUNT,
        Field(
            "segments_left_out",
            COUNT,
            "How many segments were not to be read, or there was no time for; absent if none.",
            is_optional=True,
            json_only=True,
        ),
    ),
)
SUMMARY: Final = RowType(
    "summary",
    "Totals.",
    (
        Field("partitions", COUNT),
        Field("segments", COUNT),
        Field("batches", COUNT),
        Field("records", COUNT.or_null, "Null if not all were counted."),
        Field("not_decoded", COUNT),
        *_ACCOUNT,
        Field(
            "findings",
            object_of(
                Field("severe", COUNT),
                Field("error", COUNT),
                Field("warning", COUNT),
                Field("info", COUNT),
            ),
            "Findings by severity.",
        ),
        Field("seconds", NUMBER),
        Field(
            "coverage",
            object_of(
                Field("subset", TEXT.or_null, "As typed; null for everything."),
                Field("segments", COUNT, "How many there are."),
                Field("segments_chosen", COUNT, "How many were to be read."),
                Field("segments_read", COUNT, "How many were read to their end."),
                Field("segment_bytes", SIZE, "Bytes of all segments."),
                Field("chosen_bytes", SIZE, "Bytes of those to read."),
                Field("read_bytes", SIZE, "Bytes of those that were read."),
                Field("is_time_over", FLAG, "Whether there was no time for some."),
                Field(
                    "segments_never_checked",
                    COUNT.or_null,
                    "How many segments no run has read; null without --state.",
                ),
                Field(
                    "oldest_check_ms",
                    TIME.or_null,
                    "When the run began since which each other segment was read once; null"
                    " without --state, and if there is none.",
                ),
            ),
            "How much of the data was read, if it was to be a part.",
            is_optional=True,
        ),
        KAFKA,
    ),
)
REPAIR: Final = RowType(
    "repair",
    "With --repair: the changes of one round to a log directory.",
    (
        *PLANNED_DIRECTORY.fields[:-1],
        Field(
            "operations",
            objects_of(
                Field("directory", TEXT, "The directory of the file."),
                *OPERATION.fields,
            ),
            "Changes to files, in order.",
        ),
    ),
)
DRY_RUN: Final = RowType(
    "dry_run",
    "With --repair --dry-run: how many rounds were previewed.",
    (Field("rounds", INTEGER.limited(const=1)),),
)
ANSWERS: Final = (
    JsonAnswer("verify", (INTERRUPTED, FINDING, VERIFIED_PARTITION, SUMMARY, REPAIR, DRY_RUN)),
)


def partition_row(report: PartitionReport) -> dict[str, Any]:
    """Return the row of a partition, for programs."""
    partition = report.partition
    return {
        **directory_values(report.log_dir, partition.path.name, partition.topic_partition),
        "verdict": report.verdict,
        "verdict_kind": report.verdict_kind,
        "worst": None if report.worst is None else report.worst.label,
        "findings": dict(report.findings),
        "batches": report.batches,
        "records": report.records,
        "not_decoded": report.not_decoded,
        "log_end_offset": report.end_offset if report.has_end or not report.left_out else None,
        **values_of(_ACCOUNT, report.account),
        **({"segments_left_out": report.left_out} if report.left_out else {}),
    }


def summary_row(summary: VerifySummary) -> dict[str, Any]:
    """Return the row of the summary, for programs."""
    from kdump.check.findings import Severity

    return {
        "partitions": summary.partitions,
        "segments": summary.segments,
        "batches": summary.batches,
        "records": summary.records,
        "not_decoded": summary.not_decoded,
        **values_of(_ACCOUNT, summary.account),
        "findings": {each.label: summary.findings.get(each, 0) for each in reversed(Severity)},
        "seconds": round(summary.seconds, 3),
        **({} if summary.coverage is None else {"coverage": _coverage_row(summary.coverage)}),
    }


def _coverage_row(coverage: Coverage) -> dict[str, Any]:
    return {
        "subset": coverage.subset,
        "segments": coverage.segments,
        "segments_chosen": coverage.chosen,
        "segments_read": coverage.read,
        "segment_bytes": coverage.bytes,
        "chosen_bytes": coverage.chosen_bytes,
        "read_bytes": coverage.read_bytes,
        "is_time_over": coverage.is_time_over,
        "segments_never_checked": coverage.never,
        "oldest_check_ms": coverage.oldest_ms,
    }
