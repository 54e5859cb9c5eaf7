"""What is made ready before the first change: new content, and what is about to be lost.

A file that goes gets another name in the log directory, which costs nothing. Of a file that is
cut, what is cut off is copied; not its zeroes, of which Kafka puts millions behind an index. Where
a segment is written anew, what the new one leaves out is copied as well, so that the old file need
not be kept when all is done.
"""

from __future__ import annotations

import errno
import os
import stat
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kdump.apply.differences import gaps_between
from kdump.apply.files import Content, FileRange, Files, Metadata
from kdump.apply.fingerprints import kept_file_fingerprint
from kdump.apply.journal import (
    CUT_SUFFIX,
    BeforeImage,
    Cut,
    Derived,
    Fingerprint,
    KeptRange,
    Piece,
    own_name,
)
from kdump.apply.journal_file import give_to_owner
from kdump.apply.journal_record import cut_file, relative
from kdump.apply.operations import DirectoryPlan, FileState, Operation, OperationKind, Phase
from kdump.apply.pinned_directory import status_at
from kdump.apply.plan import Plan
from kdump.apply.segment_names import CLEANED, is_log
from kdump.formats.names import leading_offset
from kdump.phases import during
from kdump.storage.regular_files import open_file
from kdump.target.target_file import CopiedFrom, JoinedFrom, NewBytes

_CHUNK_BYTES: Final = 1 << 20
_DERIVED_FROM_BYTES: Final = 1 << 20
"""Smaller files are kept as they are: making them again would be more work than they are worth."""
_NEW_FILE_BITS: Final = 0o666


@dataclass(frozen=True, slots=True)
class Staged:
    """New content that lies ready.

    Attributes:
        name: its path, relative to the log directory.
        path: where it goes, likewise.
        metadata: that it has, and keeps.
    """

    name: str
    path: str
    metadata: Metadata


@during("writing new files")
def stage_new_content(
    plan: Plan, number: int, files: Files, *, created_ns: int
) -> dict[Operation, Staged]:
    """Write the new content of all operations that have any, durable but for its names.

    What others have staged in a partition is made durable as well, with its name.

    A file has the owner, group, mode and times of the one that it replaces, or of the log of its
    segment; else the owner and group of the directory.

    Raises:
        OSError: there is no space, or the owner cannot be set.
    """
    staged: dict[Operation, Staged] = {}
    folders: set[Path] = set()
    for directory in plan.directories:
        logs = sorted(
            (leading_offset(name) or 0, name) for name in directory.states if is_log(name)
        )
        for operation in directory.operations:
            content = _content(directory, operation)
            source = operation.source
            if source is not None and source.endswith(CLEANED):
                path = relative(plan.path, directory.path, operation.name)
                name = relative(plan.path, directory.path, source)
                staged[operation] = Staged(name, path, directory.states[source].metadata)
                folders.add(directory.path)
            if content is None:
                continue
            name = own_name(number, f"-new-{len(staged)}")
            path = relative(plan.path, directory.path, operation.name)
            metadata = _metadata_for(directory, operation, logs, created_ns)
            files.create(plan.path / name, content)
            files.set_metadata(plan.path / name, metadata)
            staged[operation] = Staged(name, path, metadata)
    files.sync([*(plan.path / each.name for each in staged.values()), *sorted(folders)])
    return staged


def _content(directory: DirectoryPlan, operation: Operation) -> Content | None:
    match operation.target:
        case NewBytes(data):
            return [data]
        case CopiedFrom() as piece:
            return [_range(directory, piece)]
        case JoinedFrom(pieces):
            return [_range(directory, piece) for piece in pieces]
        case _:
            return None


def _range(directory: DirectoryPlan, piece: CopiedFrom) -> FileRange:
    identity = directory.states[piece.name].identity
    return FileRange(directory.path / piece.name, piece.start, piece.end, identity)


def _metadata_for(
    directory: DirectoryPlan, operation: Operation, logs: list[tuple[int, str]], created_ns: int
) -> Metadata:
    name = operation.name
    offset = leading_offset(name)
    like = directory.states.get(name)
    if like is None:
        like = directory.states.get(_first_source(operation) or "")
    if like is None and offset is not None:
        # The log of its segment: the last one that begins at or below it.
        at = bisect_right(logs, offset, key=lambda log: log[0])
        like = directory.states[logs[at - 1][1]] if at else None
    if like is not None:
        return like.metadata
    around = Metadata.of(directory.path.stat())
    # What its directory is, but for the right to search it.
    mode = around.mode & _NEW_FILE_BITS
    return Metadata(mode, around.uid, around.gid, created_ns, created_ns)


def _first_source(operation: Operation) -> str | None:
    match operation.target:
        case CopiedFrom(source, _, _):
            return source
        case JoinedFrom(pieces) if pieces:
            return pieces[0].name
        case _:
            return None


@dataclass(frozen=True, slots=True)
class Kept:
    """What was there before, and what is kept of it.

    Attributes:
        before: the files that are about to change, by path.
        marks: the run's own files that an undo needs, by name.
    """

    before_images: dict[str, BeforeImage]
    fingerprints: dict[str, Fingerprint]


@during("keeping a copy of what changes")
def keep_before_images(plan: Plan, number: int, files: Files, *, keep_undo: bool) -> Kept:
    """Keep what is about to go, durable but for the names.

    Raises:
        OSError: there is no space, or the file system refuses other names for files.
    """
    keeper = _Keeper(plan.path, number, files, keep_undo=keep_undo)
    for directory in plan.directories:
        keeper.keep(directory)
    keeper.write_cuts()
    return Kept(keeper.before_images, keeper.fingerprints)


@dataclass(slots=True)
class _Keeper:
    log_dir: Path
    number: int
    files: Files
    keep_undo: bool
    before_images: dict[str, BeforeImage] = field(default_factory=dict)
    fingerprints: dict[str, Fingerprint] = field(default_factory=dict)
    _ranges: list[FileRange] = field(default_factory=list)
    _kept_bytes: int = 0
    _links: int = 0

    def keep(self, directory: DirectoryPlan) -> None:
        cut = {
            name: operation.size_bytes
            for operation in directory.operations
            if (name := cut_file(directory, operation)) is not None
        }
        going = _names_that_go(directory)
        derived = _derived_from(directory) if self.keep_undo else {}
        for name in sorted(going | cut.keys()):
            state = directory.states[name]
            path = relative(self.log_dir, directory.path, name)
            pieces, is_rename = derived.get(name, ((), False))
            self.before_images[path] = BeforeImage(
                state.size_bytes,
                state.metadata,
                state.is_own,
                self._link(path) if name in going and self.keep_undo else None,
                self._cut(path, state, cut[name]) if name in cut else None,
                self._derived(path, state, pieces, is_rename=is_rename)
                if pieces and state.is_own
                else None,
            )

    def _link(self, path: str) -> str:
        name = own_name(self.number, f"-old-{self._links}")
        self._links += 1
        self.files.link(self.log_dir / path, self.log_dir / name)
        self.fingerprints[name] = kept_file_fingerprint(self.log_dir / name)
        return name

    def _cut(self, path: str, state: FileState, position: int) -> Cut:
        ranges = [(position, state.size_bytes)]
        runs = self._runs(path, state, ranges) if self.keep_undo else ()
        return Cut(position, runs)

    def _derived(
        self, path: str, state: FileState, pieces: tuple[Piece, ...], *, is_rename: bool
    ) -> Derived | None:
        if is_rename:
            return Derived(pieces, (), is_rename=True)
        if state.size_bytes < _DERIVED_FROM_BYTES:
            return None
        ranges = [(each.position, each.position + each.end - each.start) for each in pieces]
        gaps = gaps_between(ranges, state.size_bytes)
        return Derived(pieces, self._runs(path, state, gaps), is_rename=False)

    def _runs(
        self, path: str, state: FileState, ranges: list[tuple[int, int]]
    ) -> tuple[KeptRange, ...]:
        runs = []
        for start, end in _not_zero(self.log_dir / path, ranges):
            runs.append(KeptRange(start, end - start, self._kept_bytes))
            self._ranges.append(FileRange(self.log_dir / path, start, end, state.identity))
            self._kept_bytes += end - start
        return tuple(runs)

    def write_cuts(self) -> None:
        if self._ranges:
            path = self.log_dir / own_name(self.number, CUT_SUFFIX)
            self.files.create(path, self._ranges)
            if self._is_for_owner():
                give_to_owner(path, self.files)
            self.files.sync([path])
            self.fingerprints[path.name] = kept_file_fingerprint(path, is_whole=True)

    def _is_for_owner(self) -> bool:
        """Whether the owner of the log directory may read all that was cut off."""
        owner = status_at(self.log_dir).st_uid
        metadata = [
            each.metadata
            for each in self.before_images.values()
            if each.cut is not None or each.derived is not None
        ]
        return all(each.uid == owner or each.mode & stat.S_IROTH for each in metadata)


def _names_that_go(directory: DirectoryPlan) -> set[str]:
    """The files that are taken from their names; not those that were staged there."""
    names = set()
    for operation in directory.operations:
        if operation.kind is not OperationKind.CUT:
            names.add(operation.name)
        if operation.source is not None and not operation.source.endswith(CLEANED):
            names.add(operation.source)
    return names & directory.states.keys()


def _derived_from(
    directory: DirectoryPlan,
) -> Mapping[str, tuple[tuple[Piece, ...], bool]]:
    """Which files are afterwards in others, in pieces or (True) as they are."""
    pieces: dict[str, list[Piece]] = {}
    renamed: dict[str, Piece] = {}
    prefix = directory.path.name
    rewritten = {each.name for each in directory.operations if each.phase is Phase.REWRITE}
    for operation in directory.operations:
        path = f"{prefix}/{operation.name}"
        match operation.target:
            case CopiedFrom(name, start, end) if operation.phase is Phase.REWRITE:
                pieces.setdefault(name, []).append(Piece(path, 0, end - start, start))
            case JoinedFrom(ranges) if operation.phase is Phase.REWRITE:
                at = 0
                for each in ranges:
                    piece = Piece(path, at, at + each.size_bytes, each.start)
                    pieces.setdefault(each.name, []).append(piece)
                    at += each.size_bytes
            case _ if operation.source is not None and operation.name not in rewritten:
                renamed[operation.source] = Piece(path, 0, operation.size_bytes, 0)
    found = {name: (tuple(each), False) for name, each in pieces.items()}
    return found | {name: ((piece,), True) for name, piece in renamed.items()}


def _not_zero(path: Path, ranges: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The parts of ``ranges`` of a file in which something stands; the others are zeroes."""
    with open_file(path) as file:
        for start, end in ranges:
            begin = reached = start
            for at, stop in _chunks(file.fileno(), start, end):
                data = os.pread(file.fileno(), stop - at, at)
                if len(data) != stop - at:
                    raise OSError(errno.EIO, "the file became shorter while it was read", str(path))
                if data.count(0) == len(data):
                    continue
                if at != reached:
                    if begin < reached:
                        yield begin, reached
                    begin = at
                reached = stop
            if begin < reached:
                yield begin, reached


def _chunks(descriptor: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Parts of a range, one behind the other, without those that are holes."""
    position = start
    while position < end:
        try:
            position = os.lseek(descriptor, position, os.SEEK_DATA)
            hole = os.lseek(descriptor, position, os.SEEK_HOLE)
        except OSError as failure:
            if failure.errno == errno.ENXIO:
                return  # nothing but a hole up to the end
            if failure.errno != errno.EINVAL:
                raise
            hole = end  # a file system that does not say
        stop = min(end, hole, position + _CHUNK_BYTES)
        if position < stop:
            yield position, stop
        position = stop
