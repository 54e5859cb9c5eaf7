"""Opening files of a log directory for reading: regular files, and nothing else.

To open a FIFO waits for somebody to write into it, and to open a device can do anything. Nothing
of that kind belongs in a log directory, so it is never opened: it cannot be read, as a file on a
failing disk cannot.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path
from typing import Final

_OTHER_KINDS: Final = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
"""Should a FIFO take the file's place after the look at it, opening it does not wait."""


class SpecialFileError(OSError):
    """A FIFO, a socket or a device is where a file should be."""


def require_not_special(path: Path) -> None:
    """Refuse what must not be opened.

    Raises:
        SpecialFileError: it is a FIFO, a socket or a device, or a symbolic link to one.
        OSError: there is nothing.
    """
    _require_not_special(path, path.stat())


def open_for_reading(path: Path) -> int:
    """Open a regular file, also through symbolic links; gives its descriptor.

    Raises:
        OSError: it is missing or cannot be read, or is not a regular file.
    """
    _require_regular(path, path.stat())
    descriptor = os.open(path, _FLAGS)
    try:
        _require_regular(path, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def open_file(path: Path) -> io.FileIO:
    """Open a regular file, unbuffered.

    Raises:
        OSError: as :func:`open_for_reading`.
    """
    return os.fdopen(open_for_reading(path), "rb", buffering=0)


def read_file(path: Path) -> bytes:
    """All bytes of a small regular file.

    Raises:
        OSError: it is missing or cannot be read, or is not a regular file.
    """
    with open_file(path) as file:
        try:
            return file.read()
        except OSError as failure:
            raise OSError(failure.errno, failure.strerror, str(path)) from failure


def _require_regular(path: Path, status: os.stat_result) -> None:
    _require_not_special(path, status)
    if not stat.S_ISREG(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))


def _require_not_special(path: Path, status: os.stat_result) -> None:
    kind = _OTHER_KINDS.get(stat.S_IFMT(status.st_mode))
    if kind is not None:
        what = f"{kind}, not a regular file; remove it"
        raise SpecialFileError(errno.EINVAL, what, str(path))
