"""Locations as people name them: paths of this machine and in archives, and URIs."""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kdump.storage.local_disk import local
from kdump.storage.location import Location

if TYPE_CHECKING:
    from kdump.storage.object_store import ObjectStore
    from kdump.storage.tar_archive import TarArchive

_STORE_URI: Final = re.compile(r"(s3|gs|gcs|abfss?)://[^/]|(hdfs|viewfs)://", re.DOTALL)
_IN_ARCHIVE: Final = re.compile(
    r"(?P<archive>.*?\.(?:tar(?:\.(?:gz|zst|xz))?|tgz|tzst|txz))!(?P<path>/.*)?", re.DOTALL
)

_archives: Final[list[TarArchive]] = []
_stores: Final[list[ObjectStore]] = []
_spool: Final[list[Path]] = []
"""The directory for unpacked archives, if one was named."""


def parse_location(text: str) -> Location:
    """The location that a path names; it may not exist.

    Args:
        text: a path of this machine, ``ARCHIVE.tar!/PATH``, or a URI such as
            ``s3://BUCKET/PATH``.

    Raises:
        KdumpError: it is in a compressed archive, which cannot be unpacked.
        OSError: a compressed archive cannot be read.
    """
    found = _IN_ARCHIVE.fullmatch(text)
    if found is None:
        return _outside_archives(text)
    from kdump.storage.tar_archive import TarArchive

    where = _outside_archives(found["archive"])
    if not found["archive"].endswith(".tar"):
        from kdump.storage.spooled_archive import spooled

        archive = TarArchive.named(spooled(where, _spool[0] if _spool else None), str(where))
    else:
        archive = TarArchive.named(where)
    _archives.append(archive)
    return Location(archive, posixpath.normpath(found["path"] or "/").replace("//", "/"))


def _outside_archives(text: str) -> Location:
    if not is_store_uri(text):
        return local(text)
    from kdump.storage.object_store import ObjectStore, parse_store_uri

    location = parse_store_uri(text)
    assert isinstance(location.storage, ObjectStore)
    if location.storage not in _stores:
        _stores.append(location.storage)
    return location


def is_store_uri(text: str) -> bool:
    """Whether a path is a URI of an object store."""
    return _STORE_URI.match(text) is not None


def is_bare_archive(text: str) -> bool:
    """Whether a path names an archive, and no directory in it."""
    return _IN_ARCHIVE.fullmatch(f"{text}!") is not None and "!" not in text


def named_archives() -> Sequence[TarArchive]:
    """The archives that were named since the last :func:`forget_places`, each once."""
    return list(dict.fromkeys(_archives))


def unpacked_archives() -> Sequence[tuple[str, int]]:
    """The compressed archives that are unpacked now, and how many bytes that takes."""
    if "kdump.storage.spooled_archive" not in sys.modules:
        return ()
    from kdump.storage.spooled_archive import spooled_archives

    return spooled_archives()


def named_stores() -> Sequence[ObjectStore]:
    """The object stores that were named since the last :func:`forget_places`, each once."""
    return tuple(_stores)


def spool_into(folder: Path) -> None:
    """Unpack compressed archives into a directory from now on."""
    _spool[:] = [folder]


def forget_places() -> None:
    """Begin a new run: nothing was named, and what was listed is asked for again.

    Unpacked archives are removed.
    """
    _spool.clear()
    if "kdump.storage.spooled_archive" in sys.modules:
        from kdump.storage.spooled_archive import remove_spooled

        remove_spooled()
    for store in _stores:
        store.forget()
    _stores.clear()
    _archives.clear()
