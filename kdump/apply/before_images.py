"""Keep what a run will destroy, before the first change.

A deleted file gets a hard link in the log directory, which costs nothing, or a copy where the file
system has no hard links. The bytes that a truncation removes are copied, but not zeroes: Kafka
preallocates indexes with millions of them.
Where a segment is rewritten, the bytes that the new one drops are copied as well, so that the old
file need not be kept once the run is complete.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from kdump.apply.differences import gaps_between
from kdump.apply.files import FileRange, Files
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
from kdump.apply.operations import DirectoryPlan, FileState, OperationKind, OperationPhase
from kdump.apply.pinned_directory import status_at
from kdump.apply.plan import Plan
from kdump.apply.segment_names import is_staged
from kdump.phases import during
from kdump.scan.source import without_padding
from kdump.storage.local_disk import open_for_reading
from kdump.target.target_file import CopiedFrom, JoinedFrom

_CHUNK_BYTES: Final = 1 << 18
"""How much is read at once: new memory for a megabyte costs more time than reading it does."""
_DERIVED_FROM_BYTES: Final = 1 << 20
"""Smaller files are kept whole: recreating them is not worth the work."""


class BeforeImages(Struct, frozen=True):
    """The before-images of a plan.

    Attributes:
        before_images: of the files that are about to change, by path.
        fingerprints: of the run's own files that an undo needs, by name.
    """

    before_images: dict[str, BeforeImage]
    fingerprints: dict[str, Fingerprint]


@during("keeping a copy of what changes")
def keep_before_images(plan: Plan, number: int, files: Files, *, keep_undo: bool) -> BeforeImages:
    """Keep what the plan will destroy, and make it durable; names become durable later.

    Raises:
        OSError: there is no space, or the file system does not support hard links.
    """
    keeper = _Keeper(plan.path, number, files, keep_undo=keep_undo)
    for directory in plan.directories:
        keeper.keep(directory)
    keeper.write_cuts()
    return BeforeImages(keeper.before_images, keeper.fingerprints)


class _Keeper(Struct):
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
        """Whether the owner of the log directory may read everything that the file keeps."""
        owner = status_at(self.log_dir).st_uid
        metadata = [
            each.metadata
            for each in self.before_images.values()
            if each.cut is not None or each.derived is not None
        ]
        return all(each.uid == owner or each.mode & stat.S_IROTH for each in metadata)


def _names_that_go(directory: DirectoryPlan) -> set[str]:
    """Files that lose their names, without staged ones."""
    names = set()
    for operation in directory.operations:
        if operation.kind is not OperationKind.CUT:
            names.add(operation.name)
        source = operation.source
        if source is not None and not is_staged(operation.name, source):
            names.add(source)
    return names & directory.states.keys()


def _derived_from(
    directory: DirectoryPlan,
) -> Mapping[str, tuple[tuple[Piece, ...], bool]]:
    """Original files that other files contain afterwards: pieces, and whether it is a rename."""
    pieces: dict[str, list[Piece]] = {}
    renamed: dict[str, Piece] = {}
    prefix = directory.path.name
    rewritten = {each.name for each in directory.operations if each.phase is OperationPhase.REWRITE}
    for operation in directory.operations:
        path = f"{prefix}/{operation.name}"
        match operation.target:
            case CopiedFrom(name, start, end) if operation.phase is OperationPhase.REWRITE:
                pieces.setdefault(name, []).append(Piece(path, 0, end - start, start))
            case JoinedFrom(ranges) if operation.phase is OperationPhase.REWRITE:
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
    """The parts of ``ranges`` of a file that are not zeroes."""
    with open_for_reading(path) as file:
        for start, end in ranges:
            begin = reached = start
            for at, stop in _chunks(file.fileno(), start, end):
                data = os.pread(file.fileno(), stop - at, at)
                if len(data) != stop - at:
                    raise OSError(errno.EIO, "the file became shorter while it was read", str(path))
                if not without_padding(data):
                    continue
                if at != reached:
                    if begin < reached:
                        yield begin, reached
                    begin = at
                reached = stop
            if begin < reached:
                yield begin, reached


def _chunks(descriptor: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Consecutive parts of a range, without holes."""
    position = start
    while position < end:
        try:
            position = os.lseek(descriptor, position, os.SEEK_DATA)
            hole = os.lseek(descriptor, position, os.SEEK_HOLE)
        except OSError as failure:
            if failure.errno == errno.ENXIO:
                return  # a hole up to the end
            if failure.errno != errno.EINVAL:
                raise
            hole = end  # this file system does not report holes
        stop = min(end, hole, position + _CHUNK_BYTES)
        if position < stop:
            yield position, stop
        position = stop
