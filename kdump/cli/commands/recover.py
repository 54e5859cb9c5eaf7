"""Recover log directories as a starting broker would."""

from __future__ import annotations

import enum
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from kdump.cli.options.config_options import ConfigArguments, config_options
from kdump.cli.options.engine_options import engine_options
from kdump.cli.options.parameters import now_option, paths_argument
from kdump.cli.options.repair_options import repair_options
from kdump.cli.options.selection_options import require_selected, selection_options
from kdump.cli.output.at_risk_output import at_risk_summary, report_at_risk
from kdump.cli.output.recovery_output import RecoveryReport, recovery_status, recovery_summary
from kdump.cli.output.selection_words import selection_words
from kdump.cli.output.write_arguments import RepairArguments
from kdump.engine.engine_choice import EngineOptions
from kdump.errors import ExitStatus
from kdump.storage.location import Location
from kdump.words import counted, shell_command, undo_command

if TYPE_CHECKING:
    from kdump.jobs.recover import DirectoryRecovery
    from kdump.jobs.writing.execution import PlanResult
    from kdump.log.selection import PartitionSelection


class RecoverPolicy(enum.Enum):
    """What to do with damaged data; the value is the word for ``--policy``."""

    BROKER = "broker"
    SALVAGE = "salvage"


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
    engine: EngineOptions,
) -> ExitStatus:
    """Recover log directories as a broker does when it starts, and shut them down cleanly.

    LOG_DIR is a log directory. If the broker has several, name all of them.
    """
    from kdump.cli.output.advice import preview_advice
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.cli.shared.change_run import changing
    from kdump.cli.shared.directories import find_log_directories
    from kdump.jobs.recover import RecoverRequest, recover
    from kdump.jobs.writing.large_content import LargeContent
    from kdump.log.directory import read_log_directory
    from kdump.repair.policies import Policy
    from kdump.state.metadata.settings import starting_kafkas

    begin = time.monotonic()
    diagnostics = Diagnostics()
    log_dirs = find_log_directories(paths, diagnostics)
    if not log_dirs:
        return diagnostics.status
    with changing("recover", log_dirs, repair) as run:
        directories = [read_log_directory(path, kind) for path, kind in log_dirs.items()]
        require_selected(selection, directories)
        request = RecoverRequest(
            directories=directories,
            settings=config.settings_of(directories),
            selection=selection,
            policy=Policy(policy_name.value),
            now_ms=now_ms,
            large_content=LargeContent(run.writing),
        )
        results = recover(request, engine)
        (run.preview if repair.dry_run else run.apply)(result.target for result in results)
    report = RecoveryReport(run.operations(), repair)
    status = diagnostics.status
    # What a broker would do is known even where a run would be refused.
    changed = list(zip(results, run.done, strict=True)) if repair.dry_run else run.changed(results)
    with run.report() as printer:
        for result, done in changed:
            printer.emit_all(report.events(result, done))
            report_at_risk(printer, result.others, verbose=repair.verbose)
            status |= recovery_status(result, done, repair)
        if not repair.dry_run:
            run.emit_failures(printer)
        printer.emit_text(report.rest())
        if repair.dry_run and policy_name is RecoverPolicy.BROKER:
            printer.emit_text(
                preview_advice(results, config.words, is_selection=not selection.is_everything)
            )
        totals = recovery_summary(changed, repair, time.monotonic() - begin)
        printer.emit(totals.with_kafkas(starting_kafkas(request.settings.values())))
        printer.emit_text(report.losses)
        printer.emit_text(_advice(report, changed, repair, policy_name, selection, config))
    return run.status(status)


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
    selected = selection_words(selection)
    if report.lossy:
        lossy = counted(report.lossy, "partition")
        if not repair.dry_run:
            yield f"records were lost in {lossy}"
            for _, done in changed:
                if done.undo is not None:
                    yield f"to undo: {undo_command(done.plan.path, done.undo)}"
        else:
            yield f"records would be lost in {lossy}"
    others = [each for result, _ in changed for each in result.others]
    if others:
        yield at_risk_summary(others, paths)
        selected = []
    if policy_name is RecoverPolicy.BROKER and (others or (report.lossy and repair.dry_run)):
        salvage = salvage_command(selected, paths, config.words, dry_run=True)
        yield f"without another replica, preview keeping the valid batches: {salvage}"
    if report.unserved:
        repairing = shell_command("verify --repair --dry-run", paths)
        yield (
            f"a broker would refuse or move aside {counted(report.unserved, 'partition')};"
            f" preview the repair: {repairing}"
        )
