"""Locations as people name them: a path of this machine, or a path in an archive."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kdump.storage.local_disk import local
from kdump.storage.location import Location

if TYPE_CHECKING:
    from kdump.storage.tar_archive import TarArchive

_IN_ARCHIVE: Final = re.compile(r"(?P<archive>.*?\.tar)!(?P<path>/.*)?", re.DOTALL)

_archives: Final[list[TarArchive]] = []
"""Those that were named in this process."""


def parse_location(text: str) -> Location:
    """The location that a path names; it may not exist.

    Args:
        text: a path of this machine, or ``ARCHIVE.tar!/PATH``.
    """
    found = _IN_ARCHIVE.fullmatch(text)
    if found is None:
        return local(text)
    from kdump.storage.tar_archive import TarArchive

    archive = TarArchive.named(local(found["archive"]))
    _archives.append(archive)
    return Location(archive, posixpath.normpath(found["path"] or "/").replace("//", "/"))


def is_bare_archive(text: str) -> bool:
    """Whether a path names an archive, and no directory in it."""
    return text.endswith(".tar")


def named_archives() -> Sequence[TarArchive]:
    """The archives that were named since the last :func:`forget_archives`, each once."""
    return list(dict.fromkeys(_archives))


def forget_archives() -> None:
    """Begin a new list of :func:`named_archives`."""
    _archives.clear()
