"""A reader over bytes that cannot read past their end.

Kafka's primitive types, big-endian, with the two variable-length encodings of
``org.apache.kafka.common.utils.ByteUtils``: plain (unsigned) and zig-zag (signed).
"""

from __future__ import annotations

import struct
from typing import Final

from kdump.formats.errors import FormatError

_INT16: Final = struct.Struct(">h")
_UINT16: Final = struct.Struct(">H")
_INT32: Final = struct.Struct(">i")
_UINT32: Final = struct.Struct(">I")
_INT64: Final = struct.Struct(">q")
_FLOAT64: Final = struct.Struct(">d")

MAX_VARINT_BYTES: Final = 5
MAX_VARLONG_BYTES: Final = 10


class Cursor:
    """Reads ``data`` from ``position`` on, front to back; every read is checked against its end.

    Raises:
        FormatError: from any read past the end, or for an over-long varint. Its position counts
            from the start of ``data``.
    """

    __slots__ = ("data", "end", "position")

    def __init__(self, data: bytes | bytearray | memoryview, position: int = 0) -> None:
        self.data = data
        self.position = position
        self.end = len(data)

    @property
    def remaining(self) -> int:
        """Number of bytes left."""
        return self.end - self.position

    def _fixed(self, layout: struct.Struct, name: str) -> int:
        self._need(layout.size, name)
        (value,) = layout.unpack_from(self.data, self.position)
        self.position += layout.size
        return int(value)

    def _need(self, size: int, name: str) -> None:
        if size > self.end - self.position:
            raise FormatError(
                f"{name} ends early",
                position=self.position,
                expected=f"{size} bytes",
                found=f"{max(self.end - self.position, 0)}",
            )

    def int8(self) -> int:
        value = self.uint8()
        return value - 256 if value > 127 else value

    def uint8(self) -> int:
        self._need(1, "int8")
        value = self.data[self.position]
        self.position += 1
        return value

    # The most frequent ones make no further call.

    def int16(self) -> int:
        start = self.position
        if start + 2 > self.end:
            self._need(2, "int16")
        self.position = start + 2
        value: int = _INT16.unpack_from(self.data, start)[0]
        return value

    def uint16(self) -> int:
        return self._fixed(_UINT16, "uint16")

    def int32(self) -> int:
        start = self.position
        if start + 4 > self.end:
            self._need(4, "int32")
        self.position = start + 4
        value: int = _INT32.unpack_from(self.data, start)[0]
        return value

    def uint32(self) -> int:
        return self._fixed(_UINT32, "uint32")

    def int64(self) -> int:
        start = self.position
        if start + 8 > self.end:
            self._need(8, "int64")
        self.position = start + 8
        value: int = _INT64.unpack_from(self.data, start)[0]
        return value

    def float64(self) -> float:
        self._need(_FLOAT64.size, "float64")
        (value,) = _FLOAT64.unpack_from(self.data, self.position)
        self.position += _FLOAT64.size
        return float(value)

    def take(self, size: int, name: str = "bytes") -> bytes:
        """Read ``size`` bytes, copied; a negative size is an error, not a null."""
        if size < 0:
            raise FormatError(
                f"{name} has a negative length",
                position=self.position,
                expected="0 or more",
                found=size,
            )
        self._need(size, name)
        value = bytes(self.data[self.position : self.position + size])
        self.position += size
        return value

    def unsigned_varint(self) -> int:
        """Read an unsigned 32-bit variable-length integer (``readUnsignedVarint``)."""
        return self._variable(MAX_VARINT_BYTES, 32, "varint")

    def varint(self) -> int:
        """Read a zig-zag 32-bit variable-length integer (``readVarint``)."""
        return _unzigzag(self.unsigned_varint())

    def varlong(self) -> int:
        """Read a zig-zag 64-bit variable-length integer (``readVarlong``)."""
        return _unzigzag(self._variable(MAX_VARLONG_BYTES, 64, "varlong"))

    def _variable(self, max_bytes: int, bits: int, name: str) -> int:
        start = self.position
        value = 0
        for index in range(max_bytes):
            if self.position >= self.end:
                raise FormatError(f"{name} ends early", position=start)
            byte = self.data[self.position]
            self.position += 1
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                # Bits above the type's width are dropped, as Java's shifts drop them.
                return value & ((1 << bits) - 1)
        raise FormatError(f"{name} is longer than {max_bytes} bytes", position=start)


def _unzigzag(value: int) -> int:
    return (value >> 1) ^ -(value & 1)


def write_unsigned_varint(value: int, out: bytearray) -> None:
    """Append ``value`` (0 or more) to ``out``, seven bits a byte, lowest first."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_varlong(value: int, out: bytearray) -> None:
    """Append a signed value of up to 64 bits to ``out``, zig-zag (also Kafka's varint)."""
    write_unsigned_varint((value << 1) ^ (value >> 63), out)
