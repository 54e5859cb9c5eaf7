"""The text of plain batches of a segment, by compiled loops that need neither NumPy nor Arrow.

Plain are whole batches of magic 2 with the right checksum, whose keys and values are printed as
UTF-8 or not at all. At anything else the loop stops, and :mod:`kdump.dump.window_text` prints that
part. This makes a dump of records three to five times as fast, and takes half the time of one of
batches alone, which is mostly that of imports.
"""

from __future__ import annotations

import ctypes
import enum
from collections.abc import Iterator
from typing import Final

from kdump.compiled import library
from kdump.dump.contents import Utf8Contents
from kdump.dump.text_options import TextOptions
from kdump.formats import record_batch
from kdump.formats.compression import Codec, decompress
from kdump.formats.errors import FormatError
from kdump.storage.byte_source import ByteSource

_WINDOW_BYTES: Final = 1 << 20
_TEXT_BYTES: Final = 4 << 20
_LARGEST_BODY_BYTES: Final = 4 << 20
"""As of windows: larger batches are decoded in pieces, in Python."""
_MOST_RECORDS: Final = 1 << 15
"""Of a compressed batch: one with more is decoded in pieces, in Python."""
_MOST_GAPS: Final = 4096
_WITH_RECORDS: Final = 1
_WITH_METADATA: Final = 2
_WITH_CONTENTS: Final = 4


class _Stop(enum.IntEnum):
    """Why ``kdump_text`` returns: ``enum Stop`` of ``segments.c``."""

    END = 0
    FULL_TEXT = 1
    COMPRESSED = 2
    OTHER = 3


class _Dump(ctypes.Structure):
    """``Dump`` of ``segments.c``, which explains the fields."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_int64),
        ("position", ctypes.c_int64),
        ("at", ctypes.c_int64),
        ("records", ctypes.c_void_p),
        ("records_size", ctypes.c_int64),
        ("text", ctypes.c_void_p),
        ("capacity", ctypes.c_int64),
        ("written", ctypes.c_int64),
        ("gaps", ctypes.c_void_p),
        ("most_gaps", ctypes.c_int64),
        ("gaps_count", ctypes.c_int64),
        ("previous_offset", ctypes.c_int64),
        ("line_start", ctypes.c_char_p),
        ("line_start_size", ctypes.c_int64),
        ("options", ctypes.c_int64),
    )


def can_be_compiled(options: TextOptions) -> bool:
    """Whether the compiled loop can print records with these options, and is there."""
    is_utf8 = options.contents is None or isinstance(options.contents, Utf8Contents)
    return is_utf8 and library.compiled() is not None


class CompiledText:
    """The text of a segment as far as it is plain, in pieces.

    Args:
        options: what lines of records show; they must be ones that :func:`can_be_compiled`.
        deep: whether to print records.

    Attributes:
        position: byte of the file up to which everything was printed.
        previous_offset: of the last record; may be set.
    """

    def __init__(self, source: ByteSource, options: TextOptions, *, deep: bool) -> None:
        loops = library.compiled()
        assert loops is not None, "the options can be compiled"
        self._write = loops.kdump_text
        self._source = source
        self._window = bytearray(_WINDOW_BYTES)
        self._text = bytearray(_TEXT_BYTES)
        self._gaps = (ctypes.c_int64 * (2 * _MOST_GAPS))()
        self._body = b""
        self.position = 0
        self._dump = _Dump(
            data=_address(self._window),
            text=_address(self._text),
            capacity=len(self._text),
            gaps=ctypes.addressof(self._gaps),
            most_gaps=_MOST_GAPS,
            previous_offset=-1,
            line_start=options.line_start,
            line_start_size=len(options.line_start),
            options=(_WITH_RECORDS if deep else 0)
            | (0 if options.skip_record_metadata else _WITH_METADATA)
            | (0 if options.contents is None else _WITH_CONTENTS),
        )

    @property
    def previous_offset(self) -> int:
        return int(self._dump.previous_offset)

    @previous_offset.setter
    def previous_offset(self, offset: int) -> None:
        self._dump.previous_offset = offset

    def texts(self) -> Iterator[tuple[memoryview, list[tuple[int, int]]]]:
        """Yield text from :attr:`position` on, and pairs of offsets that are not consecutive.

        A piece is valid until the next one is requested. Ends before the first part that is not
        plain, or at the end of the file.

        Raises:
            OSError: reading fails.
        """
        dump = self._dump
        text = memoryview(self._text)
        while self._read():
            while True:
                stop = self._write(ctypes.byref(dump))
                if dump.written:
                    self.position = dump.position + dump.at
                    pairs = self._gaps[: 2 * dump.gaps_count]
                    yield text[: dump.written], list(zip(pairs[::2], pairs[1::2], strict=True))
                if stop == _Stop.FULL_TEXT and dump.written:
                    continue
                if stop != _Stop.COMPRESSED or not self._decompress():
                    break
            if stop != _Stop.END or not dump.at:
                return

    def _read(self) -> bool:
        """Read the next window; returns whether there are bytes."""
        dump = self._dump
        size = max(0, min(len(self._window), self._source.size_bytes - self.position))
        dump.size = self._source.read_into(memoryview(self._window)[:size], self.position)
        dump.position, dump.at, dump.records = self.position, 0, None
        return bool(dump.size)

    def _decompress(self) -> bool:
        """Decompress the records of the next batch; returns whether that succeeds."""
        dump = self._dump
        batch = memoryview(self._window)[dump.at :]
        header = record_batch.decode_header(batch)
        if header.records_count > _MOST_RECORDS:
            return False
        try:
            codec = Codec.of_attributes(header.attributes)
            body = batch[record_batch.HEADER_BYTES : header.size_bytes]
            self._body = decompress(codec, body, limit_bytes=_LARGEST_BODY_BYTES)
        except FormatError:
            return False
        dump.records = ctypes.cast(ctypes.c_char_p(self._body), ctypes.c_void_p)
        dump.records_size = len(self._body)
        return True


def _address(memory: bytearray) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))
