"""The one interface through which kdump writes to a log directory.

Everything that changes content, names or metadata goes through it. So a test can stop it after any
operation, make an operation fail, or drop what was not synced.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final, TypeAlias

from msgspec import Meta, Struct

from kdump.apply.pinned_directory import (
    directory_of,
    identity_of,
    opened,
    require_own,
    status_at,
    status_of,
)

SET_ID_BITS: Final = stat.S_ISUID | stat.S_ISGID
KEPT_ATTRIBUTES: Final = ("user.", "system.posix_acl_access", "system.posix_acl_default")
"""Prefixes of extended attributes that belong to the content of a file, or say who may read it."""
Number: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""What a journal may have for a number, a size or a position."""
_UserId: TypeAlias = Annotated[int, Meta(ge=0, le=2**32 - 2)]
Attributes = tuple[tuple[str, bytes], ...]
"""Names and values of extended attributes."""
_SYNCING_THREADS: Final = 16
"""File systems combine concurrent syncs into one write to their journal."""
_CHUNK_BYTES: Final = 1 << 20


class FileRange(Struct, frozen=True):
    """The bytes from ``start`` to ``end`` of a file.

    Attributes:
        start: of the range, in bytes.
        end: of the range, in bytes, exclusive.
        identity: device and inode that the file must have; None accepts any.
    """

    path: Path
    start: int
    end: int
    identity: tuple[int, int] | None = None

    @property
    def size_bytes(self) -> int:
        return self.end - self.start


Content = Iterable[bytes | FileRange]
"""The content of a file: pieces, to be concatenated."""


class Metadata(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Mode, owner, group and times of a file.

    Attributes:
        mode: permission bits, without set-user-ID and set-group-ID.
        accessed_ns: time of the last access.
        modified_ns: time of the last modification.
    """

    mode: Annotated[int, Meta(ge=0, le=0o7777)]
    uid: _UserId
    gid: _UserId
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

    @classmethod
    def restored(cls, mode: int, uid: int, gid: int, modified_ns: int) -> Metadata:
        """What a file of a backup gets; only root can give it to another user."""
        if os.geteuid() != 0:
            uid, gid = os.geteuid(), os.getegid()
        return cls(mode & ~SET_ID_BITS, uid, gid, modified_ns, modified_ns)


class Files:
    """The operations on files. Each call is one operation; all raise :class:`OSError`.

    Operations that change a file in place take ``names``, further names that it may have: a file
    with any other hard link is refused.
    """

    def create(self, path: Path, content: Content) -> None:
        """Create a file that only its owner can read; FileExistsError if the name exists."""
        with opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as descriptor:
            _write(descriptor, 0, content)

    def write_at(
        self, path: Path, position: int, content: Content, names: Sequence[Path] = ()
    ) -> None:
        """Write at a position, in or after the current content."""
        with opened(path, os.O_WRONLY) as descriptor:
            require_own(descriptor, path, names)
            _write(descriptor, position, content)

    def truncate(self, path: Path, size_bytes: int, names: Sequence[Path] = ()) -> None:
        """Set the size: bytes after it are dropped, missing ones read as zeroes."""
        with opened(path, os.O_WRONLY) as descriptor:
            require_own(descriptor, path, names)
            os.ftruncate(descriptor, size_bytes)

    def set_metadata(self, path: Path, metadata: Metadata, names: Sequence[Path] = ()) -> None:
        """Set owner, group, mode and times of a file; of a directory, only times."""
        with opened(path) as descriptor:
            if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
                _set_owner(descriptor, require_own(descriptor, path, names), metadata)
            os.utime(descriptor, ns=(metadata.accessed_ns, metadata.modified_ns))

    def copy_attributes(self, path: Path, like: Path) -> None:
        """Give a file the extended attributes and the access control list of another.

        What the file system does not take, or does not permit, is left out.
        """
        with suppress(OSError), opened(path) as target:
            _set_attributes(target, attributes_of(like))

    def rename(self, path: Path, new_path: Path) -> None:
        """Rename a file, replacing a file that has the new name."""
        with directory_of(path) as source, directory_of(new_path) as target:
            os.rename(path.name, new_path.name, src_dir_fd=source, dst_dir_fd=target)

    def link(self, path: Path, new_path: Path) -> None:
        """Create a hard link; FileExistsError if the new name exists.

        Where the file system has no hard links, the new name is a copy, already durable.
        """
        try:
            with directory_of(path) as source, directory_of(new_path) as target:
                _hard_link(
                    path.name,
                    new_path.name,
                    src_dir_fd=source,
                    dst_dir_fd=target,
                    follow_symlinks=False,
                )
        except OSError as failure:
            if failure.errno not in _NO_LINKS:
                raise
            status = status_at(path)
            if not stat.S_ISREG(status.st_mode) or os.geteuid() not in (0, status.st_uid):
                raise  # a link to the file of another user may be forbidden
            with opened(path, os.O_WRONLY):
                pass  # fails if the file is immutable, which forbids links as well
            # The interface has no state: each link tries again, which costs one call.
            identity = identity_of(status)
            self.create(new_path, [FileRange(path, 0, status.st_size, identity)])
            self.set_metadata(new_path, Metadata.of(status))
            self.copy_attributes(new_path, path)
            _sync(new_path)

    def unlink(self, path: Path) -> None:
        """Delete a name; does nothing if it does not exist."""
        with directory_of(path) as directory, suppress(FileNotFoundError):
            os.unlink(path.name, dir_fd=directory)

    def make_directory(self, path: Path, metadata: Metadata, attributes: Attributes = ()) -> None:
        """Create a directory unless it exists; it gets the owner, group, mode and attributes."""
        with directory_of(path) as above, suppress(FileExistsError):
            os.mkdir(path.name, 0o700, dir_fd=above)
        with opened(path, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
            _set_owner(descriptor, os.fstat(descriptor), metadata)
            _set_attributes(descriptor, attributes)

    def rename_directory(self, path: Path, new_path: Path) -> None:
        """Rename a directory; FileExistsError if the new name exists."""
        # rename() would replace an empty directory.
        if status_of(new_path) is not None:
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), str(new_path))
        with directory_of(path) as source, directory_of(new_path) as target:
            os.rename(path.name, new_path.name, src_dir_fd=source, dst_dir_fd=target)

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory; OSError if it is not empty."""
        with directory_of(path) as above:
            os.rmdir(path.name, dir_fd=above)

    def sync(self, paths: Iterable[Path]) -> None:
        """Make files durable, content and metadata; of directories, the names in them."""
        _sync_all(list(paths))


DISK: Final = Files()


_hard_link: Callable[..., None] = os.link
_NO_LINKS: Final = {
    errno.EPERM,
    errno.EOPNOTSUPP,
    errno.ENOTSUP,
    errno.ENOSYS,
    errno.EMLINK,
}
"""The file system has no hard links, or the file already has as many as it can have."""


def attributes_of(path: Path) -> Attributes:
    """The extended attributes and access control lists to keep of a file or directory.

    What cannot be read is left out.
    """
    found = []
    if hasattr(os, "listxattr"):
        with suppress(OSError), opened(path) as descriptor:
            for name in os.listxattr(descriptor):
                if name.startswith(KEPT_ATTRIBUTES):
                    with suppress(OSError):
                        found.append((name, os.getxattr(descriptor, name)))
    return tuple(found)


def _set_attributes(descriptor: int, attributes: Attributes) -> None:
    """Set what the file system takes and permits."""
    for name, value in attributes:
        with suppress(OSError):
            os.setxattr(descriptor, name, value)


def free_bytes_at(path: Path) -> int:
    """Free space for this process on the file system of ``path``, in bytes."""
    disk = os.statvfs(path)
    return (disk.f_bfree if os.geteuid() == 0 else disk.f_bavail) * disk.f_frsize


def _sync_all(paths: list[Path]) -> None:
    """Sync files and directories, several at a time, in this thread and others.

    Without ``concurrent.futures``: to import it, and to start its threads for each call, took a
    recovery of two partitions longer than the syncs themselves.

    Raises:
        OSError: one of them failed; the rest may not have been synced.
    """
    waiting = iter(paths)
    failures: list[BaseException] = []

    def sync_some() -> None:
        try:
            for path in waiting:
                _sync(path)
                if failures:
                    return
        except BaseException as failure:  # noqa: BLE001 - raised again below
            failures.append(failure)

    threads = [
        threading.Thread(target=sync_some) for _ in range(min(len(paths), _SYNCING_THREADS) - 1)
    ]
    for thread in threads:
        thread.start()
    sync_some()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


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
    """Append a range of another file, in the kernel if possible."""
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


def _set_owner(descriptor: int, status: os.stat_result, metadata: Metadata) -> None:
    if (status.st_uid, status.st_gid) != (metadata.uid, metadata.gid):
        os.fchown(descriptor, metadata.uid, metadata.gid)
    # After chown, which clears mode bits.
    os.fchmod(descriptor, metadata.mode & ~SET_ID_BITS)


def _copy_range(source: int, target: int, size: int) -> int:
    return os.copy_file_range(source, target, size)


_copy_inside_kernel: Callable[[int, int, int], int] = (
    _copy_range if hasattr(os, "copy_file_range") else _copy_by_hand
)
