"""What a listing says of a file, a directory, or anything else that has a name."""

from __future__ import annotations

import enum
import errno
from typing import Final, NamedTuple

from kdump.storage.ownership import Ownership

_NS_PER_MS: Final = 1_000_000
_LONGEST_NAME: Final = 255
"""``NAME_MAX``; keys of object stores and names in archives have no such limit."""


class EntryKind(enum.Enum):
    """What an entry is, after links were followed."""

    FILE = "regular file"
    DIRECTORY = "directory"
    FIFO = "FIFO"
    SOCKET = "socket"
    DEVICE = "device"
    BROKEN_LINK = "broken link"
    """A symbolic link to nothing, to itself, or to something that cannot be looked at."""
    UNKNOWN = "unknown"
    """The machine refuses to say; the entry has an error."""


SPECIAL_KINDS: Final = frozenset({EntryKind.FIFO, EntryKind.SOCKET, EntryKind.DEVICE})
"""Kinds that are never opened: opening one can wait forever, or do anything."""


class SpecialFileError(OSError):
    """A FIFO, a socket or a device is where a file should be."""


class BrokenLinkError(OSError):
    """A symbolic link to nothing, or to itself, is where a file should be."""


def special_file_error(name: str, kind: EntryKind, advice: str = "") -> SpecialFileError:
    """The error for something that must not be opened.

    Args:
        name: as messages give it.
        kind: one of :data:`SPECIAL_KINDS`.
    """
    what = f"a {kind.value}, not a regular file{advice and f'; {advice}'}"
    return SpecialFileError(errno.EINVAL, what, name)


def is_file_name(name: str) -> bool:
    """Whether a file can have a name, and it cannot lead out of its directory.

    Bytes that are not UTF-8 are surrogates, as Python has them.
    """
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        return False
    try:
        return len(name.encode(errors="surrogateescape")) <= _LONGEST_NAME
    except UnicodeEncodeError:
        return False


class Entry(NamedTuple):
    """One name in a directory. A tuple, because listings of 100,000 files make one for each.

    Attributes:
        name: within the directory.
        kind: what it is; a link has the kind of what it leads to.
        is_link: whether it is a symbolic link.
        size_bytes: of a file; 0 for anything else.
        modified_ns: when a file was last modified, in nanoseconds since the epoch; 0 for anything
            else.
        hole_bytes: how many bytes of a file were never written; 0 if too few to be worth skipping.
        error: why an entry cannot be looked at; None for a link to nothing.
        file_id: of a file, its number on its disk; 0 where a storage has none.
        changed_ns: when anything of a file last changed, its status too (``st_ctime``); likewise.
        ownership: of a file that is no link; None for anything else, or if its storage has none.
    """

    name: str
    kind: EntryKind
    is_link: bool = False
    size_bytes: int = 0
    modified_ns: int = 0
    hole_bytes: int = 0
    error: OSError | None = None
    file_id: int = 0
    changed_ns: int = 0
    ownership: Ownership | None = None

    @property
    def modified_ms(self) -> int:
        """When a file was last modified, in milliseconds since the epoch."""
        return self.modified_ns // _NS_PER_MS
