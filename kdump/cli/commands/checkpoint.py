"""Show, set and rebuild offset checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec import Struct

from kdump.cli.options.parameters import (
    LocationParameter,
    NotParsedError,
    WordParameter,
    parse_integer,
    paths_argument,
)
from kdump.cli.options.repair_options import repair_options
from kdump.cli.options.selection_options import nothing_selected, selection_options
from kdump.cli.output.rendering import OutputFormat, open_output, output_option
from kdump.cli.output.write_arguments import RepairArguments
from kdump.errors import ExitStatus, UsageProblem
from kdump.formats import names
from kdump.formats.errors import FormatError
from kdump.formats.names import PartitionState, TopicPartition, parse_partition_directory_name
from kdump.phases import phase
from kdump.rows.common_rows import INTERRUPTED, PLANNED_DIRECTORY
from kdump.rows.row_type import FLAG, INT, INTEGER, TEXT, Field, JsonAnswer, RowType
from kdump.storage.location import Location

if TYPE_CHECKING:
    from kdump.log.directory import LogDirectory, Offsets
    from kdump.log.selection import PartitionSelection
    from kdump.target.target_file import TargetFile

CHECKPOINTED_PARTITION: Final = RowType(
    "partition",
    "The offsets of a partition in the four checkpoints; null without a line.",
    (
        Field("log_dir", TEXT, "The log directory.", "Log dir", dropped=5),
        Field("topic", TEXT, "", "Topic"),
        Field("partition", INT, "", "Partition"),
        Field("recovery_point", INTEGER.or_none, "", "Recovery point"),
        Field("log_start_offset", INTEGER.or_none, "", "Log start", dropped=2),
        Field("high_watermark", INTEGER.or_none, "", "High watermark", dropped=3),
        Field("cleaner_offset", INTEGER.or_none, "", "Cleaned to", dropped=1),
        Field(
            "is_there", FLAG, "Whether the log directory has the partition.", "Present", dropped=4
        ),
    ),
)

ANSWERS: Final = (
    JsonAnswer(
        "checkpoint",
        (
            CHECKPOINTED_PARTITION,
            INTERRUPTED,
            PLANNED_DIRECTORY,
        ),
        (
            "checkpoint show",
            "checkpoint set",
            "checkpoint rebuild",
        ),
    ),
)
CHECKPOINTS: Final = {
    "recovery-point": names.RECOVERY_POINT_CHECKPOINT,
    "log-start-offset": names.LOG_START_OFFSET_CHECKPOINT,
    "replication-offset": names.REPLICATION_OFFSET_CHECKPOINT,
    "cleaner-offset": names.CLEANER_OFFSET_CHECKPOINT,
}
"""Checkpoint files by their names on the command line."""

_NO_LINE: Final = "none"


@click.group("checkpoint")
def command() -> None:
    """Show, set and rebuild the offset checkpoints in the root of log directories."""


def _log_dirs(paths: Sequence[Location]) -> tuple[list[Location], ExitStatus]:
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.cli.shared.directories import find_log_directories

    diagnostics = Diagnostics()
    found = find_log_directories(paths, diagnostics)
    return list(found), diagnostics.status


@command.command("show")
@paths_argument("LOG_DIR")
@selection_options
@output_option
def show(
    paths: Sequence[Location], selection: PartitionSelection, output: OutputFormat
) -> ExitStatus:
    """Show the offsets of each partition in the four checkpoints."""
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.log.directory import read_log_directory

    log_dirs, status = _log_dirs(paths)
    if not log_dirs:
        return status
    diagnostics = Diagnostics()
    rows: list[dict[str, Any]] = []
    for log_dir in log_dirs:
        found = read_log_directory(log_dir)
        diagnostics.report_problems(found)
        rows += _rows(found, selection)
    if log_dirs and not rows and not selection.is_everything:
        raise nothing_selected(selection, log_dirs)
    with open_output(output, CHECKPOINTED_PARTITION.columns) as shown:
        shown.rows(rows)
    return status | diagnostics.status


def _rows(directory: LogDirectory, selection: PartitionSelection) -> list[dict[str, Any]]:
    checkpoints = directory.checkpoints
    columns: dict[str, Offsets] = {
        "recovery_point": checkpoints.recovery_points or {},
        "log_start_offset": checkpoints.log_start_offsets or {},
        "high_watermark": checkpoints.high_watermarks or {},
        "cleaner_offset": checkpoints.cleaner_offsets or {},
    }
    there = {partition.topic_partition for partition in directory.partitions}
    keys = sorted(set().union(*columns.values()))
    return [
        {
            "type": "partition",
            "log_dir": str(directory.path),
            "topic": key.topic,
            "partition": key.partition,
            **{name: offsets.get(key) for name, offsets in columns.items()},
            "is_there": key in there,
        }
        for key in keys
        if selection.matches(str(key), key)
    ]


class Line(Struct, frozen=True):
    """A line to set in a checkpoint.

    Attributes:
        offset: its new offset; None to remove the line.
    """

    key: TopicPartition
    offset: int | None


class LineParameter(WordParameter[Line]):
    """A partition and its offset: ``TOPIC-PARTITION=OFFSET``, or ``=none`` to remove the line."""

    name = "line"

    def parse(self, text: str) -> Line:
        name, _, number = text.rpartition("=")
        offset = parse_integer(number)
        try:
            parsed = parse_partition_directory_name(name)
        except FormatError:
            parsed = None
        is_offset = offset is not None and offset >= 0
        if (
            parsed is None
            or parsed.state is not PartitionState.LIVE
            # Java reads 00 as 0; but a broker never writes it.
            or str(parsed.topic_partition) != name
            or not (is_offset or number == _NO_LINE)
        ):
            raise NotParsedError(
                f"{text!r} is not TOPIC-PARTITION=OFFSET or TOPIC-PARTITION={_NO_LINE}"
            )
        return Line(parsed.topic_partition, offset if is_offset else None)


@command.command("set")
@click.argument("log_dir", metavar="LOG_DIR", type=LocationParameter(readable=False, written=True))
@click.argument("checkpoint", metavar="CHECKPOINT", type=click.Choice(list(CHECKPOINTS)))
@click.argument("lines", metavar="LINE...", nargs=-1, required=True, type=LineParameter())
@repair_options
def set_lines(
    log_dir: Location, checkpoint: str, lines: Sequence[Line], repair: RepairArguments
) -> ExitStatus:
    """Set lines of a checkpoint and leave the others unchanged.

    CHECKPOINT is recovery-point, log-start-offset, replication-offset or cleaner-offset. LINE is
    TOPIC-PARTITION=OFFSET, or TOPIC-PARTITION=none to remove the line.
    """
    return _write(
        [log_dir], repair, "checkpoint set", lambda found: _with(found, checkpoint, lines)
    )


def _with(
    directory: LogDirectory, checkpoint: str, lines: Iterable[Line]
) -> Mapping[str, TargetFile]:
    from kdump.broker.loader.checkpoints import require_readable, with_lines

    name = CHECKPOINTS[checkpoint]
    require_readable(directory, {name})
    there = {partition.topic_partition for partition in directory.partitions}
    for line in lines:
        if line.offset is not None and line.key not in there:
            raise UsageProblem(f"{directory.path}: no partition {line.key}")
    _require_reached(directory, name, lines)
    return with_lines(directory, name, {line.key: line.offset for line in lines})


_PAST_THE_END: Final = {
    names.RECOVERY_POINT_CHECKPOINT: "nothing after it can have been flushed",
    names.LOG_START_OFFSET_CHECKPOINT: "a broker would delete all its segments",
    names.REPLICATION_OFFSET_CHECKPOINT: "nothing after it can have been replicated",
    names.CLEANER_OFFSET_CHECKPOINT: "nothing after it can have been compacted",
}
"""Why a checkpoint cannot have an offset past the end of the log."""


def _require_reached(directory: LogDirectory, name: str, lines: Iterable[Line]) -> None:
    """Refuse offsets past the end of a log."""
    from kdump.log.bounds import read_bounds

    target = {line.key: line.offset for line in lines}
    for partition in directory.partitions:
        offset = partition.topic_partition and target.get(partition.topic_partition)
        if offset is None or partition.state is not PartitionState.LIVE:
            continue
        bounds = read_bounds(partition, directory.checkpoints, is_clean=directory.is_clean)
        if bounds.log_end_offset is not None and offset > bounds.log_end_offset:
            raise UsageProblem(
                f"{partition.path}: offset {offset} is past the end of the log,"
                f" {bounds.log_end_offset}: {_PAST_THE_END[name]}"
            )


@command.command("rebuild")
@paths_argument("LOG_DIR", written=True)
@selection_options
@repair_options
def rebuild(
    paths: Sequence[Location], selection: PartitionSelection, repair: RepairArguments
) -> ExitStatus:
    """Rebuild recovery points and log start offsets from the logs themselves."""
    from kdump.broker.loader.checkpoints import rebuilt_root, require_readable

    def rebuilt(found: LogDirectory) -> Mapping[str, TargetFile]:
        if not selection.is_everything:
            files = (names.RECOVERY_POINT_CHECKPOINT, names.LOG_START_OFFSET_CHECKPOINT)
            require_readable(found, files)
        return rebuilt_root(found, selection)

    return _write(paths, repair, "checkpoint rebuild", rebuilt, selection)


def _write(
    paths: Sequence[Location],
    repair: RepairArguments,
    command_name: str,
    target_root: Callable[[LogDirectory], Mapping[str, TargetFile]],
    selection: PartitionSelection | None = None,
) -> ExitStatus:
    """Write the root files of log directories that ``target_root`` computes."""
    from kdump.apply.plan import TargetDirectory
    from kdump.cli.output.diagnostics import Diagnostics
    from kdump.cli.shared.change_run import changing
    from kdump.log.directory import read_log_directory

    log_dirs, status = _log_dirs(paths)
    with changing(command_name, log_dirs, repair) as run:
        found = [read_log_directory(log_dir) for log_dir in log_dirs]
        if selection is not None and log_dirs and not selection.is_everything:
            _require_lines_or_partitions(selection, found)
        diagnostics = Diagnostics()
        for directory in found:
            diagnostics.report_unreadable(directory)
        status |= diagnostics.status
        with phase("reading the ends of logs"):
            targets = [
                TargetDirectory(each.path.local_path, (), target_root(each)) for each in found
            ]
        run.apply(targets)
    with run.report() as printer:
        status |= run.emit_plans(printer, run.operations(verbose=False))
    return run.status(status)


def _require_lines_or_partitions(
    selection: PartitionSelection, directories: Sequence[LogDirectory]
) -> None:
    """Refuse a selection that matches no partition and no line of a checkpoint."""
    for directory in directories:
        is_there = any(partition in selection for partition in directory.partitions)
        if is_there or _rows(directory, selection):
            return
    raise nothing_selected(selection, [each.path for each in directories])
