"""Lock a log directory as a broker does.

Follows Kafka's ``FileLock`` and ``LogManager.lockLogDirs``: a POSIX record lock on ``.lock``, which
is created if it is missing and deleted when the lock is released. A broker that is started
meanwhile refuses the directory; kdump refuses a directory that a broker has locked.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from kdump.apply.files import DISK, Metadata
from kdump.apply.pinned_directory import directory_of, identity_of, pinned, status_of
from kdump.errors import AS_WHOM, KdumpError, reason_of
from kdump.formats.names import LOCK_FILE
from kdump.log.lock_holders import holder_of
from kdump.phases import phase
from kdump.storage.entries import SpecialFileError
from kdump.storage.file_locks import holder_of_open, own_locks
from kdump.storage.local_disk import require_not_special
from kdump.storage.location import Location

_MODE: Final = 0o644
_ATTEMPTS: Final = 100
"""How often to try again when the locked file has been deleted meanwhile."""


class LockedError(KdumpError):
    """Another process has locked the log directory."""


class _Held(Struct):
    """A lock that this process holds.

    Attributes:
        descriptor: of the file, open as long as the lock is held.
        leftover: metadata of the file if it existed before, as after a crash.
        stays: whether to leave the file in place when the lock is released.
    """

    descriptor: int
    leftover: Metadata | None
    stays: bool


_held: Final[dict[Path, _Held]] = {}
"""By log directory. A POSIX lock does not exclude its own process, which loses it by closing any
descriptor of the file. So a second holder in this process has to be refused here."""


@contextmanager
def hold_locks(log_dirs: Sequence[Path]) -> Iterator[None]:
    """Hold the locks of log directories: all or none.

    Every kdump takes them in the same order, and releases them whatever happens. Releasing deletes
    ``.lock`` if it was created here. One that a crash had left stays as long as its directory is
    not changed; see :func:`drop_leftover`.

    Raises:
        LockedError: a broker, or another kdump, holds one of them.
        KdumpError: a lock cannot be taken for another reason, such as missing permission.
    """
    given: dict[Path, Path] = {}
    for path in log_dirs:
        given.setdefault(path.resolve(), path)
    locked = sorted(given)
    with ExitStack() as stack:
        with phase("taking the locks"):
            for path in (*log_dirs, *locked):
                try:
                    stack.enter_context(pinned(path))
                except (FileNotFoundError, NotADirectoryError) as failure:
                    what = f"{reason_of(failure)}; name a log directory"
                    raise KdumpError(f"{path}: {what}") from failure
                except OSError as failure:
                    raise _cannot_lock(path / LOCK_FILE, failure) from failure
            for path in locked:
                stack.enter_context(_hold(path, given[path]))
        yield


def require_unlocked(log_dirs: Iterable[Location]) -> None:
    """Refuse log directories that another process has locked, without taking their locks.

    Those that are on no local disk are nobody's to lock.

    Raises:
        LockedError: one is locked.
    """
    for location in log_dirs:
        path = location.storage.local_path(location.path)
        holder = None if path is None else holder_of(path)
        if path is not None and holder is not None:
            raise _locked_by(path, holder)


@contextmanager
def refusing_brokers(log_dirs: Sequence[Location]) -> Iterator[None]:
    """Refuse log directories that another process locks, before they are read or meanwhile.

    For who does not take their locks. If something else fails, because files are gone or change,
    the lock is the reason that is named.

    Raises:
        LockedError: one is locked.
    """
    require_unlocked(log_dirs)
    try:
        yield
    except (KdumpError, OSError):
        require_unlocked(log_dirs)
        raise
    require_unlocked(log_dirs)


def leftover_of(log_dir: Path) -> Metadata | None:
    """Metadata of ``.lock`` before this process took it; None if there was no such file."""
    held = _held.get(log_dir.resolve())
    return None if held is None else held.leftover


def leave_behind(log_dir: Path) -> bool:
    """Leave ``.lock`` in place when the lock is released; returns whether it is held at all."""
    held = _held.get(log_dir.resolve())
    if held is not None:
        held.stays = True
    return held is not None


def drop_leftover(log_dir: Path) -> None:
    """Delete ``.lock`` in the end, as after a clean shutdown, whoever left it."""
    held = _held.get(log_dir.resolve())
    if held is not None:
        held.stays = False


@contextmanager
def _hold(log_dir: Path, given: Path) -> Iterator[None]:
    """Hold the lock of a log directory: by the name that was given, which messages show."""
    if log_dir in _held:
        raise LockedError(f"{given}: this kdump holds the lock of the directory already")
    path = given / LOCK_FILE
    held = _held[log_dir] = _take(path)
    identity = identity_of(os.fstat(held.descriptor))
    own_locks.add(identity)
    try:
        yield
    finally:
        del _held[log_dir]
        # Kafka unlocks first (``FileLock.destroy``). Then another process can lock the file before
        # it is deleted, and a third one the next file.
        try:
            if not held.stays:
                with phase("releasing the locks"):
                    DISK.unlink(path)
        finally:
            fcntl.lockf(held.descriptor, fcntl.LOCK_UN)
            os.close(held.descriptor)
            own_locks.discard(identity)


def _take(path: Path) -> _Held:
    for _ in range(_ATTEMPTS):
        leftover = _metadata_of(path)
        descriptor = _open(path, is_new=leftover is None)
        if descriptor is None:
            continue
        try:
            _lock(path, descriptor)
            if _is_still(path, descriptor):
                return _Held(descriptor, leftover, stays=leftover is not None)
        except BaseException:
            os.close(descriptor)
            raise
        # The previous holder has deleted the file: we have locked a file without a name.
        os.close(descriptor)
    raise LockedError(f"{path.parent}: other processes keep taking the lock; try again")


def _metadata_of(path: Path) -> Metadata | None:
    try:
        status = status_of(path)
        if status is None:
            return None
        if not stat.S_ISLNK(status.st_mode):  # refused by name when it is opened
            require_not_special(path)
    except FileNotFoundError:
        return None
    except SpecialFileError as failure:
        raise KdumpError(
            f"{path}: cannot take the lock: {failure.strerror}; remove it"
        ) from failure
    except OSError as failure:
        raise _cannot_lock(path, failure) from failure
    return Metadata.of(status)


def _open(path: Path, *, is_new: bool) -> int | None:
    """Open or create a lock file; None if somebody created or deleted it meanwhile."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with directory_of(path) as directory:
            if not is_new:
                return os.open(path.name, flags, dir_fd=directory)
            # Only a file that was created here changes its owner: an existing one may be a hard
            # link to a file somewhere else.
            flags |= os.O_CREAT | os.O_EXCL
            descriptor = os.open(path.name, flags, _MODE, dir_fd=directory)
            # A broker of another user must be able to open it if this process is killed.
            owner = os.fstat(directory)
            with suppress(PermissionError):
                os.fchown(descriptor, owner.st_uid, owner.st_gid)
            return descriptor
    except (FileExistsError, FileNotFoundError):
        return None
    except OSError as failure:
        raise _cannot_lock(path, failure) from failure


def _lock(path: Path, descriptor: int) -> None:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as failure:
        if failure.errno not in (errno.EACCES, errno.EAGAIN):
            raise _cannot_lock(path, failure) from failure
        holder = holder_of_open(descriptor)
        raise _locked_by(path.parent, holder or "another process") from failure


def _locked_by(log_dir: Path, holder: str) -> LockedError:
    return LockedError(f"{log_dir}: locked by {holder}; stop the broker first, or work on a copy")


def _is_still(path: Path, descriptor: int) -> bool:
    status = status_of(path)
    return status is not None and os.path.samestat(status, os.fstat(descriptor))


def _cannot_lock(path: Path, failure: OSError) -> KdumpError:
    what = reason_of(failure)
    advice = {
        errno.EACCES: AS_WHOM,
        errno.EPERM: AS_WHOM,
        errno.EROFS: "mount it for writing, or work on a copy",
        errno.ENOSPC: "free some space there first",
        errno.ENOLCK: "its file system does not support locks: work on a copy",
        errno.ELOOP: "it is a symbolic link: remove it",
        errno.EISDIR: "remove it",
    }.get(failure.errno or 0, "work on a copy")
    return KdumpError(f"{path}: cannot take the lock: {what}; {advice}")
