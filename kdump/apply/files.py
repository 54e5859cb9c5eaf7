"""The one interface through which kdump writes to a log directory.

Everything that changes a byte, a name or a date goes through it, so that a test can stop it after
any operation, make it fail, or drop what was not made durable.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from kdump.apply.pinned_directory import directory_of, identity_of, opened, require_own

SET_ID_BITS: Final = stat.S_ISUID | stat.S_ISGID
_SYNCING_THREADS: Final = 16
"""File systems make many files durable with one write to their journal, if asked at once."""
_CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class FileRange:
    """The bytes from ``start`` to ``end`` of a file.

    Attributes:
        path: of the file.
        start: of the range, in bytes.
        end: likewise.
        identity: device and inode that the file has to have; None where any will do.
    """

    path: Path
    start: int
    end: int
    identity: tuple[int, int] | None = None

    @property
    def size_bytes(self) -> int:
        return self.end - self.start


Content = Iterable[bytes | FileRange]
"""What goes into a file: pieces, one behind the other."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a file has besides its content.

    Attributes:
        mode: permission bits. Nothing is ever given the bits that let a file run as its owner or
            group.
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
            stat.S_IMODE(status.st_mode) & ~SET_ID_BITS,
            status.st_uid,
            status.st_gid,
            status.st_atime_ns,
            status.st_mtime_ns,
        )


class Files(Protocol):
    """What can be done to files. Each call is one operation; all raise :class:`OSError`.

    What changes a file where it lies takes ``names``, further names that it may have: a file with
    any other hard link is refused.
    """

    def create(self, path: Path, content: Content) -> None:
        """Make a new file, which nobody else may read; FileExistsError where the name is taken."""
        ...

    def write_at(
        self, path: Path, position: int, content: Content, names: Sequence[Path] = ()
    ) -> None:
        """Write over, or behind, what a file holds."""
        ...

    def truncate(self, path: Path, size_bytes: int, names: Sequence[Path] = ()) -> None:
        """Give a file this size: what is behind goes, what is missing reads as zeroes."""
        ...

    def set_metadata(self, path: Path, metadata: Metadata, names: Sequence[Path] = ()) -> None:
        """Give a file owner, group, mode and times; a directory, times."""
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
        with opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as descriptor:
            _write(descriptor, 0, content)

    def write_at(
        self, path: Path, position: int, content: Content, names: Sequence[Path] = ()
    ) -> None:
        with opened(path, os.O_WRONLY) as descriptor:
            require_own(descriptor, path, names)
            _write(descriptor, position, content)

    def truncate(self, path: Path, size_bytes: int, names: Sequence[Path] = ()) -> None:
        with opened(path, os.O_WRONLY) as descriptor:
            require_own(descriptor, path, names)
            os.ftruncate(descriptor, size_bytes)

    def set_metadata(self, path: Path, metadata: Metadata, names: Sequence[Path] = ()) -> None:
        with opened(path) as descriptor:
            if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
                status = require_own(descriptor, path, names)
                if (status.st_uid, status.st_gid) != (metadata.uid, metadata.gid):
                    os.fchown(descriptor, metadata.uid, metadata.gid)
                # After the owner, because a change of owner takes bits away.
                os.fchmod(descriptor, metadata.mode & ~SET_ID_BITS)
            os.utime(descriptor, ns=(metadata.accessed_ns, metadata.modified_ns))

    def rename(self, path: Path, new_path: Path) -> None:
        with directory_of(path) as source, directory_of(new_path) as target:
            os.rename(path.name, new_path.name, src_dir_fd=source, dst_dir_fd=target)

    def link(self, path: Path, new_path: Path) -> None:
        with directory_of(path) as source, directory_of(new_path) as target:
            os.link(
                path.name,
                new_path.name,
                src_dir_fd=source,
                dst_dir_fd=target,
                follow_symlinks=False,
            )

    def unlink(self, path: Path) -> None:
        with directory_of(path) as directory, suppress(FileNotFoundError):
            os.unlink(path.name, dir_fd=directory)

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


def _sync(path: Path) -> None:
    with opened(path) as descriptor:
        os.fsync(descriptor)


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
    with directory_of(piece.path) as directory:
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        source = os.open(piece.path.name, flags, dir_fd=directory)
        try:
            if piece.identity not in (None, identity_of(os.fstat(source))):
                raise OSError(errno.ESTALE, "was replaced while it was read", str(piece.path))
            os.lseek(source, piece.start, os.SEEK_SET)
            _append(descriptor, source, piece.size_bytes)
        finally:
            os.close(source)


def _append(descriptor: int, source: int, size_bytes: int) -> None:
    left = size_bytes
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
