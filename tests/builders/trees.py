"""The content and metadata of a directory tree, for comparison."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from kdump.formats.names import TopicPartition
from kdump.log.directory import Offsets


class Seen(NamedTuple):
    """The visible properties of a file, a directory or a symbolic link."""

    mode: int
    owner: tuple[int, int]
    modified_ns: int
    content: bytes | str | None


def contents_of(root: Path) -> dict[str, bytes]:
    """Return the content of every file below ``root``, by path."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def tree_of(root: Path) -> dict[str, Seen]:
    """Return ``root`` and everything below it: content, mode, owner and modification time."""
    return {str(path.relative_to(root)): _seen(path) for path in (root, *sorted(root.rglob("*")))}


def _seen(path: Path) -> Seen:
    status = path.lstat()
    content: bytes | str | None = None
    if path.is_symlink():
        content = os.readlink(path)  # noqa: PTH115 - the text of the link, not its target
    elif path.is_file():
        content = path.read_bytes()
    owner = (status.st_uid, status.st_gid)
    return Seen(status.st_mode, owner, status.st_mtime_ns, content)


def of_present_partitions(offsets: Offsets | None, log_dir: Path) -> dict[TopicPartition, int]:
    """Return a checkpoint's lines for partitions in ``log_dir``: fixtures lack some partitions."""
    return {key: at for key, at in (offsets or {}).items() if (log_dir / str(key)).is_dir()}
