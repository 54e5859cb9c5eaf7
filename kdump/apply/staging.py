"""New segments that lie ready beside the old ones before a plan puts them in their place."""

from __future__ import annotations

import errno
import stat
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from kdump.apply.files import DISK, Content, FileRange, Files, Metadata
from kdump.apply.pinned_directory import identity_of, pinned
from kdump.apply.segment_names import CLEANED


def stage_file(
    path: Path, content: Content, *, like: Path, modified_ns: int, files: Files = DISK
) -> None:
    """Write a file that a later plan names in :class:`~kdump.target.target_file.RenamedFrom`.

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
        _write(path, _readable(content, metadata), metadata, files)


def _readable(content: Content, metadata: Metadata) -> Content:
    """The same content, without what the owner of the new file may not read.

    Somebody may put another file in the place of a segment while it is copied.

    Raises:
        OSError: a file belongs to somebody else, and not everybody may read it.
    """
    identities: dict[Path, tuple[int, int]] = {}
    for piece in content:
        if not isinstance(piece, FileRange):
            yield piece
            continue
        if piece.path not in identities:
            status = piece.path.stat()
            if status.st_uid != metadata.uid and not status.st_mode & stat.S_IROTH:
                what = "belongs to another user than the rest of the segments"
                raise OSError(errno.EACCES, what, str(piece.path))
            identities[piece.path] = identity_of(status)
        yield replace(piece, identity=identities[piece.path])


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
