"""Write the new content of a plan's operations beside the old files, before the first change."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from typing import Final

from msgspec import Struct

from kdump.apply.directory_changes import StreamedFrom
from kdump.apply.files import Content, FileRange, Files, Metadata
from kdump.apply.journal import own_name
from kdump.apply.journal_record import relative
from kdump.apply.operations import DirectoryPlan, Operation
from kdump.apply.plan import Plan
from kdump.apply.segment_names import is_log, is_staged
from kdump.apply.streamed_content import StreamedContent
from kdump.formats.names import leading_offset, parse_metadata_snapshot_name
from kdump.phases import during
from kdump.target.target_file import CopiedFrom, JoinedFrom, NewBytes, StagedBytes

_NEW_FILE_BITS: Final = 0o666
_SNAPSHOT_BITS: Final = 0o400


class Staged(Struct, frozen=True):
    """A file with new content.

    Attributes:
        name: its path now, relative to the log directory.
        path: the path that it will be renamed to, likewise.
        metadata: its metadata, which it keeps.
    """

    name: str
    path: str
    metadata: Metadata


@during("writing new files")
def stage_new_content(
    plan: Plan, number: int, files: Files, *, created_ns: int
) -> dict[Operation, Staged]:
    """Write the new content of all operations that have any, and make it durable.

    The names become durable later, with the journal. ``.cleaned`` files that tasks of a job have
    staged in a partition become durable with their names.

    A file gets the owner, group, mode, times and extended attributes of the file that it replaces,
    or of the log of its segment, or that it is a copy of; else the owner and group of the
    directory.

    Raises:
        OSError: there is no space, or the owner cannot be set.
    """
    staged: dict[Operation, Staged] = {}
    folders: set[Path] = set()
    written: dict[str, StreamedContent] = {}
    for directory in plan.with_new_files:
        logs = sorted(
            (leading_offset(name) or 0, name) for name in directory.states if is_log(name)
        )
        for operation in directory.operations:
            content = _content(directory, operation)
            source = operation.source
            if source is not None and is_staged(operation.name, source):
                path = relative(plan.path, directory.path, operation.name)
                name = relative(plan.path, directory.path, source)
                staged[operation] = Staged(name, path, directory.states[source].metadata)
                folders.add(directory.path)
            early = operation.target if isinstance(operation.target, StagedBytes) else None
            if content is None and early is None:
                continue
            name = early.name if early else own_name(number, f"-new-{len(staged)}")
            path = relative(plan.path, directory.path, operation.name)
            like = _like(directory, operation, logs)
            metadata = _metadata_for(directory, operation, like, created_ns)
            if isinstance(operation.target, StreamedFrom):
                content = written[name] = StreamedContent(operation.target.stream)
            if content is not None:
                files.create(plan.path / name, content)
            files.set_metadata(plan.path / name, metadata)
            if like is not None:
                files.copy_attributes(plan.path / name, directory.path / like)
            elif directory.new is not None and operation.name in directory.new.like:
                files.copy_attributes(plan.path / name, directory.new.like[operation.name])
            staged[operation] = Staged(name, path, metadata)
    files.sync([*(plan.path / each.name for each in staged.values()), *sorted(folders)])
    for name, streamed in written.items():
        streamed.require_written(plan.path / name)
    return staged


def _content(directory: DirectoryPlan, operation: Operation) -> Content | None:
    match operation.target:
        case NewBytes(data):
            return [data]
        case CopiedFrom() as piece:
            return [_range(directory, piece)]
        case JoinedFrom(pieces):
            return [_range(directory, piece) for piece in pieces]
        case StreamedFrom():
            return []  # replaced by a stream that is checked
        case _:
            return None


def _range(directory: DirectoryPlan, piece: CopiedFrom) -> FileRange:
    identity = directory.states[piece.name].identity
    return FileRange(directory.path / piece.name, piece.start, piece.end, identity)


def _like(
    directory: DirectoryPlan, operation: Operation, logs: list[tuple[int, str]]
) -> str | None:
    """The file that a new one is like: the one that it replaces, or the log of its segment."""
    name, states = operation.name, directory.states
    if directory.new is not None:
        return None
    for like in (name, _first_source(operation)):
        if like in states:
            return like
    offset = leading_offset(name)
    # The last log whose base offset is not above the file's.
    at = 0 if offset is None else bisect_right(logs, offset, key=lambda log: log[0])
    return logs[at - 1][1] if at else None


def _metadata_for(
    directory: DirectoryPlan, operation: Operation, like: str | None, created_ns: int
) -> Metadata:
    name = operation.name
    if directory.new is not None:
        known = directory.new.files.get(name)
        around = directory.new.directory
        return known or _inside(around, name, created_ns)
    if like is not None:
        return directory.states[like].metadata
    return _inside(Metadata.of(directory.path.stat()), name, created_ns)


def _inside(directory: Metadata, name: str, created_ns: int) -> Metadata:
    """Metadata of a new file: those of its directory, without the right to search.

    A KRaft snapshot can hold secrets. Kafka, too, lets only its owner read it
    (``FileRawSnapshotWriter.freeze``).
    """
    is_snapshot = parse_metadata_snapshot_name(name) is not None
    mode = directory.mode & (_SNAPSHOT_BITS if is_snapshot else _NEW_FILE_BITS)
    return Metadata(mode, directory.uid, directory.gid, created_ns, created_ns)


def _first_source(operation: Operation) -> str | None:
    match operation.target:
        case CopiedFrom(source, _, _):
            return source
        case JoinedFrom(pieces) if pieces:
            return pieces[0].name
        case _:
            return None
