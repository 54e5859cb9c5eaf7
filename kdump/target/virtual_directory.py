"""The virtual directory on which rules work: a partition's directory in memory.

Rules create, rename, truncate and delete files in it as Kafka does on disk. Nothing is written, and
no segment is held in memory: the content of a file is a range of a file on disk, or new bytes. In
the end :meth:`VirtualDirectory.target_files` is the difference to the disk: the target state.
"""

from __future__ import annotations

import functools
import itertools
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Final

from msgspec import Struct

from kdump.formats.names import FileKind, parse_offset_file_name
from kdump.scan.source import data_ranges, end_of_data, read_at, without_padding
from kdump.scan.usual_batches import LARGEST_SMALL_LOG_BYTES
from kdump.storage.byte_source import ByteSource
from kdump.storage.entries import Entry, EntryKind
from kdump.storage.location import Location, StoredFile
from kdump.target.content_store import ContentStore, is_large
from kdump.target.refusal import Refused
from kdump.target.snapshot_listing import SnapshotListing
from kdump.target.target_file import (
    CopiedFrom,
    Gone,
    JoinedFrom,
    Kept,
    KeptUpTo,
    NewBytes,
    RenamedFrom,
    TargetFile,
)

SNAPSHOT_SUFFIX: Final = ".snapshot"
_LOG_SUFFIX: Final = FileKind.LOG.value
_KEPT: Final = Kept()
_GONE: Final = Gone()
"""One object for all files: results with 100,000 of them are sent from worker to worker."""
_PAGE_BYTES: Final = 4096
_MOST_KEPT_FILES: Final = 64
"""So many small files of a directory are kept in memory; most directories have fewer."""
INDEX_SUFFIXES: Final = (
    FileKind.OFFSET_INDEX.value,
    FileKind.TIME_INDEX.value,
    FileKind.TRANSACTION_INDEX.value,
)


class Written(Struct, frozen=True):
    """New bytes, and a number of zeroes after them."""

    data: bytes
    padding_bytes: int = 0

    @property
    def size_bytes(self) -> int:
        return len(self.data) + self.padding_bytes


class Spilled(Struct, frozen=True):
    """New bytes that a store keeps as ``number``."""

    store: ContentStore
    number: int
    size_bytes: int


Content = CopiedFrom | JoinedFrom | Written | Spilled
"""A file's content: ranges of files on disk, as the target state has them, or new bytes.

Of joined ranges there are two or more, none of them empty.
"""


class RangeSource:
    """A part of another source as a source of its own."""

    def __init__(self, source: ByteSource, start: int, size_bytes: int) -> None:
        self._source = source
        self._start = start
        self.size_bytes = size_bytes

    def read_into(self, buffer: memoryview, position: int) -> int:
        size = max(0, min(len(buffer), self.size_bytes - position))
        return self._source.read_into(buffer[:size], self._start + position)

    def data_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """As :meth:`kdump.scan.source.SparseSource.data_ranges`."""
        end = min(end, self.size_bytes)
        for begin, stop in data_ranges(self._source, self._start + start, self._start + end):
            yield begin - self._start, stop - self._start


class JoinedSource:
    """Concatenated sources."""

    def __init__(self, sources: Sequence[ByteSource]) -> None:
        self._sources = sources
        self._starts = [0, *itertools.accumulate(source.size_bytes for source in sources)]
        self.size_bytes = self._starts.pop()

    def read_into(self, buffer: memoryview, position: int) -> int:
        filled = 0
        at = bisect_right(self._starts, position) - 1
        while filled < len(buffer) and at < len(self._sources):
            within = position + filled - self._starts[at]
            read = self._sources[at].read_into(buffer[filled:], within)
            filled += read
            if within + read < self._sources[at].size_bytes and filled < len(buffer):
                break  # a file became shorter
            at += 1
        return filled

    def data_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """As :meth:`kdump.scan.source.SparseSource.data_ranges`."""
        for at, source in zip(self._starts, self._sources, strict=True):
            own_start, own_end = max(0, start - at), min(source.size_bytes, end - at)
            for begin, stop in data_ranges(source, own_start, own_end):
                yield begin + at, stop + at


class BytesSource:
    """Bytes in memory as a source."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self.size_bytes = len(data)

    def read_into(self, buffer: memoryview, position: int) -> int:
        piece = self._data[position : position + len(buffer)]
        buffer[: len(piece)] = piece
        return len(piece)


class VirtualDirectory:
    """The regular files of the directory ``path``, which rules can change.

    Args:
        store: keeps large new content; None leaves it in memory.
        entries: of the directory, if it was listed before.

    Raises:
        OSError: the directory cannot be listed.
    """

    def __init__(
        self,
        path: Location,
        store: ContentStore | None = None,
        entries: Iterable[Entry] | None = None,
    ) -> None:
        self.path = path
        self._store = store
        self._on_disk: dict[str, int] = {}
        self._small_files: dict[str, bytes] = {}
        directories = set()
        only_files = True
        for entry in path.entries() if entries is None else entries:
            if entry.error is not None:
                raise entry.error
            if entry.kind is EntryKind.FILE:
                self._on_disk[entry.name] = entry.size_bytes
                continue
            only_files = False
            if entry.kind is EntryKind.DIRECTORY:
                directories.add(entry.name)
        self._directories = frozenset(directories)
        self._is_untouched = only_files
        self._contents: dict[str, Content] = {
            name: CopiedFrom(name, 0, size) for name, size in self._on_disk.items()
        }
        # In the order of the file system: of two snapshots at one offset, Kafka uses the later one.
        # The listing is kept up to date, except with two such snapshots.
        self._snapshot_names = {n: None for n in self._on_disk if n.endswith(SNAPSHOT_SUFFIX)}
        self._listing: SnapshotListing | None = None

    @classmethod
    def without_files(cls, path: Location, directories: Iterable[str] = ()) -> VirtualDirectory:
        """The same directory as if it had no files; it is not listed.

        Args:
            directories: names of directories in it that new files could have.
        """
        empty = cls.__new__(cls)
        empty.path = path
        empty._store = None
        empty._on_disk = {}
        empty._small_files = {}
        empty._directories = frozenset(directories)
        empty._is_untouched = False
        empty._contents = {}
        empty._snapshot_names = {}
        empty._listing = None
        return empty

    def untouched_sizes(self) -> dict[str, int] | None:
        """The sizes of all files on disk, while nothing has been changed; None afterwards.

        None as well if there is anything but files.
        """
        return self._on_disk if self._is_untouched else None

    def copy(self) -> VirtualDirectory:
        """An independent copy."""
        copied = self._empty()
        copied._is_untouched = self._is_untouched
        copied._contents = dict(self._contents)
        copied._snapshot_names = dict(self._snapshot_names)
        return copied

    def only(self, names: Iterable[str]) -> VirtualDirectory:
        """An independent copy with only those of ``names`` that exist."""
        part = self._empty()
        for name in names:
            if name in self._contents:
                part.put(name, self._contents[name])
        return part

    def _empty(self) -> VirtualDirectory:
        empty = VirtualDirectory.without_files(self.path, self._directories)
        empty._store = self._store
        empty._on_disk = self._on_disk
        empty._small_files = self._small_files
        return empty

    def __contains__(self, name: str) -> bool:
        return name in self._contents

    def is_directory(self, name: str) -> bool:
        """Whether ``name`` is a directory; directories are never changed."""
        return name in self._directories

    def require_no_directory(self, name: str, exception: str) -> None:
        """Refuse a directory with the name of a file that Kafka opens.

        Raises:
            Refused: ``name`` is a directory; Kafka throws ``exception``.
        """
        if name in self._directories:
            raise Refused("a directory is in the place of a file", name, exception)

    def names(self) -> list[str]:
        """All names, in the order in which Kafka sorts files."""
        return sorted(self._contents)

    def base_offsets(self) -> list[int]:
        """The base offsets of the segments in use, rising."""
        logs = [name for name in self._contents if name.endswith(_LOG_SUFFIX)]
        parsed = map(parse_offset_file_name, sorted(logs))
        return [each.offset for each in parsed if each is not None]

    def all_names(self) -> list[str]:
        """The same, and the names on disk that have been removed."""
        return sorted(self._on_disk.keys() | self._contents.keys())

    def snapshot_names(self) -> list[str]:
        """Names with the suffix of producer snapshots, in the order of the file system."""
        return list(self._snapshot_names)

    def list_snapshots(self) -> SnapshotListing:
        """The current producer snapshots by offset; copy it to keep it.

        Raises:
            Refused: the name of a snapshot has no offset.
        """
        if self._listing is None or len(self._listing) != len(self._snapshot_names):
            self._listing = SnapshotListing(self._snapshot_names)
        return self._listing

    def content(self, name: str) -> Content:
        return self._contents[name]

    def size_bytes(self, name: str) -> int:
        return self._contents[name].size_bytes

    def put(self, name: str, content: Content) -> None:
        """Set the content of ``name``, which may or may not exist.

        Raises:
            Refused: ``name`` is a directory.
        """
        self.require_no_directory(name, "FileSystemException")
        self._is_untouched = False
        self._contents[name] = content
        if name.endswith(SNAPSHOT_SUFFIX) and name not in self._snapshot_names:
            self._snapshot_names[name] = None
            if self._listing is not None and not self._listing.try_put(name):
                self._listing = None

    def put_segment(self, base_offset: int, log: bytes) -> None:
        """Put a segment into a log, with indexes that are built when it is loaded.

        Raises:
            Refused: a name of its files is a directory.
        """
        self.put(file_name(base_offset, FileKind.LOG), Written(log))
        for kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX):
            self.put(file_name(base_offset, kind), Written(b""))

    def remove(self, name: str) -> bool:
        """Remove ``name``; returns whether it existed."""
        self._is_untouched = False
        if name in self._snapshot_names:
            del self._snapshot_names[name]
            if self._listing is not None:
                self._listing.forget_name(name)
        return self._contents.pop(name, None) is not None

    def rename(self, name: str, new_name: str) -> None:
        """Rename ``name`` to ``new_name``, replacing that."""
        content = self._contents[name]
        self.remove(name)
        self.put(new_name, content)

    def truncate(self, name: str, size_bytes: int) -> None:
        """Truncate to ``size_bytes``, if it is larger."""
        if size_bytes < self.size_bytes(name):
            self.put(name, part_of(self._contents[name], 0, size_bytes))

    def release(self, name: str) -> None:
        """Free the memory that the content of ``name`` takes, if it is much.

        Rebuilt bytes often equal those on disk, apart from padding; other bytes go to the store.

        Raises:
            OSError: the file on disk cannot be read, or the store not be written.
        """
        content = self._contents.get(name)
        if not isinstance(content, Written) or content.padding_bytes:
            return
        if not is_large(content.size_bytes):
            return
        if self._is_on_disk(name, content.data):
            self._contents[name] = CopiedFrom(name, 0, content.size_bytes)
        elif self._store is not None:
            number = self._store.put(content.data)
            if number is not None:
                self._contents[name] = Spilled(self._store, number, content.size_bytes)

    def read_small(self, name: str) -> bytes | None:
        """The whole content of a small file, if that is as on disk; None for any other.

        Rules look at the small files of a partition several times, and each is read once.

        Raises:
            OSError: it cannot be read.
        """
        content = self._contents[name]
        if not isinstance(content, CopiedFrom) or content.start:
            return None
        size_bytes = content.end
        if size_bytes > LARGEST_SMALL_LOG_BYTES or size_bytes != self._on_disk[content.name]:
            return None
        data = self._small_files.get(content.name)
        if data is None:
            data = (self.path / content.name).read_listed() if size_bytes else b""
            if len(data) != size_bytes:
                return None  # it has changed since it was listed
            if len(self._small_files) < _MOST_KEPT_FILES:
                self._small_files[content.name] = data
        return data

    def open(self, name: str) -> AbstractContextManager[ByteSource]:
        """Open ``name`` for reading."""
        return self.open_content(self._contents[name])

    def open_content(self, content: Content) -> AbstractContextManager[ByteSource]:
        """Open ``content`` for reading."""
        if not isinstance(content, CopiedFrom):
            return self._open_made(content)
        file = (self.path / content.name).open_file()
        is_whole = not content.start and content.end == file.size_bytes
        return file if is_whole else _open_range(file, content)

    @contextmanager
    def _open_made(self, content: JoinedFrom | Written | Spilled) -> Iterator[ByteSource]:
        """Open content that is not that of one file."""
        if isinstance(content, Written):
            yield BytesSource(content.data + bytes(content.padding_bytes))
            return
        if isinstance(content, Spilled):
            with content.store.source(content.number) as source:
                yield source
            return
        with ExitStack() as stack:
            files = {
                name: stack.enter_context((self.path / name).open_file())
                for name in dict.fromkeys(piece.name for piece in content.pieces)
            }
            yield JoinedSource([_range(files[piece.name], piece) for piece in content.pieces])

    def end_of_data(self, content: Content) -> int:
        """The size of ``content`` without trailing zeroes."""
        with self.open_content(content) as source:
            return end_of_data(source, 0, source.size_bytes)

    def read_written(self, content: Content) -> bytes:
        """Read ``content`` without trailing zeroes; holes are not read."""
        with self.open_content(content) as source:
            size_bytes = source.size_bytes
            if size_bytes > _PAGE_BYTES:
                size_bytes = end_of_data(source, 0, size_bytes)
            return without_padding(read_at(source, 0, size_bytes))

    def read_first(self, name: str, size_bytes: int) -> bytes:
        with self.open(name) as source:
            return read_at(source, 0, size_bytes)

    def read(self, name: str) -> bytes:
        """The whole content of ``name``; for small files."""
        known = self.read_small(name)
        if known is not None:
            return known
        with self.open(name) as source:
            return read_at(source, 0, source.size_bytes)

    def target_files(self) -> dict[str, TargetFile]:
        """The target state of every file on disk or in this directory, by name."""
        files: dict[str, TargetFile] = dict.fromkeys(self.all_names(), _KEPT)
        return files | self.changed_files()

    def changed_files(self) -> dict[str, TargetFile]:
        """The target state of the files that change, by name."""
        whole = self._on_disk.items()
        changed = {
            name: content
            for name, content in self._contents.items()
            if not isinstance(content, CopiedFrom)
            or content.start
            or content.name != name
            or (name, content.end) not in whole
        }
        gone = self._on_disk.keys() - self._contents.keys()
        if not changed:
            return dict.fromkeys(sorted(gone), _GONE)
        uses = Counter(
            piece.name for content in self._contents.values() for piece in _pieces(content)
        )
        targets = {name: self._target(name, uses) for name in sorted({*changed, *gone})}
        return {name: each for name, each in targets.items() if not isinstance(each, Kept)}

    def _target(self, name: str, uses: Counter[str]) -> TargetFile:
        content = self._contents.get(name)
        if content is None:
            return _GONE
        if isinstance(content, Written):
            return self._target_bytes(name, content.data + bytes(content.padding_bytes))
        if isinstance(content, Spilled):
            return content.store.target(content.number, content.size_bytes)
        if isinstance(content, JoinedFrom):
            return content
        if content.name == name and content.start == 0:
            return self._kept(name, content.end)
        is_only_use = uses[content.name] == 1 and content.name not in self._contents
        if content.start == 0 and is_only_use:
            return RenamedFrom(content.name, content.end)
        return content

    def _kept(self, name: str, size_bytes: int) -> TargetFile:
        return _KEPT if size_bytes == self._on_disk[name] else KeptUpTo(size_bytes)

    def _target_bytes(self, name: str, data: bytes) -> TargetFile:
        return self._kept(name, len(data)) if self._is_on_disk(name, data) else NewBytes(data)

    def _is_on_disk(self, name: str, data: bytes) -> bool:
        if self._on_disk.get(name, -1) < len(data):
            return False
        with (self.path / name).open_file() as source:
            return read_at(source, 0, len(data)) == data


def file_name(offset: int, kind: FileKind) -> str:
    """Name of a file at ``offset``; a sign comes before all twenty digits, as in Java."""
    sign = "-" if offset < 0 else ""
    return f"{sign}{abs(offset):020d}{kind.extension}"


@functools.lru_cache(maxsize=1024)
def segment_file_names(base_offset: int) -> tuple[str, str, str, str]:
    """Names of the log of a segment and its indexes: offset, time and transaction index."""
    log = file_name(base_offset, FileKind.LOG)
    stem = log.removesuffix(_LOG_SUFFIX)
    offset_index, time_index, transaction_index = INDEX_SUFFIXES
    return log, stem + offset_index, stem + time_index, stem + transaction_index


def part_of(content: Content, start: int, end: int) -> Content:
    """The bytes from ``start`` to ``end`` of ``content``."""
    if isinstance(content, CopiedFrom):
        return CopiedFrom(content.name, content.start + start, content.start + end)
    if isinstance(content, JoinedFrom):
        return _part_of_joined(content, start, end)
    if isinstance(content, Spilled):
        with content.store.source(content.number) as source:
            return Written(read_at(source, start, end - start))
    data = content.data[start:end]
    return Written(data, end - start - len(data))


def join(pieces: Iterable[CopiedFrom]) -> CopiedFrom | JoinedFrom:
    """Concatenate ``pieces``; there is at least one."""
    joined: list[CopiedFrom] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if last is not None and not last.size_bytes:
            joined[-1] = piece
        elif last is not None and last.name == piece.name and last.end == piece.start:
            joined[-1] = CopiedFrom(last.name, last.start, piece.end)
        elif last is None or piece.size_bytes:
            joined.append(piece)
    return joined[0] if len(joined) == 1 else JoinedFrom(tuple(joined))


def _pieces(content: Content) -> tuple[CopiedFrom, ...]:
    """The file ranges in ``content``."""
    if isinstance(content, JoinedFrom):
        return content.pieces
    return (content,) if isinstance(content, CopiedFrom) else ()


def _part_of_joined(content: JoinedFrom, start: int, end: int) -> Content:
    cut = []
    position = 0
    for piece in content.pieces:
        begin = min(max(start - position, 0), piece.size_bytes)
        until = min(max(end - position, begin), piece.size_bytes)
        cut.append(CopiedFrom(piece.name, piece.start + begin, piece.start + until))
        position += piece.size_bytes
    return join(cut)


@contextmanager
def _open_range(file: StoredFile, piece: CopiedFrom) -> Iterator[ByteSource]:
    """A range of a file that is open, and is closed in the end."""
    with file:
        yield _range(file, piece)


def _range(source: StoredFile, piece: CopiedFrom) -> RangeSource:
    # A file that has become shorter since it was listed has been replaced or truncated.
    if source.size_bytes < piece.end:
        raise OSError(f"{source.location} became shorter while it was read")
    return RangeSource(source, piece.start, piece.size_bytes)


def require_readable_length(name: str, size_bytes: int) -> None:
    """Refuse a segment that is larger than Kafka's positions allow.

    Raises:
        Refused: it is (``FileRecords``).
    """
    if size_bytes > 2**31 - 1:
        raise Refused("the segment is larger than 2147483647 bytes", name, "KafkaException")
