"""Look up entries of an index without reading all of it.

An index in use is padded with zeroes to its maximum size, ten megabytes by default, so its last
entry is found by a binary search. Only a few entries are read.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from kdump.formats.fixed_layout import layout
from kdump.formats.index_layouts import (
    ABORTED_TXN_FIELDS,
    OFFSET_ENTRY_FIELDS,
    TIME_ENTRY_FIELDS,
)
from kdump.scan.source import read_at
from kdump.storage.byte_source import ByteSource

_PAGE_BYTES: Final = 4096


_OFFSET_ENTRY: Final = layout(OFFSET_ENTRY_FIELDS)
_TIME_ENTRY: Final = layout(TIME_ENTRY_FIELDS)
TRANSACTION_ENTRY: Final = layout(ABORTED_TXN_FIELDS)


class OffsetIndexEntry(NamedTuple):
    """An entry of an offset index."""

    relative_offset: int
    position: int


class TimeIndexEntry(NamedTuple):
    """An entry of a time index."""

    timestamp: int
    relative_offset: int


def last_offset_entry(source: ByteSource) -> OffsetIndexEntry | None:
    """Return the last entry before the padding; None if there is none.

    Raises:
        OSError: reading fails.
    """
    entries = _Entries(source, _OFFSET_ENTRY)
    slot = entries.count_used() - 1
    return None if slot < 0 else OffsetIndexEntry(*entries.at(slot))


def last_slot(source: ByteSource) -> OffsetIndexEntry | None:
    """Return the last entry of an offset index, padding or not, as a broker takes it.

    Returns:
        The entry; None if the file is not one of whole entries.

    Raises:
        OSError: reading fails.
    """
    if source.size_bytes % _OFFSET_ENTRY.size or not source.size_bytes:
        return None
    data = read_at(source, source.size_bytes - _OFFSET_ENTRY.size, _OFFSET_ENTRY.size)
    return OffsetIndexEntry(*_OFFSET_ENTRY.unpack(data))


def first_offset_entries(source: ByteSource, most: int) -> list[OffsetIndexEntry]:
    """Return up to ``most`` entries from the first one on, padding included.

    Raises:
        OSError: reading fails.
    """
    return offset_entries_in(read_at(source, 0, most * _OFFSET_ENTRY.size), most)


def offset_entries_in(data: bytes, most: int) -> list[OffsetIndexEntry]:
    """Return the same for an index that is in memory."""
    count = min(most, len(data) // _OFFSET_ENTRY.size)
    whole = data[: count * _OFFSET_ENTRY.size]
    return [OffsetIndexEntry(*fields) for fields in _OFFSET_ENTRY.iter_unpack(whole)]


def offset_entry_at_or_below(source: ByteSource, relative_offset: int) -> OffsetIndexEntry | None:
    """Return the last entry whose offset is not above ``relative_offset``; None if there is none.

    Raises:
        OSError: reading fails.
    """
    entries = _Entries(source, _OFFSET_ENTRY)
    slot = entries.count_rising(relative_offset) - 1
    return None if slot < 0 else OffsetIndexEntry(*entries.at(slot))


def earlier_offset_entries(
    source: ByteSource, relative_offset: int | None
) -> tuple[OffsetIndexEntry, ...]:
    """Return entries before the last one whose offset is not above ``relative_offset``.

    For whoever cannot use that one. There are few, the nearest first: each time, twice as many
    entries are skipped.

    Args:
        source: the index.
        relative_offset: the offset; None for any.

    Raises:
        OSError: reading fails.
    """
    entries = _Entries(source, _OFFSET_ENTRY)
    if relative_offset is None:
        count = entries.count_used()
    else:
        count = entries.count_rising(relative_offset)
    found = []
    slot, step = count - 2, 1
    while slot >= 0:
        found.append(OffsetIndexEntry(*entries.at(slot)))
        slot -= step
        step *= 2
    return tuple(found)


def last_time_entry(source: ByteSource | bytes) -> TimeIndexEntry | None:
    """Return the last entry of an index, which may be in memory; None if there is none.

    Raises:
        OSError: reading fails.
    """
    entries = _Entries(source, _TIME_ENTRY)
    slot = entries.count_used() - 1
    return None if slot < 0 else TimeIndexEntry(*entries.at(slot))


def time_entry_below(source: ByteSource, timestamp: int) -> TimeIndexEntry | None:
    """Return the last entry whose timestamp is below ``timestamp``; None if there is none.

    Raises:
        OSError: reading fails.
    """
    entries = _Entries(source, _TIME_ENTRY)
    slot = entries.count_rising(timestamp - 1) - 1
    return None if slot < 0 else TimeIndexEntry(*entries.at(slot))


class _Entries:
    """The entries of an index, which may be in memory; a small one is read once."""

    def __init__(self, source: ByteSource | bytes, layout: struct.Struct) -> None:
        self._source = source
        self._layout = layout
        size_bytes = len(source) if isinstance(source, bytes) else source.size_bytes
        self._slots = size_bytes // layout.size
        if not isinstance(source, bytes) and size_bytes <= _PAGE_BYTES:
            self._source = read_at(source, 0, self._slots * layout.size)

    def count_rising(self, most: int) -> int:
        """Count the entries whose first field is at most ``most``; by binary search."""
        low, high = 0, self.count_used()
        while low < high:
            middle = (low + high) // 2
            if self.at(middle)[0] <= most:
                low = middle + 1
            else:
                high = middle
        return low

    def count_used(self) -> int:
        """Count the entries before the padding.

        Two reads are enough for an index that is full or whose entries fit in a page. Otherwise
        each read halves the range, until one page of it is left.
        """
        low, high = 0, self._slots
        page = _PAGE_BYTES // self._layout.size
        if high > page and any(self.at(high - 1)):
            return high
        # The last entry is usually near the beginning.
        middle = min(page, high) - 1
        while high - low > page:
            if any(self.at(middle)):
                low = middle + 1
            else:
                high = middle
            middle = (low + high) // 2
        data = self._read(low, high - low)
        # Only padding is all zeroes, but the last byte of an entry may be zero.
        return low + -(-len(data.rstrip(b"\0")) // self._layout.size)

    def at(self, slot: int) -> tuple[int, ...]:
        """The fields of an entry."""
        # The file may have become shorter while it was read.
        return self._layout.unpack(self._read(slot, 1).ljust(self._layout.size, b"\0"))

    def _read(self, slot: int, count: int) -> bytes:
        start, size = slot * self._layout.size, count * self._layout.size
        if isinstance(self._source, bytes):
            return self._source[start : start + size]
        return read_at(self._source, start, size)
