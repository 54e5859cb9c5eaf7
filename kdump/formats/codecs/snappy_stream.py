"""snappy: snappy-java's stream, 16 bytes of header, then length-prefixed blocks of up to 32 KiB.

A bare snappy block is read too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from kdump.formats.buffer import Buffer
from kdump.formats.codecs.limits import over_limit
from kdump.formats.errors import FormatError

_MAGIC: Final = b"\x82SNAPPY\x00"
_VERSIONS: Final = struct.Struct(">ii")  # written, oldest that can read it
_HEADER: Final = _MAGIC + _VERSIONS.pack(1, 1)
_BLOCK_SIZE: Final = struct.Struct(">i")
_BLOCK_BYTES: Final = 32 * 1024
# The densest element of a block is a copy of 64 bytes that takes 3.
_MAX_EXPANSION: Final = 22


def _block(block: memoryview, position: int, limit_bytes: int | None = None) -> bytes:
    """One bare snappy block; ``position`` is where it begins, for the error."""
    import snappy

    claimed_bytes = 0
    for index, byte in enumerate(block[:5]):
        claimed_bytes |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            break
    else:
        raise FormatError("snappy block has no length", position=position)
    if claimed_bytes > _MAX_EXPANSION * len(block):
        raise FormatError(
            "snappy block claims more than it can hold",
            position=position,
            expected=f"at most {_MAX_EXPANSION * len(block)}",
            found=claimed_bytes,
        )
    if limit_bytes is not None and claimed_bytes > limit_bytes:
        raise over_limit(limit_bytes, position)
    try:
        out: bytes = snappy.uncompress(block)
    except snappy.UncompressError as error:
        cause = error.__cause__ or error
        raise FormatError(f"snappy: {cause}", position=position) from None
    return out


def _blocks(view: memoryview) -> Iterator[tuple[int, int]]:
    """Find start and end of every block after the header of a snappy-java stream."""
    position = len(_HEADER)
    while len(view) - position >= _BLOCK_SIZE.size:
        if bytes(view[position : position + 4]) == _MAGIC[:4]:
            # Streams may be joined; a header in the middle has its version checked.
            header = bytes(view[position : position + len(_HEADER)])
            if len(header) < len(_HEADER):
                raise FormatError("snappy header ends early", position=position)
            if header[: len(_MAGIC)] != _MAGIC:
                return
            version, _ = _VERSIONS.unpack_from(header, len(_MAGIC))
            if version < 1:
                raise FormatError(
                    "snappy stream has an unknown version",
                    position=position,
                    expected="1 or more",
                    found=version,
                )
            position += len(_HEADER)
            continue
        (size,) = _BLOCK_SIZE.unpack_from(view, position)
        start = position + _BLOCK_SIZE.size
        if not 0 <= size <= len(view) - start:
            raise FormatError(
                "snappy block reaches past its stream",
                position=position,
                expected=f"0 to {len(view) - start}",
                found=size,
            )
        position = start + size
        yield start, position


def _is_framed(view: memoryview) -> bool:
    return len(view) >= len(_HEADER) and bytes(view[:8]) == _MAGIC


def whole(data: Buffer, limit_bytes: int, magic: int) -> bytes:
    """As :func:`~kdump.formats.compression.decompress`."""
    view = memoryview(data)
    if not _is_framed(view):
        return _block(view, 0, limit_bytes)
    pieces = []
    left_bytes = limit_bytes
    for start, end in _blocks(view):
        piece = _block(view[start:end], start, left_bytes)
        left_bytes -= len(piece)
        pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def chunks(data: Buffer, chunk_bytes: int, magic: int) -> Iterator[bytes]:
    """As :func:`~kdump.formats.compression.decompress_chunks`."""
    view = memoryview(data)
    if not _is_framed(view):
        blocks: Iterator[tuple[int, int]] = iter(((0, len(view)),))
    else:
        blocks = _blocks(view)
    for start, end in blocks:
        piece = _block(view[start:end], start)
        if piece:
            yield piece


def compress(data: Buffer, magic: int) -> bytes:
    """As :func:`~kdump.formats.compression.compress`."""
    import snappy

    view = memoryview(data)
    out = bytearray(_HEADER)
    for start in range(0, len(view), _BLOCK_BYTES):
        block = snappy.compress(view[start : start + _BLOCK_BYTES])
        out += _BLOCK_SIZE.pack(len(block))
        out += block
    return bytes(out)
