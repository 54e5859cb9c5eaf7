"""Locks of a local repository: one kdump writes to it, and nothing is removed while it is read.

Whoever writes locks the directory of the repository. Whoever reads all of it shares the lock of
``data``, and whoever removes anything takes that one, too: a backup goes on while others read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from kdump.apply.directory_lock import lock_directory
from kdump.phases import phase
from kdump.processes.worker_pool import close_kept
from kdump.storage.repository import DATA, RepositoryError


class DirectoryLock:
    """A lock that the system takes away only when the process ends."""

    def require_held(self) -> None:
        """Do nothing: it is held."""


@contextlib.contextmanager
def locked_to_write(path: Path) -> Iterator[DirectoryLock]:
    """Lock a repository to write to it.

    Raises:
        RepositoryError: another kdump writes to it.
        OSError: it cannot be locked.
    """
    what = f"{path}: another kdump writes to this repository; wait until it ends"
    lock = _locked(path, path, what)
    try:
        yield DirectoryLock()
    finally:
        close_kept(lock)


@contextlib.contextmanager
def locked_to_remove(path: Path) -> Iterator[DirectoryLock]:
    """Lock a repository to remove something from it.

    Raises:
        RepositoryError: another kdump writes to it or reads it.
        OSError: it cannot be locked.
    """
    what = f"{path}: another kdump reads this repository; wait until it ends"
    with locked_to_write(path) as held:
        lock = _locked(path, path / DATA, what)
        try:
            yield held
        finally:
            close_kept(lock)


@contextlib.contextmanager
def locked_to_read(path: Path) -> Iterator[None]:
    """Keep other processes from removing anything while a repository is read.

    Where the file system has no locks, nothing can be removed either.

    Raises:
        RepositoryError: another kdump removes something from it.
    """
    what = f"{path}: another kdump removes snapshots from this repository; wait until it ends"
    lock = None
    with contextlib.suppress(OSError):
        lock = _locked(path, path / DATA, what, is_shared=True)
    try:
        yield
    finally:
        if lock is not None:
            close_kept(lock)


def _locked(path: Path, directory: Path, what: str, *, is_shared: bool = False) -> int:
    """Lock a directory of a repository.

    Raises:
        RepositoryError: another kdump has the lock; says ``what``.
        OSError: it cannot be locked.
    """
    try:
        with phase(f"locking {path}"):
            return lock_directory(directory, is_shared=is_shared)
    except BlockingIOError:
        raise RepositoryError(what) from None
