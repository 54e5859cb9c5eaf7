"""Compact logs: keep the latest record of each key."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from kdump.cli.options.config_options import ConfigArguments, config_options
from kdump.cli.options.conflicts import require_at_most_one
from kdump.cli.options.deletion_options import deletion_options
from kdump.cli.options.engine_options import engine_options
from kdump.cli.options.parameters import max_record_bytes_option, paths_argument
from kdump.cli.options.selection_options import (
    nothing_selected,
    nothing_selected_in,
    selection_options,
)
from kdump.cli.output.events import open_printer, write_notice
from kdump.cli.output.recovery_output import RecoveryReport, recovery_status
from kdump.cli.output.write_arguments import DeletionArguments
from kdump.cli.output.write_report import emit_findings, noting, outcome_notes
from kdump.engine.engine_choice import EngineOptions
from kdump.errors import ExitStatus, UsageProblem
from kdump.log.selection import only_metadata
from kdump.storage.location import Location

if TYPE_CHECKING:
    from kdump.jobs.compact.request import CompactRequest
    from kdump.log.directory import DirectoryKind
    from kdump.log.selection import PartitionSelection


@click.command("compact")
@paths_argument("LOG_DIR", written=lambda given: not given["explain"])
@selection_options
@click.option(
    "--all-compacted",
    is_flag=True,
    help="Compact all topics with cleanup.policy=compact.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Compact selected topics even if their cleanup.policy is not compact.",
)
@click.option(
    "--recover",
    "recovers",
    is_flag=True,
    help="First recover log directories after an unclean shutdown, or with leftover files, as "
    "kdump recover does.",
)
@click.option(
    "--explain",
    is_flag=True,
    is_eager=True,
    help="With --dry-run, compact nothing: show in which order the log cleaner would take the logs,"
    " and what keeps it from cleaning them (default: all compacted topics).",
)
@max_record_bytes_option
@deletion_options
@config_options
@engine_options
def command(
    paths: Sequence[Location],
    selection: PartitionSelection,
    all_compacted: bool,
    force: bool,
    recovers: bool,
    explain: bool,
    largest_record_bytes: int,
    deletion: DeletionArguments,
    config: ConfigArguments,
    engine: EngineOptions,
) -> ExitStatus:
    """Compact logs as a broker's log cleaner does: keep the latest record of each key.

    LOG_DIR is a log directory after a clean shutdown. If the broker has several, name all of them.
    """
    from kdump.check.directory import check_cleaner_lines
    from kdump.cli.output.compact_output import CompactReport, status_of, summary
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.cli.shared.change_run import changing
    from kdump.cli.shared.directories import find_log_directories
    from kdump.jobs.compact.compact import compact, compacted_line, recover_first
    from kdump.jobs.compact.request import CompactRequest
    from kdump.jobs.writing.start_blockers import severe_findings
    from kdump.state.metadata.settings import starting_kafkas

    if explain:
        if not deletion.dry_run:
            raise UsageProblem("--explain requires --dry-run")
        require_at_most_one({"--explain": explain, "--force": force})
        return _explain(paths, selection, deletion, config, engine)
    if selection.is_everything != all_compacted:
        raise UsageProblem("give --topic, --partition or --all-compacted")
    require_at_most_one({"--force": force, "--all-compacted": all_compacted})
    if recovers and deletion.dry_run:
        raise UsageProblem(
            "--recover and --dry-run are mutually exclusive: compaction depends on what recovery"
            " leaves; preview that with kdump recover --dry-run"
        )
    begin = time.monotonic()
    diagnostics = Diagnostics()
    log_dirs = find_log_directories(paths, diagnostics)
    if not log_dirs:
        return diagnostics.status
    with changing("compact", log_dirs, deletion) as run:
        request = _request(
            log_dirs,
            config,
            CompactRequest(
                selection=selection,
                all_compacted=all_compacted,
                force=force,
                is_replicated=deletion.is_replicated,
                now_ms=deletion.now_ms,
                largest_record_bytes=largest_record_bytes,
            ),
        )
        _require_match(request)
        recovered = []
        if recovers:
            recovered = recover_first(request, run.writing, engine)
            request = _request(log_dirs, config, request)
        for directory in request.directories:
            diagnostics.report_problems(directory)
        severe = severe_findings(
            request.directories,
            request.settings,
            {
                each.path: [one for one in each.partitions if request.selects(each, one)]
                for each in request.directories
            },
        )
        severe += check_cleaner_lines(request.directories)
        changed = [recovery.directory.path for recovery, done in recovered if done.is_applied]
        run.done = [done for _, done in recovered]
        with outcome_notes(run.done):
            results = compact(request, run.writing, engine, changed)
    recovery_report = RecoveryReport(run.operations(), deletion)
    report = CompactReport(deletion)
    status = diagnostics.status | status_of(results)
    with noting(map(compacted_line, results)), run.report() as printer:
        for recovery, done in recovered:
            for event in recovery_report.events(recovery, done):
                printer.emit(msgspec.structs.replace(event, type=f"recovery_{event.type}"))
            status |= recovery_status(recovery, done, deletion)
        printer.emit_text(recovery_report.rest())
        emit_findings(printer, severe, verbose=deletion.verbose)
        if severe:
            status |= ExitStatus.DAMAGE_LEFT
        for result in results:
            printer.emit_all(report.events(result))
        printer.emit_text(report.rest())
        totals = summary(results, deletion, time.monotonic() - begin)
        printer.emit(totals.with_kafkas(starting_kafkas(request.settings.values())))
        printer.emit_text([*recovery_report.losses, *report.unchanged.lines(), *report.problems])
    return run.status(status)


def _explain(
    paths: Sequence[Location],
    selection: PartitionSelection,
    deletion: DeletionArguments,
    config: ConfigArguments,
    engine: EngineOptions,
) -> ExitStatus:
    """Show the queue of each broker's log cleaner; nothing is locked or written."""
    from kdump.cli.output.cleaner_output import damage_lines, queue_events, queue_status
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.cli.shared.directories import find_log_directories, without_garbage_collection
    from kdump.jobs.compact.cleaning_queue import QueueRequest, cleaning_queues, list_compacted
    from kdump.log.directory import read_log_directory

    diagnostics = Diagnostics()
    log_dirs = find_log_directories(paths, diagnostics)
    if not log_dirs:
        return diagnostics.status
    with without_garbage_collection():
        roots = [
            read_log_directory(path, kind, select=only_metadata) for path, kind in log_dirs.items()
        ]
        settings = config.settings_of(roots)
        if not any(
            selection.matches(str(key), key) for each in roots for key, _ in each.identities
        ):
            raise nothing_selected(selection, log_dirs)
        request = QueueRequest(
            directories=list_compacted(roots, settings, selection),
            settings=settings,
            selection=selection,
            is_replicated=deletion.is_replicated,
            now_ms=deletion.now_ms,
        )
        queues = cleaning_queues(request, engine)
    problems = [each for found in (*roots, *request.directories) for each in found.problems]
    for problem in {each.path: each for each in problems}.values():
        diagnostics.report(problem.path, problem.error)
    status = diagnostics.status
    with open_printer(deletion.output_format) as printer:
        for queue in queues:
            printer.emit_all(queue_events(queue, verbose=deletion.verbose))
            status |= queue_status(queue)
    sys.stdout.flush()
    for queue in queues:
        for line in damage_lines(queue):
            write_notice(line)
    return status


def _request(
    log_dirs: Mapping[Location, DirectoryKind], config: ConfigArguments, request: CompactRequest
) -> CompactRequest:
    """Return ``request`` with the log directories as they are now."""
    from kdump.log.broker import partitions_twice
    from kdump.log.directory import read_log_directory

    directories = [read_log_directory(path, kind) for path, kind in log_dirs.items()]
    settings = config.settings_of(directories)
    return msgspec.structs.replace(
        request,
        directories=directories,
        settings=settings,
        twice=partitions_twice(directories),
    )


def _require_match(request: CompactRequest) -> None:
    """Refuse a selection without a match: misspelt, or of unknown configuration."""
    if any(
        request.selects(directory, partition)
        for directory in request.directories
        for partition in directory.partitions
    ):
        return
    if request.all_compacted:
        paths = " ".join(str(directory.path) for directory in request.directories)
        raise UsageProblem(
            f"no topic in {paths} is known to be compacted: select it with --topic, or give"
            " --metadata DIR"
        )
    raise nothing_selected_in(request.selection, request.directories)
