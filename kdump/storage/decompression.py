"""Compressed files as the pieces that they were made of, in bounded memory.

Every checksum is checked, and the end has to be there: what the decompressors of the standard
library and of zstd pass over in silence (an incomplete last frame, other data after the end) is
damage here.
"""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final

from kdump.storage.byte_source import ByteSource

_READ_BYTES: Final = 1 << 20
_PIECE_BYTES: Final = 64 << 10
"""What is decompressed together: so much is lost before a damaged byte."""
_FED_BYTES: Final = 4 << 10
"""Of zstd, whose decompressor bounds no output: at most 32,768 times as much comes out."""
_MOST_MEMORY_BYTES: Final = 1 << 30
"""For the dictionary of xz; its highest level needs a sixteenth of it."""


class CompressedDataError(Exception):
    """Compressed data is damaged or incomplete; says what is wrong."""


def decompressed_pieces(source: ByteSource, kind: str) -> Iterator[bytes]:
    """Decompress a file, which may be several compressed ones after each other.

    Args:
        kind: ``gzip``, ``xz`` or ``zstd``.

    Raises:
        CompressedDataError: it is damaged, after all pieces before the damage.
        OSError: it cannot be read.
    """
    if kind == "gzip":
        yield from _parts(source, lambda: zlib.decompressobj(wbits=31), _gzip_pieces, zlib.error)
    elif kind == "xz":
        yield from _parts(source, _new_xz, _xz_pieces, lzma.LZMAError)
    else:
        import zstandard

        decompressor = zstandard.ZstdDecompressor()
        yield from _parts(source, decompressor.decompressobj, _zstd_pieces, zstandard.ZstdError)


def _parts(
    source: ByteSource,
    new: Callable[[], Any],
    pieces: Callable[[Any, bytes], Generator[bytes, None, bytes]],
    error: type[Exception],
) -> Iterator[bytes]:
    """Decompress one part after the other; zeroes may be between them, and at the end."""
    position = 0
    part = None
    while data := _read(source, position):
        position += len(data)
        while data := data if part else data.lstrip(b"\0"):
            part = part or new()
            try:
                data = yield from pieces(part, data)
            except error as problem:
                what = f"damaged before byte {position} ({problem})"
                raise CompressedDataError(what) from None
            if part.eof:
                part = None
    if part is not None:
        raise CompressedDataError("the file ends too early")


def _read(source: ByteSource, position: int) -> bytes:
    data = bytearray(min(_READ_BYTES, max(0, source.size_bytes - position)))
    return bytes(data[: source.read_into(memoryview(data), position)])


def _gzip_pieces(part: Any, data: bytes) -> Generator[bytes, None, bytes]:
    """Decompress up to the end of a part; gives what follows it."""
    while True:
        piece = part.decompress(data, _PIECE_BYTES)
        yield piece
        data = part.unconsumed_tail
        if part.eof or (not data and len(piece) < _PIECE_BYTES):
            return bytes(part.unused_data)


def _new_xz() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, _MOST_MEMORY_BYTES)


def _xz_pieces(part: lzma.LZMADecompressor, data: bytes) -> Generator[bytes, None, bytes]:
    while True:
        yield part.decompress(data, _PIECE_BYTES)
        data = b""
        if part.eof or part.needs_input:
            return part.unused_data


def _zstd_pieces(part: Any, data: bytes) -> Generator[bytes, None, bytes]:
    for start in range(0, len(data), _FED_BYTES):
        yield part.decompress(data[start : start + _FED_BYTES])
        if part.eof:
            return bytes(part.unused_data) + data[start + _FED_BYTES :]
    return b""
