"""The report of ``kdump verify``: lines, rows, tables, or JUnit XML."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from kdump.cli.output.brief import BriefFindings, BriefList, finding_line
from kdump.cli.output.colour import Tone, TonedLine, verdict_line
from kdump.cli.output.events import Event, EventFormat, Printer, open_printer, write_line
from kdump.cli.output.rendering import OutputFormat, Row, open_output
from kdump.cli.output.value_text import format_bytes, format_timestamp
from kdump.jobs.verify.finding_row import FINDING, finding_row
from kdump.jobs.verify.verify_rows import VERIFIED_PARTITION, partition_row, summary_row
from kdump.words import counted

if TYPE_CHECKING:
    from kdump.check.findings import Finding
    from kdump.jobs.verify.scrub import Coverage
    from kdump.jobs.verify.verify import VerifySummary
    from kdump.jobs.verify.verify_partition import PartitionReport


class VerifyFormat(enum.Enum):
    """The output formats; the value is the word for ``--output``."""

    TEXT = "text"
    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    JUNIT = "junit"
    PROMETHEUS = "prometheus"


class VerifyPrinter(Protocol):
    """Print results as they come."""

    def finding(self, finding: Finding) -> None: ...

    def partition(self, report: PartitionReport) -> None: ...

    def summary(self, summary: VerifySummary) -> None: ...

    def emit_text(self, lines: Iterable[str]) -> None:
        """Print lines for people only."""


@contextlib.contextmanager
def open_verify_printer(output_format: VerifyFormat, *, verbose: bool) -> Iterator[VerifyPrinter]:
    """Open the printer of a format."""
    if output_format is VerifyFormat.TABLE:
        table = _TablePrinter(verbose=verbose)
        yield table
        table.finish()
    elif output_format is VerifyFormat.JUNIT:
        from kdump.cli.output.junit import JunitPrinter

        junit = JunitPrinter()
        yield junit
        junit.finish()
    else:
        with open_printer(EventFormat(output_format.value)) as printer:
            yield EventPrinter(printer, verbose=verbose)


class EventPrinter:
    """Print each result as lines, or as a row with its ``type``.

    Damaged partitions are printed last, after the summary, so that they do not scroll away.
    """

    def __init__(self, printer: Printer, *, verbose: bool) -> None:
        self._printer = printer
        self._verbose = verbose
        self._findings = BriefFindings(verbose=verbose)
        self._harmless = BriefList(verbose=verbose)
        self._damaged = DamagedPartitions()

    def finding(self, finding: Finding) -> None:
        lines = [finding_line(finding)] if self._findings.takes(finding) else []
        self._printer.emit(Event("finding", finding_row(finding), lines))

    def partition(self, report: PartitionReport) -> None:
        self._printer.emit_text(self._findings.more())
        lines: Sequence[str] = ()
        if self._damaged.takes(report):
            pass
        elif report.verdict and (report.worst or self._verbose):
            lines = self._harmless.take([_verdict_line(report)])
        self._printer.emit(Event("partition", partition_row(report), lines))

    def summary(self, summary: VerifySummary) -> None:
        self._printer.emit_text([*self._findings.rest(), *self._harmless.rest()])
        has_hidden = self._findings.hidden > 0
        lines = list(summary_lines(summary, verbose=self._verbose, has_hidden=has_hidden))
        event = Event("summary", summary_row(summary), lines)
        self._printer.emit(event.with_kafkas(summary.kafkas))
        self._printer.emit_text(self._damaged.lines())

    def emit_text(self, lines: Iterable[str]) -> None:
        self._printer.emit_text(lines)


class DamagedPartitions:
    """Partitions that are damaged, or that a broker would not serve unchanged."""

    def __init__(self) -> None:
        self._reports: list[PartitionReport] = []

    def takes(self, report: PartitionReport) -> bool:
        """Keep the report if its partition is damaged; returns whether it is."""
        if not report.verdict or report.worst is None or not report.worst.is_damage:
            return False
        self._reports.append(report)
        return True

    def lines(self) -> Iterator[str]:
        """Return a line for each."""
        return map(_verdict_line, self._reports)


def _verdict_line(report: PartitionReport) -> str:
    return verdict_line(report.verdict_kind, f"{report.partition.path}: {report.verdict}")


def summary_lines(
    summary: VerifySummary, *, verbose: bool, has_hidden: bool = False
) -> Iterator[str]:
    """Yield the summary for people.

    Args:
        verbose: whether all findings were shown.
        has_hidden: whether some findings above info were not shown.
    """
    from kdump.check.findings import Severity

    account = summary.account
    rate = account.total_bytes / summary.seconds if summary.seconds else 0
    yield (
        f"{counted(summary.partitions, 'partition')}, {counted(summary.segments, 'segment')},"
        f" {counted(summary.batches, 'batch', 'batches')}, {_records_words(summary)}"
    )
    if summary.not_decoded:
        batches = counted(summary.not_decoded, "batch", "batches")
        yield f"{batches} not decoded: over the limit (raise it with --max-record-bytes)"
    if summary.unsettled:
        partitions = counted(summary.unsettled, "partition")
        yield (
            f"{partitions} not judged as a whole: files kept changing, or segments are being"
            " replaced; run verify again, without --live if no broker uses the directory"
        )
    if summary.coverage is not None:
        yield from coverage_lines(summary.coverage)
    total = counted(account.total_bytes, "byte")
    yield (
        f"{total}: {account.valid_bytes} valid, {account.padding_bytes}"
        f" padding, {account.damaged_bytes} damaged, {account.foreign_bytes} foreign;"
        f" {summary.seconds:.1f} s, {format_bytes(round(rate))}/s"
    )
    counts = [
        counted(summary.findings[each], each.label, _PLURALS.get(each.label, each.label))
        for each in reversed(Severity)
        if summary.findings.get(each)
    ]
    if not counts:
        yield TonedLine("valid: nothing found", Tone.GOOD)
        return
    hidden = ""
    if has_hidden:
        hidden = " (--verbose shows all)"
    elif summary.findings.get(Severity.INFO) and not verbose:
        hidden = " (--verbose shows info)"
    yield "found: " + ", ".join(counts) + hidden
    if verbose or any(summary.findings.get(each) for each in Severity if each > Severity.INFO):
        yield "for the meaning of a finding and what to do first: kdump explain CODE"


def coverage_lines(coverage: Coverage) -> Iterator[str]:
    """Yield how much of the data was read, and why not the rest."""
    subset = "" if coverage.subset is None else f" (subset {coverage.subset})"
    yield (
        f"read {coverage.read} of {counted(coverage.segments, 'segment')}{subset}:"
        f" {format_bytes(coverage.read_bytes)} of {format_bytes(coverage.bytes)}"
    )
    missed = coverage.chosen - coverage.read
    if missed and coverage.is_time_over:
        yield f"{counted(missed, 'segment')} not read: the time of --max-duration was over"
    elif missed:
        yield f"{counted(missed, 'segment')} not read: gone, unreadable, or changed meanwhile"
    since = "" if coverage.oldest_ms is None else format_timestamp(coverage.oldest_ms)
    if coverage.never:
        others = since and f", all others since {since}"
        yield f"{counted(coverage.never, 'segment')} never checked{others}"
    elif since:
        yield f"all segments checked since {since}"


_PLURALS: Final = {"warning": "warnings", "error": "errors"}
"""Plurals of severities that are nouns."""


def _records_words(summary: VerifySummary) -> str:
    if summary.records is not None:
        return counted(summary.records, "record")
    if summary.not_decoded:
        return "not all records counted"
    return "records in compressed message sets not counted (--deep counts them)"


class _TablePrinter:
    """A table of findings, one of partitions, and the summary."""

    def __init__(self, *, verbose: bool) -> None:
        self._verbose = verbose
        self._findings: list[Row] = []
        self._partitions: list[Row] = []
        self._lines: list[str] = []
        self._brief = BriefFindings(verbose=verbose)
        self._damaged = DamagedPartitions()

    def finding(self, finding: Finding) -> None:
        if self._brief.takes(finding):
            self._findings.append(finding_row(finding))

    def partition(self, report: PartitionReport) -> None:
        self._lines += self._brief.more()
        self._damaged.takes(report)
        if self._verbose or report.worst:
            self._partitions.append(partition_row(report))

    def summary(self, summary: VerifySummary) -> None:
        self._lines += self._brief.rest()
        has_hidden = self._brief.hidden > 0
        self._lines += summary_lines(summary, verbose=self._verbose, has_hidden=has_hidden)
        self._lines += self._damaged.lines()

    def emit_text(self, lines: Iterable[str]) -> None:
        self._lines += lines

    def finish(self) -> None:
        """Show the tables."""
        for columns, rows in (
            (FINDING.columns, self._findings),
            (VERIFIED_PARTITION.columns, self._partitions),
        ):
            if rows:
                with open_output(OutputFormat.TABLE, columns) as output:
                    output.rows(rows)
        for line in self._lines:
            write_line(line)
