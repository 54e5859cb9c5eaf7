"""Store some files of a backup: the job, which checks a log as its bytes pass.

What is new of a file gets a temporary name in the repository; whoever runs the job syncs it and
names it by its SHA-256. Runs on this machine only: the repository is on its disk.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from kdump.check.batches import SegmentScope
from kdump.check.findings import Finding
from kdump.check.part import Level
from kdump.check.segment_check import check_part
from kdump.engine.job import Split
from kdump.errors import reason_of
from kdump.jobs.verify.finding_row import finding_row
from kdump.jobs.verify.verify_partition import VerifyJob
from kdump.jobs.writing.many_files import close_written
from kdump.repository.piece_writer import PieceDiffersError, PieceWriter
from kdump.repository.repository_writer import new_piece
from kdump.storage.location import Location, StoredFile
from kdump.storage.passing_storage import PassingStorage
from kdump.storage.repository_documents import Pieces, RepositoryPiece, stored_bytes
from kdump.storage.sparse_writer import WriteFailedError, writing
from kdump.storage.unfinished_file import UnfinishedFile

MOST_INLINE_BYTES: Final = 1024
"""Smaller files are in the document of their directory."""

Damage = tuple[Mapping[str, Any], ...]


class FileToStore(Struct, frozen=True):
    """A file that has to be read.

    Attributes:
        path: in its log directory.
        source: where it is.
        size_bytes: its size.
        needed_bytes: how much space that may take, as far as holes are known.
        known: pieces that its beginning may be, the most likely first.
        lost: those of them that are missing, and are stored again.
        scope: what to check it against; None for what is no log.
    """

    path: str
    source: Location
    size_bytes: int
    needed_bytes: int
    known: tuple[Pieces, ...] = ()
    lost: Pieces = ()
    scope: SegmentScope | None = None

    @property
    def is_inline(self) -> bool:
        """Whether it becomes a part of the document of its directory."""
        return self.size_bytes <= MOST_INLINE_BYTES


class BackupSplit(Split, frozen=True, kw_only=True):
    """Files of one directory to store."""

    files: tuple[FileToStore, ...]

    def read_places(self) -> Iterator[Location]:
        return (each.source for each in self.files)


class StoredBytes(Struct, frozen=True):
    """What was stored of a file.

    Attributes:
        content: all its bytes, if they are few.
        pieces: otherwise the pieces that it consists of.
        new: the pieces that were written, each with the path of its file.
        damage: what was found in it.
    """

    content: bytes | None = None
    pieces: Pieces = ()
    new: tuple[tuple[str, RepositoryPiece], ...] = ()
    damage: Damage = ()


class StoredFiles(Struct, frozen=True):
    """What was stored of a split.

    Attributes:
        files: in the order of the split; None for one that cannot be read.
        unreadable: why files were not stored.
        unwritable: why the job ended: the disk of the repository fails.
    """

    files: tuple[StoredBytes | None, ...] = ()
    unreadable: tuple[str, ...] = ()
    unwritable: str | None = None


class BackupJob(Struct, frozen=True):
    """Stores files.

    Attributes:
        folder: where pieces are before they have their names.
        now_ms: the current time.
    """

    folder: str
    now_ms: int

    def run(self, split: BackupSplit, /) -> StoredFiles:
        """Store the files of a split, each complete or not at all; small ones are not synced."""
        with contextlib.ExitStack() as stack:
            try:
                return _Run(self, split, stack).stored()
            except WriteFailedError as failure:
                return StoredFiles(unwritable=str(failure))


class _Run:
    """The files of one split while they are stored."""

    def __init__(self, job: BackupJob, split: BackupSplit, stack: contextlib.ExitStack) -> None:
        self.job = job
        self.split = split
        self.stack = stack
        self.unreadable: list[str] = []
        self.new: dict[int, list[tuple[UnfinishedFile, RepositoryPiece]]] = {}

    def stored(self) -> StoredFiles:
        done = [self._file(number, each) for number, each in enumerate(self.split.files)]
        damage = dict(self._small_logs())
        for written in self.new.values():
            for new, _ in written:
                close_written(new)
        files = []
        for number, found in enumerate(done):
            if found is not None and number in damage:
                found = replace(found, damage=damage[number])
            if found is not None and number in self.new:
                named = tuple((new.keep(), piece) for new, piece in self.new[number])
                found = replace(found, new=named)
            files.append(found)
        return StoredFiles(tuple(files), tuple(self.unreadable))

    def _file(self, number: int, file: FileToStore) -> StoredBytes | None:
        """Store one file; None if it cannot be read."""
        try:
            if file.is_inline:
                return self._inline(file)
            same: Pieces = ()
            for known in file.known:
                try:
                    return self._pieces(number, file, known)
                except PieceDiffersError as difference:
                    same = max(same, known[: difference.number], key=stored_bytes)
            return self._pieces(number, file, same)
        except (OSError, EOFError) as failure:
            self.unreadable.append(f"{file.source}: {reason_of(failure)}")
            return None

    def _inline(self, file: FileToStore) -> StoredBytes:
        content = file.source.read_listed()
        _require_size(len(content), file)
        return StoredBytes(content)

    def _pieces(self, number: int, file: FileToStore, known: Pieces) -> StoredBytes:
        new = self._new()
        try:
            found = self._written(new, file, known)
        except BaseException:
            new.drop()
            raise
        written = [
            (self._again(file, known[: at + 1]), piece)
            for at, piece in enumerate(known)
            if piece in file.lost
        ]
        if len(found.pieces) > len(known):
            written.append((new, found.pieces[-1]))
        else:
            new.drop()
        self.new[number] = written
        return found

    def _again(self, file: FileToStore, pieces: Pieces) -> UnfinishedFile:
        """Write the last of the pieces at the beginning of a file."""
        new = self._new()
        end = stored_bytes(pieces)
        writer = PieceWriter(new.stream, pieces, written_from=end - pieces[-1].size_bytes)
        with file.source.open_file() as source:
            writer.append(source, end)
        writer.end(end)
        return new

    def _written(self, new: UnfinishedFile, file: FileToStore, known: Pieces) -> StoredBytes:
        """Compare what is known of a file, and write what follows as one piece."""
        known_bytes = stored_bytes(known)
        writer = PieceWriter(new.stream, known, written_from=known_bytes)
        damage: Damage = ()
        with file.source.open_file() as source:
            _require_size(source.size_bytes, file)
            if file.scope is not None and not file.scope.is_small:
                damage = self._check(source, file.scope, writer)
            writer.append(source, file.size_bytes)
            digest = writer.end(file.size_bytes)
        if known_bytes < file.size_bytes:
            known = (*known, RepositoryPiece(digest, file.size_bytes - known_bytes))
        return StoredBytes(pieces=known, damage=damage)

    def _new(self) -> UnfinishedFile:
        with writing():
            new = new_piece(Path(self.job.folder))
        return self.stack.enter_context(new)

    def _check(self, source: StoredFile, scope: SegmentScope, writer: PieceWriter) -> Damage:
        """Check a log while it is stored; what the check does not read is not stored yet."""
        path = scope.log.path
        passing = replace(scope, log=Location(PassingStorage(path, source, writer, {}), path))
        return damage_of(check_part(passing, 0, None, Level.DEFAULT, self.job.now_ms).findings)

    def _small_logs(self) -> Iterator[tuple[int, Damage]]:
        """Check the logs that are small, many at a time."""
        scopes = {
            number: each.scope
            for number, each in enumerate(self.split.files)
            if each.scope is not None and each.scope.is_small
        }
        parts = VerifyJob(Level.DEFAULT, self.job.now_ms).check_segments(scopes.values())
        for number, part in zip(scopes, parts, strict=True):
            yield number, damage_of(part.findings)


def damage_of(findings: Iterable[Finding]) -> Damage:
    """The rows of the findings that are damage, with the name of the file instead of its path."""
    rows = []
    for each in findings:
        if each.severity.is_damage:
            row = finding_row(each)
            rows.append({"file": PurePath(row.pop("path")).name, **row})
    return tuple(rows)


def _require_size(size_bytes: int, file: FileToStore) -> None:
    """Notice a file that changed since it was listed.

    Raises:
        EOFError: it has another size.
    """
    if size_bytes != file.size_bytes:
        raise EOFError(f"has {size_bytes} bytes now, not {file.size_bytes}: it is in use")
