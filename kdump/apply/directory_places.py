"""Where the directories are that a run creates, renames or removes.

All names of the directories of a run are different, and before the run only those exist that it
renames or removes. So each is wherever one of its names is found.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from kdump.apply.journal import DirectoryMove
from kdump.apply.pinned_directory import is_on_mount_of, status_of


def place_of(log_dir: Path, move: DirectoryMove) -> str | None:
    """The name that a directory of a run has now; None if it does not exist.

    Raises:
        OSError: the status of one cannot be read.
    """
    return next((name for name in move.names if status_of(log_dir / name) is not None), None)


class Places(Struct, frozen=True):
    """Finds the files in directories that move.

    Attributes:
        moves: by key.
    """

    log_dir: Path
    moves: dict[str, DirectoryMove]

    @classmethod
    def of(cls, log_dir: Path, moves: tuple[DirectoryMove, ...]) -> Places:
        return cls(log_dir, {each.key: each for each in moves})

    def now(self, path: str) -> str | None:
        """Where the file or directory ``path`` of a journal is; None if its directory is gone."""
        directory, slash, name = path.partition("/")
        move = self.moves.get(directory)
        if move is None:
            return path
        place = place_of(self.log_dir, move)
        return None if place is None else place + slash + name

    def shown(self, path: str) -> str:
        """The path of a file for people: where it is, or will be."""
        move = self.moves.get(path.partition("/")[0])
        if move is None:
            return path
        return self.now(path) or (move.after or move.key) + path.removeprefix(move.key)


def misplaced_directories(log_dir: Path, moves: Iterable[DirectoryMove]) -> list[str]:
    """Find what stops a record from moving a directory.

    Returns:
        A phrase for each.

    Raises:
        OSError: the status of one cannot be read.
    """
    found = []
    for move in moves:
        statuses = {name: status_of(log_dir / name) for name in move.names}
        there = [name for name, status in statuses.items() if status is not None]
        # Of a removed directory without undo, nothing may be left.
        if not there and move.before is not None and move.after is not None:
            found.append(f"{move.before} is gone")
        found += [f"{name} is new" for name in there[1:]]
        for name in there[:1]:
            status = statuses[name]
            assert status is not None
            if stat.S_ISLNK(status.st_mode):
                found.append(f"{name} is a symbolic link")
            elif not stat.S_ISDIR(status.st_mode):
                found.append(f"{name} is not a directory")
            elif not is_on_mount_of(log_dir / name, log_dir):
                found.append(f"{name} is on another file system or mount")
    return found
