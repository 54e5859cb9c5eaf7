"""``kdump verify``: what is sound in log directories, what is damaged, what would be lost."""

from __future__ import annotations

import contextlib
import enum
import fnmatch
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import click

from kdump.cli.engine_options import EngineArguments, engine_options
from kdump.cli.output import (
    Column,
    Kind,
    Output,
    OutputFormat,
    Row,
    escape_controls,
    format_bytes,
    open_output,
)
from kdump.cli.parameters import TIME
from kdump.errors import ExitStatus, UsageProblem

if TYPE_CHECKING:
    from kdump.check.findings import Finding
    from kdump.cli.directories import Diagnostics
    from kdump.cli.progress import Display
    from kdump.log.directory import LogDirectory
    from kdump.pipeline.verify import PartitionReport, Said, Summary, Target


class Form(enum.Enum):
    """The forms of output; the value is the word behind ``--output``."""

    TEXT = "text"
    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    JUNIT = "junit"


FINDING_COLUMNS: Final = (
    Column("severity", "Severity", alert=True),
    Column("code", "Code"),
    Column("path", "File"),
    Column("position", "Byte", Kind.NUMBER, unknown="-"),
    Column("offset", "Offset", Kind.NUMBER, unknown="-"),
    Column("what", "What"),
    Column("expected", "Expected", unknown="-"),
    Column("found", "Found", unknown="-"),
    Column("loss", "Loss", unknown="-"),
)
PARTITION_COLUMNS: Final = (
    Column("log_dir", "Log dir"),
    Column("directory", "Partition"),
    Column("worst", "Worst", unknown="-", alert=True),
    Column("findings", "Findings"),
    Column("records", "Records", Kind.NUMBER),
    Column("end_offset", "End", Kind.NUMBER),
    Column("verdict", "Verdict"),
)
SUMMARY_FIELDS: Final = (
    "partitions",
    "segments",
    "batches",
    "records",
    "total_bytes",
    "sound_bytes",
    "padding_bytes",
    "damaged_bytes",
    "foreign_bytes",
    "findings",
    "seconds",
)


@click.command("verify")
@click.argument(
    "paths",
    metavar="PATH...",
    nargs=-1,
    required=True,
    type=click.Path(readable=False, path_type=Path),
)
@click.option("--quick", is_flag=True, help="Only headers of batches, and indexes.")
@click.option("--deep", is_flag=True, help="Decode every record, too.")
@click.option(
    "--topic",
    "globs",
    metavar="GLOB",
    multiple=True,
    help="Only partitions of topics that match (*, ?, [...]); more than one may be given.",
)
@click.option(
    "--now",
    "now_ms",
    type=TIME,
    metavar="TIME",
    help="What time it is: ISO 8601 or epoch milliseconds; later timestamps are in the future.",
)
@click.option("--verbose", "-v", is_flag=True, help="Show people what is only information, too.")
@click.option(
    "--output",
    "form",
    type=click.Choice(Form, case_sensitive=False),
    default=Form.TEXT,
    help="Form of the answer: text (the default) and table for people; json, jsonl and junit "
    "for programs.",
)
@engine_options
def command(
    paths: Sequence[Path],
    quick: bool,
    deep: bool,
    globs: Sequence[str],
    now_ms: int | None,
    verbose: bool,
    form: Form,
    engine: EngineArguments,
) -> ExitStatus:
    """Check every byte of log directories, partitions or segments, and all that must agree.

    PATH is a log directory (name several for a broker that has several), the directory of one
    partition, or the log of a segment. Nothing is written.
    """
    from kdump.check.part import Level
    from kdump.cli.directories import Diagnostics, without_garbage_collection
    from kdump.cli.progress import open_progress
    from kdump.pipeline.verify import Request, verify

    if quick and deep:
        raise UsageProblem("--quick and --deep cannot be had together")
    level = Level.QUICK if quick else Level.DEEP if deep else Level.DEFAULT
    diagnostics = Diagnostics()
    with without_garbage_collection():
        targets, directories = _find(paths, globs, diagnostics)
        if globs and not targets:
            raise UsageProblem(
                f"no topic in {' '.join(map(str, paths))} matches {' '.join(globs)}: "
                "kdump ls lists them all"
            )
        request = Request(
            targets=targets,
            # With --topic, partitions that were not asked for are not there to be missed.
            directories=[] if globs else directories,
            level=level,
            now_ms=round(time.time() * 1000) if now_ms is None else now_ms,
        )
        if not targets and not directories:
            return diagnostics.status
        progress = open_progress(engine.progress)
        with _open_printer(form, verbose=verbose) as printer:
            said = verify(request, engine.options, progress)
            return diagnostics.status | _print(said, printer, progress)


def _find(
    paths: Iterable[Path], globs: Sequence[str], diagnostics: Diagnostics
) -> tuple[list[Target], list[LogDirectory]]:
    """The partitions to verify, and the log directories."""
    from kdump.cli.directories import read_lone_partition
    from kdump.log.directory import directory_kind, read_log_directory
    from kdump.pipeline.verify import Target, segment_alone

    def is_wanted(topic: str) -> bool:
        return not globs or any(fnmatch.fnmatchcase(topic, glob) for glob in globs)

    targets: list[Target] = []
    directories: list[LogDirectory] = []
    for path in paths:
        try:
            if not path.is_dir():
                alone = segment_alone(path)
                if alone is None:
                    diagnostics.report(path, OSError("not the log of a segment, nor a directory"))
                else:
                    targets.append(alone)
                continue
            kind = directory_kind(path)
            if kind.is_log_directory:
                found = read_log_directory(path, kind, select=lambda _, tp: is_wanted(tp.topic))
                directories.append(found)
                targets.extend(Target(partition, found) for partition in found.partitions)
            elif kind.is_partition:
                lone = read_lone_partition(path)
                topic_partition = lone.partition.topic_partition
                if topic_partition is None or is_wanted(topic_partition.topic):
                    targets.append(Target(lone.partition, lone.log_directory))
            else:
                diagnostics.refuse(path)
        except OSError as failure:
            diagnostics.report(path, failure)
    return targets, directories


class _Printer(Protocol):
    """Shows what is said, as it is said."""

    def finding(self, finding: Finding) -> None: ...

    def partition(self, report: PartitionReport) -> None: ...

    def summary(self, summary: Summary) -> None: ...


def _print(said: Iterator[Said], printer: _Printer, progress: Display) -> ExitStatus:
    from kdump.check.findings import Finding
    from kdump.pipeline.verify import PartitionReport

    status = ExitStatus.SOUND
    for each in said:
        progress.hide()
        if isinstance(each, Finding):
            printer.finding(each)
        elif isinstance(each, PartitionReport):
            printer.partition(each)
        else:
            printer.summary(each)
            if each.is_damaged:
                status |= ExitStatus.DAMAGE_LEFT
            if each.is_unreadable:
                status |= ExitStatus.OPERATIONAL_ERROR
    return status


@contextlib.contextmanager
def _open_printer(form: Form, *, verbose: bool) -> Iterator[_Printer]:
    if form in (Form.JSON, Form.JSONL):
        with open_output(OutputFormat(form.value), ()) as output:
            yield _RowPrinter(output)
    elif form is Form.TABLE:
        printer = _TablePrinter(verbose=verbose)
        yield printer
        printer.finish()
    elif form is Form.JUNIT:
        from kdump.cli.junit import JunitPrinter

        junit = JunitPrinter()
        yield junit
        junit.finish()
    else:
        yield _TextPrinter(verbose=verbose)


def finding_row(finding: Finding) -> dict[str, Any]:
    """A finding as a program sees it."""
    return {
        "severity": finding.severity.label,
        "code": finding.code,
        "path": finding.place.path,
        "position": finding.place.position,
        "offset": finding.place.offset,
        "what": finding.what,
        "expected": finding.expected,
        "found": finding.found,
        "loss": finding.loss,
    }


def partition_row(report: PartitionReport) -> dict[str, Any]:
    """A report on a partition as a program sees it."""
    topic, number = report.partition.topic_partition or (None, None)
    return {
        "log_dir": report.log_dir,
        "directory": report.partition.path.name,
        "topic": topic,
        "partition": number,
        "verdict": report.verdict,
        "verdict_kind": report.verdict_kind,
        "worst": None if report.worst is None else report.worst.label,
        "findings": dict(report.findings),
        "batches": report.batches,
        "records": report.records,
        "end_offset": report.end_offset,
        **_account_row(report),
    }


def _account_row(said: PartitionReport | Summary) -> dict[str, int]:
    account = said.account
    return {
        "total_bytes": account.total_bytes,
        "sound_bytes": account.sound_bytes,
        "padding_bytes": account.padding_bytes,
        "damaged_bytes": account.damaged_bytes,
        "foreign_bytes": account.foreign_bytes,
    }


def summary_row(summary: Summary) -> dict[str, Any]:
    """The summary as a program sees it."""
    from kdump.check.findings import Severity

    return {
        "partitions": summary.partitions,
        "segments": summary.segments,
        "batches": summary.batches,
        "records": summary.records,
        **_account_row(summary),
        "findings": {each.label: summary.findings.get(each, 0) for each in reversed(Severity)},
        "seconds": round(summary.seconds, 3),
    }


class _RowPrinter:
    """A row for each thing, which says what it is about in ``type``."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def finding(self, finding: Finding) -> None:
        self._row("finding", finding_row(finding))

    def partition(self, report: PartitionReport) -> None:
        self._row("partition", partition_row(report))

    def summary(self, summary: Summary) -> None:
        self._row("summary", summary_row(summary))

    def _row(self, kind: str, row: Row) -> None:
        self._output.row({"type": kind, **row})


class _TextPrinter:
    """A line for each finding and each partition, and a few at the end."""

    def __init__(self, *, verbose: bool) -> None:
        self._verbose = verbose

    def finding(self, finding: Finding) -> None:
        if not (self._verbose or finding.severity):
            return
        line = f"{finding.severity.label}: {finding.place}: {finding.what} [{finding.code}]"
        for name, value in (
            ("expected", finding.expected),
            ("found", finding.found),
            ("lost", finding.loss),
        ):
            if value is not None:
                line += f"; {name} {value}"
        _say(line)

    def partition(self, report: PartitionReport) -> None:
        if report.verdict and (report.worst or self._verbose):
            _say(f"{report.partition.path}: {report.verdict}")

    def summary(self, summary: Summary) -> None:
        for line in summary_lines(summary, verbose=self._verbose):
            _say(line)


def summary_lines(summary: Summary, *, verbose: bool) -> Iterator[str]:
    """The summary for people."""
    from kdump.check.findings import Severity

    account = summary.account
    rate = account.total_bytes / summary.seconds if summary.seconds else 0
    yield (
        f"{summary.partitions} partitions, {summary.segments} segments, {summary.batches} batches,"
        f" {summary.records} records"
    )
    yield (
        f"{account.total_bytes} bytes: {account.sound_bytes} sound, {account.padding_bytes}"
        f" padding, {account.damaged_bytes} damaged, {account.foreign_bytes} not a broker's;"
        f" {summary.seconds:.1f} s, {format_bytes(round(rate))}/s"
    )
    counts = [
        f"{summary.findings[each]} {each.label}"
        for each in reversed(Severity)
        if summary.findings.get(each)
    ]
    if not counts:
        yield "sound: nothing found"
        return
    hidden = "" if verbose or not summary.findings.get(Severity.INFO) else " (--verbose shows info)"
    yield "found: " + ", ".join(counts) + hidden


class _TablePrinter:
    """A table of findings, one of partitions, and the summary."""

    def __init__(self, *, verbose: bool) -> None:
        self._verbose = verbose
        self._findings: list[Row] = []
        self._partitions: list[Row] = []
        self._summary: list[str] = []

    def finding(self, finding: Finding) -> None:
        if self._verbose or finding.severity:
            self._findings.append(finding_row(finding))

    def partition(self, report: PartitionReport) -> None:
        self._partitions.append(partition_row(report))

    def summary(self, summary: Summary) -> None:
        self._summary = list(summary_lines(summary, verbose=self._verbose))

    def finish(self) -> None:
        """Show the tables."""
        for columns, rows in (
            (FINDING_COLUMNS, self._findings),
            (PARTITION_COLUMNS, self._partitions),
        ):
            if rows:
                with open_output(OutputFormat.TABLE, columns) as output:
                    output.rows(rows)
        for line in self._summary:
            _say(line)


def _say(line: str) -> None:
    sys.stdout.write(escape_controls(line) + "\n")
    if sys.stdout.isatty():
        sys.stdout.flush()
