"""What is in a log directory, to be compared before and after a repair."""

from __future__ import annotations

from pathlib import Path

from builders.trees import Seen, contents_of, tree_of
from kdump.formats.names import KDUMP_PREFIX, LOCK_FILE


def original_of(path: Path) -> dict[str, Seen]:
    """All that an undo restores: everything but the time of the log directory itself."""
    return {name: seen for name, seen in tree_of(path).items() if name != "."}


def seen_by_broker(path: Path) -> dict[str, bytes]:
    """The files without the lock and what kdump keeps."""
    return {
        name: content
        for name, content in contents_of(path).items()
        if name != LOCK_FILE and not name.startswith(KDUMP_PREFIX)
    }
