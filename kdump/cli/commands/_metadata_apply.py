"""The command ``kdump metadata apply``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kdump.cli.options.parameters import INT32, LocationParameter
from kdump.cli.options.repair_options import repair_options
from kdump.cli.output.write_arguments import RepairArguments
from kdump.errors import ExitStatus, UsageProblem
from kdump.phases import phase
from kdump.storage.location import Location

if TYPE_CHECKING:
    from kdump.state.metadata.cluster_plan import ClusterPlan


@click.command("apply")
@click.argument("plan", metavar="PLAN", type=LocationParameter(readable=False))
@click.argument(
    "path", metavar="CONTROLLER_DIR", type=LocationParameter(readable=False, written=True)
)
@click.option(
    "--node-id",
    type=INT32,
    metavar="ID",
    help="Use an empty CONTROLLER_DIR for this controller of the plan (default: the only one).",
)
@repair_options
def command(
    plan: Location, path: Location, node_id: int | None, repair: RepairArguments
) -> ExitStatus:
    """Write the metadata of a plan for a controller, as a snapshot.

    CONTROLLER_DIR is the metadata directory of one of the plan's controllers: an empty one, one
    that Kafka's tool has formatted, or an old one whose records are older. On a broker's log
    directory, its copy of the metadata is moved aside if the plan says so.
    """
    from kdump.cli.output.controller_output import applied_event
    from kdump.cli.shared.change_run import changing
    from kdump.jobs.metadata.metadata_apply import apply_plan_to

    cluster = _read_plan(plan)
    with changing("metadata apply", [path], repair) as run:
        result = apply_plan_to(path, cluster, node_id)
        run.apply([result.target])
    with run.report() as printer:
        printer.emit(applied_event(path, plan, result, cluster, run.done[0], repair))
    return ExitStatus.SOUND


def _read_plan(path: Location) -> ClusterPlan:
    """Read the document.

    Raises:
        UsageProblem: it is not a plan; the message names the field.
        OSError: it cannot be read.
    """
    from kdump.formats.json_document import DocumentError
    from kdump.state.metadata.cluster_plan_json import decode_plan

    with phase(f"reading {path}"):
        data = path.read()
    try:
        return decode_plan(data)
    except DocumentError as error:
        raise UsageProblem(f"{path}: {error}") from error
