"""Copy partitions or a log directory to a local disk."""

from __future__ import annotations

import sys
from pathlib import PurePath
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from kdump.cli.options.parameters import LocationParameter
from kdump.cli.options.progress_option import progress_option
from kdump.cli.options.remote_option import remote_option, with_remote
from kdump.cli.options.selection_options import nothing_selected, selection_options
from kdump.cli.output.events import EventFormat, events_option, open_printer, write_notice
from kdump.clock import current_time_ms
from kdump.errors import ExitStatus, UsageProblem
from kdump.formats.names import CLUSTER_METADATA_PARTITION, is_accepted_name
from kdump.log.selection import PartitionSelection
from kdump.phases import phase
from kdump.storage.local_disk import LOCAL_DISK, local
from kdump.storage.location import Location, NotLocalError
from kdump.storage.places import require_local

if TYPE_CHECKING:
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.jobs.copy.copy import CopyRequest
    from kdump.log.remote_files import RemotePlace


@click.command("copy")
@click.argument("source", metavar="SOURCE", type=LocationParameter(readable=False))
@click.argument("local_dir", metavar="LOCAL_DIR", type=click.Path())
@selection_options
@remote_option
@click.option(
    "--dry-run",
    is_flag=True,
    help="Preview what is to be copied and write nothing, not even the lock.",
)
@click.option("--verbose", "-v", is_flag=True, help="List every partition and every finding.")
@events_option
@progress_option
def command(
    source: Location,
    local_dir: str,
    selection: PartitionSelection,
    remote: RemotePlace | None,
    dry_run: bool,
    verbose: bool,
    output_format: EventFormat,
    progress: bool | None,
) -> ExitStatus:
    """Copy partitions or a log directory from anywhere to a local disk.

    SOURCE is a log directory, or the directory of one partition; LOCAL_DIR is created. Logs and
    indexes are checked while they are copied, and copied as they are.

    A copy that was stopped continues when it is run again.
    """
    from kdump.cli.output.copy_output import CopyReport, report_begin
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.cli.output.other_nodes import report_other_nodes
    from kdump.cli.output.progress_bar import shown
    from kdump.jobs.copy.copy import copy_directory, others_than_copied

    target = _target(local_dir, [source, *([] if remote is None else [remote.location])])
    diagnostics = Diagnostics()
    with shown(progress) as display:
        request = _request(source, target, selection, remote, dry_run, diagnostics)
        if request is None:
            return diagnostics.status
        begun = report_begin if output_format is EventFormat.TEXT else None
        result = copy_directory(request, display, begun)
    report = CopyReport(result, str(source), target, is_dry_run=dry_run, verbose=verbose)
    report.report_problems(diagnostics)
    with open_printer(output_format) as printer:
        printer.emit_all(report.events())
        if result.is_complete and request.selection.is_everything:
            report_other_nodes(printer, others_than_copied(request))
        sys.stdout.flush()
    return diagnostics.status


def _target(name: str, sources: list[Location]) -> Location:
    """The directory of the copy.

    Raises:
        UsageProblem: it is not on a local disk, or inside what is copied or the other way round.
    """
    from kdump.cli.output.out_file import refuse_log_directories

    try:
        require_local(name)
    except NotLocalError:
        # Not by its name, which can have a credential.
        raise UsageProblem("LOCAL_DIR: is not on a local disk: name a directory on one") from None
    target = local(name)
    with phase(f"looking at {name}"):
        own = PurePath(target.resolved().path)
        for source in sources:
            if source.storage != LOCAL_DISK:
                continue
            other = PurePath(source.resolved().path)
            if own == other:
                raise UsageProblem(f"{name}: is the source itself: name a directory elsewhere")
            if other in own.parents:
                raise UsageProblem(f"{name}: is inside {source}: name a directory elsewhere")
            if own in other.parents:
                raise UsageProblem(f"{name}: contains {source}: name a directory elsewhere")
        refuse_log_directories(name)
    return target


def _request(
    source: Location,
    target: Location,
    selection: PartitionSelection,
    remote: RemotePlace | None,
    dry_run: bool,
    diagnostics: Diagnostics,
) -> CopyRequest | None:
    """What to copy; None if it cannot be read.

    Raises:
        UsageProblem: the selection matches nothing.
    """
    from kdump.jobs.copy.copy import CopyRequest
    from kdump.log.directory import directory_kind, read_log_directory
    from kdump.state.metadata.settings import read_settings

    named = source
    try:
        with phase(f"listing {source}"):
            kind = directory_kind(source)
        if kind.is_partition:
            partition = source.as_absolute()
            if not is_accepted_name(partition.name):
                raise UsageProblem(
                    f"{source}: is not the name of a partition (TOPIC-PARTITION): rename it, or"
                    " name its log directory"
                )
            source, selection = partition.parent, PartitionSelection((), (partition.name,))
        elif not kind.is_log_directory:
            diagnostics.refuse(source)
            return None
        words = {
            "source": source.resolved().typed.text,
            "topic": list(selection.topics),
            "partition": list(selection.partitions),
            "remote": [] if remote is None else [remote.location.resolved().typed.text],
        }
        _warn_of_a_broker(source)
        [source] = with_remote([source], remote)
        directory = read_log_directory(
            source,
            select=lambda name, key: (
                selection.matches(name, key) or name == str(CLUSTER_METADATA_PARTITION)
            ),
        )
    except OSError as failure:
        diagnostics.report(named, failure)
        return None
    from kdump.tiered.left_in_tier import left_in_tier

    if (said := left_in_tier(directory, directory.partitions)) is not None:
        write_notice(said)
    if selection.is_futile(directory.partitions):
        raise nothing_selected(selection, [source])
    with phase("reading the settings of topics"):
        try:
            settings = read_settings([directory])[source]
        except OSError:
            # What cannot be read is reported when it is copied.
            settings = read_settings([replace(directory, partitions=())])[source]
    return CopyRequest(directory, selection, settings, target, words, current_time_ms(), dry_run)


def _warn_of_a_broker(source: Location) -> None:
    """Say that files may change while they are copied."""
    from kdump.log.lock_holders import holder_of

    if source.storage != LOCAL_DISK:
        return
    with phase(f"looking at {source}"):
        holder = holder_of(source.local_path)
    if holder is not None:
        write_notice(
            f"{source}: in use by {holder}: files may change while they are copied;"
            " for one that a broker can start on, use 'kdump backup create'"
        )
