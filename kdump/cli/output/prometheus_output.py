"""What a verification found, as metrics of Prometheus."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from kdump.cli.output.out_file import OutFile
from kdump.cli.output.verify_output import VerifyFormat, open_verify_printer
from kdump.errors import KdumpError

if TYPE_CHECKING:
    from kdump.check.findings import Finding
    from kdump.cli.output.verify_output import VerifyPrinter
    from kdump.errors import ExitStatus
    from kdump.jobs.verify.verify import VerifySummary
    from kdump.jobs.verify.verify_partition import PartitionReport
    from kdump.storage.location import Location


@contextlib.contextmanager
def open_metrics_printer(
    out_name: str | None, paths: Sequence[Location], now_ms: int, *, verbose: bool
) -> Iterator[MetricsPrinter]:
    """Open what collects metrics; with a file for them, standard output has the report.

    Args:
        out_name: the file; None for standard output.
        now_ms: when the run began.

    Raises:
        UsageProblem: the file is in a log directory, or is one of what is verified.
        KdumpError: the package that writes the format is not installed, or there is no such
            directory.
    """
    if out_name is None:
        yield MetricsPrinter(None, None, now_ms)
        return
    out = OutFile.checked(out_name, is_replaced=True, mode=0o644)
    out.refuse_to_replace(paths)
    with open_verify_printer(VerifyFormat.TEXT, verbose=verbose) as shown:
        yield MetricsPrinter(shown, out, now_ms)


class MetricsPrinter:
    """Collect everything until the exit status is known, and pass it on to another printer.

    Args:
        shown: the other printer; None without one.
        out: the file that is written; None for standard output.

    Raises:
        KdumpError: the package that writes the format is not installed.
    """

    def __init__(self, shown: VerifyPrinter | None, out: OutFile | None, now_ms: int) -> None:
        try:
            import prometheus_client
        except ImportError:
            raise KdumpError(
                "--output prometheus needs the package prometheus_client:"
                " pip install 'kafka-kdump[prometheus]'"
            ) from None
        self._library = prometheus_client
        self._shown = shown
        self._out = out
        self._now_ms = now_ms
        self._findings: Counter[tuple[str, str]] = Counter()
        self._summary: VerifySummary | None = None

    def finding(self, finding: Finding) -> None:
        self._findings[finding.code, finding.severity.label] += 1
        if self._shown is not None:
            self._shown.finding(finding)

    def partition(self, report: PartitionReport) -> None:
        if self._shown is not None:
            self._shown.partition(report)

    def summary(self, summary: VerifySummary) -> None:
        self._summary = summary
        if self._shown is not None:
            self._shown.summary(summary)

    def emit_text(self, lines: Iterable[str]) -> None:
        if self._shown is not None:
            self._shown.emit_text(lines)

    def write(self, status: ExitStatus) -> None:
        """Write the metrics.

        Raises:
            KdumpError: they cannot be written.
        """
        content = self._metrics(status)
        if self._out is None:
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
        else:
            self._out.write([content])

    def _metrics(self, status: ExitStatus) -> bytes:
        registry = self._library.CollectorRegistry()

        def gauge(name: str, what: str, value: float) -> None:
            self._library.Gauge(f"kdump_verify_{name}", what, registry=registry).set(value)

        found = self._library.Gauge(
            "kdump_verify_findings",
            "Findings of the run, by code and severity.",
            ["code", "severity"],
            registry=registry,
        )
        for (code, severity), count in sorted(self._findings.items()):
            found.labels(code, severity).set(count)
        gauge("exit_status", "Exit status of the run.", int(status))
        gauge("last_run_timestamp_seconds", "When the run began.", self._now_ms / 1000)
        if self._summary is not None:
            for name, what, value in _values(self._summary, self._now_ms):
                gauge(name, what, value)
        content: bytes = self._library.generate_latest(registry)
        return content


def _values(summary: VerifySummary, now_ms: int) -> Iterable[tuple[str, str, float]]:
    """The values of a summary: the name of each, what it is, and it."""
    coverage = summary.coverage
    read_bytes = summary.account.total_bytes if coverage is None else coverage.read_bytes
    yield "duration_seconds", "How long the run took.", summary.seconds
    yield "partitions_checked", "Partitions that were read, at least in part.", summary.partitions
    yield "segments_checked", "Segments that were read to their end.", summary.segments
    yield "checked_bytes", "Bytes that were read.", read_bytes
    yield "damaged_bytes", "Damaged bytes in what was read.", summary.account.damaged_bytes
    yield "unsettled_partitions", "Partitions not judged as a whole.", summary.unsettled
    if coverage is None:
        return
    yield "segments", "Segments that there are.", coverage.segments
    yield "segment_bytes", "Bytes of all segments.", coverage.bytes
    yield "time_over", "Whether there was no time for some.", coverage.is_time_over
    if coverage.never is not None:
        yield "segments_never_checked", "Segments that no run has read.", coverage.never
    if coverage.oldest_ms is not None:
        what = "When the run began since which each segment was read, but those never checked."
        yield "oldest_check_timestamp_seconds", what, coverage.oldest_ms / 1000
        age = (now_ms - coverage.oldest_ms) / 1000
        yield "oldest_check_age_seconds", "Age of that check when this run began.", age
