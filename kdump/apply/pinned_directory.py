"""Entries of log directories, reached by descriptors of the directories that they are in.

A log directory may belong to somebody whom the user of kdump need not trust: a broker's account,
while root repairs. So a path is never simply opened. The log directory itself is opened once, by
the name that it was given, and a partition is opened in it without following a link. Whoever puts
a link in the place of a partition, or of the log directory, meanwhile gets an error, and no entry
of any other directory is touched.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(slots=True)
class _Pin:
    """A log directory that is open.

    Attributes:
        descriptor: of it.
        users: how many rely on that.
    """

    descriptor: int
    users: int = 0


_pins: Final[dict[str, _Pin]] = {}
"""By the path that the log directory was given as. Strings, because paths take long to look up."""


@contextmanager
def pinned(log_dir: Path) -> Iterator[None]:
    """Hold a log directory open: meanwhile all paths below it are in this very directory.

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
    """Open the directory that has the entry ``path``: a log directory, or a partition in one.

    Errors that are raised inside get ``path`` as their file name, because those of descriptors do
    not say which file it was.

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
    """Open a directory that is none of the pinned ones, but for a link."""
    above = _pins.get(_parent_of(path))
    if above is None:
        return os.open(path, _DIRECTORY | os.O_NOFOLLOW)
    name = path.rpartition("/")[2]
    return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=above.descriptor)


@contextmanager
def opened(path: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    """Open an entry: a file, or a directory. Never waits, and never follows a link.

    Raises:
        OSError: it cannot be opened, or is a symbolic link.
    """
    pin = _pins.get(str(path))
    if pin is not None:
        # A log directory itself.
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
    """What an entry is, a link for itself; None where there is none, or no such directory.

    Raises:
        OSError: it cannot be found out, or the directory is a symbolic link.
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
    """What an entry is, a link for itself.

    Raises:
        OSError: it cannot be found out; FileNotFoundError where there is none.
    """
    status = status_of(path)
    if status is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return status


def is_same(path: Path, other: Path) -> bool:
    """Whether two names are there, and of one file.

    Raises:
        OSError: it cannot be found out.
    """
    one = _identity_at(path)
    return one is not None and one == _identity_at(other)


def identity_of(status: os.stat_result) -> tuple[int, int]:
    """What tells a file from every other one, whatever their names."""
    return status.st_dev, status.st_ino


def require_own(descriptor: int, path: Path, names: Iterable[Path] = ()) -> os.stat_result:
    """Refuse to change what is no plain file of the log directory's alone; gives what it is.

    Args:
        descriptor: of the file.
        path: by which it was opened.
        names: further names that it may have.

    Raises:
        OSError: it is no regular file, or has hard links elsewhere, through which a foreign file
            would be changed.
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
    """The same failure, with the file that it is about; descriptors only know names."""
    if failure.errno is None or "/" in os.fsdecode(failure.filename or ""):
        return failure
    return OSError(failure.errno, failure.strerror, str(path))
