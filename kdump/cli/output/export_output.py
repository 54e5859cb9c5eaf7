"""The output of ``kdump export``: a row for each partition, and the totals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kdump.cli.output.diagnostics import Diagnostics
from kdump.cli.output.events import write_notice
from kdump.cli.output.rendering import OutputFormat, Row
from kdump.cli.output.sections import open_sections
from kdump.cli.output.value_text import format_bytes
from kdump.errors import ExitStatus
from kdump.jobs.export.export import ExportedPartition, ExportResult, totals
from kdump.rows.row_type import COUNT, FLAG, INT, SIZE, TEXT, Field, JsonAnswer, RowType
from kdump.words import counted

MOST_PROBLEMS: Final = 20
"""For one partition, this many are reported one by one, the others only counted."""

EXPORTED_PARTITION: Final = RowType(
    "partition",
    "A partition that was exported.",
    (
        Field("topic", TEXT, "The topic.", "Topic"),
        Field("partition", INT.limited(minimum=0), "Its number.", "Partition"),
        Field("path", TEXT, "The directory that was read, as it was named."),
        Field("files", COUNT, "How many files have its records.", "Files"),
        Field("records", COUNT, "How many records were exported.", "Records"),
        Field("size_bytes", SIZE, "Of the files.", "Size"),
        Field(
            "first_offset",
            COUNT.or_none,
            "Of the first exported record; null without one.",
            "First",
            dropped=2,
        ),
        Field(
            "last_offset",
            COUNT.or_none,
            "Of the last exported record; null without one.",
            "Last",
            dropped=3,
        ),
        Field("log_start_offset", COUNT, "Where the log begins, as checkpointed."),
        Field(
            "log_end_offset",
            COUNT.or_null,
            "After the last valid batch; null if there is no segment.",
        ),
        Field(
            "last_stable_offset",
            COUNT.or_null,
            "Where the first open transaction begins; null if none is open, or with"
            " read_uncommitted.",
        ),
        Field(
            "open_transactions",
            COUNT.or_null,
            "How many transactions are open at the end of the log; null with read_uncommitted.",
        ),
        Field(
            "unstable_records",
            COUNT.or_null,
            "How many records there are from the last stable offset on, of transactions or not:"
            " read_committed leaves them out. null with read_uncommitted.",
        ),
        Field(
            "aborted_records",
            COUNT,
            "How many records the batches of aborted transactions have, which were left out.",
            "Aborted",
            dropped=1,
        ),
        Field(
            "open_records",
            COUNT,
            "The same of transactions that are open, or whose marker may be damaged.",
        ),
        Field(
            "undecoded_records",
            COUNT,
            "How many of the exported records have a key or value that cannot be decoded with"
            " --key-format or --value-format.",
        ),
        Field(
            "problems",
            COUNT,
            "How many ranges of bytes were skipped.",
            "Skipped",
            alert=True,
            dropped=4,
        ),
        Field("unreadable", COUNT, "How many files are not written because a log cannot be read."),
    ),
)

SUMMARY: Final = RowType(
    "summary",
    "The totals.",
    (
        Field("out", TEXT, "The directory of the export, as typed."),
        Field("is_complete", FLAG, "Whether everything was exported, apart from what is damaged."),
        Field("written", COUNT, "How many files this run wrote; the others were there."),
        Field("replaced", COUNT, "How many of those took the place of files of earlier runs."),
        Field(
            "removed",
            COUNT,
            "How many other files of earlier runs were deleted, because their partitions changed.",
        ),
        Field("partitions", COUNT, "How many partitions."),
        Field("files", COUNT, "How many files."),
        Field("records", COUNT, "How many records."),
        Field("size_bytes", SIZE, "Of all files."),
        Field("aborted_records", COUNT, "As in the partitions."),
        Field("open_records", COUNT, "Likewise."),
        Field("undecoded_records", COUNT, "Likewise."),
        Field("open_transactions", COUNT, "Likewise; 0 with read_uncommitted."),
        Field("unstable_records", COUNT, "Likewise; 0 with read_uncommitted."),
        Field("problems", COUNT, "Likewise."),
        Field("unreadable", COUNT, "Likewise."),
    ),
)

ANSWERS: Final = (
    JsonAnswer(
        "export",
        (
            EXPORTED_PARTITION,
            SUMMARY,
        ),
    ),
)


def report_problems(result: ExportResult, diagnostics: Diagnostics) -> None:
    """Report what was skipped on standard error, and set the exit status."""
    for each in result.partitions:
        for why in each.unreadable:
            diagnostics.status |= ExitStatus.OPERATIONAL_ERROR
            write_notice(why)
        _report_partition(each, diagnostics)


def _report_partition(exported: ExportedPartition, diagnostics: Diagnostics) -> None:
    problems = exported.problems
    for number, each in enumerate(problems):
        diagnostics.status |= (
            ExitStatus.DAMAGE_LEFT if each["is_damage"] else ExitStatus.OPERATIONAL_ERROR
        )
        if number < MOST_PROBLEMS:
            place = f"{each['path']}: bytes {each['start']} to {each['end']}"
            write_notice(f"{place}: {each['what']}")
    more = max(0, len(problems) - MOST_PROBLEMS) + exported.more_problems
    if more:
        write_notice(f"{exported.planned.path}: {counted(more, 'more problem')} like these")
    undecoded = exported.undecoded
    if undecoded.records:
        diagnostics.status |= ExitStatus.OPERATIONAL_ERROR
        write_notice(f"{exported.planned.path}: {undecoded}")


def write_result(result: ExportResult, out: str, output: OutputFormat) -> None:
    """Print a row for each partition, and the totals.

    Raises:
        OSError: standard output cannot be written.
    """
    sums = totals(result)
    row = {
        "type": "summary",
        "out": out,
        "is_complete": result.is_complete,
        "written": result.written,
        "replaced": result.replaced,
        "removed": result.removed,
        **sums,
    }
    with open_sections(output, (EXPORTED_PARTITION,)) as sections:
        sections.rows(map(_row, result.partitions))
        sections.summary(row, _summary_lines(result, sums, out))


def _row(exported: ExportedPartition) -> Row:
    firsts = [part["first_offset"] for part in exported.parts if part["records"]]
    lasts = [part["last_offset"] for part in exported.parts if part["records"]]
    source = exported.planned.source
    return {
        "type": "partition",
        "topic": exported.planned.key.topic,
        "partition": exported.planned.key.partition,
        "path": exported.planned.path,
        "files": exported.files,
        "records": exported.total("records"),
        "size_bytes": exported.total("size_bytes"),
        "first_offset": min(firsts, default=None),
        "last_offset": max(lasts, default=None),
        "log_start_offset": source["log_start_offset"],
        "log_end_offset": source["log_end_offset"],
        "last_stable_offset": source["last_stable_offset"],
        "open_transactions": source["open_transactions"],
        "unstable_records": exported.planned.unstable_records,
        "aborted_records": exported.total("aborted_records"),
        "open_records": exported.total("open_records"),
        "undecoded_records": exported.total("undecoded_records"),
        "problems": len(exported.problems) + exported.more_problems,
        "unreadable": len(exported.unreadable),
    }


def _summary_lines(result: ExportResult, sums: Row, out: str) -> Iterator[str]:
    yield (
        f"{counted(sums['partitions'], 'partition')}, {counted(sums['records'], 'record')},"
        f" {counted(sums['files'], 'file')}, {format_bytes(sums['size_bytes'])}"
    )
    left_out = []
    if sums["aborted_records"]:
        left_out.append(f"{counted(sums['aborted_records'], 'record')} of aborted transactions")
    if sums["open_transactions"]:
        left_out.append(
            f"{counted(sums['unstable_records'], 'record')} from the start of"
            f" {counted(sums['open_transactions'], 'open transaction')} on"
        )
    if sums["problems"]:
        left_out.append(f"{counted(sums['problems'], 'range')} of bytes that cannot be decoded")
    if left_out:
        yield f"left out: {', '.join(left_out)}"
    if undecoded := sums["undecoded_records"]:
        yield f"without a text: {counted(undecoded, 'record')} whose key or value cannot be decoded"
    if result.replaced or result.removed:
        yield (
            f"{counted(result.replaced, 'earlier file')} replaced and {result.removed} removed:"
            " the logs changed"
        )
    if not result.is_complete:
        yield f"{out}: not complete: run the same command again once everything can be read"
    elif result.written or result.removed:
        yield f"{out}: complete"
    else:
        yield f"{out}: complete: no records had to be written"
