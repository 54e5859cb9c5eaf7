"""The codecs of record batches and message sets, with Kafka's framing for each.

======  ======  ==================================================================
codec   number  framing
======  ======  ==================================================================
none    0       the bytes themselves
gzip    1       RFC 1952, members one after the other; no time, operating system 255
snappy  2       snappy-java's stream: 16 bytes of header, then length-prefixed
                blocks of up to 32 KiB; a bare snappy block is read too
lz4     3       LZ4 frames of independent blocks; the checksum of the frame
                descriptor is wrong where ``magic`` is 0, and not checked
zstd    4       Zstandard frames without content size, one after the other
======  ======  ==================================================================

Follows ``org.apache.kafka.common.compress`` and the stream classes under it, in both directions:
bytes after the end of an LZ4 frame, or of the last gzip member, are ignored; after a Zstandard
frame they are an error. Sizes in headers are never trusted: memory is allocated for what decoding
yields, or at most for what the compressed bytes could yield.

All functions may be called from several threads at once. A codec's library is imported when it
is first used, so that no command loads one that it does not need.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterator
from typing import Protocol

from kdump.formats.buffer import Buffer
from kdump.formats.errors import FormatError
from kdump.formats.record_batch import CODEC_MASK


class Codec(enum.IntEnum):
    """Kafka's ``CompressionType``: the number in the attributes is the value."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """Kafka's name for it: ``none``, ``gzip``, ``snappy``, ``lz4`` or ``zstd``."""
        return self.name.lower()

    @classmethod
    def of_attributes(cls, attributes: int) -> Codec:
        """The codec that the lowest three bits of ``attributes`` name.

        Raises:
            FormatError: for 5, 6 and 7, which no codec has.
        """
        number = attributes & CODEC_MASK
        if number > Codec.ZSTD:
            raise FormatError("unknown compression codec", expected="0 to 4", found=number)
        return cls(number)


def decompress(codec: Codec, data: Buffer, *, limit_bytes: int, magic: int = 2) -> bytes:
    """Decompress all of ``data``.

    Args:
        codec: how ``data`` was compressed.
        data: the compressed records of one batch, or the value of one wrapper message.
        limit_bytes: the most that may come out. Memory stays within a small multiple of it.
        magic: of the batch or wrapper; only LZ4 depends on it.

    Raises:
        FormatError: ``data`` does not decompress, ends early, or yields more than
            ``limit_bytes``. The position is the first byte of the frame, member or block that could
            not be read.
    """
    return _functions(codec).whole(data, limit_bytes, magic)


def decompress_chunks(
    codec: Codec, data: Buffer, *, chunk_bytes: int, magic: int = 2
) -> Iterator[bytes]:
    """Decompress ``data`` piece by piece, for batches that are too large for memory.

    A piece has at most ``chunk_bytes``, or the format's smallest unit if that is larger: 128 KiB
    for Zstandard, the frame's block size (64 KiB as Kafka writes it, never above 4 MiB) for LZ4,
    one block (32 KiB as Kafka writes it, never above 22 times its compressed bytes) for snappy.
    No piece is empty.

    Raises:
        FormatError: as :func:`decompress` does, after everything before the damage that could be
            decoded.
    """
    return _functions(codec).chunks(data, chunk_bytes, magic)


def compress(codec: Codec, data: Buffer, *, magic: int = 2) -> bytes:
    """Compress ``data`` at Kafka's default level, with the framing that Kafka's producer writes.

    The framing is the same byte for byte; the compressed blocks inside may differ from Kafka's
    where the codec's library is another version.
    """
    return _functions(codec).compress(data, magic)


class _CodecFunctions(Protocol):
    """What each module of :mod:`kdump.formats.codecs` has; arguments as of the functions above."""

    def whole(self, data: Buffer, limit_bytes: int, magic: int) -> bytes: ...

    def chunks(self, data: Buffer, chunk_bytes: int, magic: int) -> Iterator[bytes]: ...

    def compress(self, data: Buffer, magic: int) -> bytes: ...


@functools.cache
def _functions(codec: Codec) -> _CodecFunctions:
    functions: _CodecFunctions
    match codec:
        case Codec.NONE:
            from kdump.formats.codecs import uncompressed as functions
        case Codec.GZIP:
            from kdump.formats.codecs import gzip_members as functions
        case Codec.SNAPPY:
            from kdump.formats.codecs import snappy_stream as functions
        case Codec.LZ4:
            from kdump.formats.codecs import lz4_frames as functions
        case Codec.ZSTD:
            from kdump.formats.codecs import zstd_frames as functions
    return functions
