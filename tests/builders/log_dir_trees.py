"""The content of a log directory, to be compared before and after a repair."""

from __future__ import annotations

from pathlib import Path

from builders.trees import Seen, contents_of, tree_of
from kdump.formats.names import KDUMP_PREFIX, LOCK_FILE


def original_of(path: Path) -> dict[str, Seen]:
    """Read all that an undo restores: everything except the time of the log directory itself."""
    return {name: seen for name, seen in tree_of(path).items() if name != "."}


def seen_by_broker(path: Path) -> dict[str, bytes]:
    """Read the files without the lock and kdump's own directory."""
    return {
        name: content
        for name, content in contents_of(path).items()
        if name != LOCK_FILE and not name.startswith(KDUMP_PREFIX)
    }
