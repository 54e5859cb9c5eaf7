"""The results of a verification with statistics, kept for a page."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field
from msgspec.structs import replace

from kdump.check.findings import Finding
from kdump.check.partition_statistics import PartitionStatistics
from kdump.jobs.verify.verify import VerifySummary
from kdump.jobs.verify.verify_partition import PartitionReport
from kdump.scan.batch_statistics import BatchStatistics


class CollectedResults(Struct):
    """Takes the results as they come; one can print with it as with every printer of verify.

    Attributes:
        findings: all, in order.
        reports: of the partitions, in order; their statistics of batches are in ``topics``.
        topics: the statistics of batches by topic; by the name of the directory where it is no
            partition's.
        totals: None until the end, or if nothing was verified.
    """

    findings: list[Finding] = field(default_factory=list)
    reports: list[PartitionReport] = field(default_factory=list)
    topics: dict[str, BatchStatistics] = field(default_factory=dict)
    totals: VerifySummary | None = None

    def finding(self, finding: Finding) -> None:
        self.findings.append(finding)

    def partition(self, report: PartitionReport) -> None:
        """Add the statistics to those of its topic: ten thousand histograms take much memory."""
        if report.statistics is not None:
            key = report.partition.topic_partition
            topic = report.partition.path.name if key is None else key.topic
            known = self.topics.get(topic)
            batches = report.statistics.batches
            self.topics[topic] = batches if known is None else known + batches
            report = replace(
                report, statistics=replace(report.statistics, batches=BatchStatistics())
            )
        self.reports.append(report)

    def summary(self, summary: VerifySummary) -> None:
        self.totals = summary

    def emit_text(self, lines: Iterable[str]) -> None:
        """Do nothing: a page has its own words."""

    @property
    def statistics(self) -> BatchStatistics:
        return sum(self.topics.values(), BatchStatistics())


def statistics_of(report: PartitionReport) -> PartitionStatistics:
    """The statistics of a partition; empty ones if nothing of it could be read."""
    return PartitionStatistics() if report.statistics is None else report.statistics
