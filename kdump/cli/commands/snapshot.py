"""Rebuild producer snapshots."""

from __future__ import annotations

from collections.abc import Sequence

import click

from kdump.cli.options.config_options import ConfigArguments, config_options
from kdump.cli.options.engine_options import engine_options
from kdump.cli.options.parameters import paths_argument
from kdump.cli.options.repair_options import repair_options
from kdump.cli.options.selection_options import selection_options
from kdump.cli.output.write_arguments import RepairArguments
from kdump.engine.engine_choice import EngineOptions
from kdump.errors import ExitStatus
from kdump.log.selection import PartitionSelection
from kdump.storage.location import Location


@click.group("snapshot")
def command() -> None:
    """Rebuild producer snapshots. To print one, use kdump dump-segment."""


@command.command("rebuild")
@paths_argument("PATH", written=True)
@selection_options
@repair_options
@config_options
@engine_options
def rebuild(
    paths: Sequence[Location],
    selection: PartitionSelection,
    repair: RepairArguments,
    config: ConfigArguments,
    engine: EngineOptions,
) -> ExitStatus:
    """Rebuild producer snapshots from the batches before them.

    PATH is a log directory, or the directory of a partition.
    """
    from kdump.cli.shared.partial_repair import in_use, run_parts
    from kdump.jobs.part_repair import RepairPart

    parts = in_use(RepairPart.SNAPSHOTS)
    return run_parts("snapshot rebuild", parts, paths, selection, repair, config, engine)
