"""Who has locked a file: asked without taking the lock, and without writing anything."""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from pathlib import Path
from typing import Final

_FLOCK: Final = struct.Struct("@hhqqi4x")
"""``struct flock`` of Linux: type, whence, start, length, process."""

own_locks: Final = set[tuple[int, int]]()
"""Device and inode of the lock files that this process has locked: it would lose a lock by closing
any descriptor of its file, so these are not opened here."""


def lock_holder(lock_file: Path) -> str | None:
    """Which other process has locked a file, as ``process 4711 (its command)``; None if none has.

    ``another process`` if it is unknown, for example in another container; None also if the file
    cannot be opened.
    """
    if sys.platform != "linux":
        return None
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        status = lock_file.stat(follow_symlinks=False)
        if (status.st_dev, status.st_ino) in own_locks:
            return None
        descriptor = os.open(lock_file, flags)
    except OSError:
        return None
    try:
        answer = _FLOCK.unpack(_asked(descriptor))
        if answer[0] == fcntl.F_UNLCK:
            return None
        return holder_of_open(descriptor) or "another process"
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _asked(descriptor: int) -> bytes:
    """The lock that conflicts with ours, as ``F_GETLK`` of Linux returns it."""
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    answer: bytes = fcntl.fcntl(descriptor, fcntl.F_GETLK, asked)
    return answer


def holder_of_open(descriptor: int) -> str:
    """Process and command that hold the lock of an open file; empty if unknown."""
    if sys.platform != "linux":
        return ""
    try:
        process_id = _FLOCK.unpack(_asked(descriptor))[4]
    except OSError:
        return ""
    if process_id <= 0:
        return ""  # it has ended meanwhile, or is in another container
    command = _command(process_id)
    return f"process {process_id}" + (f" ({command})" if command else "")


def _command(process_id: int) -> str:
    """The command line of a process, without JVM options, which would fill a screen."""
    try:
        words = Path(f"/proc/{process_id}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return ""
    shown: list[str] = []
    is_path = False
    for word in words:
        if not (is_path or (word.startswith(b"-") and words[0].endswith(b"java"))):
            shown.append(word.decode(errors="replace"))
        is_path = word in (b"-cp", b"-classpath", b"--class-path")
    command = " ".join(shown)
    return command if len(command) <= 200 else command[:199] + "…"
