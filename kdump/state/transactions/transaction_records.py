"""Find the records of ``__transaction_state`` that every coordinator can read, as columns.

Most records are soon replaced by a later one of the same transactional id. Whether a coordinator
could read them matters, because it stops loading at a record that it cannot read. What is in them
does not. So all values of a window are walked in parallel, field by field, and only the last record
of each id is decoded. A record that is not walked to its exact end counts as unusual, and whoever
asks has to decode it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from msgspec import Struct

from kdump.scan.arrow import gather_bytes
from kdump.scan.batches import Bytes, Column, Flags
from kdump.scan.distinct_keys import last_rows
from kdump.scan.records import RecordColumns
from kdump.scan.varint_columns import advance, unsigned_varint

_FEW: Final = 64
"""This few records are decoded faster than walked."""
_MOST_TOPICS: Final = 64
"""A transaction with more topics counts as unusual."""

# The fixed fields at the beginning of a value, and the two times after the partitions.
_STATUS_START: Final = 2 + 8 + 2 + 4
_PARTITIONS_START: Final = _STATUS_START + 1
_TIMES_BYTES: Final = 16
_KEY_PREFIX_BYTES: Final = 4
_LARGEST_STATUS: Final = 7
_EMPTY: Final = 0
_TAG_BYTES: Final = np.array([8, 8, 2, 2])
"""Sizes of the tagged fields by tag."""
_CLIENT_VERSION_TAG: Final = 2
_LATEST_CLIENT_VERSION: Final = 2

_Read = Callable[[Bytes, Column], tuple[Column, Column]]


def rows_that_matter(records: RecordColumns) -> Column:
    """The records to decode, in order: unusual ones, and the last of each id among the others."""
    if records.count <= _FEW:
        return np.arange(records.count)
    is_usual = _has_usual_key(records) & _has_usual_value(records)
    usual = np.flatnonzero(is_usual)
    matters = ~is_usual
    if usual.size:
        key = gather_bytes(
            records.data,
            records.key_start[usual],
            records.key_size[usual],
            np.ones(usual.size, np.bool_),
        )
        matters[usual[last_rows(key)]] = True
    return np.flatnonzero(matters)


def _has_usual_key(records: RecordColumns) -> Flags:
    """Whether a key is a transactional id and nothing else."""
    is_long: Flags = records.key_size >= _KEY_PREFIX_BYTES
    version, _ = _int16(records.data, records.key_start * is_long)
    size, _ = _int16(records.data, (records.key_start + 2) * is_long)
    is_usual: Flags = is_long & (version == 0) & (size == records.key_size - _KEY_PREFIX_BYTES)
    return is_usual


def _has_usual_value(records: RecordColumns) -> Flags:
    is_usual: Flags = records.value_size < 0
    is_long = np.flatnonzero(records.value_size >= _PARTITIONS_START + _TIMES_BYTES)
    version, _ = _int16(records.data, records.value_start[is_long])
    for number, layout in enumerate(_LAYOUTS):
        rows = is_long[version == number]
        if rows.size:
            start = records.value_start[rows]
            end = start + records.value_size[rows]
            is_usual[rows] = _is_walked(records.data, start, end, layout)
    return is_usual


class _Layout(Struct, frozen=True):
    """How a version of the value writes lengths, and whether it has tagged fields."""

    count: _Read
    length: _Read
    is_flexible: bool


def _is_walked(data: Bytes, start: Column, end: Column, layout: _Layout) -> Flags:
    """Which values end exactly where their fields lead."""
    status = data[start + _STATUS_START].astype(np.int64)
    topics, at = layout.count(data, start + _PARTITIONS_START)
    is_good: Flags = (status <= _LARGEST_STATUS) & (topics <= _MOST_TOPICS)
    is_good &= (topics >= 0) | ((topics == -1) & (status == _EMPTY))
    for number in range(int(topics[is_good].max(initial=0))):
        rows = np.flatnonzero(is_good & (topics > number))
        at[rows], is_good[rows] = _after_topic(data, at[rows], layout)
    at = advance(data, at, np.full(len(at), _TIMES_BYTES))
    if layout.is_flexible:
        at, is_tail = _after_tags(data, at)
        is_good &= is_tail
    is_good &= at == end
    return is_good


def _after_topic(data: Bytes, at: Column, layout: _Layout) -> tuple[Column, Flags]:
    """The positions after a topic and its partitions, and whether it can be read."""
    length, at = layout.length(data, at)
    count, after = layout.count(data, advance(data, at, length))
    is_good: Flags = (length >= 0) & (length <= 0x7FFF) & (count >= 0)
    at = advance(data, after, 4 * count)
    if layout.is_flexible:
        tags, at = unsigned_varint(data, at)
        is_good &= tags == 0
    return at, is_good


def _after_tags(data: Bytes, at: Column) -> tuple[Column, Flags]:
    """The positions after the tagged fields, and whether all are known and can be read."""
    tags, at = unsigned_varint(data, at)
    is_good: Flags = tags <= len(_TAG_BYTES)
    for number in range(int(tags[is_good].max(initial=0))):
        rows = np.flatnonzero(is_good & (tags > number))
        tag, after = unsigned_varint(data, at[rows])
        size, after = unsigned_varint(data, after)
        is_known = tag < len(_TAG_BYTES)
        is_known &= size == _TAG_BYTES[np.minimum(tag, len(_TAG_BYTES) - 1)]
        version, _ = _int16(data, after)
        is_known &= (tag != _CLIENT_VERSION_TAG) | (
            (version >= 0) & (version <= _LATEST_CLIENT_VERSION)
        )
        at[rows], is_good[rows] = advance(data, after, size), is_known
    return at, is_good


def _int16(data: Bytes, at: Column) -> tuple[Column, Column]:
    value = data[at].astype(np.int8).astype(np.int64) << 8 | data[at + 1]
    return value, at + 2


def _int32(data: Bytes, at: Column) -> tuple[Column, Column]:
    high, at = _int16(data, at)
    low, at = _int16(data, at)
    return high << 16 | (low & 0xFFFF), at


def _compact(data: Bytes, at: Column) -> tuple[Column, Column]:
    """A length or count of a flexible version: one more is written."""
    raw, at = unsigned_varint(data, at)
    return raw - 1, at


_LAYOUTS: Final = (
    _Layout(count=_int32, length=_int16, is_flexible=False),
    _Layout(count=_compact, length=_compact, is_flexible=True),
)
"""By the version of the value."""
