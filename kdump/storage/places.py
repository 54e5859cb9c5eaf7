"""Locations as people name them: paths of this machine and in archives, and URIs."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kdump.storage.local_disk import local
from kdump.storage.location import Location

if TYPE_CHECKING:
    from kdump.storage.object_store import ObjectStore
    from kdump.storage.tar_archive import TarArchive

_STORE_URI: Final = re.compile(r"(s3|gs|gcs|abfss?)://[^/]|(hdfs|viewfs)://", re.DOTALL)
_IN_ARCHIVE: Final = re.compile(r"(?P<archive>.*?\.tar)!(?P<path>/.*)?", re.DOTALL)

_archives: Final[list[TarArchive]] = []
_stores: Final[list[ObjectStore]] = []


def parse_location(text: str) -> Location:
    """The location that a path names; it may not exist.

    Args:
        text: a path of this machine, ``ARCHIVE.tar!/PATH``, or a URI such as
            ``s3://BUCKET/PATH``.
    """
    found = _IN_ARCHIVE.fullmatch(text)
    if found is None:
        return _outside_archives(text)
    from kdump.storage.tar_archive import TarArchive

    archive = TarArchive.named(_outside_archives(found["archive"]))
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
    return text.endswith(".tar")


def named_archives() -> Sequence[TarArchive]:
    """The archives that were named since the last :func:`forget_places`, each once."""
    return list(dict.fromkeys(_archives))


def named_stores() -> Sequence[ObjectStore]:
    """The object stores that were named since the last :func:`forget_places`, each once."""
    return tuple(_stores)


def forget_places() -> None:
    """Begin a new run: nothing was named, and what was listed is asked for again."""
    for store in _stores:
        store.forget()
    _stores.clear()
    _archives.clear()
