"""Finish or delete leftover files: .swap, .cleaned, .deleted."""

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
from kdump.formats.names import PartitionState
from kdump.log.selection import PartitionSelection
from kdump.storage.location import Location


@click.command("resolve")
@paths_argument("PATH", written=True)
@click.option(
    "--drop-deleted",
    is_flag=True,
    help="Also delete partitions of deleted topics (-delete).",
)
@selection_options
@repair_options
@config_options
@engine_options
def command(
    paths: Sequence[Location],
    drop_deleted: bool,
    selection: PartitionSelection,
    repair: RepairArguments,
    config: ConfigArguments,
    engine: EngineOptions,
) -> ExitStatus:
    """Complete or delete leftover files: .swap, .cleaned, .deleted, and indexes without a log.

    PATH is a log directory, or the directory of a partition. Nothing else is changed: no segment
    is recovered, and only the batches of .swap files are read.
    """
    from kdump.cli.shared.partial_repair import in_use, run_parts
    from kdump.jobs.part_repair import RepairPart

    parts = in_use(RepairPart.LEFTOVERS)
    if drop_deleted:
        parts[PartitionState.DELETE] = RepairPart.ALL_OF_DELETED
    return run_parts("resolve", parts, paths, selection, repair, config, engine)
