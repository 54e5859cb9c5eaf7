"""Copies of partitions that were moved: undoing the run that made them deletes them.

The original comes back when the run in the directory that it left is undone. Until then the copy
may be all there is, so its run names that directory, and is not undone before. The run that removed
the original names the directories of the copies, and is not undone once a copy has changed: then
the copy could not be removed, and a broker does not start with both.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from kdump.apply.directory_places import place_of
from kdump.apply.journal import DirectoryMove, Journal
from kdump.apply.operations import states_of
from kdump.apply.pinned_directory import status_of
from kdump.errors import KdumpError
from kdump.storage.local_disk import local
from kdump.words import discard_command, shell_command

_WORDS: Final = "move from "
_TO: Final = "move to "


def copying_command(source: Path) -> str:
    """The command of a run that creates copies of directories in ``source``."""
    return f"{_WORDS}{source.absolute()}"


def leaving_command(targets: Iterable[Path]) -> str:
    """The command of a run that removes the originals of copies in ``targets``."""
    return _TO + shlex.join(sorted({str(each.absolute()) for each in targets}))


def require_unchanged_copies(log_dir: Path, journal: Journal) -> None:
    """Refuse to undo a run that would restore originals whose copies have changed since.

    Raises:
        KdumpError: a copy has changed; says what to do.
        OSError: a file cannot be examined.
    """
    if not journal.command.startswith(_TO):
        return
    targets = [Path(each) for each in shlex.split(journal.command.removeprefix(_TO))]
    for move in journal.moves:
        place = place_of(log_dir, move)
        if move.before is None or place is None or not move.is_kept:
            continue
        for target in targets:
            copy = target / move.before
            if status_of(copy) is not None and _seen(copy) != _seen(log_dir / place):
                raise _changed_copy(log_dir, journal.number, move, log_dir / place, copy)


def _seen(directory: Path) -> dict[str, tuple[int, int]]:
    """Size and time of each file; a copy has those of its original."""
    return {
        name: (each.size_bytes, each.metadata.modified_ns)
        for name, each in states_of(directory).items()
    }


def _changed_copy(
    log_dir: Path, number: int, move: DirectoryMove, kept: Path, copy: Path
) -> KdumpError:
    name = str(move.before)
    back = shell_command("move", ["--from", copy.parent, "--to", log_dir, "--partition", name])
    return KdumpError(
        f"{log_dir}: {name} was moved to {copy.parent}, and has changed there since:"
        f" {ends_of(copy, kept)}; a broker does not start with both; nothing has been changed; to"
        f" move it back as it is now: '{discard_command(log_dir, number)}' and then '{back}'; to"
        f" lose what has changed, move {copy} out of its log directory, and run the command again"
    )


def ends_of(one: Path, other: Path) -> str:
    """Say where two logs of a partition end, as far as their headers tell."""
    from kdump.log.bounds import read_bounds
    from kdump.log.partition import read_partition

    found = []
    for path in (one, other):
        partition = read_partition(local(path), None)
        end = read_bounds(partition).log_end_offset
        found.append(f"{path} ends at offset {'?' if end is None else end}")
    return ", ".join(found)


def require_originals(log_dir: Path, journal: Journal) -> None:
    """Refuse to undo a run that would delete copies whose originals are not back.

    Raises:
        KdumpError: an original is missing; says what to do.
        OSError: a file cannot be examined.
    """
    if not journal.command.startswith(_WORDS):
        return
    source = Path(journal.command.removeprefix(_WORDS))
    for move in journal.moves:
        if move.before is None and move.after and status_of(source / move.after) is None:
            raise KdumpError(
                f"{log_dir}: {move.after} was moved from {source}, and is not there:"
                f" undoing run {journal.number} would delete the only copy; nothing has been"
                f" changed; undo the run there first: '{shell_command('undo', [source])}'"
            )
