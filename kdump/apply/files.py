"""The one interface through which kdump writes to a log directory.

Everything that changes a byte, a name or a date goes through it, so that a test can stop it after
any operation, make it fail, or drop what was not made durable.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

_SYNCING_THREADS: Final = 16
"""File systems make many files durable with one write to their journal, if asked at once."""
_CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class FileRange:
    """The bytes from ``start`` to ``end`` of a file."""

    path: Path
    start: int
    end: int

    @property
    def size_bytes(self) -> int:
        return self.end - self.start


Content = Iterable[bytes | FileRange]
"""What goes into a file: pieces, one behind the other."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a file has besides its content.

    Attributes:
        mode: permission bits.
        uid: number of the owner.
        gid: number of the group.
        accessed_ns: time of the last access.
        modified_ns: time of the last modification.
    """

    mode: int
    uid: int
    gid: int
    accessed_ns: int
    modified_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Metadata:
        return cls(
            stat.S_IMODE(status.st_mode),
            status.st_uid,
            status.st_gid,
            status.st_atime_ns,
            status.st_mtime_ns,
        )


class Files(Protocol):
    """What can be done to files. Each call is one operation; all raise :class:`OSError`."""

    def create(self, path: Path, content: Content) -> None:
        """Make a new file, which nobody else may read; FileExistsError where the name is taken."""
        ...

    def write_at(self, path: Path, position: int, content: Content) -> None:
        """Write over, or behind, what a file holds."""
        ...

    def truncate(self, path: Path, size_bytes: int) -> None:
        """Give a file this size: what is behind goes, what is missing reads as zeroes."""
        ...

    def set_metadata(self, path: Path, metadata: Metadata) -> None:
        """Give a file, or the symbolic link itself, owner, group, mode and times."""
        ...

    def rename(self, path: Path, new_path: Path) -> None:
        """Let a file have another name, instead of what has it."""
        ...

    def link(self, path: Path, new_path: Path) -> None:
        """Let a file have another name as well; FileExistsError where that is taken."""
        ...

    def unlink(self, path: Path) -> None:
        """Take a name away; nothing happens where it is not there."""
        ...

    def sync(self, paths: Iterable[Path]) -> None:
        """Make files durable (content and metadata), or the names that are in directories."""
        ...


class Disk:
    """The real files."""

    def create(self, path: Path, content: Content) -> None:
        with _opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as descriptor:
            _write(descriptor, 0, content)

    def write_at(self, path: Path, position: int, content: Content) -> None:
        with _opened(path, os.O_WRONLY) as descriptor:
            _write(descriptor, position, content)

    def truncate(self, path: Path, size_bytes: int) -> None:
        with _opened(path, os.O_WRONLY) as descriptor:
            os.ftruncate(descriptor, size_bytes)

    def set_metadata(self, path: Path, metadata: Metadata) -> None:
        status = path.lstat()
        if (status.st_uid, status.st_gid) != (metadata.uid, metadata.gid):
            os.chown(path, metadata.uid, metadata.gid, follow_symlinks=False)
        if not stat.S_ISLNK(status.st_mode):
            # After the owner, because a change of owner takes bits away.
            path.chmod(metadata.mode)
        times = (metadata.accessed_ns, metadata.modified_ns)
        os.utime(path, ns=times, follow_symlinks=False)

    def rename(self, path: Path, new_path: Path) -> None:
        path.rename(new_path)

    def link(self, path: Path, new_path: Path) -> None:
        os.link(path, new_path, follow_symlinks=False)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def sync(self, paths: Iterable[Path]) -> None:
        every = list(paths)
        if len(every) == 1:
            _sync(every[0])
        elif every:
            with ThreadPoolExecutor(_SYNCING_THREADS) as pool:
                for _ in pool.map(_sync, every):
                    pass


DISK: Final[Files] = Disk()


def free_bytes_at(path: Path) -> int:
    """How much room there is for this process on the file system of ``path``."""
    disk = os.statvfs(path)
    return (disk.f_bfree if os.geteuid() == 0 else disk.f_bavail) * disk.f_frsize


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    """A file by its own name: what is behind a symbolic link is never written to."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    except OSError as failure:
        # Errors of descriptors do not say which file it was.
        raise _about(failure, path) from failure
    finally:
        os.close(descriptor)


def _about(failure: OSError, path: Path) -> OSError:
    if failure.filename is not None or failure.errno is None:
        return failure
    return OSError(failure.errno, failure.strerror, str(path))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as failure:
        raise _about(failure, path) from failure
    finally:
        os.close(descriptor)


def _write(descriptor: int, position: int, content: Content) -> None:
    os.lseek(descriptor, position, os.SEEK_SET)
    for piece in content:
        if isinstance(piece, FileRange):
            _copy(descriptor, piece)
        else:
            _write_all(descriptor, piece)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _copy(descriptor: int, piece: FileRange) -> None:
    """Append a range of another file; inside the kernel, and without a copy where it can."""
    source = os.open(piece.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.lseek(source, piece.start, os.SEEK_SET)
        left = piece.size_bytes
        step = _copy_inside_kernel
        while left:
            try:
                count = step(source, descriptor, left)
            except OSError as failure:
                if step is _copy_by_hand or failure.errno not in _NOT_INSIDE_KERNEL:
                    raise
                step = _copy_by_hand
                continue
            if not count:
                raise OSError(errno.EIO, "the file became shorter while it was read")
            left -= count
    except OSError as failure:
        raise _about(failure, piece.path) from failure
    finally:
        os.close(source)


_NOT_INSIDE_KERNEL: Final = {
    errno.ENOSYS,
    errno.EXDEV,
    errno.EINVAL,
    errno.EOPNOTSUPP,
    errno.EPERM,
}


def _copy_by_hand(source: int, target: int, size: int) -> int:
    data = os.read(source, min(size, _CHUNK_BYTES))
    _write_all(target, data)
    return len(data)


def _copy_range(source: int, target: int, size: int) -> int:
    return os.copy_file_range(source, target, size)


_copy_inside_kernel: Callable[[int, int, int], int] = (
    _copy_range if hasattr(os, "copy_file_range") else _copy_by_hand
)
