"""Store some files of a backup: the job, which checks a log as its bytes pass.

What is new of a file is kept by the place of the repository; whoever runs the job names it by its
SHA-256. Runs on this machine only, where the log directories are.
"""

from __future__ import annotations

import contextlib
import io
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from pathlib import PurePath
from typing import IO, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from kdump.check.batches import SegmentScope
from kdump.check.findings import Finding
from kdump.check.part import Level
from kdump.check.segment_check import check_part
from kdump.engine.job import Split
from kdump.errors import reason_of
from kdump.jobs.verify.finding_row import finding_row
from kdump.jobs.verify.verify_living import OF_LOGS, OF_SEGMENTS
from kdump.jobs.verify.verify_partition import VerifyJob
from kdump.log.living import FileStamp
from kdump.repository.piece_writer import PieceDiffersError, PieceWriter
from kdump.repository.repository_place import RepositoryPlace
from kdump.scan.source import ShortenedFileError, read_at
from kdump.storage.location import Location, StoredFile
from kdump.storage.memory_file import MemoryFile
from kdump.storage.passing_storage import PassingStorage
from kdump.storage.repository import sha256_of
from kdump.storage.repository_documents import Pieces, RepositoryPiece, stored_bytes
from kdump.storage.sparse_writer import WriteFailedError, writing
from kdump.storage.unfinished_file import UnfinishedFile

MOST_INLINE_BYTES: Final = 1024
"""Smaller files are in the document of their directory."""
CHANGES: Final = (FileNotFoundError, ShortenedFileError, EOFError)
"""What is raised where a broker has renamed, deleted or truncated a file that is read."""
_KEPT_TOGETHER: Final = 4
"""So many pieces of one file are written at the same time, where each takes a request."""

Damage = tuple[Mapping[str, Any], ...]


class FileToStore(Struct, frozen=True):
    """A file that has to be read.

    Attributes:
        needed_bytes: how much space that may take, as far as holes are known.
        known: pieces that its beginning may be, the most likely first.
        lost: those of them that are missing, and are stored again.
        scope: what to check it against; None for what is no log.
        stamp: which file it was when it was listed, if a broker uses it: what was read counts if it
            is still the same after that.
        is_beginning: whether a broker appends to it: so many bytes at its beginning are stored.
        content: what is stored instead of what the file has; ``size_bytes`` is its size.
    """

    path: str
    source: Location
    size_bytes: int
    needed_bytes: int
    known: tuple[Pieces, ...] = ()
    lost: Pieces = ()
    scope: SegmentScope | None = None
    stamp: FileStamp | None = None
    is_beginning: bool = False
    content: bytes | None = None

    def opened(self) -> StoredFile:
        """Open what is stored.

        Raises:
            EOFError: it has another size than when it was listed.
            OSError: it cannot be opened.
        """
        if self.content is not None:
            return MemoryFile(self.source, self.content)
        source = self.source.open_file()
        if self.is_beginning:
            return Beginning(source, self.size_bytes)
        try:
            _require_size(source.size_bytes, self)
        except EOFError:
            source.close()
            raise
        return source

    @property
    def scope_alone(self) -> SegmentScope | None:
        """What to check it against by itself; None if it is no log, or checked with other logs."""
        return None if self.scope is None or self.scope.is_small else self.scope

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
        new: the pieces that were written, as their place has kept them.
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
        changed: the paths of files that a broker changed while they were read.
        unwritable: why the job ended: the repository cannot be written.
    """

    files: tuple[StoredBytes | None, ...] = ()
    unreadable: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unwritable: str | None = None


class BackupJob(Struct, frozen=True):
    """Stores files."""

    where: RepositoryPlace
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
        self.changed: list[str] = []
        self.new: dict[int, list[tuple[UnfinishedFile, RepositoryPiece]]] = {}
        self.kept: dict[int, list[tuple[str, RepositoryPiece]]] = defaultdict(list)

    def stored(self) -> StoredFiles:
        done = [self._file(number, each) for number, each in enumerate(self.split.files)]
        damage = dict(self._small_logs())
        self._keep()
        files = []
        for number, found in enumerate(done):
            if found is not None and number in damage:
                found = replace(found, damage=damage[number])
            if found is not None:
                found = replace(found, new=tuple(self.kept.get(number, ())))
            files.append(found)
        return StoredFiles(tuple(files), tuple(self.unreadable), tuple(self.changed))

    def _keep(self) -> None:
        """Keep the pieces that are written."""
        new = [(number, each) for number, written in self.new.items() for each in written]
        self.new.clear()
        kept = self.job.where.keep([each for _, each in new])
        for (number, (_, piece)), name in zip(new, kept, strict=True):
            self.kept[number].append((name, piece))

    def _file(self, number: int, file: FileToStore) -> StoredBytes | None:
        """Store one file; None if it cannot be read, or changed meanwhile."""
        try:
            found = self._inline(file) if file.is_inline else self._in_pieces(number, file)
            if file.stamp is None or _is_kept(file, file.stamp, found):
                return found
        except (OSError, EOFError) as failure:
            if file.stamp is None or not isinstance(failure, CHANGES):
                self.unreadable.append(f"{file.source}: {reason_of(failure)}")
                return None
        self.changed.append(file.path)
        for new, _ in self.new.pop(number, ()):
            new.drop()
        return None

    def _inline(self, file: FileToStore) -> StoredBytes:
        if file.stamp is None and file.content is None:
            content = file.source.read_listed()
        else:
            with file.opened() as source:
                content = read_at(source, 0, file.size_bytes)
        _require_size(len(content), file)
        damage: Damage = ()
        if (scope := file.scope_alone) is not None:
            whole, nothing = MemoryFile(file.source, content), PieceWriter(io.BytesIO(), ())
            damage = self._check(whole, file, scope, nothing)
        return StoredBytes(content, damage=damage)

    def _in_pieces(self, number: int, file: FileToStore) -> StoredBytes:
        same: Pieces = ()
        for known in file.known:
            try:
                return self._pieces(number, file, known)
            except PieceDiffersError as difference:
                same = max(same, known[: difference.number], key=stored_bytes)
        return self._pieces(number, file, same)

    def _pieces(self, number: int, file: FileToStore, known: Pieces) -> StoredBytes:
        found = self._written(number, file, known)
        for at, piece in enumerate(known):
            if piece in file.lost:
                self._add(number, self._again(file, known[: at + 1]), piece)
        return found

    def _add(self, number: int, new: UnfinishedFile, piece: RepositoryPiece) -> None:
        """Add a piece of a file that is written."""
        self.new.setdefault(number, []).append((new, piece))
        if len(self.new[number]) >= _KEPT_TOGETHER:
            self._keep()

    def _again(self, file: FileToStore, pieces: Pieces) -> UnfinishedFile:
        """Write the last of the pieces at the beginning of a file."""
        new = self._new()
        end = stored_bytes(pieces)
        writer = PieceWriter(new.stream, pieces, written_from=end - pieces[-1].size_bytes)
        with file.opened() as source:
            writer.append(source, end)
        writer.end(end)
        return new

    def _written(self, number: int, file: FileToStore, known: Pieces) -> StoredBytes:
        """Compare what is known of a file, and write what follows."""
        known_bytes = stored_bytes(known)
        found = list(known)
        new = self._new()

        def next_stream(piece: RepositoryPiece) -> IO[bytes]:
            nonlocal new
            found.append(piece)
            self._add(number, new, piece)
            new = self._new()
            return new.stream

        writer = PieceWriter(
            new.stream,
            known,
            written_from=known_bytes,
            most_bytes=self.job.where.most_piece_bytes,
            next_stream=next_stream,
        )
        damage: Damage = ()
        try:
            with file.opened() as source:
                if (scope := file.scope_alone) is not None:
                    damage = self._check(source, file, scope, writer)
                writer.append(source, file.size_bytes)
                digest = writer.end(file.size_bytes)
            if (left_bytes := file.size_bytes - stored_bytes(found)) > 0:
                found.append(RepositoryPiece(digest, left_bytes))
                self._add(number, new, found[-1])
        except BaseException:
            for each, _ in [(new, None), *self.new.pop(number, [])]:
                each.drop()
            raise
        if not left_bytes:
            new.drop()
        return StoredBytes(pieces=tuple(found), damage=damage)

    def _new(self) -> UnfinishedFile:
        with writing():
            new = self.job.where.new_piece()
        return self.stack.enter_context(new)

    def _check(
        self, source: StoredFile, file: FileToStore, scope: SegmentScope, writer: PieceWriter
    ) -> Damage:
        """Check a log while it is stored; what the check does not read is not stored yet."""
        path = scope.log.path
        passing = replace(scope, log=Location(PassingStorage(path, source, writer, {}), path))
        findings = check_part(passing, 0, None, Level.DEFAULT, self.job.now_ms).findings
        return damage_of(_judged(file, findings))

    def _small_logs(self) -> Iterator[tuple[int, Damage]]:
        """Check the logs that are small, many at a time."""
        scopes = {
            number: each.scope
            for number, each in enumerate(self.split.files)
            if each.scope is not None and each.scope.is_small
        }
        parts = VerifyJob(Level.DEFAULT, self.job.now_ms).check_segments(scopes.values())
        for number, part in zip(scopes, parts, strict=True):
            yield number, damage_of(_judged(self.split.files[number], part.findings))


def damage_of(findings: Iterable[Finding]) -> Damage:
    """The rows of the findings that are damage, with the name of the file instead of its path."""
    rows = []
    for each in findings:
        if each.severity.is_damage:
            row = finding_row(each)
            rows.append({"file": PurePath(row.pop("path")).name, **row})
    return tuple(rows)


def _judged(file: FileToStore, findings: Iterable[Finding]) -> Iterable[Finding]:
    """The findings that a broker cannot be the reason for."""
    if file.stamp is None:
        return findings
    codes = OF_LOGS if file.is_beginning else OF_LOGS | OF_SEGMENTS
    return (each for each in findings if each.code in codes)


def _is_kept(file: FileToStore, stamp: FileStamp, found: StoredBytes) -> bool:
    """Whether a file of a broker was the same all the time while it was read.

    What a broker appends changes nothing of what was read. But a follower truncates its log and
    appends other batches, so that what may have changed is read again.

    Raises:
        OSError: it is gone, or cannot be read.
    """
    now = FileStamp.of(file.source.status())
    if now == stamp:
        return True
    is_longer = now.file_id == stamp.file_id and now.size_bytes >= file.size_bytes
    if not (file.is_beginning and is_longer):
        return False
    with file.opened() as source:
        if found.content is not None:
            return read_at(source, 0, file.size_bytes) == found.content
        starts = accumulate((each.size_bytes for each in found.pieces), initial=0)
        return all(
            sha256_of(source, start, each.size_bytes) == each.sha256
            for start, each in zip(starts, found.pieces, strict=False)
        )


class Beginning(StoredFile):
    """The first bytes of a file that grows, open for reading."""

    def __init__(self, source: StoredFile, size_bytes: int) -> None:
        super().__init__(source.location, size_bytes)
        self._source = source

    def read_into(self, buffer: memoryview, position: int) -> int:
        count = max(0, min(len(buffer), self.size_bytes - position))
        filled = self._source.read_into(buffer[:count], position)
        self.reached_bytes = position + filled
        return filled

    def data_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        return self._source.data_ranges(start, min(end, self.size_bytes))

    def close(self) -> None:
        self._source.close()


def _require_size(size_bytes: int, file: FileToStore) -> None:
    """Notice a file that changed since it was listed.

    Raises:
        EOFError: it has another size.
    """
    if size_bytes != file.size_bytes:
        raise EOFError(f"has {size_bytes} bytes now, not {file.size_bytes}: it is in use")
