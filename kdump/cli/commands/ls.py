"""List the partitions of log directories."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import click
from msgspec.structs import replace

from kdump.cli.options.parameters import directories_argument
from kdump.cli.options.remote_option import remote_option, with_remote
from kdump.cli.options.selection_options import nothing_selected, selection_options
from kdump.cli.output.rendering import OutputFormat, Row, open_output, output_option
from kdump.errors import ExitStatus
from kdump.jobs.listing.certain_end import with_marked_end
from kdump.phases import phase
from kdump.storage.location import Location

if TYPE_CHECKING:
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.jobs.problems.found_problems import ProblemReporter
    from kdump.log.directory import LogDirectory
    from kdump.log.partition import Partition
    from kdump.log.remote_files import RemotePlace
    from kdump.log.selection import PartitionSelection
    from kdump.rows.row_type import Field

SORT_KEYS: Final = {
    "name": "topic",
    "size": "log_bytes",
    "total": "total_bytes",
    "segments": "segments",
    "start": "log_start_offset",
    "end": "log_end_offset",
    "gaps": "gaps",
    "recovery": "recovery_point",
    "high-watermark": "high_watermark",
    "earliest": "earliest_timestamp_ms",
    "latest": "latest_timestamp_ms",
    "leftovers": "leftovers",
}
"""The words of ``--sort``, and the column that each sorts by."""


_COLUMNS_HELP: Final = """\b
Size       size of all segments' logs, as Kafka counts it; with --remote, also of the
           remote ones
Start      log start offset: the larger of the checkpoint and the first segment
End        log end offset: where the chain of batch headers ends (checksums are not
           checked); with ~ a starting broker may end the log elsewhere, as after an
           unclean shutdown: recover --dry-run says where
Local start, Remote size
           with --remote: where the local log begins, and the size of the segments
           that are read from tiered storage
Gaps       segments that begin after the end of the previous one: compaction leaves
           such gaps, otherwise a segment is missing
Recovery   recovery point: the log was flushed up to, not including, this offset
HW         high watermark, from its checkpoint
Earliest   time of the first record, if its batch header has it
Latest     largest record time, from the time indexes and the last batch headers
Leftovers  leftover files: deleted, swap, cleaned, orphan (an index without its
           log), temporary
"""


@click.command("ls", epilog=_COLUMNS_HELP)
@directories_argument
@selection_options
@click.option(
    "--sort",
    "sort_key",
    type=click.Choice(list(SORT_KEYS)),
    default="name",
    show_default=True,
    help="Sort by this column, smallest first; unknown values come last.",
)
@click.option("--reverse", is_flag=True, help="Reverse the order: largest first.")
@remote_option
@output_option
def command(
    directories: Sequence[Location],
    selection: PartitionSelection,
    sort_key: str,
    reverse: bool,
    remote: RemotePlace | None,
    output: OutputFormat,
) -> ExitStatus:
    """List the partitions of log directories, or single partitions.

    DIR is a log directory (if the broker has several, name all of them) or the directory of one
    partition. Nothing is written, and no record is read: offsets and times come from the
    checkpoints, a few index entries and a few batch headers. "?" is an offset that is not on disk.
    """
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.cli.shared.directories import without_garbage_collection

    diagnostics = Diagnostics()
    with without_garbage_collection():
        rows: list[Row] = []
        paths = with_remote(directories, remote)
        for path in paths:
            with phase(f"listing partitions in {path}") as step:
                rows += step.over(_rows(path, selection, diagnostics, remote))
    is_unreadable = diagnostics.status & ExitStatus.OPERATIONAL_ERROR
    if not rows and not selection.is_everything and not is_unreadable:
        raise nothing_selected(selection, directories)
    if rows or not diagnostics.status:
        columns = _columns(is_one=len(paths) == 1, is_remote=remote is not None)
        with open_output(output, columns) as out:
            shown = _sorted(rows, SORT_KEYS[sort_key], reverse=reverse)
            out.rows(map(with_marked_end, shown) if output.is_for_people else shown)
    return diagnostics.status


def _columns(*, is_one: bool, is_remote: bool) -> list[Field]:
    """The columns; without the log directory for people if it is the same in every line."""
    from kdump.jobs.listing.listed_rows import LISTED_PARTITION, REMOTE_FIELDS

    log_dir, *others = LISTED_PARTITION.columns
    first = replace(log_dir, title="") if is_one else log_dir
    return [first, *(each for each in others if is_remote or each.name not in REMOTE_FIELDS)]


def _rows(
    path: Location,
    selection: PartitionSelection,
    diagnostics: Diagnostics,
    remote: RemotePlace | None,
) -> Iterator[Row]:
    """Yield the rows of a log directory, or the single row of a partition."""
    from kdump.jobs.listing.list_partitions import described_partitions
    from kdump.jobs.listing.listed_rows import REMOTE_FIELDS, partition_row, remote_fields
    from kdump.jobs.listing.partition_facts import read_with_surroundings
    from kdump.log.directory import directory_kind

    try:
        kind = directory_kind(path)
        if kind.is_log_directory:
            found, described = described_partitions(
                path,
                kind,
                selection.matches,
                _only_row if remote is None else _row_and_partition,
                in_workers=remote is None,
            )
            diagnostics.report_directory(found)
            for each in described:
                each.problems.release(diagnostics)
                if each.description is not None:
                    row, partition = each.description
                    yield row if partition is None else {**row, **remote_fields(partition)}
            names = [each.name for each in _columns(is_one=False, is_remote=False)]
            unknown = dict.fromkeys(names if remote is None else [*names, *REMOTE_FIELDS])
            for name in found.unreadable:
                yield {"type": "partition", **unknown, "log_dir": str(path), "directory": name}
        elif kind.is_partition:
            lone = read_with_surroundings(path)
            if lone.log_directory is not None:
                diagnostics.report_problems(lone.log_directory)
            if lone.partition in selection:
                row = partition_row(lone.partition, lone.log_directory, diagnostics)
                yield row if remote is None else {**row, **remote_fields(lone.partition)}
        else:
            diagnostics.refuse(path)
    except OSError as failure:
        diagnostics.report(path, failure)


def _row_and_partition(
    partition: Partition, log_directory: LogDirectory, problems: ProblemReporter
) -> tuple[Row, Partition]:
    return _only_row(partition, log_directory, problems)[0], partition


def _only_row(
    partition: Partition, log_directory: LogDirectory, problems: ProblemReporter
) -> tuple[Row, None]:
    from kdump.jobs.listing.listed_rows import partition_row

    return partition_row(partition, log_directory, problems), None


def _sorted(rows: list[Row], column: str, *, reverse: bool) -> list[Row]:
    """Sort by one column, then by name; unknown values come last in either order."""
    rows = sorted(rows, key=_by_name)
    known = [row for row in rows if row[column] is not None]
    unknown = [row for row in rows if row[column] is None]
    if column == "topic":
        known.sort(key=_by_name, reverse=reverse)
    elif column == "leftovers":
        known.sort(key=lambda row: sum(row[column].values()), reverse=reverse)
    else:
        known.sort(key=lambda row: row[column], reverse=reverse)
    return known + unknown


def _by_name(row: Row) -> tuple[str, int, str, str]:
    return row["topic"] or "", row["partition"] or 0, row["directory"], row["log_dir"]
