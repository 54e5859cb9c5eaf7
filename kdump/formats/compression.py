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
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from kdump.formats.errors import FormatError

if TYPE_CHECKING:
    import zstandard

Buffer = bytes | bytearray | memoryview

CODEC_MASK: Final = 0x07
"""The bits of a batch's or a message's attributes that hold the codec's number."""


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
    return _WHOLE[codec](data, limit_bytes, magic)


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
    return _CHUNKS[codec](data, chunk_bytes, magic)


def compress(codec: Codec, data: Buffer, *, magic: int = 2) -> bytes:
    """Compress ``data`` at Kafka's default level, with the framing that Kafka's producer writes.

    The framing is the same byte for byte; the compressed blocks inside may differ from Kafka's
    where the codec's library is another version.
    """
    return _COMPRESS[codec](data, magic)


def _over_limit(limit_bytes: int, position: int = 0) -> FormatError:
    return FormatError(
        "decompressed data passes the limit", position=position, expected=f"at most {limit_bytes}"
    )


def _joined(chunks: Iterator[bytes], limit_bytes: int) -> bytes:
    pieces = []
    total = 0
    for piece in chunks:
        total += len(piece)
        if total > limit_bytes:
            raise _over_limit(limit_bytes)
        pieces.append(piece)
    return b"".join(pieces)


# How much is decoded at once where everything is needed but the quick way does not apply.
_STEP_BYTES: Final = 1 << 20


# none -----------------------------------------------------------------------------------------


def _none_whole(data: Buffer, limit_bytes: int, magic: int) -> bytes:
    if len(data) > limit_bytes:
        raise _over_limit(limit_bytes)
    return bytes(data)


def _none_chunks(data: Buffer, chunk_bytes: int, magic: int) -> Iterator[bytes]:
    view = memoryview(data)
    for start in range(0, len(view), chunk_bytes):
        yield bytes(view[start : start + chunk_bytes])


def _none_compress(data: Buffer, magic: int) -> bytes:
    return bytes(data)


# gzip -----------------------------------------------------------------------------------------

_GZIP_WINDOW_BITS: Final = 31  # 15, and 16 for "with gzip's header and trailer"
_GZIP_MAGIC: Final = b"\x1f\x8b\x08"
_GZIP_HEADER: Final = _GZIP_MAGIC + bytes(6) + b"\xff"
_GZIP_TRAILER: Final = struct.Struct("<II")
# java.util.zip.GZIPInputStream looks for another member only if more bytes follow than a header and
# a trailer take.
_GZIP_MEMBER_OVERHEAD_BYTES: Final = len(_GZIP_HEADER) + _GZIP_TRAILER.size
_GZIP_INPUT_BYTES: Final = 1 << 16


def _gzip_whole(data: Buffer, limit_bytes: int, magic: int) -> bytes:
    member = zlib.decompressobj(_GZIP_WINDOW_BITS)
    try:
        out = member.decompress(data, limit_bytes + 1)
    except zlib.error as error:
        raise FormatError(f"gzip: {error}") from None
    if len(out) > limit_bytes:
        raise _over_limit(limit_bytes)
    if not member.eof:
        raise FormatError("gzip member ends early", found=f"{len(data)} bytes")
    if member.unused_data:
        return _joined(_gzip_chunks(data, _STEP_BYTES, magic), limit_bytes)
    return out


def _gzip_chunks(data: Buffer, chunk_bytes: int, magic: int) -> Iterator[bytes]:
    view = memoryview(data)
    start = position = 0
    while True:
        member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        pending: Buffer = b""
        while True:
            if not pending:
                # In slices: the library copies what a call leaves unconsumed.
                pending = view[position : position + _GZIP_INPUT_BYTES]
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
            len(view) - position <= _GZIP_MEMBER_OVERHEAD_BYTES
            or bytes(view[position : position + len(_GZIP_MAGIC)]) != _GZIP_MAGIC
        ):
            return


def _gzip_compress(data: Buffer, magic: int) -> bytes:
    deflate = zlib.compressobj(wbits=-15)
    return b"".join(
        (
            _GZIP_HEADER,
            deflate.compress(data),
            deflate.flush(),
            _GZIP_TRAILER.pack(zlib.crc32(data), len(data) & 0xFFFFFFFF),
        )
    )


# snappy ---------------------------------------------------------------------------------------

_SNAPPY_MAGIC: Final = b"\x82SNAPPY\x00"
_SNAPPY_VERSIONS: Final = struct.Struct(">ii")  # written, oldest that can read it
_SNAPPY_HEADER: Final = _SNAPPY_MAGIC + _SNAPPY_VERSIONS.pack(1, 1)
_SNAPPY_BLOCK_SIZE: Final = struct.Struct(">i")
_SNAPPY_BLOCK_BYTES: Final = 32 * 1024
# The densest element of a block is a copy of 64 bytes that takes 3.
_SNAPPY_MAX_EXPANSION: Final = 22


def _snappy_block(block: memoryview, position: int, limit_bytes: int | None = None) -> bytes:
    """One bare snappy block; ``position`` is where it begins, for the error."""
    import snappy

    claimed_bytes = 0
    for index, byte in enumerate(block[:5]):
        claimed_bytes |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            break
    else:
        raise FormatError("snappy block has no length", position=position)
    if claimed_bytes > _SNAPPY_MAX_EXPANSION * len(block):
        raise FormatError(
            "snappy block claims more than it can hold",
            position=position,
            expected=f"at most {_SNAPPY_MAX_EXPANSION * len(block)}",
            found=claimed_bytes,
        )
    if limit_bytes is not None and claimed_bytes > limit_bytes:
        raise _over_limit(limit_bytes, position)
    try:
        out: bytes = snappy.uncompress(block)
    except snappy.UncompressError as error:
        cause = error.__cause__ or error
        raise FormatError(f"snappy: {cause}", position=position) from None
    return out


def _snappy_blocks(view: memoryview) -> Iterator[tuple[int, int]]:
    """Find start and end of every block after the header of a snappy-java stream."""
    position = len(_SNAPPY_HEADER)
    while len(view) - position >= _SNAPPY_BLOCK_SIZE.size:
        if bytes(view[position : position + 4]) == _SNAPPY_MAGIC[:4]:
            # Streams may be joined; a header in the middle has its version checked.
            header = bytes(view[position : position + len(_SNAPPY_HEADER)])
            if len(header) < len(_SNAPPY_HEADER):
                raise FormatError("snappy header ends early", position=position)
            if header[: len(_SNAPPY_MAGIC)] != _SNAPPY_MAGIC:
                return
            version, _ = _SNAPPY_VERSIONS.unpack_from(header, len(_SNAPPY_MAGIC))
            if version < 1:
                raise FormatError(
                    "snappy stream has an unknown version",
                    position=position,
                    expected="1 or more",
                    found=version,
                )
            position += len(_SNAPPY_HEADER)
            continue
        (size,) = _SNAPPY_BLOCK_SIZE.unpack_from(view, position)
        start = position + _SNAPPY_BLOCK_SIZE.size
        if not 0 <= size <= len(view) - start:
            raise FormatError(
                "snappy block reaches past its stream",
                position=position,
                expected=f"0 to {len(view) - start}",
                found=size,
            )
        position = start + size
        yield start, position


def _snappy_is_framed(view: memoryview) -> bool:
    return len(view) >= len(_SNAPPY_HEADER) and bytes(view[:8]) == _SNAPPY_MAGIC


def _snappy_whole(data: Buffer, limit_bytes: int, magic: int) -> bytes:
    view = memoryview(data)
    if not _snappy_is_framed(view):
        return _snappy_block(view, 0, limit_bytes)
    pieces = []
    left_bytes = limit_bytes
    for start, end in _snappy_blocks(view):
        piece = _snappy_block(view[start:end], start, left_bytes)
        left_bytes -= len(piece)
        pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _snappy_chunks(data: Buffer, chunk_bytes: int, magic: int) -> Iterator[bytes]:
    view = memoryview(data)
    if not _snappy_is_framed(view):
        blocks: Iterator[tuple[int, int]] = iter(((0, len(view)),))
    else:
        blocks = _snappy_blocks(view)
    for start, end in blocks:
        piece = _snappy_block(view[start:end], start)
        if piece:
            yield piece


def _snappy_compress(data: Buffer, magic: int) -> bytes:
    import snappy

    view = memoryview(data)
    out = bytearray(_SNAPPY_HEADER)
    for start in range(0, len(view), _SNAPPY_BLOCK_BYTES):
        block = snappy.compress(view[start : start + _SNAPPY_BLOCK_BYTES])
        out += _SNAPPY_BLOCK_SIZE.pack(len(block))
        out += block
    return bytes(out)


# lz4 ------------------------------------------------------------------------------------------

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_INT32: Final = struct.Struct("<I")
_LZ4_UNCOMPRESSED: Final = 0x80000000
_LZ4_BLOCK_BYTES: Final = 64 * 1024
# The descriptor's flags: the version in the two highest bits, then one bit each.
_LZ4_VERSION: Final = 0x40
_LZ4_INDEPENDENT_BLOCKS: Final = 0x20
_LZ4_BLOCK_CHECKSUM: Final = 0x10
_LZ4_CONTENT_SIZE: Final = 0x08
_LZ4_CONTENT_CHECKSUM: Final = 0x04
# What Kafka writes: version 1, independent blocks, at most 64 KiB each; then the checksum, and
# the one that clients wrote before message format 1, which covers the frame's magic too.
_LZ4_HEADER: Final = _LZ4_MAGIC + b"\x60\x40\x82"
_LZ4_HEADER_MAGIC_0: Final = _LZ4_MAGIC + b"\x60\x40\x1a"
_LZ4_END: Final = bytes(4)
# A length grows by 255 for each byte that it takes.
_LZ4_MAX_EXPANSION: Final = 255


def _lz4_header(view: memoryview, magic: int) -> tuple[int, int, int]:
    """Header bytes, flags and largest block of the frame at the start of ``view``."""
    import lz4.frame

    if bytes(view[: len(_LZ4_HEADER)]) == _LZ4_HEADER:
        return len(_LZ4_HEADER), _LZ4_HEADER[4], _LZ4_BLOCK_BYTES
    if len(view) < len(_LZ4_HEADER):
        raise FormatError("lz4 frame ends early", found=f"{len(view)} bytes")
    if bytes(view[:4]) != _LZ4_MAGIC:
        raise FormatError(
            "not an lz4 frame", expected=_LZ4_MAGIC.hex(), found=bytes(view[:4]).hex()
        )
    flags, block_descriptor = view[4], view[5]
    # Kafka reads neither dictionaries nor blocks that depend on each other.
    if flags & 0xE3 != _LZ4_VERSION | _LZ4_INDEPENDENT_BLOCKS:
        raise FormatError("lz4 frame has unknown flags", position=4, found=f"{flags:#04x}")
    block_size_code = block_descriptor >> 4
    if block_descriptor & 0x8F or block_size_code < 4:
        raise FormatError(
            "lz4 frame has an unknown block size", position=5, found=f"{block_descriptor:#04x}"
        )
    size = len(_LZ4_HEADER) + (8 if flags & _LZ4_CONTENT_SIZE else 0)
    if len(view) < size:
        raise FormatError("lz4 frame ends early", found=f"{len(view)} bytes")
    if magic > 0:
        try:
            lz4.frame.get_frame_info(bytes(view[:size]))
        except RuntimeError:
            raise FormatError("lz4 frame descriptor has a wrong checksum", position=4) from None
    return size, flags, 1 << (2 * block_size_code + 8)


def _lz4_blocks(data: Buffer, magic: int) -> Iterator[bytes]:
    import lz4.block

    view = memoryview(data)
    position, flags, max_block_bytes = _lz4_header(view, magic)
    checksum_bytes = 4 if flags & _LZ4_BLOCK_CHECKSUM else 0
    while True:
        start = position + 4
        if start > len(view):
            raise FormatError("lz4 frame ends early", position=position)
        (size,) = _LZ4_INT32.unpack_from(view, position)
        is_compressed = size < _LZ4_UNCOMPRESSED
        size &= ~_LZ4_UNCOMPRESSED
        if size == 0:
            # The content's checksum must be present, and is not checked.
            if flags & _LZ4_CONTENT_CHECKSUM and len(view) - start < 4:
                raise FormatError("lz4 frame ends early", position=start)
            return
        end = start + size
        if size > max_block_bytes or end + checksum_bytes > len(view):
            raise FormatError(
                "lz4 block reaches past its frame",
                position=position,
                expected=f"at most {min(max_block_bytes, len(view) - start - checksum_bytes)}",
                found=size,
            )
        block = view[start:end]
        if checksum_bytes:
            _check_lz4_block(view[position : end + checksum_bytes], view[5], position)
        position = end + checksum_bytes
        if not is_compressed:
            yield bytes(block)
            continue
        try:
            yield lz4.block.decompress(
                block,
                uncompressed_size=min(max_block_bytes, _LZ4_MAX_EXPANSION * size),
            )
        except (lz4.block.LZ4BlockError, ValueError) as error:
            raise FormatError(f"lz4: {error}", position=start) from None


def _check_lz4_block(block: memoryview, block_descriptor: int, position: int) -> None:
    """Let the library check the checksum at the end of ``block``, which begins with its length.

    Python has no xxHash of its own, so the block is wrapped in a frame of its own.
    """
    import lz4.frame

    frame = lz4.frame.create_compression_context()
    header = lz4.frame.compress_begin(
        frame,
        block_size=block_descriptor >> 4,
        block_linked=False,
        block_checksum=True,
    )
    try:
        lz4.frame.decompress(b"".join((header, block, _LZ4_END)))
    except RuntimeError:
        raise FormatError("lz4 block is damaged", position=position) from None


def _lz4_whole(data: Buffer, limit_bytes: int, magic: int) -> bytes:
    view = memoryview(data)
    out = _lz4_single_block(view) if limit_bytes >= _LZ4_BLOCK_BYTES else None
    return _joined(_lz4_blocks(view, magic), limit_bytes) if out is None else out


def _lz4_single_block(view: memoryview) -> bytes | None:
    """Decode a frame with a single block, as most of Kafka's are, directly; None for any other."""
    import lz4.block

    start = len(_LZ4_HEADER) + _LZ4_INT32.size
    if len(view) < start or view[: len(_LZ4_HEADER)] != _LZ4_HEADER:
        return None
    (size,) = _LZ4_INT32.unpack_from(view, len(_LZ4_HEADER))
    end = start + size
    if not 0 < size <= _LZ4_BLOCK_BYTES or view[end : end + len(_LZ4_END)] != _LZ4_END:
        return None
    try:
        out: bytes = lz4.block.decompress(view[start:end], uncompressed_size=_LZ4_BLOCK_BYTES)
    except (lz4.block.LZ4BlockError, ValueError):
        return None
    return out


def _lz4_chunks(data: Buffer, chunk_bytes: int, magic: int) -> Iterator[bytes]:
    return (block for block in _lz4_blocks(data, magic) if block)


def _lz4_compress(data: Buffer, magic: int) -> bytes:
    import lz4.block

    view = memoryview(data)
    out = bytearray(_LZ4_HEADER if magic > 0 else _LZ4_HEADER_MAGIC_0)
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        plain = view[start : start + _LZ4_BLOCK_BYTES]
        block = lz4.block.compress(plain, store_size=False)
        if len(block) < len(plain):
            out += _LZ4_INT32.pack(len(block))
            out += block
        else:
            out += _LZ4_INT32.pack(len(plain) | _LZ4_UNCOMPRESSED)
            out += plain
    return bytes(out + _LZ4_END)


# zstd -----------------------------------------------------------------------------------------

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_LEVEL: Final = 3
_ZSTD_MAX_FRAME_HEADER_BYTES: Final = 18
# In the frame header's descriptor: a checksum follows the last block; a content size is given.
_ZSTD_CHECKSUM_FLAG: Final = 0x04
_ZSTD_CONTENT_SIZE_FLAGS: Final = 0xE0
_ZSTD_BLOCK_HEADER_BYTES: Final = 3
_ZSTD_MAX_BLOCK_BYTES: Final = 128 * 1024
_ZSTD_RLE: Final = 1
_ZSTD_LEAST_FRAME_HEADER_BYTES: Final = 6
_ZSTD_SMALL_BLOCKS: Final = 2
"""Kafka ends a frame with a block that is empty."""

_zstd_of_thread = threading.local()


def _zstd_decompressor() -> zstandard.ZstdDecompressor:
    """Give the thread's own decompressor: creating one costs more than a small batch does."""
    try:
        cached: zstandard.ZstdDecompressor = _zstd_of_thread.decompressor
    except AttributeError:
        import zstandard

        cached = _zstd_of_thread.decompressor = zstandard.ZstdDecompressor()
    return cached


def _zstd_whole(data: Buffer, limit_bytes: int, magic: int) -> bytes:
    view = memoryview(data)
    out = _zstd_single_frame(view, limit_bytes)
    if out is not None:
        return out
    return _joined(_zstd_frames(_zstd_decompressor(), view, _STEP_BYTES), limit_bytes)


def _zstd_single_frame(view: memoryview, limit_bytes: int) -> bytes | None:
    """Decode a single small frame, as most batches are, directly; None for any other."""
    import zstandard

    if len(view) <= _ZSTD_MAX_FRAME_HEADER_BYTES:
        return None
    try:
        if view[4] & _ZSTD_CONTENT_SIZE_FLAGS:
            # The library allocates what the header claims.
            claimed_bytes = zstandard.frame_content_size(view)
            if not 0 < claimed_bytes <= limit_bytes:
                return None
        elif view[4] or not _zstd_is_small(view):
            return None
        return _zstd_decompressor().decompress(
            view,
            max_output_size=min(limit_bytes, _ZSTD_SMALL_BLOCKS * _ZSTD_MAX_BLOCK_BYTES),
            # The library checks this only where the content's size is given.
            allow_extra_data=False,
        )
    except (zstandard.ZstdError, MemoryError):
        return None


def _zstd_is_small(view: memoryview) -> bool:
    """Whether a frame whose header says nothing but its window ends with ``view``, and soon."""
    if bytes(view[:4]) != _ZSTD_MAGIC:
        return False
    position = _ZSTD_LEAST_FRAME_HEADER_BYTES
    for _ in range(_ZSTD_SMALL_BLOCKS):
        body = position + _ZSTD_BLOCK_HEADER_BYTES
        block_header = int.from_bytes(view[position:body], "little")
        position = body + (1 if block_header >> 1 & 3 == _ZSTD_RLE else block_header >> 3)
        if block_header & 1:
            return position == len(view)
    return False


def _zstd_chunks(data: Buffer, chunk_bytes: int, magic: int) -> Iterator[bytes]:
    import zstandard

    # Not the thread's own: another generator, or a call between two pieces, would disturb it.
    return _zstd_frames(zstandard.ZstdDecompressor(), data, chunk_bytes)


def _zstd_frames(
    decompressor: zstandard.ZstdDecompressor, data: Buffer, chunk_bytes: int
) -> Iterator[bytes]:
    """Decode all frames; the decoder is fed whole blocks, which yield 128 KiB each at most."""
    import zstandard

    view = memoryview(data)
    blocks_at_once = max(1, chunk_bytes // _ZSTD_MAX_BLOCK_BYTES)
    position = 0
    while position < len(view):
        if _zstd_is_skippable(view, position):
            position = _zstd_skippable_end(view, position)
            continue
        frame = decompressor.decompressobj()
        start = position
        content_bytes = 0
        for end in _zstd_block_ends(view, position, blocks_at_once):
            try:
                piece = frame.decompress(view[position:end])
            except (zstandard.ZstdError, MemoryError) as error:
                raise FormatError(f"zstd: {error}", position=start) from None
            content_bytes += len(piece)
            if piece:
                yield piece
            position = end
        if not frame.eof:
            raise FormatError("zstd frame does not end with its last block", position=start)
        # Whether the library checks this depends on how it was fed.
        if view[start + 4] & _ZSTD_CONTENT_SIZE_FLAGS:
            claimed_bytes = zstandard.frame_content_size(view[start:position])
            if content_bytes != claimed_bytes:
                raise FormatError(
                    "zstd frame has another content size",
                    position=start,
                    expected=claimed_bytes,
                    found=content_bytes,
                )


def _zstd_is_skippable(view: memoryview, position: int) -> bool:
    magic = bytes(view[position : position + 4])
    return magic[0] & 0xF0 == 0x50 and magic[1:] == b"\x2a\x4d\x18"


def _zstd_skippable_end(view: memoryview, position: int) -> int:
    if len(view) - position >= 8:
        end = position + 8 + int.from_bytes(view[position + 4 : position + 8], "little")
        if end <= len(view):
            return end
    raise FormatError("zstd skippable frame ends early", position=position)


def _zstd_block_ends(view: memoryview, start: int, blocks_at_once: int) -> Iterator[int]:
    """Find the end of every ``blocks_at_once``-th block of the frame at ``start``, and of the last.

    Raises:
        FormatError: the frame's structure is damaged; the ends of whole blocks before that come
            first.
    """
    import zstandard

    header = bytes(view[start : start + _ZSTD_MAX_FRAME_HEADER_BYTES])
    if header[:4] != _ZSTD_MAGIC:
        raise FormatError(
            "not a zstd frame",
            position=start,
            expected=_ZSTD_MAGIC.hex(),
            found=header[:4].hex(),
        )
    try:
        position = start + zstandard.frame_header_size(header)
    except zstandard.ZstdError as error:
        raise FormatError(f"zstd: {error}", position=start) from None
    if position > len(view):
        raise FormatError("zstd frame ends early", position=start)
    checksum_bytes = 4 if view[start + 4] & _ZSTD_CHECKSUM_FLAG else 0
    blocks = 0
    while True:
        body = position + _ZSTD_BLOCK_HEADER_BYTES
        block_header = int.from_bytes(view[position:body], "little")
        is_last = block_header & 1
        is_rle = block_header >> 1 & 3 == _ZSTD_RLE
        end = body + (1 if is_rle else block_header >> 3) + (checksum_bytes if is_last else 0)
        if body > len(view) or end > len(view):
            if blocks:
                yield position
            raise FormatError("zstd frame ends early", position=start)
        position = end
        blocks += 1
        if is_last or blocks == blocks_at_once:
            yield position
            blocks = 0
        if is_last:
            return


def _zstd_compress(data: Buffer, magic: int) -> bytes:
    import zstandard

    try:
        compressor: zstandard.ZstdCompressor = _zstd_of_thread.compressor
    except AttributeError:
        compressor = _zstd_of_thread.compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL)
    frame = compressor.compressobj()
    # Kafka's stream is flushed before it is closed: an empty last block ends each frame.
    block = frame.compress(data) + frame.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    return block + frame.flush(zstandard.COMPRESSOBJ_FLUSH_FINISH)


_WHOLE: Final[dict[Codec, Callable[[Buffer, int, int], bytes]]] = {
    Codec.NONE: _none_whole,
    Codec.GZIP: _gzip_whole,
    Codec.SNAPPY: _snappy_whole,
    Codec.LZ4: _lz4_whole,
    Codec.ZSTD: _zstd_whole,
}

_CHUNKS: Final[dict[Codec, Callable[[Buffer, int, int], Iterator[bytes]]]] = {
    Codec.NONE: _none_chunks,
    Codec.GZIP: _gzip_chunks,
    Codec.SNAPPY: _snappy_chunks,
    Codec.LZ4: _lz4_chunks,
    Codec.ZSTD: _zstd_chunks,
}

_COMPRESS: Final[dict[Codec, Callable[[Buffer, int], bytes]]] = {
    Codec.NONE: _none_compress,
    Codec.GZIP: _gzip_compress,
    Codec.SNAPPY: _snappy_compress,
    Codec.LZ4: _lz4_compress,
    Codec.ZSTD: _zstd_compress,
}
