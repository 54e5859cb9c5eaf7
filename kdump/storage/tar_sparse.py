"""Sparse files in tar archives: which parts are stored, and where.

Two of GNU tar's formats: the one of ``--format=gnu``, with the map in the header and in blocks
after it, and version 1.0 of ``--format=pax``, with the map before the data. Older ones are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kdump.storage.byte_source import ByteSource

_BLOCK_BYTES: Final = 512
_MOST_PIECES: Final = 100_000
_IN_HEADER: Final = (386, 4)
"""Where the map in a header begins, and how many pieces it has at most."""
_IN_EXTENSION: Final = (0, 21)
_NUMBER_BYTES: Final = 12
_REAL_SIZE_START: Final = 483
_HEADER_CONTINUES: Final = 482
_EXTENSION_CONTINUES: Final = 504
_NUMBER: Final = re.compile(rb"\d{1,18}")


class TarDamageError(Exception):
    """The headers of an archive cannot be followed any further; says what is wrong, and where."""


class StoredPart(NamedTuple):
    """Adjacent bytes of a file in an archive.

    Attributes:
        position: within the file.
        start: within the archive.
        length: how many bytes.
    """

    position: int
    start: int
    length: int


class SparseMap(NamedTuple):
    """What of a sparse file is stored.

    Attributes:
        size_bytes: of the file, with its holes.
        pieces: the parts that are stored, in order.
        end: where its data in the archive ends.
    """

    size_bytes: int
    pieces: tuple[StoredPart, ...]
    end: int


def read_exactly(archive: ByteSource, position: int, count: int) -> bytes:
    """Read some bytes.

    Raises:
        TarDamageError: the archive ends before.
        OSError: reading fails.
    """
    data = bytearray(count)
    if archive.read_into(memoryview(data), position) < count:
        raise TarDamageError(f"the archive ends inside the header at byte {position}")
    return bytes(data)


def read_gnu_sparse_map(
    archive: ByteSource, header: bytes, start: int, stored_bytes: int
) -> SparseMap:
    """The map of a member of the type ``S``.

    Args:
        start: where the header ends.
        stored_bytes: how much of the file is stored.

    Raises:
        TarDamageError: the map is damaged, or too long.
        OSError: reading fails.
    """
    numbers = _numbers(header, *_IN_HEADER)
    continues = header[_HEADER_CONTINUES]
    while continues:
        extension = read_exactly(archive, start, _BLOCK_BYTES)
        numbers += _numbers(extension, *_IN_EXTENSION)
        if len(numbers) > 2 * _MOST_PIECES:
            raise TarDamageError(f"a sparse file of too many parts at byte {start}")
        continues = extension[_EXTENSION_CONTINUES]
        start += _BLOCK_BYTES
    size_bytes = _number(header[_REAL_SIZE_START : _REAL_SIZE_START + _NUMBER_BYTES])
    return _map(numbers, size_bytes, start, stored_bytes)


def read_pax_sparse_map(
    archive: ByteSource, fields: Mapping[str, str], start: int, stored_bytes: int
) -> SparseMap:
    """The map of a member whose pax header says that it is sparse.

    Args:
        start: where the header ends.
        stored_bytes: how much is stored, the map included.

    Raises:
        TarDamageError: the map is damaged, too long, or of an older version.
        OSError: reading fails.
    """
    size_text = fields.get("GNU.sparse.realsize", "").encode("utf-8", "surrogateescape")
    version = fields.get("GNU.sparse.major"), fields.get("GNU.sparse.minor")
    if version != ("1", "0") or not _NUMBER.fullmatch(size_text):
        raise TarDamageError(f"a sparse file of an unknown format at byte {start}")
    lines: list[bytes] = []
    position, rest = start, b""
    needed = 1
    while len(lines) < needed:
        if position - start + _BLOCK_BYTES > stored_bytes:
            raise TarDamageError(f"a damaged map of a sparse file at byte {start}")
        *found, rest = (rest + read_exactly(archive, position, _BLOCK_BYTES)).split(b"\n")
        position += _BLOCK_BYTES
        lines += found
        if len(rest) > _BLOCK_BYTES:
            raise TarDamageError(f"a damaged map of a sparse file at byte {start}")
        if lines:
            count = int(lines[0]) if _NUMBER.fullmatch(lines[0]) else -1
            if not 0 <= count <= _MOST_PIECES:
                raise TarDamageError(f"a damaged map of a sparse file at byte {start}")
            needed = 1 + 2 * count
    if not all(map(_NUMBER.fullmatch, lines[1:needed])):
        raise TarDamageError(f"a damaged map of a sparse file at byte {start}")
    numbers = list(map(int, lines[1:needed]))
    return _map(numbers, int(size_text), position, stored_bytes - (position - start))


def _numbers(block: bytes, start: int, count: int) -> list[int]:
    """Pairs of a position and a size, up to the first that is empty."""
    found: list[int] = []
    for at in range(start, start + 2 * _NUMBER_BYTES * count, 2 * _NUMBER_BYTES):
        pair = block[at : at + 2 * _NUMBER_BYTES]
        if not pair[0]:
            break
        found += [_number(pair[:_NUMBER_BYTES]), _number(pair[_NUMBER_BYTES:])]
    return found


def _number(field: bytes) -> int:
    """A number in octal digits, or in binary if its first bit is set."""
    if field[0] & 0x80:
        return int.from_bytes(field[1:], "big") if field[0] == 0x80 else -1
    text = field.partition(b"\0")[0].strip()
    try:
        return int(text, 8) if text else 0
    except ValueError:
        return -1


def _map(numbers: Sequence[int], size_bytes: int, start: int, stored_bytes: int) -> SparseMap:
    """Check a map: the parts are in order, apart, and all of what is stored."""
    pieces: list[StoredPart] = []
    reached = 0
    at = start
    for position, count in zip(numbers[::2], numbers[1::2], strict=True):
        if position < reached or count < 0:
            raise TarDamageError(f"a damaged map of a sparse file at byte {start}")
        reached = position + count
        if count:
            pieces.append(StoredPart(position, at, count))
        at += count
    if reached > size_bytes or at - start != stored_bytes:
        raise TarDamageError(f"a damaged map of a sparse file at byte {start}")
    return SparseMap(size_bytes, tuple(pieces), at)
