"""lz4: LZ4 frames of independent blocks.

The checksum of the frame descriptor is wrong where ``magic`` is 0, and not checked. Bytes after the
end of a frame are ignored.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from kdump.formats.buffer import Buffer
from kdump.formats.codecs.limits import joined
from kdump.formats.errors import FormatError

_MAGIC: Final = b"\x04\x22\x4d\x18"
_INT32: Final = struct.Struct("<I")
_UNCOMPRESSED: Final = 0x80000000
_BLOCK_BYTES: Final = 64 * 1024
# The descriptor's flags: the version in the two highest bits, then one bit each.
_VERSION: Final = 0x40
_INDEPENDENT_BLOCKS: Final = 0x20
_BLOCK_CHECKSUM: Final = 0x10
_CONTENT_SIZE: Final = 0x08
_CONTENT_CHECKSUM: Final = 0x04
# What Kafka writes: version 1, independent blocks, at most 64 KiB each; then the checksum, and
# the one that clients wrote before message format 1, which covers the frame's magic too.
_HEADER: Final = _MAGIC + b"\x60\x40\x82"
_HEADER_MAGIC_0: Final = _MAGIC + b"\x60\x40\x1a"
_END: Final = bytes(4)
# A length grows by 255 for each byte that it takes.
_MAX_EXPANSION: Final = 255


def _header(view: memoryview, magic: int) -> tuple[int, int, int]:
    """Header bytes, flags and largest block of the frame at the start of ``view``."""
    import lz4.frame

    if bytes(view[: len(_HEADER)]) == _HEADER:
        return len(_HEADER), _HEADER[4], _BLOCK_BYTES
    if len(view) < len(_HEADER):
        raise FormatError("lz4 frame ends early", found=f"{len(view)} bytes")
    if bytes(view[:4]) != _MAGIC:
        raise FormatError("not an lz4 frame", expected=_MAGIC.hex(), found=bytes(view[:4]).hex())
    flags, block_descriptor = view[4], view[5]
    # Kafka reads neither dictionaries nor blocks that depend on each other.
    if flags & 0xE3 != _VERSION | _INDEPENDENT_BLOCKS:
        raise FormatError("lz4 frame has unknown flags", position=4, found=f"{flags:#04x}")
    block_size_code = block_descriptor >> 4
    if block_descriptor & 0x8F or block_size_code < 4:
        raise FormatError(
            "lz4 frame has an unknown block size", position=5, found=f"{block_descriptor:#04x}"
        )
    size = len(_HEADER) + (8 if flags & _CONTENT_SIZE else 0)
    if len(view) < size:
        raise FormatError("lz4 frame ends early", found=f"{len(view)} bytes")
    if magic > 0:
        try:
            lz4.frame.get_frame_info(bytes(view[:size]))
        except RuntimeError:
            raise FormatError("lz4 frame descriptor has a wrong checksum", position=4) from None
    return size, flags, 1 << (2 * block_size_code + 8)


def _blocks(data: Buffer, magic: int) -> Iterator[bytes]:
    import lz4.block

    view = memoryview(data)
    position, flags, max_block_bytes = _header(view, magic)
    checksum_bytes = 4 if flags & _BLOCK_CHECKSUM else 0
    while True:
        start = position + 4
        if start > len(view):
            raise FormatError("lz4 frame ends early", position=position)
        (size,) = _INT32.unpack_from(view, position)
        is_compressed = size < _UNCOMPRESSED
        size &= ~_UNCOMPRESSED
        if size == 0:
            # The content's checksum must be present, and is not checked.
            if flags & _CONTENT_CHECKSUM and len(view) - start < 4:
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
            _check_block(view[position : end + checksum_bytes], view[5], position)
        position = end + checksum_bytes
        if not is_compressed:
            yield bytes(block)
            continue
        try:
            yield lz4.block.decompress(
                block,
                uncompressed_size=min(max_block_bytes, _MAX_EXPANSION * size),
            )
        except (lz4.block.LZ4BlockError, ValueError) as error:
            raise FormatError(f"lz4: {error}", position=start) from None


def _check_block(block: memoryview, block_descriptor: int, position: int) -> None:
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
        lz4.frame.decompress(b"".join((header, block, _END)))
    except RuntimeError:
        raise FormatError("lz4 block is damaged", position=position) from None


def whole(data: Buffer, limit_bytes: int, magic: int) -> bytes:
    """As :func:`~kdump.formats.compression.decompress`."""
    view = memoryview(data)
    out = _single_block(view) if limit_bytes >= _BLOCK_BYTES else None
    return joined(_blocks(view, magic), limit_bytes) if out is None else out


def _single_block(view: memoryview) -> bytes | None:
    """Decode a frame with a single block, as most of Kafka's are, directly; None for any other."""
    import lz4.block

    start = len(_HEADER) + _INT32.size
    if len(view) < start or view[: len(_HEADER)] != _HEADER:
        return None
    (size,) = _INT32.unpack_from(view, len(_HEADER))
    end = start + size
    if not 0 < size <= _BLOCK_BYTES or view[end : end + len(_END)] != _END:
        return None
    try:
        out: bytes = lz4.block.decompress(view[start:end], uncompressed_size=_BLOCK_BYTES)
    except (lz4.block.LZ4BlockError, ValueError):
        return None
    return out


def chunks(data: Buffer, chunk_bytes: int, magic: int) -> Iterator[bytes]:
    """As :func:`~kdump.formats.compression.decompress_chunks`."""
    return (block for block in _blocks(data, magic) if block)


def compress(data: Buffer, magic: int) -> bytes:
    """As :func:`~kdump.formats.compression.compress`."""
    import lz4.block

    view = memoryview(data)
    out = bytearray(_HEADER if magic > 0 else _HEADER_MAGIC_0)
    for start in range(0, len(view), _BLOCK_BYTES):
        plain = view[start : start + _BLOCK_BYTES]
        block = lz4.block.compress(plain, store_size=False)
        if len(block) < len(plain):
            out += _INT32.pack(len(block))
            out += block
        else:
            out += _INT32.pack(len(plain) | _UNCOMPRESSED)
            out += plain
    return bytes(out + _END)
