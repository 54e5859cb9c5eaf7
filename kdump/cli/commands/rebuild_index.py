"""Rebuild segment indexes."""

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


@click.command("rebuild-index")
@paths_argument("PATH", written=True)
@selection_options
@repair_options
@config_options
@engine_options
def command(
    paths: Sequence[Location],
    selection: PartitionSelection,
    repair: RepairArguments,
    config: ConfigArguments,
    engine: EngineOptions,
) -> ExitStatus:
    """Rebuild the offset, time and transaction indexes as Kafka does when it recovers a segment.

    PATH is a segment's log, the directory of a partition, or a log directory. Correct indexes are
    left unchanged. Logs are never changed.
    """
    from kdump.cli.shared.partial_repair import in_use, run_parts
    from kdump.jobs.part_repair import RepairPart

    parts = in_use(RepairPart.INDEXES)
    return run_parts(
        "rebuild-index", parts, paths, selection, repair, config, engine, segments=True
    )
