"""Which process has locked a log directory that is read.

Who reads a log directory notes its holder. The command reports it at its end, because what a
running broker changes meanwhile can look like damage. A broker may also be started while a
directory is read: so who finds that something is not as it was listed looks again.
"""

from __future__ import annotations

import enum
import time
from pathlib import Path
from typing import Final, NamedTuple

from kdump.errors import KdumpError
from kdump.formats.names import LOCK_FILE, META_PROPERTIES
from kdump.storage.file_locks import lock_holder
from kdump.storage.location import Location
from kdump.words import shell_command


class ReadAs(enum.Enum):
    """How to read log directories."""

    AS_FOUND = enum.auto()
    """As living where another process has locked them."""
    LIVING = enum.auto()
    """As living: what a broker changes meanwhile is read again, or not judged."""
    STOPPED = enum.auto()
    """As nobody changes them."""


class _Look(NamedTuple):
    """Whether another process had locked a log directory, and by which clock time."""

    is_locked: bool
    time_s: float


_noted: Final = dict[Location, str]()
_living: Final = set[Location]()
_seen_unlocked: Final = set[Location]()
_reported: Final = set[Path]()
_looked: Final = dict[Location, _Look]()
"""What this process saw when it last looked whether another one had locked a log directory."""
_LOOK_VALID_S: Final = 0.05
"""How long a broker that has just been started leaves the files alone, at least."""


def note_holder(log_dir: Location) -> None:
    """Note which other process has locked a log directory that is read."""
    path = log_dir.storage.local_path(log_dir.path)
    if path is None:
        return
    holder = lock_holder(path / LOCK_FILE)
    for each in (log_dir, log_dir.as_absolute()):
        _looked[each] = _Look(holder is not None, time.perf_counter())
    if holder is None:
        _seen_unlocked.add(log_dir)
    else:
        _noted[log_dir] = holder


def note_holder_around(path: Location) -> None:
    """Note the same about a file or partition that is read without its log directory.

    That is the directory around it, or around the partition that a file is in.
    """
    note_holder(path.around)
    note_holder(path.around.around)


def in_use_by(log_dir: Location) -> str | None:
    """The process that had locked a log directory when it was read."""
    return _noted.get(log_dir)


def is_locked(log_dir: Location) -> bool:
    """Whether another process has locked a log directory, or had when this one last looked."""
    seen, now_s = _looked.get(log_dir), time.perf_counter()
    if seen is None or not (seen.is_locked or now_s - seen.time_s < _LOOK_VALID_S):
        path = log_dir.storage.local_path(log_dir.path)
        if path is None:
            return False
        seen = _looked[log_dir] = _Look(lock_holder(path / LOCK_FILE) is not None, now_s)
    return seen.is_locked


def is_in_use_around(partition: Location) -> bool:
    """Whether another process has locked the log directory of a partition.

    For who reads records, in any process.
    """
    return is_locked(partition.around)


def is_anything_in_use() -> bool:
    """Whether any log directory that was read was locked."""
    return bool(_noted)


def is_living(log_dir: Location, reading: ReadAs) -> bool:
    """Whether to read a log directory as one that a broker is using; noted for the report."""
    if reading is ReadAs.STOPPED or (reading is ReadAs.AS_FOUND and log_dir not in _noted):
        return False
    _living.add(log_dir)
    return True


def was_started_meanwhile(log_dir: Location, wait_s: float = 0) -> bool:
    """Whether a broker uses a log directory by now that nobody used when it was read.

    What is found from then on is read as living.

    Args:
        wait_s: how long a broker that has not taken the lock may still be about to take it.
    """
    end_s = time.perf_counter() + wait_s
    while log_dir not in _noted:
        note_holder(log_dir)
        if time.perf_counter() >= end_s:
            break
        time.sleep(_LOOK_VALID_S)
    return is_living(log_dir, ReadAs.AS_FOUND)


def is_living_around(partition: Location) -> bool:
    """Whether this process reads the log directory of a partition as living, or it is locked."""
    around = partition.as_absolute().parent
    return is_locked(around) or any(each.as_absolute() == around for each in _living)


def read_as_living() -> dict[Location, str | None]:
    """The log directories that were read so, and which process had locked each, if known."""
    return {each: _noted.get(each) for each in sorted(_living, key=str)}


def require_log_directory(log_dir: Location) -> None:
    """Find out that what is gone was deleted by the broker, and not its log directory with it.

    Raises:
        KdumpError: the log directory is gone, or has nothing in it.
    """
    if any((log_dir / name).kind() is not None for name in (LOCK_FILE, META_PROPERTIES)):
        return
    try:
        is_empty = not log_dir.entries()
    except FileNotFoundError:
        is_empty = True
    if is_empty:
        raise KdumpError(
            f"{log_dir}: gone while it was read: its disk may have been unmounted; what was not"
            " read by then is not known"
        )


def was_deleted_in(log_dir: Location) -> bool:
    """Whether what is gone in a log directory was deleted by a broker that is using it.

    Raises:
        KdumpError: the log directory is gone, too.
    """
    if not is_locked(log_dir):
        return False
    require_log_directory(log_dir)
    return True


def how_to_clean(log_dir: Location) -> str:
    """What to do about a log directory that was not shut down cleanly, or looks like it."""
    holder = in_use_by(log_dir)
    if holder is not None:
        return f"it is in use by {holder}: stop the broker first"
    return f"run '{shell_command('recover', [log_dir])}' first"


def unreported_holders() -> dict[Location, str]:
    """What was noted about log directories whose holder the command has not reported itself.

    Those that nobody had locked when they were read are looked at again.
    """
    for each in _seen_unlocked - _noted.keys():
        note_holder(each)
    return {
        each: who
        for each, who in _noted.items()
        if each not in _living and each.local_path not in _reported
    }


def forget_holders() -> None:
    """Begin a new run."""
    _noted.clear()
    _living.clear()
    _reported.clear()
    _looked.clear()
    _seen_unlocked.clear()


def holder_of(log_dir: Path) -> str | None:
    """Who holds the lock, for a command that says so itself, as ``process 4711 (its command)``.

    Locks and writes nothing. None if nobody else holds it, or the lock file cannot be opened;
    ``another process`` if the process is unknown, for example in another container.
    """
    _reported.add(log_dir)
    return lock_holder(log_dir / LOCK_FILE)
