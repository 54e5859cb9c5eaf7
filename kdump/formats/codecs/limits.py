"""What all codecs share: the limit on what may come out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kdump.formats.errors import FormatError

STEP_BYTES: Final = 1 << 20
"""How much is decoded at once where everything is needed but the quick way does not apply."""


def over_limit(limit_bytes: int, position: int = 0) -> FormatError:
    """The error for data that yields more than it may."""
    return FormatError(
        "decompressed data passes the limit", position=position, expected=f"at most {limit_bytes}"
    )


def joined(chunks: Iterator[bytes], limit_bytes: int) -> bytes:
    """All chunks as one, as long as they stay within the limit.

    Raises:
        FormatError: they do not.
    """
    pieces = []
    total = 0
    for piece in chunks:
        total += len(piece)
        if total > limit_bytes:
            raise over_limit(limit_bytes)
        pieces.append(piece)
    return b"".join(pieces)
