"""Records that are not compressed."""

from __future__ import annotations

from collections.abc import Iterator

from kdump.formats.buffer import Buffer
from kdump.formats.codecs.limits import over_limit


def whole(data: Buffer, limit_bytes: int, magic: int) -> bytes:
    """As :func:`~kdump.formats.compression.decompress`."""
    if len(data) > limit_bytes:
        raise over_limit(limit_bytes)
    return bytes(data)


def chunks(data: Buffer, chunk_bytes: int, magic: int) -> Iterator[bytes]:
    """As :func:`~kdump.formats.compression.decompress_chunks`."""
    view = memoryview(data)
    for start in range(0, len(view), chunk_bytes):
        yield bytes(view[start : start + chunk_bytes])


def compress(data: Buffer, magic: int) -> bytes:
    """As :func:`~kdump.formats.compression.compress`."""
    return bytes(data)
