"""What ``kdump recover`` reports, and recovery before compaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from kdump.cli.output.brief import BriefFindings, BriefList, first_of
from kdump.cli.output.colour import verdict_line
from kdump.cli.output.events import Event
from kdump.cli.output.recovery_rows import directory_row, partition_row
from kdump.cli.output.rendering import Row
from kdump.cli.output.value_text import format_bytes
from kdump.cli.output.write_arguments import RepairArguments
from kdump.cli.output.write_report import (
    Operations,
    finding_events,
    plan_lines,
    plan_row,
    preview_status,
)
from kdump.errors import ExitStatus
from kdump.words import counted

if TYPE_CHECKING:
    from kdump.jobs.recover import DirectoryRecovery, PartitionRecovery
    from kdump.jobs.writing.execution import PlanResult


_LOSS: Final = "loss"
_DAMAGED: Final = ("rebuilt", _LOSS)
_REFUSED: Final = "refused"
_UNREADABLE: Final = "unreadable"
_BAD: Final = (_LOSS, _REFUSED, _UNREADABLE)
"""Verdicts reported last."""
_QUIET: Final = ("valid", "unclean", "deleted", "stray")
"""Verdicts reported only with ``--verbose``."""
_LONG_START_BYTES: Final = 1 << 30
"""From here on it matters how long a start takes that reads so much again."""


class RecoveryReport:
    """The report on recovered log directories.

    Attributes:
        losses: lines about partitions that lose records or that a broker would not serve;
            printed last, so that they do not scroll away.
        lossy: how many partitions lose records, without those that are left unchanged.
        unserved: how many a broker would refuse or rename to -stray, without the refused ones that
            no command repairs.
    """

    def __init__(self, operations: Operations, repair: RepairArguments) -> None:
        self._operations = operations
        self._repair = repair
        self._findings = BriefFindings(verbose=repair.verbose)
        self._harmless = BriefList(verbose=repair.verbose)
        self.losses: list[str] = []
        self.lossy = self.unserved = 0

    def events(self, result: DirectoryRecovery, done: PlanResult) -> Iterator[Event]:
        """Yield the events of a log directory, without the losses."""
        yield from finding_events(result.findings, self._findings)
        for partition in result.partitions:
            yield from finding_events(partition.findings, self._findings)
            yield self._partition_event(partition)
        yield self._directory_event(result, done)

    def rest(self) -> list[str]:
        """Return the counts of what was not listed."""
        return [*self._findings.rest(), *self._harmless.rest()]

    def _partition_event(self, result: PartitionRecovery) -> Event:
        path = result.partition.path
        kind = result.verdict.kind
        self.lossy += kind == _LOSS and not result.unchanged
        is_repairable = kind == _REFUSED and not result.unchanged
        self.unserved += is_repairable or result.becomes_stray
        planned = self._operations.lines(path) if self._repair.dry_run else []
        counts = list(self._findings.more())
        if kind in _BAD or result.becomes_stray:
            self.losses += [*_verdict_lines(result, self._repair), *planned]
            return Event("partition", partial(self._partition_row, result), counts)
        lines: list[str] = []
        if self._repair.verbose or planned or kind not in _QUIET:
            lines = [*_verdict_lines(result, self._repair), *planned]
        lines = [*counts, *self._harmless.take(lines)]
        return Event("partition", partial(self._partition_row, result), lines)

    def _partition_row(self, result: PartitionRecovery) -> Row:
        return partition_row(result) | {"operations": self._operations.rows(result.partition.path)}

    def _directory_event(self, result: DirectoryRecovery, done: PlanResult) -> Event:
        path = result.directory.path
        lines = [*plan_lines(done), *self._operations.counts(done)] if done.failure is None else []
        if result.directory.is_clean and not result.becomes_clean:
            lines.append(
                f"{path}: the clean shutdown marker"
                f" {'would be deleted' if self._repair.dry_run else 'is deleted'}, because"
                " some damage is left: the next start, or run, recovers all logs as after a crash"
            )
        if self._repair.dry_run:
            lines += self._operations.lines(path)
        return Event("directory", partial(self._directory_row, result, done), lines)

    def _directory_row(self, result: DirectoryRecovery, done: PlanResult) -> Row:
        operations = self._operations.rows(result.directory.path)
        return {**directory_row(result), **plan_row(done), "operations": operations}


def _verdict_lines(result: PartitionRecovery, repair: RepairArguments) -> list[str]:
    words = result.verdict
    path = result.partition.path
    if words.kind == _REFUSED:
        return [verdict_line(words.kind, f"{path}: left unchanged: {words.sentence}")]
    said = words.sentence if repair.dry_run or result.unchanged else words.done
    lines = [verdict_line(words.kind, f"{path}: {said}")]
    lines += (f"  {detail}" for detail in first_of(words.details, verbose=repair.verbose))
    if result.unchanged:
        lines.append(f"{path}: left unchanged: {result.unchanged.value}")
    return lines


def recovery_status(
    result: DirectoryRecovery, done: PlanResult, repair: RepairArguments
) -> ExitStatus:
    """Return the exit status for one log directory.

    A dry run gives 1 if there is something to do, or 4 if records would be lost or some damage
    would be left.
    """
    status = _status_of_run(result)
    if not repair.dry_run:
        return status
    if any(partition.verdict.kind == _LOSS for partition in result.partitions):
        status |= ExitStatus.DAMAGE_LEFT
    is_settled = done.plan.is_empty or result.is_settled
    return preview_status(status if is_settled else status | ExitStatus.REPAIRED)


def _status_of_run(result: DirectoryRecovery) -> ExitStatus:
    """Return the exit status of a run that is not a preview."""
    from kdump.check.invariants import FILE_UNREADABLE
    from kdump.jobs.recover import NotRecovered

    repaired = ExitStatus.REPAIRED
    status = ExitStatus.SOUND
    for partition in result.partitions:
        kind = partition.verdict.kind
        if kind in _DAMAGED:
            status |= ExitStatus.DAMAGE_LEFT if partition.unchanged else repaired
        elif kind == _UNREADABLE:
            status |= ExitStatus.OPERATIONAL_ERROR
        if partition.unchanged is NotRecovered.REMOTE_STORAGE:
            status |= ExitStatus.DAMAGE_LEFT
        if any(finding.severity.is_damage for finding in partition.findings):
            status |= ExitStatus.DAMAGE_LEFT
    for finding in result.findings:
        if finding.code == FILE_UNREADABLE.code:
            status |= ExitStatus.OPERATIONAL_ERROR
        elif finding.severity.is_damage:
            status |= repaired if result.ends(finding) else ExitStatus.DAMAGE_LEFT
    return status


def recovery_summary(
    changed: Sequence[tuple[DirectoryRecovery, PlanResult]],
    repair: RepairArguments,
    seconds: float,
) -> Event:
    """Return the event that ends the report: partitions by their verdicts."""
    from kdump.check.findings import Severity

    partitions = [partition for result, _ in changed for partition in result.partitions]
    verdicts = Counter(partition.verdict.kind for partition in partitions)
    read_again = [segment.log_bytes for each in partitions for segment in each.recovered_logs]
    row = {
        "partitions": len(partitions),
        "verdicts": dict(verdicts),
        "left": sum(partition.unchanged is not None for partition in partitions),
        "lost_bytes": sum(each.plan.lost_bytes for _, each in changed),
        "recovered_segments": len(read_again),
        "recovered_bytes": sum(read_again),
        "is_dry_run": repair.dry_run,
        "seconds": round(seconds, 3),
    }
    counts = ", ".join(f"{count} {kind}" for kind, count in verdicts.most_common())
    count = counted(len(partitions), "partition")
    when = "" if repair.dry_run or not any(each.is_applied for _, each in changed) else ", as found"
    lines = [f"{count}{when}: {counts or 'nothing to do'}"]
    if repair.dry_run and sum(read_again) >= _LONG_START_BYTES:
        lines.append(
            f"a starting broker reads {counted(len(read_again), 'segment')}"
            f" ({format_bytes(sum(read_again))}) again before it serves them; this run took"
            f" {seconds:.1f} s for that"
        )
    severe = sum(
        finding.severity is Severity.SEVERE and not result.ends(finding)
        for result, _ in changed
        for finding in result.findings
    )
    if severe:
        lines.append(f"{counted(severe, 'severe finding')} about log directories: see above")
    return Event("summary", row, lines)
