"""The command ``kdump metadata collect``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from kdump.cli.options.engine_options import engine_options
from kdump.cli.options.out_option import out_option
from kdump.cli.options.parameters import paths_argument
from kdump.cli.options.plan_options import to_option
from kdump.cli.output.out_file import OutFile
from kdump.cli.output.rendering import OutputFormat, output_option
from kdump.clock import current_time_ms
from kdump.engine.engine_choice import EngineOptions
from kdump.errors import ExitStatus
from kdump.phases import phase
from kdump.storage.location import Location

if TYPE_CHECKING:
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.state.metadata.disk_collection import DiskCollection


@click.command("collect")
@paths_argument("LOG_DIR")
@out_option("Write the collection")
@click.option(
    "--quick",
    is_flag=True,
    help="Read only the ends of logs that were flushed: damage before them is not named.",
)
@to_option
@output_option
@engine_options
def command(
    paths: Sequence[Location],
    out: OutFile,
    quick: bool,
    time_ms: int | None,
    output: OutputFormat,
    engine: EngineOptions,
) -> ExitStatus:
    """Collect what the disks of a host know about their cluster, in one file.

    Name all log directories of this host, and its metadata directory. The file has the partitions
    with their topic ids, epochs and offsets, what the internal topics say, and the host's copy of
    the cluster's metadata, secrets included. Nothing else is written, and no lock is taken.
    """
    from kdump.cli.output.collect_output import directory_row, summary_lines, summary_row
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.cli.output.sections import open_sections
    from kdump.cli.shared.directories import read_log_directories, without_garbage_collection
    from kdump.jobs.collect.collect import CollectRequest, collect
    from kdump.jobs.metadata.planned_rows import COLLECTED_DIRECTORY
    from kdump.state.metadata.disk_collection import encode_collection

    diagnostics = Diagnostics()
    with without_garbage_collection():
        directories = read_log_directories(paths, diagnostics)
        if not directories:
            return diagnostics.status
        request = CollectRequest(directories, current_time_ms(), is_quick=quick, time_ms=time_ms)
        collection = collect(request, engine)
        with phase(f"writing {out.name}"):
            size_bytes = out.write(encode_collection(collection))
    _report(collection, diagnostics)
    rows = [directory_row(each) for each in collection.log_directories]
    summary = summary_row(collection, out.name, size_bytes)
    with open_sections(output, (COLLECTED_DIRECTORY,)) as sections:
        sections.rows(rows)
        sections.summary(summary, summary_lines(summary, collection, time_ms))
    return diagnostics.status


def _report(collection: DiskCollection, diagnostics: Diagnostics) -> None:
    """Report what is damaged or cannot be read; all of it is in the collection."""
    for directory in collection.log_directories:
        for problem in directory.problems:
            diagnostics.report_problem(directory.path, problem, is_damage=True)
        for partition in directory.partitions:
            path = f"{directory.path.rstrip('/')}/{partition.directory}"
            for problem in partition.problems:
                diagnostics.report_problem(path, problem, is_damage=True)
        for problem in () if directory.metadata is None else directory.metadata.problems:
            diagnostics.report_problem(directory.path, problem, is_damage=True)
