"""The command ``kdump metadata rebuild``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from kdump.cli.options.engine_options import engine_options
from kdump.cli.options.parameters import INT32, LocationParameter, paths_argument
from kdump.cli.options.plan_options import plan_options, to_option
from kdump.cli.options.repair_options import repair_options
from kdump.cli.output.events import Event, open_printer
from kdump.cli.output.write_arguments import RepairArguments
from kdump.clock import current_time_ms
from kdump.engine.engine_choice import EngineOptions
from kdump.errors import ExitStatus
from kdump.formats.dynamic_voter import DynamicVoter
from kdump.phases import phase
from kdump.storage.location import Location

if TYPE_CHECKING:
    from kdump.cli.output.plan_output import PlanPage
    from kdump.jobs.metadata.metadata_rebuild import RebuildRequest
    from kdump.state.metadata.cluster_plan import ClusterPlan


@click.command("rebuild")
@paths_argument("LOG_DIR", written=True)
@click.option(
    "--into",
    type=LocationParameter(readable=False, written=True),
    required=True,
    metavar="CONTROLLER_DIR",
    help="The metadata directory of a controller: an empty or a formatted one.",
)
@click.option(
    "--node-id",
    type=INT32,
    metavar="ID",
    help="Use an empty CONTROLLER_DIR for this controller (default: the only one).",
)
@plan_options
@to_option
@repair_options
@engine_options
def command(
    paths: Sequence[Location],
    into: Location,
    node_id: int | None,
    controllers: Sequence[DynamicVoter],
    settings: Sequence[tuple[str, str]],
    accept_loss: bool,
    time_ms: int | None,
    repair: RepairArguments,
    engine: EngineOptions,
) -> ExitStatus:
    """Rebuild the metadata of a cluster that is on one machine: collect, plan and apply.

    Name the log directories of all brokers. Nothing is written if the plan drops something that a
    disk has, without --accept-loss. Preview it with --dry-run, and read the page that it prints.
    """
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.cli.output.plan_output import PlanPage, refusal_lines
    from kdump.cli.shared.directories import read_log_directories, without_garbage_collection
    from kdump.jobs.metadata.metadata_rebuild import RebuildRequest, plan_rebuild
    from kdump.repair.cluster.notice_codes import unaccepted

    diagnostics = Diagnostics()
    _finish_interrupted([into, *paths], repair)
    with without_garbage_collection():
        directories = read_log_directories(paths, diagnostics)
        if diagnostics.status:
            return diagnostics.status
        request = RebuildRequest(
            *(directories, into, node_id, controllers, settings, accept_loss),
            now_ms=current_time_ms(),
            time_ms=time_ms,
        )
        plan = plan_rebuild(request, engine)
    is_refused = bool(unaccepted(plan.notices)) and not accept_loss
    page = PlanPage.of(plan, is_refused=is_refused)
    if not is_refused:
        return _apply(request, plan, page, repair)
    with open_printer(repair.output_format) as printer:
        page.emit(printer)
        printer.emit_text(["", *refusal_lines(str(into), page.summary)])
        printer.emit(Event("summary", page.summary))
    return ExitStatus.DAMAGE_LEFT


def _apply(
    request: RebuildRequest, plan: ClusterPlan, page: PlanPage, repair: RepairArguments
) -> ExitStatus:
    """Write the controller's directory, and move copies aside."""
    from kdump.cli.output.controller_output import applied_event
    from kdump.cli.output.plan_output import start_lines
    from kdump.cli.shared.change_run import changing
    from kdump.jobs.metadata.metadata_rebuild import directories_to_change, rebuilt_directories

    paths = directories_to_change(request, plan)
    with changing("metadata rebuild", paths, repair) as run:
        results = rebuilt_directories(request, plan, paths)
        run.apply(each.target for each in results)
    with run.report() as printer:
        page.emit(printer)
        printer.emit_text([""])
        for path, result, outcome in zip(paths, results, run.done, strict=True):
            printer.emit(applied_event(path, None, result, plan, outcome, repair))
        printer.emit_text(start_lines(plan, dry_run=repair.dry_run))
        printer.emit(Event("summary", page.summary))
    return run.status(ExitStatus.SOUND)


def _finish_interrupted(paths: Sequence[Location], repair: RepairArguments) -> None:
    """Finish an interrupted run in any of the directories: it decides what they know."""
    from kdump.jobs.metadata.metadata_rebuild import interrupted_directories
    from kdump.jobs.writing.execution import locked_for_writing

    if repair.dry_run:
        return
    with phase("looking for interrupted runs"):
        interrupted = interrupted_directories(paths)
    if interrupted:
        with locked_for_writing(interrupted, repair.writing("metadata rebuild")):
            pass
