"""Bytes as Java reads them into text, and its hash of text.

``new String(bytes, UTF_8)`` puts U+FFFD where the bytes are not UTF-8, and so does Python's
``replace`` handler, but they disagree on one thing: an encoded surrogate (``ED A0..BF``) is one
malformed sequence to Java, of three bytes or of the two that are there, where Python sees one for
each byte. Everything else, over-long forms and truncated sequences included, comes out alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_PIECE_BYTES: Final = 1 << 16
_ENCODED_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def java_utf8(data: bytes | bytearray | memoryview) -> str:
    """Decode bytes as Java's ``new String(data, StandardCharsets.UTF_8)`` does.

    Args:
        data: any bytes; they need not be UTF-8.

    Returns:
        The text, with one U+FFFD for each sequence that is malformed to Java. It never contains a
        lone surrogate, so it can always be encoded again.
    """
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        return str(_one_malformed_byte_each(data), "utf-8", "replace")


def java_utf8_bytes(data: bytes | memoryview) -> bytes | memoryview:
    """Encode :func:`java_utf8` of ``data`` again; gives ``data`` itself where it is valid UTF-8.

    Meant for much text at once. Where fields of unknown bytes are between ASCII, the whole may
    be converted together: a malformed sequence never takes in an ASCII byte.
    """
    # Imported here, because the hash and single texts do without.
    import numpy as np

    if not len(data) or int(np.frombuffer(data, np.uint8).max()) < 0x80:
        return data
    try:
        str(data, "utf-8")
    except UnicodeDecodeError:
        return b"".join(_replaced_pieces(_one_malformed_byte_each(data)))
    return data


def _one_malformed_byte_each(data: bytes | bytearray | memoryview) -> bytes:
    """``data`` with FF, which is malformed anywhere, for each encoded surrogate."""
    return _ENCODED_SURROGATE.sub(b"\xff", data)


def _replaced_pieces(data: bytes) -> Iterator[bytes]:
    """``data`` with U+FFFD for what is malformed, in pieces that stay within a core's cache."""
    start = 0
    while start < len(data):
        end = min(start + _PIECE_BYTES, len(data))
        while end < len(data) and data[end] >= 0x80:
            end += 1
        yield str(data[start:end], "utf-8", "replace").encode()
        start = end


def java_string_hash(text: str) -> int:
    """``String.hashCode`` of ``text``, as an unsigned 32-bit integer."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value


def coordinator_partition(key: str, partitions: int) -> int:
    """The partition of a coordinator's topic that has the records of a group or transactional id.

    Follows ``GroupCoordinatorService.partitionFor`` and ``TransactionStateManager.partitionFor``.

    Args:
        key: the name of the group, or the transactional id.
        partitions: how many the topic has.
    """
    value = java_string_hash(key)
    # Utils.abs makes 0 of the one negative number that has no absolute value.
    magnitude = value if value < 1 << 31 else (1 << 32) - value
    return magnitude % (1 << 31) % partitions
