"""gzip: RFC 1952, members one after the other; no time, operating system 255.

Bytes after the last member are ignored.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final

from kdump.formats.buffer import Buffer
from kdump.formats.codecs.limits import STEP_BYTES, joined, over_limit
from kdump.formats.errors import FormatError

_WINDOW_BITS: Final = 31  # 15, and 16 for "with gzip's header and trailer"
_MAGIC: Final = b"\x1f\x8b\x08"
_HEADER: Final = _MAGIC + bytes(6) + b"\xff"
_TRAILER: Final = struct.Struct("<II")
# java.util.zip.GZIPInputStream looks for another member only if more bytes follow than a header and
# a trailer take.
_MEMBER_OVERHEAD_BYTES: Final = len(_HEADER) + _TRAILER.size
_INPUT_BYTES: Final = 1 << 16


def whole(data: Buffer, limit_bytes: int, magic: int) -> bytes:
    """As :func:`~kdump.formats.compression.decompress`."""
    member = zlib.decompressobj(_WINDOW_BITS)
    try:
        out = member.decompress(data, limit_bytes + 1)
    except zlib.error as error:
        raise FormatError(f"gzip: {error}") from None
    if len(out) > limit_bytes:
        raise over_limit(limit_bytes)
    if not member.eof:
        raise FormatError("gzip member ends early", found=f"{len(data)} bytes")
    if member.unused_data:
        return joined(chunks(data, STEP_BYTES, magic), limit_bytes)
    return out


def chunks(data: Buffer, chunk_bytes: int, magic: int) -> Iterator[bytes]:
    """As :func:`~kdump.formats.compression.decompress_chunks`."""
    view = memoryview(data)
    start = position = 0
    while True:
        member = zlib.decompressobj(_WINDOW_BITS)
        pending: Buffer = b""
        while True:
            if not pending:
                # In slices: the library copies what a call leaves unconsumed.
                pending = view[position : position + _INPUT_BYTES]
                position += len(pending)
            try:
                piece = member.decompress(pending, chunk_bytes)
            except zlib.error as error:
                raise FormatError(f"gzip: {error}", position=start) from None
            pending = member.unconsumed_tail
            if piece:
                yield piece
            if member.eof:
                break
            if not piece and not pending and position == len(view):
                raise FormatError(
                    "gzip member ends early", position=start, found=f"{len(view) - start} bytes"
                )
        start = position = position - len(member.unused_data)
        if (
            len(view) - position <= _MEMBER_OVERHEAD_BYTES
            or bytes(view[position : position + len(_MAGIC)]) != _MAGIC
        ):
            return


def compress(data: Buffer, magic: int) -> bytes:
    """As :func:`~kdump.formats.compression.compress`."""
    deflate = zlib.compressobj(wbits=-15)
    return b"".join(
        (
            _HEADER,
            deflate.compress(data),
            deflate.flush(),
            _TRAILER.pack(zlib.crc32(data), len(data) & 0xFFFFFFFF),
        )
    )
