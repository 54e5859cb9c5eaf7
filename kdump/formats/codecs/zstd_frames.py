"""zstd: Zstandard frames without content size, one after the other.

Bytes after the last frame that are no frame are an error.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kdump.formats.buffer import Buffer
from kdump.formats.codecs.limits import STEP_BYTES, joined
from kdump.formats.errors import FormatError

if TYPE_CHECKING:
    import zstandard

_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_LEVEL: Final = 3
_MAX_FRAME_HEADER_BYTES: Final = 18
# In the frame header's descriptor: a checksum follows the last block; a content size is given.
_CHECKSUM_FLAG: Final = 0x04
_CONTENT_SIZE_FLAGS: Final = 0xE0
_BLOCK_HEADER_BYTES: Final = 3
_MAX_BLOCK_BYTES: Final = 128 * 1024
_RLE: Final = 1
_LEAST_FRAME_HEADER_BYTES: Final = 6
_SMALL_BLOCKS: Final = 2
"""Kafka ends a frame with a block that is empty."""

_of_thread = threading.local()


def _decompressor() -> zstandard.ZstdDecompressor:
    """Give the thread's own decompressor: creating one costs more than a small batch does."""
    try:
        cached: zstandard.ZstdDecompressor = _of_thread.decompressor
    except AttributeError:
        import zstandard

        cached = _of_thread.decompressor = zstandard.ZstdDecompressor()
    return cached


def whole(data: Buffer, limit_bytes: int, magic: int) -> bytes:
    """As :func:`~kdump.formats.compression.decompress`."""
    view = memoryview(data)
    out = _single_frame(view, limit_bytes)
    if out is not None:
        return out
    return joined(_frames(_decompressor(), view, STEP_BYTES), limit_bytes)


def _single_frame(view: memoryview, limit_bytes: int) -> bytes | None:
    """Decode a single small frame, as most batches are, directly; None for any other."""
    import zstandard

    if len(view) <= _MAX_FRAME_HEADER_BYTES:
        return None
    try:
        if view[4] & _CONTENT_SIZE_FLAGS:
            # The library allocates what the header claims.
            claimed_bytes = zstandard.frame_content_size(view)
            if not 0 < claimed_bytes <= limit_bytes:
                return None
        elif view[4] or not _is_small(view):
            return None
        return _decompressor().decompress(
            view,
            max_output_size=min(limit_bytes, _SMALL_BLOCKS * _MAX_BLOCK_BYTES),
            # The library checks this only where the content's size is given.
            allow_extra_data=False,
        )
    except (zstandard.ZstdError, MemoryError):
        return None


def _is_small(view: memoryview) -> bool:
    """Whether a frame whose header says nothing but its window ends with ``view``, and soon."""
    if bytes(view[:4]) != _MAGIC:
        return False
    position = _LEAST_FRAME_HEADER_BYTES
    for _ in range(_SMALL_BLOCKS):
        body = position + _BLOCK_HEADER_BYTES
        block_header = int.from_bytes(view[position:body], "little")
        position = body + (1 if block_header >> 1 & 3 == _RLE else block_header >> 3)
        if block_header & 1:
            return position == len(view)
    return False


def chunks(data: Buffer, chunk_bytes: int, magic: int) -> Iterator[bytes]:
    """As :func:`~kdump.formats.compression.decompress_chunks`."""
    import zstandard

    # Not the thread's own: another generator, or a call between two pieces, would disturb it.
    return _frames(zstandard.ZstdDecompressor(), data, chunk_bytes)


def _frames(
    decompressor: zstandard.ZstdDecompressor, data: Buffer, chunk_bytes: int
) -> Iterator[bytes]:
    """Decode all frames; the decoder is fed whole blocks, which yield 128 KiB each at most."""
    import zstandard

    view = memoryview(data)
    blocks_at_once = max(1, chunk_bytes // _MAX_BLOCK_BYTES)
    position = 0
    while position < len(view):
        if _is_skippable(view, position):
            position = _skippable_end(view, position)
            continue
        frame = decompressor.decompressobj()
        start = position
        content_bytes = 0
        for end in _block_ends(view, position, blocks_at_once):
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
        if view[start + 4] & _CONTENT_SIZE_FLAGS:
            claimed_bytes = zstandard.frame_content_size(view[start:position])
            if content_bytes != claimed_bytes:
                raise FormatError(
                    "zstd frame has another content size",
                    position=start,
                    expected=claimed_bytes,
                    found=content_bytes,
                )


def _is_skippable(view: memoryview, position: int) -> bool:
    magic = bytes(view[position : position + 4])
    return magic[0] & 0xF0 == 0x50 and magic[1:] == b"\x2a\x4d\x18"


def _skippable_end(view: memoryview, position: int) -> int:
    if len(view) - position >= 8:
        end = position + 8 + int.from_bytes(view[position + 4 : position + 8], "little")
        if end <= len(view):
            return end
    raise FormatError("zstd skippable frame ends early", position=position)


def _block_ends(view: memoryview, start: int, blocks_at_once: int) -> Iterator[int]:
    """Find the end of every ``blocks_at_once``-th block of the frame at ``start``, and of the last.

    Raises:
        FormatError: the frame's structure is damaged; the ends of whole blocks before that come
            first.
    """
    import zstandard

    header = bytes(view[start : start + _MAX_FRAME_HEADER_BYTES])
    if header[:4] != _MAGIC:
        raise FormatError(
            "not a zstd frame",
            position=start,
            expected=_MAGIC.hex(),
            found=header[:4].hex(),
        )
    try:
        position = start + zstandard.frame_header_size(header)
    except zstandard.ZstdError as error:
        raise FormatError(f"zstd: {error}", position=start) from None
    if position > len(view):
        raise FormatError("zstd frame ends early", position=start)
    checksum_bytes = 4 if view[start + 4] & _CHECKSUM_FLAG else 0
    blocks = 0
    while True:
        body = position + _BLOCK_HEADER_BYTES
        block_header = int.from_bytes(view[position:body], "little")
        is_last = block_header & 1
        is_rle = block_header >> 1 & 3 == _RLE
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


def compress(data: Buffer, magic: int) -> bytes:
    """As :func:`~kdump.formats.compression.compress`."""
    import zstandard

    try:
        compressor: zstandard.ZstdCompressor = _of_thread.compressor
    except AttributeError:
        compressor = _of_thread.compressor = zstandard.ZstdCompressor(level=_LEVEL)
    frame = compressor.compressobj()
    # Kafka's stream is flushed before it is closed: an empty last block ends each frame.
    block = frame.compress(data) + frame.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    return block + frame.flush(zstandard.COMPRESSOBJ_FLUSH_FINISH)
