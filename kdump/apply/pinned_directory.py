"""Access entries of log directories by descriptors, so that no symbolic link is followed.

A log directory may belong to a user whom the user of kdump does not trust: the broker's account,
while root repairs. So a path is never simply opened. The log directory is opened once, by the name
that was given, and pinned; a partition is opened relative to it without following a link. If
somebody replaces a partition or the log directory by a link meanwhile, kdump fails with an error,
and does not touch any other directory.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class _Pin(Struct):
    """A log directory that is held open.

    Attributes:
        users: how many callers hold it open.
    """

    descriptor: int
    users: int = 0


_pins: Final[dict[str, _Pin]] = {}
"""By the path of the log directory as given. Strings, because hashing a ``Path`` is slow."""


@contextmanager
def pinned(log_dir: Path) -> Iterator[None]:
    """Hold a log directory open: all paths below it are resolved in this very directory.

    Raises:
        OSError: it cannot be opened.
    """
    name = str(log_dir)
    pin = _pins.get(name)
    if pin is None:
        pin = _pins[name] = _Pin(os.open(log_dir, _DIRECTORY))
    pin.users += 1
    try:
        yield
    finally:
        pin.users -= 1
        if not pin.users:
            del _pins[name]
            os.close(pin.descriptor)


@contextmanager
def directory_of(path: Path) -> Iterator[int]:
    """Open the directory that contains ``path``: a log directory, or a partition in one.

    Errors that are raised inside get ``path`` as their file name, because errors of calls with
    descriptors do not name the file.

    Raises:
        OSError: it cannot be opened, or is a symbolic link.
    """
    try:
        parent = _parent_of(str(path))
        pin = _pins.get(parent)
        if pin is not None:
            yield pin.descriptor
            return
        descriptor = _open_partition(parent)
        try:
            yield descriptor
        finally:
            os.close(descriptor)
    except OSError as failure:
        raise _about(failure, path) from failure


def _parent_of(path: str) -> str:
    parent, separator, _ = path.rpartition("/")
    return parent or separator or "."


def _open_partition(path: str) -> int:
    """Open a directory that is not pinned; fails if it is a symbolic link."""
    above = _pins.get(_parent_of(path))
    if above is None:
        return os.open(path, _DIRECTORY | os.O_NOFOLLOW)
    name = path.rpartition("/")[2]
    return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=above.descriptor)


@contextmanager
def opened(path: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    """Open a file or a directory. Never blocks, and never follows a symbolic link.

    Raises:
        OSError: it cannot be opened, or is a symbolic link.
    """
    pin = _pins.get(str(path))
    if pin is not None:
        try:
            yield pin.descriptor
        except OSError as failure:
            raise _about(failure, path) from failure
        return
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with directory_of(path) as directory:
        descriptor = os.open(path.name, flags, 0o600, dir_fd=directory)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def status_of(path: Path) -> os.stat_result | None:
    """The status of an entry, of a link itself; None if the entry or its directory is missing.

    Raises:
        OSError: it cannot be read, or the directory is a symbolic link.
    """
    text = str(path)
    pin = _pins.get(text)
    if pin is not None:
        return os.fstat(pin.descriptor)
    parent, name = _parent_of(text), text.rpartition("/")[2]
    try:
        pin = _pins.get(parent)
        if pin is not None:
            return os.stat(name, dir_fd=pin.descriptor, follow_symlinks=False)
        descriptor = _open_partition(parent)
        try:
            return os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return None
    except OSError as failure:
        raise _about(failure, path) from failure


def status_at(path: Path) -> os.stat_result:
    """The status of an entry, of a link itself.

    Raises:
        OSError: it cannot be read; FileNotFoundError if the entry is missing.
    """
    status = status_of(path)
    if status is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return status


def is_same(path: Path, other: Path) -> bool:
    """Whether both names exist and are links to the same file.

    Raises:
        OSError: their status cannot be read.
    """
    one = _identity_at(path)
    return one is not None and one == _identity_at(other)


def is_on_mount_of(directory: Path, log_dir: Path) -> bool:
    """Whether a partition is on the file system and the mount of its log directory.

    Between mounts nothing can be renamed or linked, not even if both are of one file system (a bind
    mount). Only Linux tells mounts apart.

    Raises:
        OSError: one of them cannot be opened.
    """
    with pinned(log_dir), opened(directory) as one, opened(log_dir) as other:
        if os.fstat(one).st_dev != os.fstat(other).st_dev:
            return False
        return _mount_id(one) == _mount_id(other)


def _mount_id(descriptor: int) -> bytes:
    """The line of ``/proc`` about the mount of an open file; empty if there is none."""
    try:
        lines = Path(f"/proc/self/fdinfo/{descriptor}").read_bytes().splitlines()
    except OSError:
        return b""
    return next((line for line in lines if line.startswith(b"mnt_id:")), b"")


def has_no_mounts_below(directory: Path) -> bool:
    """Whether it is known that nothing is mounted below a directory; only Linux tells."""
    try:
        lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
        above = os.fsencode(directory.resolve()).rstrip(b"/") + b"/"
    except OSError:
        return False
    # Blanks and backslashes in a path are octal numbers there.
    points = (re.sub(rb"\\([0-7]{3})", _byte_of, line.split(b" ")[4]) for line in lines)
    return not any(point.startswith(above) for point in points)


def _byte_of(number: re.Match[bytes]) -> bytes:
    return bytes([int(number[1], 8) & 0xFF])


def identity_of(status: os.stat_result) -> tuple[int, int]:
    """Device and inode, which identify a file whatever its name."""
    return status.st_dev, status.st_ino


def require_own(descriptor: int, path: Path, names: Iterable[Path] = ()) -> os.stat_result:
    """Refuse to change a file in place if it has hard links outside of kdump's control.

    Args:
        path: by which it was opened.
        names: further names that it may have.

    Returns:
        Its status.

    Raises:
        OSError: it is not a regular file, or has other hard links: changing it would change a file
            somewhere else.
    """
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    if status.st_nlink > 1:
        others = {name for name in names if name != path}
        known = [name for name in others if _identity_at(name) == identity_of(status)]
        if status.st_nlink > 1 + len(known):
            raise OSError(errno.EMLINK, "has a hard link that is not kdump's", str(path))
    return status


def _identity_at(path: Path) -> tuple[int, int] | None:
    status = status_of(path)
    return None if status is None else identity_of(status)


def _about(failure: OSError, path: Path) -> OSError:
    """The same error with the full path; errors of calls with descriptors have none."""
    if failure.errno is None or "/" in os.fsdecode(failure.filename or ""):
        return failure
    return OSError(failure.errno, failure.strerror, str(path))
