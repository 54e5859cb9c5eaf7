"""The headers of a tar archive: POSIX ``ustar`` and ``pax``, and GNU's formats.

The archive may be anybody's. Names, sizes and counts in it are claims: each is checked before
anything is allocated or skipped.

:mod:`tarfile` decodes single headers. It does not walk here, because it reads extended headers of
any size and follows negative sizes backwards.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from typing import Final, NamedTuple

from msgspec import Struct

from kdump.storage.byte_source import ByteSource, SparseSource
from kdump.storage.tar_sparse import (
    SparseMap,
    StoredPart,
    TarDamageError,
    read_exactly,
    read_gnu_sparse_map,
    read_pax_sparse_map,
)

BLOCK_BYTES: Final = tarfile.BLOCKSIZE
_LARGEST_EXTENDED_BYTES: Final = 1 << 20
_CHECKED_BYTES: Final = 1 << 20
_GNU_NAMES: Final = {tarfile.GNUTYPE_LONGNAME: "path", tarfile.GNUTYPE_LONGLINK: "linkpath"}
_PAX_HEADERS: Final = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)
_WITH_DATA: Final = (
    tarfile.REGTYPE,
    tarfile.AREGTYPE,
    tarfile.CONTTYPE,
    tarfile.GNUTYPE_SPARSE,
)
_TIME: Final = re.compile(r"(-?\d{1,18})(?:\.(\d+))?")
_SIZE: Final = re.compile(r"\d{1,18}")
_RECORD: Final = re.compile(rb"(\d{1,7}) ([^=]+)=")


class TarHeader(NamedTuple):
    """One member, as its headers describe it.

    Attributes:
        name: as in the archive; bytes that are not UTF-8 are surrogates.
        type: one of the types of :mod:`tarfile`; a sparse file is a regular one.
        link_name: what a link leads to.
        modified_ns: in nanoseconds since the epoch.
        size_bytes: of a regular file, with its holes.
        pieces: where the bytes of a regular file are.
        missing_bytes: how many of them are past the end of the archive.
        is_sparse: whether its holes are not stored.
    """

    name: str
    type: bytes
    link_name: str
    modified_ns: int
    size_bytes: int
    pieces: tuple[StoredPart, ...]
    missing_bytes: int
    is_sparse: bool


def tar_headers(archive: ByteSource) -> Iterator[TarHeader]:
    """Walk the headers of an archive.

    Raises:
        TarDamageError: a header is damaged, or the end is missing; what follows is not reached.
        OSError: reading fails.
    """
    walk = _Walk(archive)
    while (header := walk.next_header()) is not None:
        yield header


class _Walk(Struct):
    archive: ByteSource
    position: int = 0
    common: dict[str, str] | None = None
    """Fields of a pax header for all members after it."""

    def next_header(self) -> TarHeader | None:
        fields = dict(self.common or {})
        while True:
            block = self._block()
            if not block.strip(b"\0") and len(block) == BLOCK_BYTES:
                self._require_end()
                return None
            try:
                info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
            except (tarfile.HeaderError, ValueError, IndexError, OverflowError):
                raise TarDamageError(f"no valid header at byte {self.position}") from None
            if info.size < 0:
                raise TarDamageError(f"a negative size at byte {self.position}")
            start = self.position + BLOCK_BYTES
            if info.type in _GNU_NAMES:
                name = self._extended(start, info.size).partition(b"\0")[0]
                fields[_GNU_NAMES[info.type]] = name.decode("utf-8", "surrogateescape")
            elif info.type in _PAX_HEADERS:
                fields |= _pax_fields(self._extended(start, info.size), self.position)
            elif info.type == tarfile.XGLTYPE:
                found = _pax_fields(self._extended(start, info.size), self.position)
                self.common = (self.common or {}) | found
                fields = self.common | fields
            else:
                return self._header(info, block, fields, start)
            self.position = _after(start, info.size)

    def _require_end(self) -> None:
        """Require that nothing but zeroes follows the end marker, such as another archive."""
        end = self.archive.size_bytes
        ranges = (
            self.archive.data_ranges(self.position, end)
            if isinstance(self.archive, SparseSource)
            else iter([(self.position, end)])
        )
        for start, stop in ranges:
            for at in range(start, stop, _CHECKED_BYTES):
                piece = read_exactly(self.archive, at, min(_CHECKED_BYTES, stop - at))
                if piece.count(0) < len(piece):
                    raise TarDamageError(f"more data after the end marker at byte {self.position}")

    def _block(self) -> bytes:
        left = self.archive.size_bytes - self.position
        if left <= 0 and self.position:
            raise TarDamageError("no end marker")
        return read_exactly(self.archive, self.position, min(BLOCK_BYTES, max(left, 0)))

    def _extended(self, start: int, size_bytes: int) -> bytes:
        if size_bytes > _LARGEST_EXTENDED_BYTES:
            raise TarDamageError(f"an extended header of {size_bytes} bytes at byte {start}")
        if start + size_bytes > self.archive.size_bytes:
            raise TarDamageError(f"an incomplete extended header at byte {start}")
        return read_exactly(self.archive, start, size_bytes)

    def _header(
        self, info: tarfile.TarInfo, block: bytes, fields: dict[str, str], start: int
    ) -> TarHeader:
        stored_bytes = info.size if info.type in _WITH_DATA or not _is_known(info.type) else 0
        if info.type in _WITH_DATA and _SIZE.fullmatch(fields.get("size", "")):
            stored_bytes = int(fields["size"])
        sparse: SparseMap | None = None
        end = start + stored_bytes
        if info.type == tarfile.GNUTYPE_SPARSE:
            sparse = read_gnu_sparse_map(self.archive, block, start, stored_bytes)
            end = sparse.end
        elif info.type in _WITH_DATA and any(each.startswith("GNU.sparse.") for each in fields):
            sparse = read_pax_sparse_map(self.archive, fields, start, stored_bytes)
        pieces = (StoredPart(0, start, stored_bytes),) if sparse is None else sparse.pieces
        self.position = _after(end, 0)
        return TarHeader(
            name=fields.get("GNU.sparse.name") or fields.get("path") or info.name,
            type=tarfile.REGTYPE if info.type in _WITH_DATA else info.type,
            link_name=fields.get("linkpath") or info.linkname,
            modified_ns=_modified_ns(fields.get("mtime", ""), info.mtime),
            size_bytes=stored_bytes if sparse is None else sparse.size_bytes,
            pieces=pieces if info.type in _WITH_DATA else (),
            missing_bytes=max(0, end - self.archive.size_bytes),
            is_sparse=sparse is not None,
        )


def _is_known(kind: bytes) -> bool:
    return kind in tarfile.SUPPORTED_TYPES


def _after(start: int, size_bytes: int) -> int:
    """The beginning of the block after some data."""
    return -(-(start + size_bytes) // BLOCK_BYTES) * BLOCK_BYTES


def _pax_fields(data: bytes, position: int) -> dict[str, str]:
    """The fields of a pax header: ``LENGTH NAME=VALUE`` in lines."""
    fields: dict[str, str] = {}
    at = 0
    while at < len(data) and data[at]:
        found = _RECORD.match(data, at)
        after = at + int(found[1]) if found else 0
        if found is None or not found.end() < after <= len(data) or data[after - 1] != 0x0A:
            raise TarDamageError(f"a damaged extended header at byte {position}")
        value = data[found.end() : after - 1]
        fields[found[2].decode("utf-8", "replace")] = value.decode("utf-8", "surrogateescape")
        at = after
    return fields


def _modified_ns(precise: str, seconds: float) -> int:
    """The time of a pax header to the nanosecond; that of the plain header without one."""
    found = _TIME.fullmatch(precise)
    if found is None:
        return int(seconds) * 1_000_000_000
    fraction = int((found[2] or "0")[:9].ljust(9, "0"))
    whole = int(found[1]) * 1_000_000_000
    return whole - fraction if found[1].startswith("-") else whole + fraction
