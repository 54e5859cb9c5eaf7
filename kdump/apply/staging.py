"""New segments that lie ready beside the old ones before a plan puts them in their place."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from kdump.apply.entries import pinned
from kdump.apply.files import DISK, Content, Files, Metadata
from kdump.apply.segment_names import CLEANED


def stage_file(
    path: Path, content: Content, *, like: Path, modified_ns: int, files: Files = DISK
) -> None:
    """Write a file that a later plan names in :class:`~kdump.repair.wanted.RenamedFrom`.

    What a reader finds if the machine stops:

    1. An incomplete ``.cleaned``, as a broker leaves it that stops while it compacts. A broker
       deletes it; so does writing it again.
    2. A complete one, durable, and so is its name. A broker deletes that as well.

    Nothing else is touched, so tasks of a job may do this, each for a file of its own.

    Args:
        path: in a partition's directory; the name ends in ``.cleaned``.
        content: what goes into it. Where taking it fails, nothing is left behind.
        like: whose owner, group and mode it gets.
        modified_ns: when it is said to have been modified.
        files: through which it is written.

    Raises:
        OSError: there is no space, or the owner cannot be given.
    """
    if not path.name.endswith(CLEANED):
        raise ValueError(f"{path}: a broker would not delete it")
    status = Metadata.of(like.stat())
    metadata = Metadata(status.mode, status.uid, status.gid, time.time_ns(), modified_ns)
    with pinned(path.parent.parent):
        _write(path, content, metadata, files)


def _write(path: Path, content: Content, metadata: Metadata, files: Files) -> None:
    files.unlink(path)
    try:
        # 1.
        files.create(path, content)
        files.set_metadata(path, metadata)
        # 2.
        files.sync([path, path.parent])
    except BaseException:
        with suppress(OSError):
            files.unlink(path)
        raise
