"""The output of ``kdump export``: a row for each partition, and the totals."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from kdump.cli.output.diagnostics import Diagnostics
from kdump.cli.output.events import write_line
from kdump.cli.output.rendering import Column, OutputFormat, Row
from kdump.cli.output.sections import Section, open_sections
from kdump.cli.output.value_text import format_bytes
from kdump.errors import ExitStatus
from kdump.jobs.export.export import ExportedPartition, ExportResult, totals
from kdump.rows.row_type import Kind
from kdump.words import counted

MOST_PROBLEMS: Final = 20
"""For one partition, this many are reported one by one, the others only counted."""

SECTIONS: Final = (
    Section(
        "partition",
        "Partitions",
        (
            Column("topic", "Topic"),
            Column("partition", "Partition", Kind.NUMBER),
            Column("path", "Path", for_people=False),
            Column("files", "Files", Kind.NUMBER),
            Column("records", "Records", Kind.NUMBER),
            Column("size_bytes", "Size", Kind.BYTES),
            Column("first_offset", "First", Kind.NUMBER, unknown="-", dropped=2),
            Column("last_offset", "Last", Kind.NUMBER, unknown="-", dropped=3),
            Column("log_start_offset", "Start", for_people=False),
            Column("log_end_offset", "End", for_people=False),
            Column("last_stable_offset", "Last stable", for_people=False),
            Column("open_transactions", "Open", for_people=False),
            Column("unstable_records", "Unstable", for_people=False),
            Column("aborted_records", "Aborted", Kind.NUMBER, dropped=1),
            Column("open_records", "Open", for_people=False),
            Column("undecoded_records", "Not decoded", for_people=False),
            Column("problems", "Skipped", Kind.NUMBER, alert=True, dropped=4),
            Column("unreadable", "Unreadable", for_people=False),
        ),
    ),
)


def report_problems(result: ExportResult, diagnostics: Diagnostics) -> None:
    """Report what was skipped on standard error, and set the exit status."""
    for each in result.partitions:
        for why in each.unreadable:
            diagnostics.status |= ExitStatus.OPERATIONAL_ERROR
            write_line(f"kdump: {why}", sys.stderr)
        _report_partition(each, diagnostics)


def _report_partition(exported: ExportedPartition, diagnostics: Diagnostics) -> None:
    problems = exported.problems
    for number, each in enumerate(problems):
        diagnostics.status |= (
            ExitStatus.DAMAGE_LEFT if each["is_damage"] else ExitStatus.OPERATIONAL_ERROR
        )
        if number < MOST_PROBLEMS:
            place = f"{each['path']}: bytes {each['start']} to {each['end']}"
            write_line(f"kdump: {place}: {each['what']}", sys.stderr)
    more = max(0, len(problems) - MOST_PROBLEMS) + exported.more_problems
    if more:
        path = exported.planned.source["path"]
        write_line(f"kdump: {path}: {counted(more, 'more problem')} like these", sys.stderr)
    undecoded = exported.undecoded
    if undecoded.records:
        diagnostics.status |= ExitStatus.OPERATIONAL_ERROR
        write_line(f"kdump: {exported.planned.source['path']}: {undecoded}", sys.stderr)


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
    with open_sections(output, SECTIONS) as sections:
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
        "path": source["path"],
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
