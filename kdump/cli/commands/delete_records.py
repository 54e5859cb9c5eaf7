"""Delete the records of a partition before an offset."""

from __future__ import annotations

import time
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

import click

from kdump.cli.options.config_options import ConfigArguments, config_options
from kdump.cli.options.deletion_options import deletion_options, refuse_cluster_metadata
from kdump.cli.options.parameters import NumberParameter, paths_argument
from kdump.cli.options.selection_options import nothing_selected_in, selection_options
from kdump.cli.output.selection_words import selection_words
from kdump.cli.output.write_arguments import DeletionArguments
from kdump.cli.output.write_report import emit_findings
from kdump.errors import ExitStatus, UsageProblem
from kdump.formats.names import PartitionState
from kdump.storage.location import Location

if TYPE_CHECKING:
    from kdump.log.directory import LogDirectory
    from kdump.log.partition import Partition
    from kdump.log.selection import PartitionSelection
    from kdump.state.metadata.settings import DirectorySettings


@click.command("delete-records")
@paths_argument("LOG_DIR", written=True)
@selection_options
@click.option(
    "--before",
    metavar="OFFSET",
    type=NumberParameter(least=-1),
    required=True,
    help="Delete all records before this offset (-1: the high watermark).",
)
@deletion_options
@config_options
def command(
    paths: Sequence[Location],
    selection: PartitionSelection,
    before: int,
    deletion: DeletionArguments,
    config: ConfigArguments,
) -> ExitStatus:
    """Delete the records of a partition before an offset, as DeleteRecords does.

    Moves the log start offset and deletes the segments before it. LOG_DIR is a log directory after
    a clean shutdown. If the broker has several, name all of them.
    """
    from kdump.cli.output.deletion_output import DeletionReport, advice, status_of, summary
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.cli.shared.change_run import changing
    from kdump.cli.shared.directories import find_log_directories
    from kdump.jobs.retain.delete_records import DeleteRecordsRequest, delete_records
    from kdump.jobs.writing.start_blockers import severe_findings
    from kdump.log.broker import partitions_twice
    from kdump.log.directory import read_log_directory

    begin = time.monotonic()
    if selection.is_everything:
        raise UsageProblem("delete-records requires --partition TOPIC-PARTITION")
    refuse_cluster_metadata(selection)
    diagnostics = Diagnostics()
    log_dirs = find_log_directories(paths, diagnostics)
    if not log_dirs:
        return diagnostics.status
    with changing("delete-records", log_dirs, deletion) as run:
        directories = [read_log_directory(path, kind) for path, kind in log_dirs.items()]
        twice = partitions_twice(directories)
        settings = config.settings_of(directories)
        directory, partition = _selected(directories, selection, settings, twice)
        selected = {each.path: [partition] if each is directory else [] for each in directories}
        severe = severe_findings(directories, settings, selected)
        request = DeleteRecordsRequest(
            directory=directory,
            partition=partition,
            settings=settings[directory.path],
            before=before,
            now_ms=deletion.now_ms,
            is_replicated=deletion.is_replicated,
            twice=twice,
        )
        result = delete_records(request)
        diagnostics.report_problems(directory)
        run.apply([result.target])
    report = DeletionReport(run.operations(), deletion)
    with run.report() as printer:
        emit_findings(printer, severe, verbose=deletion.verbose)
        printer.emit_all(report.events(result, run.done[0]))
        printer.emit(summary([result], deletion, time.monotonic() - begin))
        printer.emit_text([*report.unchanged.lines(), *advice([result])])
    named = ExitStatus.DAMAGE_LEFT if severe else ExitStatus.SOUND
    return run.status(diagnostics.status | status_of([result]) | named)


def _selected(
    directories: Sequence[LogDirectory],
    selection: PartitionSelection,
    settings: DirectorySettings,
    twice: Container[Location],
) -> tuple[LogDirectory, Partition]:
    """Return the selected partition and its log directory.

    A broker deletes records of the log. A copy on its way to another log directory takes the start
    of the log over when the broker goes on with it (``ReplicaAlterLogDirsThread``), unless the
    broker makes the copy the log when it starts.

    Args:
        directories: all log directories.
        selection: has to select one partition.
        twice: partitions that are in two directories of one broker.

    Raises:
        UsageProblem: it is none, or several, or only a copy of a log that is not there.
    """
    from kdump.broker.loader.checkpoints import is_loaded
    from kdump.check.scope import becomes_log

    found = [
        (directory, partition)
        for directory in directories
        for partition in directory.partitions
        if is_loaded(partition) and partition in selection
    ]
    if not found:
        raise nothing_selected_in(selection, directories)
    keys = sorted({str(partition.topic_partition) for _, partition in found})
    if len(keys) > 1:
        raise UsageProblem(
            f"delete-records takes one partition at a time: {' '.join(selection_words(selection))}"
            f" matches {len(keys)}; name one, as in --partition {keys[0]}"
        )
    live = [each for each in found if each[1].state is PartitionState.LIVE]
    becoming = [
        (directory, copy)
        for directory, copy in found
        if copy.state is PartitionState.FUTURE
        and becomes_log(copy, directory, settings[directory.path].cluster)
    ]
    logs = becoming or live
    if not logs:
        raise UsageProblem(
            f"{found[0][1].path}: a copy whose log is in another log directory: name that"
            " directory, too"
        )
    if len(logs) > 1 and logs[0][1].path not in twice:
        paths = " ".join(str(partition.path) for _, partition in logs)
        raise UsageProblem(
            f"delete-records takes the log directories of one broker at a time: {paths}"
        )
    return logs[0]
