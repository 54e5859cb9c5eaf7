"""Locations as people name them: paths of this machine and in archives, and URIs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kdump.errors import UsageProblem
from kdump.storage.local_disk import LOCAL_DISK, local
from kdump.storage.location import Location, NotLocalError
from kdump.storage.parallel_reads import CONCURRENT_READS
from kdump.storage.place_names import (
    is_store_uri,
    name_in_archive,
    name_spool_folder,
    refusal_of,
    split_archive,
    spool_folder,
)

if TYPE_CHECKING:
    from kdump.storage.object_store import ObjectStore
    from kdump.storage.request_counts import RequestCounts
    from kdump.storage.spooled_archive import UnpackedArchive
    from kdump.storage.tar_archive import TarArchive

_OBJECT_STORE: Final = "kdump.storage.object_store"
"""Imported only where a store is used."""

_SNAPSHOT_PLACE: Final = "kdump.storage.snapshot_place"
"""Likewise."""

_archives: Final[list[TarArchive]] = []
_stores: Final[list[ObjectStore]] = []


def parse_location(text: str) -> Location:
    """The location that a path names; it may not exist.

    Args:
        text: a path of this machine, ``ARCHIVE.tar!/PATH``, ``REPOSITORY!SNAPSHOT/PATH``, or a URI
            such as ``s3://BUCKET/PATH``; all with options after the last question mark.

    Raises:
        KdumpError: it is in a compressed archive, which cannot be unpacked, or in a repository
            that has no such snapshot, or is damaged.
        OSError: a compressed archive or a repository cannot be read.
    """
    location = _outside_snapshots(text)
    if "!" not in location.path:
        return location
    from kdump.storage.snapshot_place import in_snapshot

    return in_snapshot(location)


def parse_locations(texts: Iterable[str]) -> list[Location]:
    """The locations that paths name: several for a snapshot of several log directories.

    Raises:
        KdumpError, OSError: as :func:`parse_location`.
    """
    return with_log_directories(map(parse_location, texts))


def with_log_directories(locations: Iterable[Location]) -> list[Location]:
    """The same locations; instead of a snapshot that is named as a whole, its log directories.

    Raises:
        UsageProblem: a snapshot has none.
        RepositoryError, OSError: it cannot be read.
    """
    found: list[Location] = []
    for each in locations:
        log_dirs = log_directories_in(each)
        if log_dirs == []:
            raise UsageProblem(f"{each}: the snapshot has no log directories")
        found += [each] if log_dirs is None else log_dirs
    return found


def log_directories_in(location: Location) -> list[Location] | None:
    """The log directories of a snapshot that is named as a whole; None for any other location.

    Args:
        location: as :func:`parse_location` gives it.
    """
    if _SNAPSHOT_PLACE not in sys.modules:
        return None
    from kdump.storage.snapshot_place import snapshot_named_whole

    place = snapshot_named_whole(location)
    return None if place is None else place.log_directories


def repository_of(location: Location) -> Location | None:
    """The repository that a location is in, if it is in a snapshot."""
    if _SNAPSHOT_PLACE not in sys.modules:
        return None
    from kdump.storage.snapshot_place import SnapshotPlace

    place = location.storage
    return place.repository if isinstance(place, SnapshotPlace) else None


def _outside_snapshots(text: str) -> Location:
    found = split_archive(text)
    if found is None:
        return _outside_archives(text)
    from kdump.storage.tar_archive import TarArchive

    where = _outside_archives(found.archive)
    if found.is_compressed:
        from kdump.storage.spooled_archive import spooled

        archive = TarArchive.named(spooled(where, spool_folder()), where)
    else:
        archive = TarArchive.named(where)
    _archives.append(archive)
    return Location(archive, found.path)


def require_local(text: str) -> None:
    """Refuse a path of another place by its name: no archive is unpacked, and no store is asked.

    Raises:
        NotLocalError: it is not on a local disk.
    """
    found = split_archive(text)
    location = _outside_archives(text if found is None else found.archive)
    name, typed = str(location), location.typed
    if found is not None:
        name = f"{name}!{found.path}"
        typed = typed._replace(text=name_in_archive(typed.text, found.path))
    elif location.storage == LOCAL_DISK and not _is_in_snapshot(location):
        return
    raise NotLocalError(refusal_of(name, typed))


def _is_in_snapshot(location: Location) -> bool:
    if "!" not in location.path:
        return False
    from kdump.storage.snapshot_place import snapshot_around

    return snapshot_around(location) is not None


def list_again() -> None:
    """Have object stores listed again when they are next asked: they may have been changed."""
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
    if repository_of(location) is not None:
        from kdump.storage.snapshot_place import SnapshotPlace

        assert isinstance(location.storage, SnapshotPlace)
        place = location.storage
        named = name_in_archive(text_of(place.repository), place.snapshot)
        return name_in_archive(named, absolute.path, separator="")
    return str(absolute)


def named_archives() -> Sequence[TarArchive]:
    """The archives that were named since the last :func:`forget_places`, each once."""
    return list(dict.fromkeys(_archives))


def missing_in_archive(location: Location) -> list[str]:
    """What the archive that a location is in lacks, as far as it was listed; empty outside of any.

    Args:
        location: as :func:`parse_location` gives it.
    """
    if "kdump.storage.tar_archive" not in sys.modules:
        return []
    from kdump.storage.tar_archive import TarArchive

    archive = location.storage
    if not isinstance(archive, TarArchive):
        return []
    return [f"{archive.name}: {each.what}" for each in archive.problems if each.is_failure]


def missing_in_archives(paths: Iterable[str]) -> Iterator[str]:
    """As :func:`missing_in_archive`, for places by the text that names them."""
    for path in paths:
        yield from missing_in_archive(parse_location(path))


def cut_places() -> list[str]:
    """Why the places that were named did not come whole, as far as they were listed."""
    unpacked = [
        f"{each.name}: its compression is damaged or incomplete: {each.damage}"
        for each in unpacked_archives()
        if each.damage is not None
    ]
    archives = [
        f"{archive.name}: {each.what}"
        for archive in named_archives()
        for each in archive.problems
        if each.is_cut
    ]
    stores = [each.what for store in _stores for each in store.problems if each.is_cut]
    return [*unpacked, *archives, *stores]


def unpacked_archives() -> Sequence[UnpackedArchive]:
    """The compressed archives that are unpacked now."""
    if "kdump.storage.spooled_archive" not in sys.modules:
        return ()
    from kdump.storage.spooled_archive import spooled_archives

    return spooled_archives()


def named_stores() -> Sequence[ObjectStore]:
    """The object stores that were named since the last :func:`forget_places`, each once."""
    return tuple(_stores)


def concurrent_reads() -> int:
    """How many reads are worth making at the same time: 1 unless an object store was named."""
    return CONCURRENT_READS if _stores else 1


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
    name_spool_folder(folder)


def forget_places() -> None:
    """Begin a new run: nothing was named, and what was listed is asked for again.

    Unpacked archives are removed.
    """
    name_spool_folder(None)
    if "kdump.storage.spooled_archive" in sys.modules:
        from kdump.storage.spooled_archive import remove_spooled

        remove_spooled()
    if _SNAPSHOT_PLACE in sys.modules:
        from kdump.storage.snapshot_place import forget_snapshots

        forget_snapshots()
    for store in _stores:
        store.forget()
    _stores.clear()
    _archives.clear()
