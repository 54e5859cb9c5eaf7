"""Commands that repair one part of partitions: rebuild-index, resolve, snapshot rebuild."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from kdump.cli.options.selection_options import nothing_selected
from kdump.cli.output.brief import BriefList
from kdump.cli.output.diagnostics import Diagnostics
from kdump.cli.output.events import Event
from kdump.cli.output.recovery_rows import leftover_row, refusal_row
from kdump.cli.output.write_arguments import RepairArguments
from kdump.cli.output.write_report import Operations, plan_lines, plan_row
from kdump.cli.shared.change_run import changing
from kdump.errors import ExitStatus
from kdump.formats import names
from kdump.formats.names import FileKind, PartitionState
from kdump.jobs.part_repair import (
    PartResult,
    PartTarget,
    RepairPart,
    repair_parts,
    target_directories,
)
from kdump.jobs.problems.unreadable import Unreadable
from kdump.jobs.writing.large_content import LargeContent
from kdump.log.directory import directory_kind, read_log_directory, read_lone_partition
from kdump.phases import phase
from kdump.rows.common_rows import directory_values
from kdump.storage.entries import EntryKind
from kdump.storage.local_disk import local
from kdump.storage.location import Location
from kdump.words import counted

if TYPE_CHECKING:
    from kdump.cli.options.config_options import ConfigArguments
    from kdump.engine.engine_choice import EngineOptions
    from kdump.log.directory import LogDirectory
    from kdump.log.partition import Partition
    from kdump.log.selection import PartitionSelection


class NamedPath(Struct, frozen=True):
    """A path named on the command line.

    Attributes:
        log_dir: the log directory, by the path as it was given.
        partition: name of the partition's directory; None for all partitions.
        base_offset: base offset of the segment; None for all segments.
    """

    log_dir: Location
    partition: str | None = None
    base_offset: int | None = None


def find_named_paths(
    paths: Iterable[Location], diagnostics: Diagnostics, *, segments: bool = False
) -> list[NamedPath]:
    """Find log directories and partitions, and with ``segments`` also logs of segments.

    A log directory that is named by several paths is one, by the first of them. Other paths are
    reported.
    """
    found: list[NamedPath] = []
    log_dirs: dict[Location, Location] = {}
    for path in paths:
        try:
            with phase(f"listing {path}"):
                named = _named(path, segments=segments)
                if named is not None:
                    log_dir = log_dirs.setdefault(named.log_dir.resolved(), named.log_dir)
                    named = replace(named, log_dir=log_dir)
        except OSError as failure:
            diagnostics.report(path, failure)
            continue
        if named is None:
            diagnostics.refuse(path)
        elif named not in found:
            found.append(named)
    return found


def _named(path: Location, *, segments: bool) -> NamedPath | None:

    location = path.as_absolute()
    # A partition that is a symbolic link belongs to the directory that the link is in.
    is_plain = location.name not in ("", "..")
    location = location.parent.resolved() / location.name if is_plain else location.resolved()
    if segments and path.status().kind is not EntryKind.DIRECTORY:
        parsed = names.parse_offset_file_name(path.name)
        if parsed is None or parsed.kind is not FileKind.LOG:
            return None
        log_dir = _as_given(path.parent.around, location.parent.parent)
        return NamedPath(log_dir, location.parent.name, parsed.offset)
    kind = directory_kind(path)
    if kind.is_partition:
        return NamedPath(_as_given(path.around, location.parent), location.name)
    return NamedPath(path) if kind.is_log_directory else None


def _as_given(given: Location, location: Location) -> Location:
    """Return the path ``given`` if it leads to ``location``; through a link it may not."""
    return given if given.resolved() == location.resolved() else location


def in_use(part: RepairPart) -> dict[PartitionState, RepairPart]:
    """Return the states of partitions in use, each with ``part``."""
    return {PartitionState.LIVE: part, PartitionState.FUTURE: part}


def run_parts(
    command: str,
    parts: Mapping[PartitionState, RepairPart],
    paths: Iterable[Location],
    selection: PartitionSelection,
    repair: RepairArguments,
    config: ConfigArguments,
    engine: EngineOptions,
    *,
    segments: bool = False,
) -> ExitStatus:
    """Repair a part of each selected partition, and print what was done.

    Args:
        parts: which part, by the state of the partition. Partitions of other states, and the
            cluster's metadata, are left unchanged unless they are named exactly.
        paths: of log directories and partitions.
        segments: whether the paths may name logs of segments, too.
    """
    diagnostics = Diagnostics()
    named = find_named_paths(paths, diagnostics, segments=segments)
    if not named:
        return diagnostics.status
    begin = time.monotonic()
    log_dirs = list(dict.fromkeys(each.log_dir for each in named))
    with changing(command, log_dirs, repair) as run:
        directories = [_read(log_dir, named) for log_dir in log_dirs]
        for directory in directories:
            diagnostics.report_unreadable(directory)
        targets = [
            target for each in directories for target in _targets(each, named, selection, parts)
        ]
        if not targets and not selection.is_everything:
            raise nothing_selected(selection, log_dirs)
        settings = config.settings_of(directories)
        results = repair_parts(targets, settings, engine, LargeContent(run.writing))
        run.apply(target_directories(results))
    operations = run.operations()
    listed = BriefList(verbose=repair.verbose)
    losses: list[str] = []
    status = diagnostics.status
    with run.report() as printer:
        failed = {local(each.plan.path) for each in run.done if each.failure is not None}
        results = [each for each in results if each.target.directory.path not in failed]
        for result in results:
            losses += _loss_lines(result)
            lines = listed.take(_change_lines(result, operations, repair))
            printer.emit(Event("partition", _row(result, operations), lines))
            status |= _status(result)
        printer.emit_text(listed.rest())
        run.emit_failures(printer)
        for each in run.done:
            if each.failure is None:
                row = {"log_dir": str(each.plan.path), **plan_row(each)}
                lines = [*plan_lines(each), *operations.counts(each)]
                printer.emit(Event("directory", row, lines))
        printer.emit(_summary(results, repair, time.monotonic() - begin))
        printer.emit_text(losses)
    return run.status(status)


def _read(log_dir: Location, named: Iterable[NamedPath]) -> LogDirectory:
    """Read a log directory: the named partitions and the cluster's metadata."""
    meant = {each.partition for each in named if each.log_dir == log_dir}
    return read_log_directory(
        log_dir,
        select=lambda name, key: (
            None in meant or name in meant or key.topic == names.CLUSTER_METADATA_TOPIC
        ),
    )


def _targets(
    directory: LogDirectory,
    named: Iterable[NamedPath],
    selection: PartitionSelection,
    parts: Mapping[PartitionState, RepairPart],
) -> Iterator[PartTarget]:
    """Yield what was named in a log directory."""
    here = [each for each in named if each.log_dir == directory.path]
    is_whole = any(each.partition is None for each in here)
    base_offsets = _base_offsets(here)
    found = {partition.path.name: partition for partition in directory.partitions}
    for name in base_offsets:
        if name not in found:
            # A copy may have a name that no partition can have.
            found[name] = read_lone_partition(directory.path / name, name)
    for name, partition in found.items():
        if partition not in selection:
            continue
        if name in base_offsets:
            part = parts.get(partition.state, parts[PartitionState.LIVE])
            yield PartTarget(directory, partition, part, base_offsets[name])
        elif is_whole and partition.state in parts and _is_asked_for(partition, selection):
            yield PartTarget(directory, partition, parts[partition.state])


def _is_asked_for(partition: Partition, selection: PartitionSelection) -> bool:
    """Whether a partition of a log directory is worked on: the cluster's metadata only by name."""
    if not partition.is_cluster_metadata:
        return True
    return partition.topic_partition is not None and selection.names(partition.topic_partition)


def _base_offsets(named: Iterable[NamedPath]) -> dict[str, tuple[int, ...] | None]:
    """Return the named segments of each named partition; None for all of them."""
    found: dict[str, tuple[int, ...] | None] = {}
    for each in named:
        if each.partition is None:
            continue
        before = found.get(each.partition, ())
        if before is None or each.base_offset is None:
            found[each.partition] = None
        else:
            found[each.partition] = (*before, each.base_offset)
    return found


def _row(result: PartResult, operations: Operations) -> dict[str, Any]:
    partition, outcome = result.target.partition, result.outcome
    path = partition.path
    row: dict[str, Any] = {
        **directory_values(result.target.directory.path, path.name, partition.topic_partition),
        "refusals": [],
        "leftovers": [],
        "forgotten_producers": [],
        "operations": operations.rows(path.local_path),
    }
    if isinstance(outcome, Unreadable):
        row["refusals"] = [refusal_row(outcome)]
    else:
        row["refusals"] = [refusal_row(refusal) for refusal in outcome.refusals]
        row["leftovers"] = [leftover_row(leftover) for leftover in outcome.leftovers]
        row["forgotten_producers"] = list(outcome.forgotten)
    return row


def _loss_lines(result: PartResult) -> Iterator[str]:
    """Yield what cannot be repaired or is lost; printed last."""
    path, outcome = result.target.partition.path, result.outcome
    if isinstance(outcome, Unreadable):
        yield f"{outcome.path}: cannot be read: {outcome.what}"
        return
    for refusal in outcome.refusals:
        yield f"{path}: left unchanged: {refusal}"
    if outcome.forgotten:
        ids = ", ".join(map(str, outcome.forgotten))
        producers = counted(len(outcome.forgotten), "producer")
        yield f"{path}: lost the state of {producers} ({ids}): the log has no batch from them"


def _change_lines(
    result: PartResult, operations: Operations, repair: RepairArguments
) -> Sequence[str]:
    path = result.target.partition.path
    changes = operations.lines(path.local_path)
    if changes:
        return [f"{path}: {counted(len(changes), 'change')}", *changes]
    return [f"{path}: nothing to change"] if repair.verbose and not result.files else []


def _status(result: PartResult) -> ExitStatus:
    if isinstance(result.outcome, Unreadable):
        return ExitStatus.OPERATIONAL_ERROR
    status = ExitStatus.DAMAGE_LEFT if result.outcome.refusals else ExitStatus.SOUND
    if result.files:
        status |= ExitStatus.REPAIRED
    return status


def _summary(results: Sequence[PartResult], repair: RepairArguments, seconds: float) -> Event:
    changed = sum(bool(result.files) for result in results)
    row = {
        "partitions": len(results),
        "changed": changed,
        "is_dry_run": repair.dry_run,
        "seconds": round(seconds, 3),
    }
    what = "to change" if repair.dry_run else "changed"
    return Event("summary", row, [f"{counted(len(results), 'partition')}, {changed} {what}"])
