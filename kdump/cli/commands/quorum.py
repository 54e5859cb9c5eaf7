"""Rank controllers' disks, and give their metadata new voters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from kdump.cli.options.parameters import LocationParameter, now_option, paths_argument
from kdump.cli.options.repair_options import repair_options
from kdump.cli.options.voter_options import VOTER
from kdump.cli.output.rendering import OutputFormat, output_option
from kdump.cli.output.write_arguments import RepairArguments
from kdump.cli.shared.found_copies import CopyProblems, find_copies
from kdump.errors import ExitStatus, UsageProblem
from kdump.storage.location import Location

if TYPE_CHECKING:
    from kdump.formats.dynamic_voter import DynamicVoter
    from kdump.jobs.metadata.metadata_copies import MetadataCopy


@click.group("quorum")
def command() -> None:
    """Rank controllers' disks, and give their metadata new voters."""


@command.command("show")
@paths_argument("DIR")
@output_option
def show(paths: Sequence[Location], output: OutputFormat) -> ExitStatus:
    """Rank several controllers' disks by the epoch and the end of their metadata.

    DIR is the metadata directory of a controller, or any directory with __cluster_metadata-0.
    Nothing is written.
    """
    from kdump.cli.output.quorum_output import (
        COPY,
        VOTER,
        ranking_lines,
        ranking_rows,
        ranking_summary,
    )
    from kdump.cli.output.sections import open_sections
    from kdump.jobs.quorum.quorum_ranking import rank_copies

    problems = CopyProblems()
    copies = find_copies(paths, problems)
    if not copies:
        return problems.status
    ranking = rank_copies(copies)
    with open_sections(output, (COPY, VOTER)) as sections:
        sections.rows(ranking_rows(ranking))
        sections.summary(ranking_summary(ranking), ranking_lines(ranking))
    return problems.status


@command.command("reset")
@click.argument(
    "path", metavar="CONTROLLER_DIR", type=LocationParameter(readable=False, written=True)
)
@click.option(
    "--voter",
    "voters",
    type=VOTER,
    multiple=True,
    required=True,
    help="A voter of the new quorum; may be repeated. The directory id of CONTROLLER_DIR need not"
    " be given.",
)
@click.option(
    "--show-also",
    "others",
    type=LocationParameter(readable=False),
    multiple=True,
    metavar="DIR",
    help="Another disk with metadata; may be repeated. Refuse if it has more of the metadata than"
    " CONTROLLER_DIR, and write a snapshot above it.",
)
@click.option(
    "--listener-name",
    metavar="NAME",
    help="Name of the voters' listener, the first of controller.listener.names (default: that of"
    " the old voters).",
)
@click.option(
    "--without-this-node",
    is_flag=True,
    help="Allow voters that do not include the node of CONTROLLER_DIR.",
)
@repair_options
@now_option("Write TIME into the snapshot as the time of its creation")
def reset(
    path: Location,
    voters: Sequence[DynamicVoter],
    others: Sequence[Location],
    listener_name: str | None,
    without_this_node: bool,
    repair: RepairArguments,
    now_ms: int,
) -> ExitStatus:
    """Give the metadata of a surviving controller new voters.

    The controllers and brokers must be stopped or, if they run, have no leader: a quorum that still
    has its majority is changed with kafka-metadata-quorum instead. The metadata becomes a snapshot
    above everything that was shown, and the old log is kept for kdump undo. CONTROLLER_DIR is the
    metadata directory of a controller.
    """
    from kdump.cli.output.controller_output import reset_event
    from kdump.cli.shared.change_run import changing
    from kdump.jobs.quorum.quorum_reset import ResetRequest, reset_quorum

    problems = CopyProblems()
    with changing("quorum reset", [path], repair) as run:
        copy, rest = _copies_of(path, others, problems)
        if copy is None:
            return problems.status
        request = ResetRequest(
            copy=copy,
            others=rest,
            voters=voters,
            listener=listener_name,
            without_this_node=without_this_node,
            now_ms=now_ms,
        )
        result = reset_quorum(request)
        run.apply([result.target])
    with run.report() as printer:
        printer.emit(reset_event(path, request, result, run.done[0], repair))
    # What was incomplete at the end of the log is gone with the log.
    return problems.status & ~ExitStatus.DAMAGE_LEFT


def _copies_of(
    path: Location, others: Sequence[Location], problems: CopyProblems
) -> tuple[MetadataCopy | None, list[MetadataCopy]]:
    """Return the copy in a directory and the others; None after a report.

    A disk that cannot be read may have more than the others.

    Raises:
        UsageProblem: a directory has no copy, or they belong to several clusters.
    """
    copies = find_copies([path, *others], problems)
    if problems.status & ExitStatus.OPERATIONAL_ERROR:
        return None, []
    own = [copy for copy in copies if copy.log_dir.is_same(path)]
    if not own:
        raise UsageProblem(
            f"{path}: name the directory that __cluster_metadata-0 is in, not a partition"
        )
    return own[0], [copy for copy in copies if not copy.log_dir.is_same(path)]
