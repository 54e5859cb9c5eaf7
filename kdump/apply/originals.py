"""Copies of partitions that were moved here: undoing the run deletes them.

The original comes back when the run in the other log directory is undone. Until then the copy may
be all there is, so its run names the other directory, and is not undone before.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kdump.apply.journal import Journal
from kdump.apply.pinned_directory import status_of
from kdump.errors import KdumpError
from kdump.words import shell_command

_WORDS: Final = "move from "


def copying_command(source: Path) -> str:
    """The command of a run that creates copies of directories in ``source``."""
    return f"{_WORDS}{source.absolute()}"


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
