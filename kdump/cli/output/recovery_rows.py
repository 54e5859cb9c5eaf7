"""The rows of recovered partitions and log directories, for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kdump.cli.output.at_risk_output import OTHER_LOG
from kdump.jobs.verify.finding_row import FINDING
from kdump.rows.common_rows import (
    CHANGE_FIELDS,
    DIRECTORY_FIELDS,
    INTERRUPTED,
    KAFKA,
    LEFTOVER,
    OPERATION,
    PARTITION_OFFSET,
    REFUSAL,
    ROOT_OPERATIONS,
    directory_values,
)
from kdump.rows.row_type import (
    COUNT,
    FLAG,
    INTEGER,
    NUMBER,
    SIZE,
    TEXT,
    Field,
    JsonAnswer,
    RowType,
    list_of,
    map_of,
    objects_of,
    values_of,
)

if TYPE_CHECKING:
    from kdump.broker.loader.load_report import HandledLeftover, LoadReport, Loss
    from kdump.jobs.loading.load_partition import Outcome
    from kdump.jobs.problems.unreadable import Unreadable
    from kdump.jobs.recover import DirectoryRecovery, PartitionRecovery
    from kdump.log.directory import Offsets
    from kdump.target.refusal import Refusal

ACCOUNT_FIELDS: Final = (
    "recovered_segments",
    "cuts",
    "dropped_segments",
    "swap_losses",
    "hidden_batches",
    "wrong_transactions",
    "quarantined",
    "doubtful",
    "added_markers",
    "splits",
    "leftovers",
    "rebuilt_indexes",
)

_LOST_FIELDS: Final = (
    Field("size_bytes", SIZE, "Removed bytes."),
    Field("batches", COUNT, "Valid batches in them."),
    Field("records", COUNT.or_null, "Records in those; null if only decompression could tell."),
    Field("first_offset", INTEGER.or_null, "First offset of those; null if there are none."),
    Field("last_offset", INTEGER.or_null, "Last offset of those."),
    Field("damaged_bytes", SIZE, "Bytes that are not in valid batches."),
)
"""What is lost with some bytes."""

RECOVERED_PARTITION: Final = RowType(
    "partition",
    "What recovery does to a partition. Offsets are as they are afterwards.",
    (
        *DIRECTORY_FIELDS,
        Field("verdict_kind", TEXT, "One word; see kdump-recover(1)."),
        Field("verdict", TEXT, "The same in one sentence."),
        Field("left_because", TEXT.or_null, "Why it is left unchanged, whatever the verdict."),
        Field("becomes_stray", FLAG, "Whether a broker renames it to -stray."),
        Field("refusals", list_of(REFUSAL), "Why it cannot be loaded or read: none or one."),
        Field("log_start_offset", INTEGER.or_null),
        Field("log_end_offset", INTEGER.or_null),
        Field("recovery_point", INTEGER.or_null),
        Field("active_base_offset", INTEGER.or_null, "Base offset of the last segment."),
        Field(
            "leader_epochs",
            objects_of(Field("epoch", INTEGER), Field("start_offset", INTEGER)).or_null,
            "As a broker has them in memory afterwards.",
        ),
        Field(
            "recovered_segments",
            objects_of(
                Field("base_offset", INTEGER),
                Field("why", TEXT),
                Field("is_rebuilt", FLAG, "Whether it is because of its indexes."),
            ),
        ),
        Field(
            "cuts",
            objects_of(
                Field("file", TEXT),
                Field("position", COUNT, "First removed byte."),
                Field("why", TEXT),
                Field("is_padding", FLAG, "Whether only unwritten space is removed."),
                *_LOST_FIELDS,
            ),
        ),
        Field(
            "dropped_segments",
            objects_of(
                Field("file", TEXT),
                Field("why", TEXT),
                *_LOST_FIELDS,
            ),
        ),
        Field(
            "swap_losses",
            objects_of(
                Field("file", TEXT),
                *_LOST_FIELDS,
            ),
        ),
        Field(
            "hidden_batches",
            objects_of(
                Field("file", TEXT),
                Field("why", TEXT),
                Field("size_bytes", SIZE, "Bytes of the batches."),
                *_LOST_FIELDS[1:],
            ),
        ),
        Field(
            "wrong_transactions",
            objects_of(
                Field("producer_id", INTEGER),
                Field("first_offset", INTEGER, "Where it begins."),
                Field(
                    "is_open",
                    FLAG,
                    "Whether it is open in the log, and the broker would not know it;"
                    " otherwise the reverse.",
                ),
            ),
        ),
        Field(
            "quarantined",
            objects_of(
                Field("file", TEXT),
                Field("position", COUNT, "First byte."),
                Field("size_bytes", SIZE),
                Field("into", TEXT.or_null, "The file that the range is moved to."),
                Field("kind", TEXT),
                Field("why", TEXT),
                Field("first_offset", INTEGER.or_null),
                Field("last_offset", INTEGER.or_null),
                Field("records", COUNT.or_null, "How many are lost."),
                Field("most_records", COUNT.or_null, "Upper bound of that."),
            ),
        ),
        Field(
            "doubtful",
            objects_of(
                Field("file", TEXT),
                Field("against", list_of(TEXT), "What describes other batches, in words."),
            ),
            "Logs that salvage keeps and that may be those of another partition.",
        ),
        Field(
            "added_markers",
            objects_of(
                Field("file", TEXT), Field("producer_id", INTEGER), Field("offset", INTEGER)
            ),
        ),
        Field(
            "splits",
            objects_of(Field("file", TEXT), Field("base_offsets", list_of(INTEGER))),
        ),
        Field("leftovers", list_of(LEFTOVER)),
        Field("rebuilt_indexes", list_of(TEXT), "Names of index files with new content."),
        Field("operations", list_of(OPERATION), "Changes to files, in order."),
    ),
)

RECOVERED_DIRECTORY: Final = RowType(
    "directory",
    "What recovery does to a log directory. If the changes failed, only the fields of the plan.",
    (
        Field("log_dir", TEXT, "The log directory."),
        *CHANGE_FIELDS,
        Field(
            "is_clean", FLAG, "Whether the clean shutdown marker was present.", unless_failed=True
        ),
        Field("becomes_clean", FLAG, "Whether it is present afterwards.", unless_failed=True),
        Field(
            "recovery_points",
            list_of(PARTITION_OFFSET),
            "Lines of the checkpoint afterwards.",
            unless_failed=True,
        ),
        Field(
            "log_start_offsets",
            list_of(PARTITION_OFFSET),
            "Lines of the checkpoint afterwards.",
            unless_failed=True,
        ),
        ROOT_OPERATIONS,
    ),
)

SUMMARY: Final = RowType(
    "summary",
    "Totals.",
    (
        Field("partitions", COUNT),
        Field("verdicts", map_of(COUNT), "Partitions by kind of verdict."),
        Field("left", COUNT, "Partitions that are left unchanged."),
        Field("lost_bytes", SIZE),
        Field("recovered_segments", COUNT, "Segments that a starting broker reads again."),
        Field("recovered_bytes", SIZE, "Bytes of their logs."),
        Field("is_dry_run", FLAG),
        Field("seconds", NUMBER),
        KAFKA,
    ),
)

ANSWERS: Final = (
    JsonAnswer(
        "recover",
        (
            INTERRUPTED,
            FINDING,
            RECOVERED_PARTITION,
            RECOVERED_DIRECTORY,
            OTHER_LOG,
            SUMMARY,
        ),
    ),
)


def partition_row(result: PartitionRecovery) -> dict[str, Any]:
    """Return the row of a partition."""
    partition = result.partition
    path, words = partition.path, result.verdict
    return {
        **directory_values(path.parent, path.name, partition.topic_partition),
        "verdict_kind": words.kind,
        "verdict": words.sentence,
        "left_because": None if result.unchanged is None else result.unchanged.value,
        "becomes_stray": result.becomes_stray,
        "refusals": _refusal_rows(result.outcome),
        **_bounds_row(result.outcome),
        **_account_row(result.report),
    }


def _refusal_rows(outcome: Outcome | None) -> list[dict[str, Any]]:
    """Return why a partition could not be recovered; empty if it could."""
    from kdump.jobs.problems.unreadable import Unreadable
    from kdump.target.refusal import Refusal

    return [refusal_row(outcome)] if isinstance(outcome, Unreadable | Refusal) else []


def refusal_row(refusal: Refusal | Unreadable) -> dict[str, Any]:
    """Return the row of why something is left unchanged."""
    from kdump.jobs.problems.unreadable import Unreadable

    if isinstance(refusal, Unreadable):
        return {"why": refusal.what, "file": refusal.path, "position": None, "exception": None}
    return {
        "why": refusal.reason,
        "file": refusal.file,
        "position": refusal.position,
        "exception": refusal.exception or None,
    }


def leftover_row(leftover: HandledLeftover) -> dict[str, Any]:
    """Return the row of a leftover file and its outcome."""
    return {"file": leftover.name, "outcome": leftover.outcome.value}


def _bounds_row(outcome: Outcome | None) -> dict[str, Any]:
    from kdump.broker.loader.recovered_partition import Recovered
    from kdump.repair.salvage.recovered_0_7 import Recovered07

    row: dict[str, Any] = dict.fromkeys(
        ("log_start_offset", "log_end_offset", "recovery_point", "active_base_offset")
    )
    if isinstance(outcome, Recovered07):
        row["log_end_offset"] = outcome.log_end_offset
    if not isinstance(outcome, Recovered):
        return {**row, "leader_epochs": None}
    return {
        **{name: getattr(outcome, name) for name in row},
        "leader_epochs": [entry._asdict() for entry in outcome.leader_epochs],
    }


def _account_row(report: LoadReport | None) -> dict[str, Any]:
    if report is None:
        return {name: [] for name in ACCOUNT_FIELDS}
    return {
        "recovered_segments": [
            {"base_offset": each.base_offset, "why": each.reason, "is_rebuilt": each.is_rebuilt}
            for each in report.recovered
        ],
        "cuts": [
            {
                "file": each.name,
                "position": each.position,
                "why": each.reason,
                "is_padding": each.is_padding,
            }
            | _loss_row(each.loss)
            for each in report.cuts
        ],
        "dropped_segments": [
            {"file": each.name, "why": each.reason} | _loss_row(each.loss)
            for each in report.dropped
        ],
        "swap_losses": [{"file": each.name} | _loss_row(each.loss) for each in report.swap_losses],
        "hidden_batches": [
            {"file": each.name, "why": each.reason} | _loss_row(each.loss) for each in report.hidden
        ],
        "wrong_transactions": [
            {
                "producer_id": each.producer_id,
                "first_offset": each.first_offset,
                "is_open": each.is_open,
            }
            for each in report.wrong_txns
        ],
        "quarantined": [
            {
                "file": each.name,
                "position": each.start,
                "size_bytes": each.end - each.start,
                "into": each.file,
                "kind": each.cause.value,
                "why": each.reason,
                "first_offset": each.first_offset,
                "last_offset": each.last_offset,
                "records": each.records,
                "most_records": each.most_records,
            }
            for each in report.quarantined
        ],
        "doubtful": [
            {"file": each.name, "against": list(each.against)} for each in report.doubtful
        ],
        "added_markers": [
            {"file": each.name, "producer_id": each.producer_id, "offset": each.offset}
            for each in report.added_markers
        ],
        "splits": [
            {"file": each.name, "base_offsets": list(each.base_offsets)} for each in report.splits
        ],
        "leftovers": [leftover_row(each) for each in report.leftovers],
        "rebuilt_indexes": list(report.rebuilt_indexes),
    }


def _loss_row(loss: Loss) -> dict[str, Any]:
    return values_of(_LOST_FIELDS, loss)


def directory_row(result: DirectoryRecovery) -> dict[str, Any]:
    """Return the row of a log directory."""
    return {
        "log_dir": str(result.directory.path),
        "is_clean": result.directory.is_clean,
        "becomes_clean": result.becomes_clean,
        "recovery_points": _offsets(result.recovery_points),
        "log_start_offsets": _offsets(result.log_start_offsets),
    }


def _offsets(offsets: Offsets) -> list[dict[str, Any]]:
    return [
        {"topic": topic, "partition": number, "offset": offset}
        for (topic, number), offset in offsets.items()
    ]
