"""``kdump verify --repair``: verify, apply the minimal repair, verify again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kdump.check.findings import Finding
from kdump.cli.output.advice import AdvisingPrinter
from kdump.cli.output.diagnostics import Diagnostics
from kdump.cli.output.events import Event, Printer
from kdump.cli.output.verify_output import EventPrinter
from kdump.cli.output.write_report import (
    Operations,
    interrupted_event,
    outcome_notes,
    plan_lines,
    plan_row,
    preview_status,
    report_failures,
)
from kdump.cli.shared.directories import without_garbage_collection
from kdump.cli.shared.partial_repair import find_named_paths
from kdump.cli.shared.verification import Verification
from kdump.errors import ExitStatus
from kdump.jobs.verify.minimal_repair import (
    MinimalRepair,
    RepairableFindings,
    RepairOptions,
    plan_minimal_repair,
)
from kdump.jobs.writing.execution import PlanResult, Writing, locked_for_writing, plan_and_apply
from kdump.jobs.writing.large_content import LargeContent
from kdump.log.directory import LogDirectory, read_log_directory
from kdump.repair.policies import Policy
from kdump.storage.location import Location

MAX_ROUNDS: Final = 5
"""One repair may enable the next: checkpoints, leftover files, data, what is derived from it."""

_ONLY_THE_FIRST_ROUND: Final = Event(
    "dry_run",
    {"rounds": 1},
    ["this previews the first round; a run verifies again afterwards, and may repair more"],
)


def verify_and_repair(
    verification: Verification, printer: Printer, policy: Policy, writing: Writing, *, verbose: bool
) -> ExitStatus:
    """Verify and repair in turns until nothing more can be repaired; returns the exit status.

    Raises:
        LockedError: a broker or another kdump holds one of the log directories.
        KdumpError: a repair is not possible; the message says what to do.
    """
    diagnostics = Diagnostics()
    named = find_named_paths(verification.paths, diagnostics, segments=True)
    log_dirs = list(dict.fromkeys(each.log_dir for each in named))
    if not log_dirs:
        return diagnostics.status
    status = repaired = ExitStatus.SOUND
    all_done: list[PlanResult] = []
    advice: Iterable[str] = ()
    with (
        locked_for_writing(log_dirs, writing) as interrupted,
        outcome_notes(all_done),
        without_garbage_collection(),
    ):
        printer.emit_all(map(interrupted_event, interrupted))
        for rounds_left in reversed(range(MAX_ROUNDS)):
            findings: list[Finding] = []
            shown = AdvisingPrinter(
                EventPrinter(printer, verbose=verbose),
                verification.paths,
                verification.config.words,
            )
            status = verification.run(shown, diagnostics, findings.append)
            advice = shown.advice(after_repair=True)
            if not rounds_left:
                break
            repairs = _repairs(log_dirs, findings, verification, policy, writing)
            done = plan_and_apply([each.target for each in repairs], writing)
            printer.emit_all(_repair_events(done, verbose=verbose))
            all_done += done
            if any(each.failure for each in done):
                break
            if all(each.plan.is_empty for each in done):
                break
            if writing.dry_run:
                printer.emit(_ONLY_THE_FIRST_ROUND)
                damage = [each for each in findings if each.severity > verification.worst_allowed]
                status = _preview_status(status, damage, repairs)
                break
            repaired = ExitStatus.REPAIRED
        printer.emit_text(advice)
    return status | repaired | diagnostics.status | report_failures(all_done)


def _preview_status(
    status: ExitStatus, damage: Sequence[Finding], repairs: Sequence[MinimalRepair]
) -> ExitStatus:
    """Return the exit status of a preview with something to do."""
    status = status & ~ExitStatus.DAMAGE_LEFT | ExitStatus.REPAIRED
    left = damage
    for each in repairs:
        left = each.left_of(left)
    if left or any(each.loses_records for each in repairs):
        status |= ExitStatus.DAMAGE_LEFT
    return preview_status(status)


def _repairs(
    log_dirs: Iterable[Location],
    findings: Iterable[Finding],
    verification: Verification,
    policy: Policy,
    writing: Writing,
) -> list[MinimalRepair]:
    """Compute the minimal repair of the findings."""
    repairable = RepairableFindings()
    for finding in findings:
        repairable.take(finding)
    directories: Sequence[LogDirectory] = [read_log_directory(path) for path in log_dirs]
    settings = RepairOptions(
        settings=verification.config.settings_of(directories),
        policy=policy,
        now_ms=verification.now_ms,
        options=verification.engine,
        large_content=LargeContent(writing),
    )
    return plan_minimal_repair(repairable, directories, settings)


def _repair_events(done: Sequence[PlanResult], *, verbose: bool) -> Iterator[Event]:
    """Yield what was or would be done to each log directory."""
    operations = Operations(done, verbose=verbose)
    for each in done:
        if each.plan.is_empty:
            continue
        row = {"log_dir": str(each.plan.path), **plan_row(each)}
        row["operations"] = [
            {"directory": str(directory.path), **operation}
            for directory in each.plan.directories
            for operation in operations.rows(directory.path)
        ]
        lines = []
        for directory in each.plan.directories:
            if listed := operations.lines(directory.path):
                lines += [f"repair {directory.path}:", *listed]
        yield Event("repair", row, [*lines, *plan_lines(each), *operations.counts(each)])
