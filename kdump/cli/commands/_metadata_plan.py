"""The command ``kdump metadata plan``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from kdump.cli.options.out_option import out_option
from kdump.cli.options.parameters import paths_argument
from kdump.cli.options.plan_options import plan_options
from kdump.cli.output.out_file import OutFile
from kdump.cli.output.rendering import OutputFormat, output_option
from kdump.errors import ExitStatus, KdumpError, UsageProblem, reason_of
from kdump.formats.dynamic_voter import DynamicVoter
from kdump.phases import phase
from kdump.storage.location import Location

if TYPE_CHECKING:
    from kdump.state.metadata.disk_collection import DiskCollection


@click.command("plan")
@paths_argument("FILE")
@plan_options
@out_option("Write the plan")
@output_option
def command(
    paths: Sequence[Location],
    controllers: Sequence[DynamicVoter],
    settings: Sequence[tuple[str, str]],
    accept_loss: bool,
    out: OutFile,
    output: OutputFormat,
) -> ExitStatus:
    """Plan the metadata of a cluster whose controllers are lost.

    FILE is what kdump metadata collect wrote on a host; name those of all hosts. The plan begins
    with the most advanced copy of the metadata, if there is one, and fills its gaps from the
    partitions' directories. What is a guess is named as one. Read the plan, edit it if you like,
    and give it to kdump metadata apply.
    """
    from kdump.cli.output.plan_output import notice_row, page, summary_row
    from kdump.cli.output.sections import open_sections
    from kdump.cli.shared.directories import without_garbage_collection
    from kdump.formats.json_document import DocumentError
    from kdump.jobs.metadata.planned_rows import NOTICE
    from kdump.repair.cluster.cluster_rules import PlanRequest, plan_cluster
    from kdump.repair.cluster.notice_codes import unaccepted
    from kdump.state.metadata.cluster_plan_json import encode_plan

    out.refuse_to_replace(paths)
    with without_garbage_collection():
        request = PlanRequest(_read(paths), controllers, settings, accept_loss)
        try:
            plan = plan_cluster(request)
        except DocumentError as error:
            raise UsageProblem(str(error)) from error
        is_refused = bool(unaccepted(plan.notices)) and not accept_loss
        size_bytes = None
        if not is_refused:
            with phase(f"writing {out.name}"):
                size_bytes = out.write(encode_plan(plan))
    summary = summary_row(plan, out.name, size_bytes, is_refused=is_refused)
    with open_sections(output, (NOTICE,)) as sections:
        if not output.is_for_people:
            sections.rows(map(notice_row, plan.notices))
        sections.summary(summary, page(plan, summary))
    return ExitStatus.DAMAGE_LEFT if is_refused else ExitStatus.SOUND


def _read(paths: Sequence[Location]) -> list[DiskCollection]:
    """Read the collections.

    Raises:
        KdumpError: a file cannot be read.
        UsageProblem: a file is not a collection.
    """
    from kdump.formats.json_document import DocumentError
    from kdump.state.metadata.disk_collection import decode_collection

    found = []
    for path in paths:
        with phase(f"reading {path}"):
            try:
                found.append(decode_collection(path.read()))
            except OSError as failure:
                raise KdumpError(f"{path}: {reason_of(failure)}") from failure
            except DocumentError as error:
                raise UsageProblem(f"{path}: {error}") from error
    return found
