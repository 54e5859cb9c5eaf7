"""Overwrite files before they are deleted, so that their bytes do not stay in free blocks.

That reaches the old blocks only where a file system writes in place, such as ext4 and XFS. Those
that copy on write (btrfs, ZFS), a log-structured disk and an SSD keep the old blocks for a while.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from kdump.apply.files import Files
from kdump.apply.pinned_directory import identity_of, status_of

_ZEROES: Final = bytes(1 << 20)


def overwrite(path: Path, files: Files) -> int:
    """Overwrite a file with zeroes, durable; returns how many bytes.

    A file with another name is left as it is: it may be in use under that name.

    Raises:
        OSError: it cannot be written.
    """
    size_bytes = overwritable_bytes(path)
    if size_bytes:
        files.write_at(path, 0, _zeroes(size_bytes))
        files.sync([path])
    return size_bytes


def overwritable_bytes(path: Path) -> int:
    """How many bytes :func:`overwrite` would overwrite."""
    status = status_of(path)
    if status is None or not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        return 0
    return status.st_size


def overwrite_and_delete(path: Path, files: Files) -> int:
    """Overwrite a file, and delete it, durable; returns how many bytes were overwritten.

    Raises:
        OSError: it cannot be written or deleted.
    """
    size_bytes = overwrite(path, files)
    files.unlink(path)
    files.sync([path.parent])
    return size_bytes


def with_names_elsewhere(log_dir: Path, paths: Iterable[Path]) -> list[Path]:
    """Those of ``paths`` that are hard links to files outside of the log directory.

    Raises:
        OSError: the log directory cannot be listed.
    """
    names: Counter[tuple[int, int]] = Counter()
    for folder, _, found in os.walk(log_dir, onerror=_raise):
        names.update(identity_of((Path(folder) / name).lstat()) for name in found)
    statuses = [(path, status_of(path)) for path in paths]
    return [
        path
        for path, status in statuses
        if status is not None and status.st_nlink > names[identity_of(status)]
    ]


def _raise(failure: OSError) -> None:
    raise failure


def _zeroes(size_bytes: int) -> Iterator[bytes]:
    for left in range(size_bytes, 0, -len(_ZEROES)):
        yield _ZEROES[:left]
