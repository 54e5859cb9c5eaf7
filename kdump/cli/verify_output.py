"""How the results of a verification are said: lines, rows, tables, or JUnit's XML."""

from __future__ import annotations

import contextlib
import enum
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

from kdump.cli.output import (
    Column,
    Kind,
    OutputFormat,
    Row,
    escape_controls,
    format_bytes,
    open_output,
)
from kdump.cli.said import Printer, Said, SaidForm, open_printer

if TYPE_CHECKING:
    from kdump.check.findings import Finding
    from kdump.pipeline.verify import Summary
    from kdump.pipeline.verify_partition import PartitionReport


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


class VerifyPrinter(Protocol):
    """Shows what is said, as it is said."""

    def finding(self, finding: Finding) -> None: ...

    def partition(self, report: PartitionReport) -> None: ...

    def summary(self, summary: Summary) -> None: ...


@contextlib.contextmanager
def open_verify_printer(form: Form, *, verbose: bool) -> Iterator[VerifyPrinter]:
    """Open what says the results of a verification in the form that was asked for."""
    if form is Form.TABLE:
        table = _TablePrinter(verbose=verbose)
        yield table
        table.finish()
    elif form is Form.JUNIT:
        from kdump.cli.junit import JunitPrinter

        junit = JunitPrinter()
        yield junit
        junit.finish()
    else:
        with open_printer(SaidForm(form.value)) as printer:
            yield SaidPrinter(printer, verbose=verbose)


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


def finding_line(finding: Finding) -> str:
    """A finding as a person sees it."""
    line = f"{finding.severity.label}: {finding.place}: {finding.what} [{finding.code}]"
    for name, value in (
        ("expected", finding.expected),
        ("found", finding.found),
        ("lost", finding.loss),
    ):
        if value is not None:
            line += f"; {name} {value}"
    return line


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
        "not_decoded": report.not_decoded,
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
        "not_decoded": summary.not_decoded,
        **_account_row(summary),
        "findings": {each.label: summary.findings.get(each, 0) for each in reversed(Severity)},
        "seconds": round(summary.seconds, 3),
    }


class SaidPrinter:
    """Says each thing by itself: a line or a few, or a row with its ``type``."""

    def __init__(self, printer: Printer, *, verbose: bool) -> None:
        self._printer = printer
        self._verbose = verbose

    def finding(self, finding: Finding) -> None:
        is_shown = self._verbose or finding.severity
        lines = [finding_line(finding)] if is_shown else []
        self._printer.say(Said("finding", finding_row(finding), lines))

    def partition(self, report: PartitionReport) -> None:
        is_shown = report.verdict and (report.worst or self._verbose)
        lines = [f"{report.partition.path}: {report.verdict}"] if is_shown else []
        self._printer.say(Said("partition", partition_row(report), lines))

    def summary(self, summary: Summary) -> None:
        lines = list(summary_lines(summary, verbose=self._verbose))
        self._printer.say(Said("summary", summary_row(summary), lines))


def summary_lines(summary: Summary, *, verbose: bool) -> Iterator[str]:
    """The summary for people."""
    from kdump.check.findings import Severity

    account = summary.account
    rate = account.total_bytes / summary.seconds if summary.seconds else 0
    yield (
        f"{summary.partitions} partitions, {summary.segments} segments, {summary.batches} batches,"
        f" {_records_words(summary)}"
    )
    if summary.not_decoded:
        batches = "1 batch" if summary.not_decoded == 1 else f"{summary.not_decoded} batches"
        yield f"{batches} not decoded: over the limit (raise it with --max-record-bytes)"
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


def _records_words(summary: Summary) -> str:
    if summary.records is not None:
        return f"{summary.records} records"
    if summary.not_decoded:
        return "not all records counted"
    return "records in compressed message sets not counted (--deep counts them)"


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
