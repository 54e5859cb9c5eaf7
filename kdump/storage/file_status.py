"""Everything that a local disk says of a file, for whoever has to notice that it changed."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import NamedTuple


class FileStatus(NamedTuple):
    """The status of a file or directory; links are followed.

    Attributes:
        permissions: the permission bits, 0 to 0o7777.
        modified_ns: when its content was last modified.
        changed_ns: when anything of it last changed, its status too (``st_ctime``).
        file_id: its number on its disk.
    """

    permissions: int
    uid: int
    gid: int
    size_bytes: int
    modified_ns: int
    changed_ns: int
    file_id: int


def file_status(path: Path) -> FileStatus:
    """Ask the disk.

    Raises:
        OSError: there is nothing, or it cannot be looked at.
    """
    found = path.stat()
    return FileStatus(
        stat.S_IMODE(found.st_mode),
        found.st_uid,
        found.st_gid,
        found.st_size,
        found.st_mtime_ns,
        found.st_ctime_ns,
        found.st_ino,
    )
