"""Compressed tar archives, unpacked into a file that nobody else sees, for as long as kdump runs.

What is compressed cannot be read from the middle. The file has no name where the system allows it
(``/proc``), so that nothing is left however the process ends; elsewhere :func:`remove_spooled`
removes it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import IO, Final, NamedTuple

from msgspec import Struct

from kdump.errors import KdumpError
from kdump.phases import phase
from kdump.storage.decompression import CompressedDataError, decompressed_pieces
from kdump.storage.local_disk import local
from kdump.storage.location import Location, StoredFile

_MAGICS: Final = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
_CHECKED_BYTES: Final = 64 << 20
_LEAST_FREE_BYTES: Final = 64 << 20
"""Unpacking stops before it fills a disk."""
_GIB: Final = 1 << 30


class SpoolError(KdumpError):
    """A compressed archive cannot be unpacked."""


class Spooled(Struct, frozen=True):
    """An unpacked archive.

    Attributes:
        name: of the compressed archive, as it was given.
        file: keeps it open.
        path: its name, if it has one.
        damage: why it is not whole; None if it is.
    """

    name: str
    location: Location
    file: IO[bytes]
    path: Path | None
    damage: str | None


_spooled: Final[dict[Location, Spooled]] = {}


def spooled(archive: Location, folder: Path | None) -> Location:
    """The plain archive in a compressed one; the archive itself if it is not compressed.

    Args:
        archive: which may not exist.
        folder: where to unpack to; None if none was named.

    Raises:
        SpoolError: no folder was named, or it has too little space.
        OSError: the archive cannot be read, or the folder cannot be written to.
    """
    absolute = archive.as_absolute()
    if absolute in _spooled:
        return _spooled[absolute].location
    if archive.kind() is None:
        return archive
    with archive.open_file() as source:
        kind = _kind_of(source)
        if kind is None:
            return archive
        if folder is None:
            raise SpoolError(
                f"{archive}: compressed archives are unpacked first: name a directory with space"
                " for it, as in 'kdump --spool DIR verify ...'"
            )
        made = _unpacked(source, kind, folder)
    _spooled[absolute] = made
    return made.location


class UnpackedArchive(NamedTuple):
    """An archive that is unpacked now.

    Attributes:
        name: as it was given.
        size_bytes: how much space that takes.
        damage: why it is not whole; None if it is.
    """

    name: str
    size_bytes: int
    damage: str | None


def spooled_archives() -> list[UnpackedArchive]:
    """The archives that are unpacked now."""
    return [UnpackedArchive(each.name, each.file.tell(), each.damage) for each in _spooled.values()]


def remove_spooled() -> None:
    """Remove all unpacked archives."""
    for each in _spooled.values():
        each.file.close()
        if each.path is not None:
            each.path.unlink(missing_ok=True)
    _spooled.clear()


def _kind_of(source: StoredFile) -> str | None:
    head = bytearray(6)
    count = source.read_into(memoryview(head), 0)
    return next((kind for magic, kind in _MAGICS.items() if head[:count].startswith(magic)), None)


def _unpacked(source: StoredFile, kind: str, folder: Path) -> Spooled:
    name = str(source.location)
    _require_space(name, folder, source.size_bytes)
    descriptor, text = tempfile.mkstemp(prefix="kdump-spool-", suffix=".tar", dir=folder)
    path: Path | None = Path(text)
    file = os.fdopen(descriptor, "w+b", buffering=0)
    try:
        location = local(text)
        if Path(f"/proc/self/fd/{descriptor}").exists():
            Path(text).unlink()
            path = None
            location = local(f"/proc/{os.getpid()}/fd/{descriptor}")
        with phase(f"unpacking {name} to {folder}", reading=source):
            damage = _unpack(source, kind, file, folder)
    except BaseException:
        file.close()
        Path(text).unlink(missing_ok=True)
        raise
    return Spooled(name, location, file, path, damage)


def _unpack(source: StoredFile, kind: str, target: IO[bytes], folder: Path) -> str | None:
    """Write the plain archive; returns why it ends before its end, or None."""
    name = str(source.location)
    unchecked = 0
    try:
        for piece in decompressed_pieces(source, kind):
            try:
                target.write(piece)
            except OSError as failure:
                raise OSError(failure.errno, failure.strerror, str(folder)) from None
            unchecked += len(piece)
            if unchecked >= _CHECKED_BYTES:
                unchecked = 0
                _require_space(name, folder, 0)
    except CompressedDataError as damage:
        return str(damage)
    return None


def _require_space(name: str, folder: Path, needed_bytes: int) -> None:
    """Refuse to fill a disk.

    Args:
        needed_bytes: what will be needed at least.
    """
    if not folder.is_dir():
        raise SpoolError(f"--spool {folder}: not a directory")
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < needed_bytes + _LEAST_FREE_BYTES:
        raise SpoolError(
            f"{name}: too little space to unpack it: {folder} has {free_bytes / _GIB:.1f} GiB free;"
            " name another directory with --spool"
        )
