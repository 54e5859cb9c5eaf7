"""Negative indexes of symbols and branches, which Java's decoder refuses.

To Python, and so to fastavro, they count from the end. Its compiled reader cannot be told to refuse
them, so payloads that may have some go through its reader in Python, which takes twice as long.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from fastavro import _read_py
from fastavro.io.binary_decoder import BinaryDecoder

_MOST_LONG_BYTES: Final = 10
_OVERFLOWING: Final = rb"[\x80-\xff]{64}"
"""So many bytes of one number set the bits of the first again in the compiled reader."""


class _StrictDecoder(BinaryDecoder):
    def __init__(self, source: io.BytesIO) -> None:
        super().__init__(source)  # type: ignore[no-untyped-call]
        self.source = source

    def read_long(self) -> int:
        value = 0
        for position in range(_MOST_LONG_BYTES):
            byte = self.source.read(1)
            if not byte:
                raise EOFError
            value |= (byte[0] & 0x7F) << 7 * position
            if byte[0] < 0x80:
                return (value >> 1) ^ -(value & 1)
        raise ValueError(f"a number takes more than {_MOST_LONG_BYTES} bytes")

    read_int = read_long

    def read_index(self) -> int:
        index = self.read_long()
        if index < 0:
            raise ValueError(f"there is no index {index}")
        return index

    read_enum = read_index


def read_strictly(source: io.BytesIO, schema: Any) -> Any:
    """Read a value of a schema, as fastavro has parsed it, in Python."""
    named = {"writer": schema["__named_schemas"], "reader": {}}
    return _read_py.read_data(  # type: ignore[no-untyped-call]
        _StrictDecoder(source), schema, named
    )


def negative_index_search(schema: Any) -> Callable[[bytes], object]:
    """Return what finds something in each payload of a schema that has a negative index.

    The first byte of -k has the seven lowest bits of 2k-1, and one that says whether more follow.
    fastavro itself refuses what is lower than the list is long.
    """
    longest = max(_lengths(schema), default=0)
    starts = bytes(byte for byte in range(256) if byte & 1 and byte & 0x7F < 2 * longest)
    any_start = b"[%s]|" % re.escape(starts) if starts else b""
    return re.compile(any_start + _OVERFLOWING).search


def _lengths(schema: Any) -> Iterator[int]:
    """How long the lists of symbols and branches in a schema are."""
    if isinstance(schema, list):
        yield len(schema)
        for branch in schema:
            yield from _lengths(branch)
    elif isinstance(schema, dict):
        yield len(schema.get("symbols", ()))
        for each in schema.get("fields", ()):
            yield from _lengths(each["type"])
        for name in ("type", "items", "values"):
            yield from _lengths(schema.get(name))
