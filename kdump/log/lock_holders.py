"""Which process has locked a log directory that is read.

Who reads a log directory notes its holder. The command reports it at its end, because what a
running broker changes meanwhile can look like damage.
"""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Final

from kdump.formats.names import LOCK_FILE
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


_noted: Final = dict[Location, str]()
_living: Final = set[Location]()
_reported: Final = set[Path]()
_locked: Final = dict[Path, bool]()
"""Whether another process had locked a log directory when this process last looked."""


def note_holder(log_dir: Location) -> None:
    """Note which other process has locked a log directory that is read."""
    path = log_dir.storage.local_path(log_dir.path)
    if path is None:
        return
    holder = lock_holder(path / LOCK_FILE)
    for each in (path, log_dir.storage.local_path(log_dir.as_absolute().path)):
        if each is not None:
            _locked[each] = holder is not None
    if holder is not None:
        _noted[log_dir] = holder


def note_holder_around(path: Location) -> None:
    """Note the same about a file or partition that is read without its log directory.

    That is the directory around it, or around the partition that a file is in.
    """
    around = path.as_absolute().parent
    note_holder(around)
    note_holder(around.parent)


def in_use_by(log_dir: Location) -> str | None:
    """The process that had locked a log directory when it was read."""
    return _noted.get(log_dir)


def is_locked(log_dir: Location) -> bool:
    """Whether another process has locked a log directory, as this process last saw it."""
    path = log_dir.storage.local_path(log_dir.path)
    if path is None:
        return False
    if path not in _locked:
        _locked[path] = lock_holder(path / LOCK_FILE) is not None
    return _locked[path]


def is_in_use_around(partition: Location) -> bool:
    """Whether another process has locked the log directory of a partition.

    For who reads records, in any process.
    """
    return is_locked(partition.as_absolute().parent)


def is_anything_in_use() -> bool:
    """Whether any log directory that was read was locked."""
    return bool(_noted)


def is_living(log_dir: Location, reading: ReadAs) -> bool:
    """Whether to read a log directory as one that a broker is using; noted for the report."""
    if reading is ReadAs.STOPPED or (reading is ReadAs.AS_FOUND and log_dir not in _noted):
        return False
    _living.add(log_dir)
    return True


def read_as_living() -> dict[Location, str | None]:
    """The log directories that were read so, and which process had locked each, if known."""
    return {each: _noted.get(each) for each in sorted(_living, key=str)}


def how_to_clean(log_dir: Location) -> str:
    """What to do about a log directory that was not shut down cleanly, or looks like it."""
    holder = in_use_by(log_dir)
    if holder is not None:
        return f"it is in use by {holder}: stop the broker first"
    return f"run '{shell_command('recover', [log_dir])}' first"


def unreported_holders() -> dict[Location, str]:
    """What was noted about log directories whose holder the command has not reported itself."""
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
    _locked.clear()


def holder_of(log_dir: Path) -> str | None:
    """Who holds the lock, for a command that says so itself, as ``process 4711 (its command)``.

    Locks and writes nothing. None if nobody else holds it, or the lock file cannot be opened;
    ``another process`` if the process is unknown, for example in another container.
    """
    _reported.add(log_dir)
    return lock_holder(log_dir / LOCK_FILE)
