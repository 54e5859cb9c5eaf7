"""Delete old segments by retention rules, or to free space."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from kdump.cli.options.config_options import ConfigArguments, config_options
from kdump.cli.options.deletion_options import deletion_options, refuse_cluster_metadata
from kdump.cli.options.engine_options import engine_options
from kdump.cli.options.parameters import SizeParameter, paths_argument
from kdump.cli.options.selection_options import nothing_selected_in, selection_options
from kdump.cli.output.write_arguments import DeletionArguments
from kdump.cli.output.write_report import emit_findings
from kdump.engine.engine_choice import EngineOptions
from kdump.errors import ExitStatus, KdumpError, UsageProblem
from kdump.storage.location import Location

if TYPE_CHECKING:
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.cli.shared.change_run import ChangeRun
    from kdump.log.directory import DirectoryKind
    from kdump.log.selection import PartitionSelection


@click.command("retain")
@paths_argument("LOG_DIR", written=True)
@selection_options
@click.option(
    "--free",
    "free_bytes",
    type=SizeParameter(),
    help="Ignore retention settings: delete the oldest segments until SIZE is freed, or as many as "
    "may be deleted.",
)
@click.option(
    "--explain",
    is_flag=True,
    help="Show for each segment why it is kept or deleted, and when it expires.",
)
@deletion_options
@config_options
@engine_options
def command(
    paths: Sequence[Location],
    selection: PartitionSelection,
    free_bytes: int | None,
    explain: bool,
    deletion: DeletionArguments,
    config: ConfigArguments,
    engine: EngineOptions,
) -> ExitStatus:
    """Delete old segments by retention rules, as a broker does, or to free space.

    LOG_DIR is a log directory after a clean shutdown. If the broker has several, name all of them.
    """
    from kdump.cli.output.deletion_output import (
        DeletionReport,
        advice,
        shortage,
        status_of,
        summary,
    )
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.cli.shared.change_run import changing
    from kdump.cli.shared.directories import find_log_directories
    from kdump.jobs.retain.retain import RetainRequest, retain
    from kdump.jobs.writing.start_blockers import severe_findings
    from kdump.log.directory import read_log_directory
    from kdump.state.metadata.settings import starting_kafkas

    begin = time.monotonic()
    if selection.is_everything:
        raise UsageProblem("retain requires --topic or --partition: give --topic '*' for all")
    refuse_cluster_metadata(selection)
    diagnostics = Diagnostics()
    log_dirs = find_log_directories(paths, diagnostics)
    if not log_dirs:
        return diagnostics.status
    with changing("retain", log_dirs, deletion) as run:
        # Only counts are shown of many partitions, so that they need not all be in this process.
        is_brief = deletion.is_brief_preview and not explain and free_bytes is None
        if is_brief and engine.may_be_local:
            status = _brief_preview(run, log_dirs, selection, deletion, config, diagnostics)
            if status is not None:
                return status
        directories = [read_log_directory(path, kind) for path, kind in log_dirs.items()]
        settings = config.settings_of(directories)
        request = RetainRequest(
            directories=directories,
            settings=settings,
            selection=selection,
            now_ms=deletion.now_ms,
            is_replicated=deletion.is_replicated,
            free_bytes=free_bytes,
        )
        selected = {each.path: request.selected_in(each) for each in directories}
        if not any(selected.values()):
            raise nothing_selected_in(selection, directories)
        severe = severe_findings(directories, settings, selected)
        results = retain(request, engine)
        for directory in directories:
            diagnostics.report_problems(directory)
        run.apply(result.target for result in results)
    operations = run.operations(verbose=deletion.verbose or explain)
    report = DeletionReport(operations, deletion, explain=explain)
    changed = run.changed(results)
    results = [result for result, _ in changed]
    with run.report() as printer:
        emit_findings(printer, severe, verbose=deletion.verbose)
        for result, done in changed:
            printer.emit_all(report.events(result, done))
        run.emit_failures(printer)
        printer.emit_text(report.rest())
        totals = summary(results, deletion, time.monotonic() - begin)
        printer.emit(totals.with_kafkas(starting_kafkas(settings.values())))
        printer.emit_text([*report.unchanged.lines(), *advice(results)])
    if free_bytes is not None and (less := shortage(results, free_bytes, deletion)):
        diagnostics.report_failure(KdumpError(less))
    named = ExitStatus.DAMAGE_LEFT if severe else ExitStatus.SOUND
    return run.status(diagnostics.status | status_of(results) | named)


def _brief_preview(
    run: ChangeRun,
    log_dirs: Mapping[Location, DirectoryKind],
    selection: PartitionSelection,
    deletion: DeletionArguments,
    config: ConfigArguments,
    diagnostics: Diagnostics,
) -> ExitStatus | None:
    """Preview directories with many partitions; None leaves them to the command itself."""
    from kdump.cli.output.deletion_output import ShowBriefly, brief_preview
    from kdump.jobs.retain.preview import preview, read_unlisted
    from kdump.jobs.retain.retain import RetainRequest
    from kdump.jobs.writing.start_blockers import severe_with

    directories = read_unlisted(log_dirs)
    if directories is None:
        return None
    settings = config.settings_of(each.root for each in directories)
    request = RetainRequest(
        directories=(),
        settings=settings,
        selection=selection,
        now_ms=deletion.now_ms,
        is_replicated=deletion.is_replicated,
    )
    previews = preview(directories, request, ShowBriefly(deletion))
    if previews is None:
        return None
    in_partitions = {each.directory.path: each.findings for each in previews}
    severe = severe_with([each.directory for each in previews], settings, in_partitions)
    for each in previews:
        diagnostics.report_problems(each.directory)
    selected = [each for each in previews if each.partitions]
    with run.report() as printer:
        emit_findings(printer, severe, verbose=False)
        printer.emit_text(brief_preview(selected, deletion, settings.values()))
    status = ExitStatus.DAMAGE_LEFT if severe else ExitStatus.SOUND
    for each in selected:
        for partition in each.partitions:
            status |= partition.status
    return diagnostics.status | status
