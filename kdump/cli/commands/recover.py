"""Recover log directories as a starting broker would."""

from __future__ import annotations

import enum
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from kdump.cli.options.config_options import ConfigArguments, config_options
from kdump.cli.options.engine_options import EngineArguments, engine_options
from kdump.cli.options.parameters import now_option, paths_argument
from kdump.cli.options.repair_options import RepairArguments, repair_options
from kdump.cli.options.selection_options import (
    require_selected,
    selection_options,
    selection_words,
)
from kdump.cli.output.brief import BriefFindings, BriefList, first_of
from kdump.cli.output.events import Event
from kdump.cli.output.recovery_rows import directory_row, partition_row
from kdump.cli.output.rendering import Row
from kdump.cli.output.write_report import (
    Operations,
    failure_events,
    finding_events,
    interrupted_event,
    open_report,
    plan_lines,
    plan_row,
    preview_status,
    report_failures,
)
from kdump.errors import ExitStatus
from kdump.storage.location import Location
from kdump.words import counted, shell_command, undo_command

if TYPE_CHECKING:
    from kdump.jobs.recover import DirectoryRecovery, PartitionRecovery
    from kdump.jobs.writing.execution import PlanResult
    from kdump.log.selection import PartitionSelection


class RecoverPolicy(enum.Enum):
    """What to do with damaged data; the value is the word for ``--policy``."""

    BROKER = "broker"
    SALVAGE = "salvage"


_LOSS: Final = "loss"
_DAMAGED: Final = ("rebuilt", _LOSS)
_REFUSED: Final = "refused"
_UNREADABLE: Final = "unreadable"
_BAD: Final = (_LOSS, _REFUSED, _UNREADABLE)
"""Verdicts reported last."""
_KIND_WORDS: Final = {"sound": "valid"}
"""What people read for a kind of verdict, if not its JSON value."""
_QUIET: Final = ("sound", "unclean", "deleted", "stray")
"""Verdicts reported only with ``--verbose``."""


@click.command("recover")
@paths_argument("LOG_DIR", written=True)
@click.option(
    "--policy",
    "policy_name",
    type=click.Choice(RecoverPolicy, case_sensitive=False),
    default=RecoverPolicy.BROKER,
    help="Handle damaged data as broker (default): do what a starting broker does; or salvage: "
    "keep every valid batch and quarantine the damaged bytes.",
)
@selection_options
@now_option("Expire producers as of TIME")
@repair_options
@config_options
@engine_options
def command(
    paths: Sequence[Location],
    policy_name: RecoverPolicy,
    selection: PartitionSelection,
    now_ms: int,
    repair: RepairArguments,
    config: ConfigArguments,
    engine: EngineArguments,
) -> ExitStatus:
    """Recover log directories as a broker does when it starts, and shut them down cleanly.

    LOG_DIR is a log directory. If the broker has several, name all of them.
    """
    from kdump.cli.output.advice import preview_advice
    from kdump.cli.shared.directories import (
        Diagnostics,
        find_log_directories,
        without_garbage_collection,
    )
    from kdump.jobs.recover import RecoverRequest, recover
    from kdump.jobs.writing.execution import locked_for_writing, plan_and_apply
    from kdump.jobs.writing.large_content import LargeContent
    from kdump.log.directory import read_log_directory
    from kdump.repair.policies import Policy
    from kdump.state.metadata.settings import version_lines

    begin = time.monotonic()
    diagnostics = Diagnostics()
    log_dirs = find_log_directories(paths, diagnostics)
    if not log_dirs:
        return diagnostics.status
    writing = repair.writing("recover")
    with locked_for_writing(log_dirs, writing) as interrupted, without_garbage_collection():
        directories = [read_log_directory(path, kind) for path, kind in log_dirs.items()]
        require_selected(selection, directories)
        request = RecoverRequest(
            directories=directories,
            settings=config.settings_of(directories),
            selection=selection,
            policy=Policy(policy_name.value),
            now_ms=now_ms,
            large_content=LargeContent(writing),
        )
        results = recover(request, engine.options, engine.progress)
        done = plan_and_apply([result.target for result in results], writing)
    operations = Operations(done, verbose=repair.verbose)
    report = RecoveryReport(operations, repair)
    status = diagnostics.status
    with open_report(repair.output_format, done) as printer:
        for earlier in interrupted:
            printer.emit(interrupted_event(earlier))
        changed = [
            (result, each)
            for result, each in zip(results, done, strict=True)
            if each.failure is None
        ]
        for result, each in changed:
            for event in report.events(result, each):
                printer.emit(event)
            status |= status_of(result, each, repair)
        for event in failure_events(done):
            printer.emit(event)
        printer.emit_text(report.rest())
        if repair.dry_run and policy_name is RecoverPolicy.BROKER:
            printer.emit_text(
                preview_advice(results, config.words, is_selection=not selection.is_everything)
            )
        printer.emit(_summary(changed, repair, time.monotonic() - begin))
        printer.emit_text(version_lines(request.settings.values()))
        printer.emit_text(report.losses)
        printer.emit_text(_advice(report, changed, repair, policy_name, selection, config))
    status |= report_failures(done)
    return preview_status(status) if repair.dry_run else status


class RecoveryReport:
    """The report on recovered log directories.

    Attributes:
        losses: lines about partitions that lose records or that a broker would not serve;
            printed last, so that they do not scroll away.
        lossy: how many partitions lose records.
        unserved: how many a broker would refuse or rename to -stray.
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
        self.lossy += kind == _LOSS
        self.unserved += kind == _REFUSED or result.becomes_stray
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
        lines = [*plan_lines(done), *self._operations.counts(done)]
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
        return [f"{path}: left unchanged: {words.sentence}"]
    lines = [f"{path}: {words.sentence if repair.dry_run or result.unchanged else words.done}"]
    lines += (f"  {detail}" for detail in first_of(words.details, verbose=repair.verbose))
    if result.unchanged:
        lines.append(f"{path}: left unchanged: {result.unchanged.value}")
    return lines


def status_of(result: DirectoryRecovery, done: PlanResult, repair: RepairArguments) -> ExitStatus:
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


def _summary(
    changed: Sequence[tuple[DirectoryRecovery, PlanResult]],
    repair: RepairArguments,
    seconds: float,
) -> Event:
    from kdump.check.findings import Severity

    partitions = [partition for result, _ in changed for partition in result.partitions]
    verdicts = Counter(partition.verdict.kind for partition in partitions)
    row = {
        "partitions": len(partitions),
        "verdicts": dict(verdicts),
        "left": sum(partition.unchanged is not None for partition in partitions),
        "lost_bytes": sum(each.plan.lost_bytes for _, each in changed),
        "is_dry_run": repair.dry_run,
        "seconds": round(seconds, 3),
    }
    counts = ", ".join(
        f"{count} {_KIND_WORDS.get(kind, kind)}" for kind, count in verdicts.most_common()
    )
    count = counted(len(partitions), "partition")
    when = "" if repair.dry_run or not any(each.is_applied for _, each in changed) else ", as found"
    lines = [f"{count}{when}: {counts or 'nothing to do'}"]
    severe = sum(
        finding.severity is Severity.SEVERE and not result.ends(finding)
        for result, _ in changed
        for finding in result.findings
    )
    if severe:
        lines.append(f"{counted(severe, 'severe finding')} about log directories: see above")
    return Event("summary", row, lines)


def _advice(
    report: RecoveryReport,
    changed: Sequence[tuple[DirectoryRecovery, PlanResult]],
    repair: RepairArguments,
    policy_name: RecoverPolicy,
    selection: PartitionSelection,
    config: ConfigArguments,
) -> Iterator[str]:
    """Advise what to do next if records are lost, or a broker would not serve a partition."""
    from kdump.cli.output.advice import salvage_command

    paths = [result.directory.path for result, _ in changed]
    if report.lossy:
        lossy = counted(report.lossy, "partition")
        if not repair.dry_run:
            yield f"records were lost in {lossy}"
            for _, done in changed:
                if done.undo is not None:
                    yield f"to undo: {undo_command(done.plan.path, done.undo)}"
        elif policy_name is RecoverPolicy.BROKER:
            yield f"records would be lost in {lossy}"
            selected = selection_words(selection)
            salvage = salvage_command(selected, paths, config.words, dry_run=True)
            yield f"without another replica, preview keeping the valid batches: {salvage}"
        else:
            yield f"records would be lost in {lossy}"
    if report.unserved:
        repairing = shell_command("verify --repair --dry-run", paths)
        yield (
            f"a broker would refuse or move aside {counted(report.unserved, 'partition')};"
            f" preview the repair: {repairing}"
        )
