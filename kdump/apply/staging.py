"""Stage new segments: write them beside the old ones, before a plan replaces those."""

from __future__ import annotations

import errno
import stat
import time
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from kdump.apply.files import DISK, Content, FileRange, Files, Metadata
from kdump.apply.pinned_directory import identity_of, pinned
from kdump.apply.segment_names import CLEANED


def stage_file(
    path: Path, content: Content, *, like: Path, modified_ns: int, files: Files = DISK
) -> None:
    """Write a file that a later plan names in :class:`~kdump.target.target_file.RenamedFrom`.

    The state of the directory if the machine stops after each step:

    1. An incomplete ``.cleaned`` file, as a broker leaves it if it stops while compacting. A broker
       deletes it; writing it again replaces it.
    2. A complete one, durable with its name. A broker deletes that as well.

    Nothing else is touched, so tasks of a job may call this, each for its own file.

    Args:
        path: in a partition's directory; the name ends in ``.cleaned``.
        content: of the file. If producing it fails, the file is deleted.
        like: the file whose owner, group, mode and extended attributes the new one gets.
        modified_ns: modification time that it gets.

    Raises:
        OSError: there is no space, or the owner cannot be given.
    """
    if not path.name.endswith(CLEANED):
        raise ValueError(f"{path}: a broker would not delete it")
    status = Metadata.of(like.stat())
    metadata = Metadata(status.mode, status.uid, status.gid, time.time_ns(), modified_ns)
    with pinned(path.parent.parent):
        _write(path, _readable(content, metadata), metadata, like, files)


def _readable(content: Content, metadata: Metadata) -> Content:
    """The same content, checked: the owner of the new file may read all of it.

    Somebody may replace a segment by another file while it is copied.

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


def _write(path: Path, content: Content, metadata: Metadata, like: Path, files: Files) -> None:
    files.unlink(path)
    try:
        # 1.
        files.create(path, content)
        files.set_metadata(path, metadata)
        files.copy_attributes(path, like)
        # 2.
        files.sync([path, path.parent])
    except BaseException:
        with suppress(OSError):
            files.unlink(path)
        raise
