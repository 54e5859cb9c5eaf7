"""Locations as people name them: paths of this machine and in archives, and URIs."""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kdump.storage.local_disk import LOCAL_DISK, local
from kdump.storage.location import Location, NotLocalError
from kdump.words import shell_command, shell_words

if TYPE_CHECKING:
    from kdump.storage.object_store import ObjectStore
    from kdump.storage.request_counts import RequestCounts
    from kdump.storage.tar_archive import TarArchive

_STORE_URI: Final = re.compile(r"(s3|gs|gcs|abfss?)://[^/]|(hdfs|viewfs)://", re.DOTALL)
_IN_ARCHIVE: Final = re.compile(
    r"(?P<archive>.*?\.(?:tar(?:\.(?:gz|zst|xz))?|tgz|tzst|txz))!(?P<path>/.*)?", re.DOTALL
)
_OBJECT_STORE: Final = "kdump.storage.object_store"
"""Imported only where a store is used."""
_CONCURRENT_READS: Final = 16
"""Each waits tens of milliseconds; servers limit how many a client may have."""

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
    if _is_compressed(found):
        from kdump.storage.spooled_archive import spooled

        archive = TarArchive.named(spooled(where, _spool[0] if _spool else None), str(where))
    else:
        archive = TarArchive.named(where)
    _archives.append(archive)
    return Location(archive, _path_in_archive(found))


def require_local(text: str) -> None:
    """Refuse a path of another place by its name: no archive is unpacked, and no store is asked.

    Raises:
        NotLocalError: it is not on a local disk.
    """
    found = _IN_ARCHIVE.fullmatch(text)
    if found is not None:
        name = f"{_outside_archives(found['archive'])}!{_path_in_archive(found)}"
        raise not_local(name)
    location = _outside_archives(text)
    if location.storage != LOCAL_DISK:
        raise not_local(str(location))


def not_local(name: str) -> NotLocalError:
    """The refusal of a path that is not on a local disk, with the command that copies it to one."""
    base = name.rstrip("/").rpartition("/")[2]
    is_whole = name.endswith("!/") or (is_store_uri(name) and name.count("/") == 2)
    # A name that looks like an option would be taken for one.
    target = "copy" if is_whole else f"./{base}" if base.startswith("-") else base
    command = kdump_command("copy", [name, target])
    return NotLocalError(f"{name} is not on a local disk; copy it to one first: {command}")


def kdump_command(words: str, arguments: Iterable[object]) -> str:
    """A command to copy into a shell, with ``--spool`` where it needs that.

    Args:
        words: of the command, as they are.
        arguments: paths and other words, which are quoted.
    """
    texts = [str(each) for each in arguments]
    archives = filter(None, map(_IN_ARCHIVE.fullmatch, texts))
    if any(map(_is_compressed, archives)):
        words = f"{shell_words(['--spool', _spool[0] if _spool else '.'])} {words}"
    return shell_command(words, texts)


def _is_compressed(named: re.Match[str]) -> bool:
    return not named["archive"].endswith(".tar")


def _path_in_archive(named: re.Match[str]) -> str:
    return posixpath.normpath(named["path"] or "/").replace("//", "/")


def list_again() -> None:
    """List object stores anew when they are next asked: what was named may have been changed."""
    for store in _stores:
        store.list_again()


def ask_again() -> None:
    """List object stores again where they were listed before: they may have been changed."""
    for store in _stores:
        store.forget()


def _outside_archives(text: str) -> Location:
    if not is_store_uri(text):
        return local(text)
    from kdump.storage.object_store import ObjectStore, parse_store_uri

    location = parse_store_uri(text)
    assert isinstance(location.storage, ObjectStore)
    if location.storage not in _stores:
        _stores.append(location.storage)
    return location


def text_of(location: Location) -> str:
    """The text that :func:`parse_location` reads as a location; keeps the credentials of a URI."""
    from kdump.storage.object_store import ObjectStore

    absolute = location.as_absolute()
    if isinstance(location.storage, ObjectStore):
        return location.storage.uri_of(absolute.path)
    return str(absolute)


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


def concurrent_reads() -> int:
    """How many reads are worth making at the same time: 1 unless an object store was named."""
    return _CONCURRENT_READS if _stores else 1


def take_request_counts() -> Mapping[str, RequestCounts]:
    """What this process asked of object stores since the last call, by their names."""
    if _OBJECT_STORE not in sys.modules:
        return {}
    from kdump.storage import object_store

    return object_store.take_request_counts()


def add_request_counts(counts: Mapping[str, RequestCounts]) -> None:
    """Count what a worker has taken as requests of this process."""
    if counts:
        from kdump.storage import object_store

        object_store.add_request_counts(counts)


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
