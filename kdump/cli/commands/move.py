"""Move partitions between the log directories of one broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from kdump.cli.options.conflicts import require_at_most_one
from kdump.cli.options.parameters import LocationParameter
from kdump.cli.options.progress_option import progress_option
from kdump.cli.options.repair_options import freeing_options
from kdump.cli.options.selection_options import nothing_selected, selection_options
from kdump.cli.output.write_arguments import RepairArguments
from kdump.errors import ExitStatus, UsageProblem
from kdump.storage.location import Location

if TYPE_CHECKING:
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.jobs.move.selected_moves import PlannedMove
    from kdump.log.directory import LogDirectory
    from kdump.log.selection import PartitionSelection


class Way(Struct, frozen=True):
    """From where to where partitions move.

    Attributes:
        source: the log directory that they leave; None to balance ``targets``.
        targets: the others, at least one.
        is_drain: whether nothing should be left in ``source``.
    """

    source: Location | None
    targets: tuple[Location, ...]
    is_drain: bool

    @property
    def paths(self) -> list[Location]:
        """All log directories as typed."""
        return [*([] if self.source is None else [self.source]), *self.targets]


@click.command("move")
@click.argument(
    "paths", metavar="[LOG_DIR]...", nargs=-1, type=LocationParameter(readable=False, written=True)
)
@click.option(
    "--from",
    "source",
    metavar="LOG_DIR",
    type=LocationParameter(readable=False, written=True),
    help="Move the selected partitions from LOG_DIR.",
)
@click.option(
    "--drain",
    "drained",
    metavar="LOG_DIR",
    type=LocationParameter(readable=False, written=True),
    help="Move all partitions from LOG_DIR, or the selected ones.",
)
@click.option(
    "--to",
    "targets",
    metavar="LOG_DIR",
    type=LocationParameter(readable=False, written=True),
    multiple=True,
    help="Move them to LOG_DIR; may be repeated: then each goes where most space is free.",
)
@click.option("--balance", is_flag=True, help="Even out the given log directories by bytes.")
@selection_options
@freeing_options(verbose="List every partition and every change.")
@progress_option
def command(
    paths: Sequence[Location],
    source: Location | None,
    drained: Location | None,
    targets: Sequence[Location],
    balance: bool,
    selection: PartitionSelection,
    repair: RepairArguments,
    progress: bool | None,
) -> ExitStatus:
    """Move partitions between the log directories of one broker that was shut down cleanly.

    Name the log directories with --from or --drain, and --to; further LOG_DIRs are more targets.
    With --balance, they are the directories to even out.
    """
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.cli.output.move_output import MoveReport
    from kdump.cli.output.progress_bar import shown
    from kdump.cli.shared.change_run import changing
    from kdump.jobs.move.move import carry_out
    from kdump.jobs.move.selected_moves import require_one_clean_broker, require_space

    way = _way(paths, source, drained, targets, is_balance=balance)
    if source is not None and selection.is_everything:
        raise UsageProblem("--from requires --topic or --partition; to move everything: --drain")
    diagnostics = Diagnostics()
    found = _find(way, diagnostics)
    if diagnostics.status:
        return diagnostics.status
    with changing("move", found.paths, repair) as run:
        directories = _read(found)
        require_one_clean_broker(directories)
        for directory in directories:
            diagnostics.report_problems(directory)
        moves = _planned(found, directories, selection, diagnostics)
        require_space(moves)
        with shown(progress) as display:
            result = carry_out(moves, directories, run.writing, display)
        run.done = result.plans
        remaining = [] if found.source is None else _read(found)[:1]
    report = MoveReport(result, directories, is_drain=found.is_drain, verbose=repair.verbose)
    with run.report() as printer:
        printer.emit_all(report.events())
        printer.emit(report.summary(is_dry_run=repair.dry_run))
        printer.emit_text(report.advice(remaining, is_dry_run=repair.dry_run))
    return report.status | diagnostics.status


def _way(
    paths: Sequence[Location],
    source: Location | None,
    drained: Location | None,
    targets: Sequence[Location],
    *,
    is_balance: bool,
) -> Way:
    """Make sense of the options.

    Raises:
        UsageProblem: they contradict each other, or do not suffice.
    """
    given = {"--from": source, "--drain": drained, "--balance": is_balance}
    require_at_most_one(given)
    if not any(given.values()):
        raise UsageProblem("give --from, --drain or --balance")
    if is_balance:
        if targets:
            raise UsageProblem("--balance and --to are mutually exclusive")
        if not paths:
            raise UsageProblem("--balance requires the log directories to even out")
        return Way(None, tuple(paths), is_drain=False)
    every = (*targets, *paths)
    if not every:
        raise UsageProblem(f"{'--drain' if drained else '--from'} requires --to")
    return Way(source or drained, every, is_drain=drained is not None)


def _find(way: Way, diagnostics: Diagnostics) -> Way:
    """Return the log directories, each once; others are reported.

    Raises:
        UsageProblem: partitions would stay where they are.
    """
    from kdump.cli.shared.directories import find_log_directories

    targets = tuple(find_log_directories(way.targets, diagnostics))
    if way.source is None:
        return Way(None, targets, way.is_drain)
    sources = list(find_log_directories([way.source], diagnostics))
    if sources and any(sources[0].is_same(each) for each in targets):
        raise UsageProblem(f"{way.source}: both the source and a target")
    return Way(sources[0] if sources else None, targets, way.is_drain)


def _read(way: Way) -> list[LogDirectory]:
    from kdump.log.directory import read_log_directory

    return [read_log_directory(path) for path in way.paths]


def _planned(
    way: Way,
    directories: Sequence[LogDirectory],
    selection: PartitionSelection,
    diagnostics: Diagnostics,
) -> list[PlannedMove]:
    """Plan the moves.

    Raises:
        UsageProblem: the selection matches no partition, and all of them could be listed.
    """
    from kdump.jobs.move.selected_moves import moves_between, moves_to_balance

    every = (each for directory in directories for each in directory.partitions)
    if not diagnostics.status and selection.is_futile(every):
        raise nothing_selected(selection, way.paths)
    if way.source is None:
        return moves_to_balance(directories, selection)
    return moves_between(directories[0], directories[1:], selection)
