"""A local disk: the only module that asks the system for files of a log directory.

Regular files are opened, and nothing else. To open a FIFO waits for somebody to write into it,
and opening a device can do anything. Neither belongs in a log directory, so kdump treats one like
a file that cannot be read.

Files are read, never mapped: if a disk fails under a mapped page, the process dies, while a failed
read is an :class:`OSError` that can be reported with its file and position.
"""

from __future__ import annotations

import errno
import functools
import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Final

from msgspec import Struct

from kdump.storage.entries import SPECIAL_KINDS, Entry, EntryKind, special_file_error
from kdump.storage.location import Location, StoredFile
from kdump.storage.ownership import OwnedEntry, Ownership
from kdump.storage.place_names import TypedName

_KINDS: Final = {
    stat.S_IFREG: EntryKind.FILE,
    stat.S_IFDIR: EntryKind.DIRECTORY,
    stat.S_IFIFO: EntryKind.FIFO,
    stat.S_IFSOCK: EntryKind.SOCKET,
    stat.S_IFCHR: EntryKind.DEVICE,
    stat.S_IFBLK: EntryKind.DEVICE,
}
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
"""A FIFO that takes the file's place after the check does not make the open wait."""
_BLOCK_BYTES: Final = 512
_READ_BYTES: Final = 1 << 20
_LEAST_HOLE_BYTES: Final = 1 << 20
_LOADED_BYTES: Final = 256 << 10
_PROBED_BYTES: Final = 128 << 10
"""The system reads ahead at least so much, and forgets it together."""
CAN_SEND_FILES: Final = hasattr(os, "sendfile")
_NO_WAIT: Final[int | None] = getattr(os, "RWF_NOWAIT", None)


class LocalDisk(Struct, frozen=True):
    """The file systems of this machine, as one storage; they have owners and links."""

    def name_of(self, path: str) -> str:
        return path

    def typed_name(self, path: str) -> TypedName:
        return TypedName(path)

    def entries(self, path: str) -> list[Entry]:
        entries = []
        with os.scandir(path) as listed:
            for found in listed:
                try:
                    if found.is_dir(follow_symlinks=False):
                        # It is not looked at any further: a log directory can have 10,000 of them.
                        entries.append(Entry(found.name, EntryKind.DIRECTORY))
                    else:
                        entries.append(_entry(found.name, found.stat(), found.is_symlink()))
                except OSError as failure:
                    entry = _not_looked_at(found, failure)
                    if entry is not None:
                        entries.append(entry)
        return entries

    def status(self, path: str) -> Entry:
        found = os.lstat(path)
        is_link = stat.S_ISLNK(found.st_mode)
        return _entry(os.path.basename(path), os.stat(path) if is_link else found, is_link)

    def open_file(self, location: Location) -> LocalFile:
        return LocalFile(location)

    def read(self, path: str) -> bytes:
        # By descriptor: a file object takes twice the time for a small file, and a log directory
        # has 100,000 of them.
        return _read(path, *_open(path))

    def read_listed(self, path: str) -> bytes:
        return _read(path, *_open_listed(path))

    def as_absolute(self, path: str) -> str:
        return str(Path(path).absolute())

    def resolved(self, path: str) -> str:
        return str(Path(path).resolve())

    def is_same(self, path: str, other: str) -> bool:
        return os.path.samefile(path, other)

    def local_path(self, path: str) -> Path:
        return Path(path)

    def ownership(self, path: str) -> Ownership:
        return _ownership(os.stat(path))

    def owned_entry(self, path: str) -> OwnedEntry:
        return _owned(os.path.basename(path), os.lstat(path))

    def owned_entries(self, path: str) -> list[OwnedEntry]:
        entries = []
        with os.scandir(path) as listed:
            for found in listed:
                try:
                    entries.append(_owned(found.name, found.stat(follow_symlinks=False)))
                except OSError as failure:
                    entries.append(OwnedEntry(found.name, found.is_symlink(), failure))
        return entries

    def link_target(self, path: str) -> str:
        return os.readlink(path)


LOCAL_DISK: Final = LocalDisk()


def local(path: PurePath | str) -> Location:
    """The location of a file or directory of this machine."""
    return Location(LOCAL_DISK, str(PurePath(path)))


class LocalFile(StoredFile):
    """A file of this machine, open for reading.

    Raises:
        OSError: from the constructor and from reads, naming the file.
    """

    def __init__(self, location: Location) -> None:
        self._descriptor, size_bytes = _open(location.path)
        super().__init__(location, size_bytes)

    def read_into(self, buffer: memoryview, position: int) -> int:
        filled = 0
        try:
            while filled < len(buffer):
                count = os.preadv(self._descriptor, [buffer[filled:]], position + filled)
                if not count:
                    break
                filled += count
            self.reached_bytes = position + filled
        except OSError as failure:
            raise OSError(
                failure.errno,
                f"{failure.strerror} (reading at byte {position + filled})",
                str(self.location),
            ) from failure
        return filled

    def read_at(self, position: int, size: int) -> bytes:
        """Read up to ``size`` bytes, in one call where the system gives all of them at once.

        A buffer to read into takes as long to make as the call.
        """
        try:
            data = os.pread(self._descriptor, size, position)
        except OSError:
            data = b""  # the other way names the file and the byte
        if len(data) == size:
            self.reached_bytes = position + size
            return data
        buffer = bytearray(size)
        view = memoryview(buffer)
        return bytes(view[: self.read_into(view, position)])

    def data_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Everything from ``start`` to ``end`` where the file system knows of no holes."""
        position = start
        while position < end:
            try:
                data = os.lseek(self._descriptor, position, os.SEEK_DATA)
                hole = os.lseek(self._descriptor, data, os.SEEK_HOLE)
            except OSError as failure:
                if failure.errno == errno.ENXIO:
                    return  # a hole up to the end of the file, or past it
                data, hole = position, end
            if data >= end:
                return
            yield data, min(hole, end)
            position = hole

    def identity(self) -> tuple[int | str, ...] | None:
        status = os.fstat(self._descriptor)
        if not status.st_nlink:
            return None  # it has no name, and is gone when it is closed
        return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns

    def modified_ns(self) -> int:
        """When it was written last.

        Raises:
            OSError: that cannot be read.
        """
        return os.fstat(self._descriptor).st_mtime_ns

    def fileno(self) -> int:
        """The descriptor, for who sends the file."""
        return self._descriptor

    def send(self, client: int, start: int, end: int) -> int:
        """Let the system send a range to a socket; gives how many bytes it has taken.

        Args:
            client: the descriptor of the socket, which does not block.

        Raises:
            OSError: it takes none now, or cannot be sent to; or the file cannot be read or sent.
        """
        return os.sendfile(client, self._descriptor, start, end - start)

    def load(self, start: int, end: int) -> None:
        """Have the system read a range into its memory, where it is not there yet.

        Raises:
            OSError: it cannot be read.
        """
        missing = next((at for at in _probed(start, end) if not self._is_in_memory(at)), None)
        if missing is None:
            return
        buffer = memoryview(bytearray(min(_LOADED_BYTES, end - missing)))
        for position in range(missing, end, _LOADED_BYTES):
            self.read_into(buffer[: end - position], position)

    def _is_in_memory(self, position: int) -> bool:
        if _NO_WAIT is None:
            return False
        try:
            return os.preadv(self._descriptor, [bytearray(1)], position, _NO_WAIT) == 1
        except OSError:
            return False  # not yet, or not every file system can tell

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1


def _probed(start: int, end: int) -> Iterator[int]:
    """Some bytes of a range, the last one among them."""
    yield from range(start, end, _PROBED_BYTES)
    yield end - 1


def require_not_special(path: PurePath | str) -> None:
    """Refuse what must not be opened.

    Raises:
        SpecialFileError: it is a FIFO, a socket or a device, or a symbolic link to one.
        OSError: there is nothing.
    """
    status = os.stat(path)
    if _kind(status) in SPECIAL_KINDS:
        raise _not_regular(str(path), status)


def open_for_reading(path: PurePath | str) -> io.FileIO:
    """Open a regular file, through symbolic links too, as an unbuffered stream of bytes.

    Raises:
        OSError: it is missing, cannot be read, or is not a regular file.
    """
    return os.fdopen(_open(str(path))[0], "rb", buffering=0)


def _open(path: str) -> tuple[int, int]:
    """Open a regular file; its descriptor and its size in bytes."""
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise _not_regular(path, status)
    return _open_listed(path)


def _open_listed(path: str) -> tuple[int, int]:
    """Open what was just seen to be a regular file; its descriptor and its size in bytes.

    Merely to open something else can have effects: a tape rewinds, a FIFO's writer goes on.
    """
    descriptor = os.open(path, _FLAGS)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _not_regular(path, status)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, status.st_size


def _read(path: str, descriptor: int, size_bytes: int) -> bytes:
    """All bytes of an open file, which is then closed."""
    try:
        data = os.read(descriptor, size_bytes + 1)
        # Less than asked for is usually all; a read of gigabytes ends early.
        return data if len(data) == size_bytes else _with_rest(descriptor, data)
    except OSError as failure:
        raise OSError(failure.errno, failure.strerror, path) from failure
    finally:
        os.close(descriptor)


def _with_rest(descriptor: int, data: bytes) -> bytes:
    """The bytes read, and those up to the end of the file."""
    pieces = [data]
    while pieces[-1]:
        pieces.append(os.read(descriptor, _READ_BYTES))
    return b"".join(pieces)


def _not_regular(path: str, status: os.stat_result) -> OSError:
    """Why something is not opened that is no regular file."""
    kind = _kind(status)
    if kind in SPECIAL_KINDS:
        return special_file_error(path, kind)
    return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)


def _not_looked_at(found: os.DirEntry[str], failure: OSError) -> Entry | None:
    """The entry that a listing found and that cannot be looked at; None if it has gone since."""
    is_missing = isinstance(failure, FileNotFoundError)
    if found.is_symlink():
        error = None if is_missing else failure
        return Entry(found.name, EntryKind.BROKEN_LINK, is_link=True, error=error)
    if is_missing:
        return None
    return Entry(found.name, EntryKind.UNKNOWN, error=failure)


def _entry(name: str, status: os.stat_result, is_link: bool) -> Entry:
    mode = status.st_mode
    if not stat.S_ISREG(mode):
        return Entry(name, _kind(status), is_link)
    size_bytes, hole_bytes = status.st_size, 0
    if size_bytes >= _LEAST_HOLE_BYTES:
        hole_bytes = size_bytes - status.st_blocks * _BLOCK_BYTES
        if hole_bytes < _LEAST_HOLE_BYTES:
            hole_bytes = 0
    ownership = None if is_link else _ownership_of(status.st_uid, status.st_gid, mode)
    # By position: to give names takes a fourth of the time, for each of 100,000 files.
    # fmt: off
    return Entry(
        name, EntryKind.FILE, is_link, size_bytes, status.st_mtime_ns, hole_bytes, None,
        status.st_ino, status.st_ctime_ns, ownership,
    )
    # fmt: on


def _kind(status: os.stat_result) -> EntryKind:
    return _KINDS.get(stat.S_IFMT(status.st_mode), EntryKind.UNKNOWN)


def _owned(name: str, status: os.stat_result) -> OwnedEntry:
    return OwnedEntry(name, stat.S_ISLNK(status.st_mode), _ownership(status))


def _ownership(status: os.stat_result) -> Ownership:
    return _ownership_of(status.st_uid, status.st_gid, status.st_mode)


@functools.lru_cache
def _ownership_of(user_id: int, group_id: int, mode: int) -> Ownership:
    """One value for all files that have the same: there are few."""
    return Ownership(user_id, group_id, stat.S_IMODE(mode), stat.S_ISDIR(mode))
