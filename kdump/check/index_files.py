"""Check an index file by itself: its size, the order of its entries, its padding."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Self

import numpy as np
from msgspec import Struct

from kdump.check import invariants
from kdump.check.batches import SegmentScope
from kdump.check.collector import Collector
from kdump.check.findings import Finding, Place, Severity
from kdump.check.invariants import Invariant
from kdump.check.part import ByteAccount
from kdump.formats import offset_index, time_index, transaction_index
from kdump.formats.index_search import Column
from kdump.formats.kafka_versions import KafkaVersion
from kdump.formats.offset_index import OffsetIndex
from kdump.formats.time_index import TimeIndex
from kdump.formats.transaction_index import TransactionIndex
from kdump.log.partition import read_if_there
from kdump.scan.batches import Flags
from kdump.scan.index_bytes import IndexBytes, read_index
from kdump.storage.location import Location
from kdump.words import counted


class CheckedEntries(Struct, frozen=True):
    """The entries of an offset or time index, or of those of several segments.

    Attributes:
        base_offset: of the segment: a number, or for several a column with a row for each entry.
        is_first: whether an entry is the first of its index.
        offset: of each entry.
        value: its position in the log, or its timestamp.
    """

    base_offset: int | Column
    is_first: Flags
    offset: Column
    value: Column

    @classmethod
    def of_one(cls, base_offset: int, offset: Column, value: Column) -> Self:
        """The entries of the index of one segment."""
        is_first = np.zeros(len(offset), np.bool_)
        is_first[:1] = True
        return cls(base_offset, is_first, offset, value)


class IndexCheck(NamedTuple):
    """An invariant of an index by itself: once, for the index of one segment and of many.

    Attributes:
        invariant: whose code the limit of findings counts.
        find: which entries violate it.
        describe: the finding for the entry in a slot of the index of one segment.
    """

    invariant: Invariant
    find: Callable[[CheckedEntries], Flags]
    describe: Callable[[CheckedEntries, int, Location], Finding]


def _is_not_above(column: Column) -> Flags:
    """Whether the value of each row is at or below that of the row before; false for the first."""
    is_bad = np.zeros(len(column), np.bool_)
    np.less_equal(column[1:], column[:-1], out=is_bad[1:])
    return is_bad


def _goes_back_in_log(entries: CheckedEntries) -> Flags:
    """The offset or position of an entry is not above that of the entry before."""
    is_bad = _is_not_above(entries.offset) | _is_not_above(entries.value)
    is_below = (entries.offset < entries.base_offset) | (entries.value < 0)
    return np.where(entries.is_first, is_below, is_bad)


def _in_log_order(entries: CheckedEntries, slot: int, path: Location) -> Finding:
    return invariants.OFFSET_INDEX_ORDER.finding(
        Place(str(path), slot * offset_index.ENTRY_BYTES, int(entries.offset[slot])),
        "an entry of the offset index is not after the one before it",
        expected=_after(entries, slot, "byte"),
        found=f"offset {int(entries.offset[slot])} at byte {int(entries.value[slot])}",
    )


def _goes_back_in_time(entries: CheckedEntries) -> Flags:
    """The timestamp of an entry is not above that of the entry before, or its offset is below."""
    is_bad = _is_not_above(entries.value)
    is_bad[1:] |= entries.offset[1:] < entries.offset[:-1]
    return np.where(entries.is_first, entries.offset < entries.base_offset, is_bad)


def _in_time_order(entries: CheckedEntries, slot: int, path: Location) -> Finding:
    return invariants.TIME_INDEX_ORDER.finding(
        Place(str(path), slot * time_index.ENTRY_BYTES, int(entries.offset[slot])),
        "an entry of the time index is not after the one before it",
        expected=_after(entries, slot, "timestamp"),
        found=f"offset {int(entries.offset[slot])}, timestamp {int(entries.value[slot])}",
    )


OF_OFFSET_INDEX: Final = (
    IndexCheck(invariants.OFFSET_INDEX_ORDER, _goes_back_in_log, _in_log_order),
)
OF_TIME_INDEX: Final = (
    IndexCheck(invariants.TIME_INDEX_ORDER, _goes_back_in_time, _in_time_order),
)


def check_offset_index(
    path: Location, scope: SegmentScope, into: Collector
) -> tuple[ByteAccount, OffsetIndex | None]:
    """Check an offset index by itself; also returns its entries, None if the file is missing.

    Raises:
        OSError: the file cannot be read.
    """
    size = offset_index.ENTRY_BYTES
    file = read_index(path, size, scope.used_index_bytes and scope.used_index_bytes[0])
    if file is None:
        return ByteAccount(), None
    account, used = _check_size(path, file, size, scope, into)
    index = offset_index.decode(file.data[: used * size], scope.base_offset)
    entries = CheckedEntries.of_one(scope.base_offset, index.offset, index.position)
    _check_entries(OF_OFFSET_INDEX, entries, path, into)
    return account, index


def check_time_index(
    path: Location, scope: SegmentScope, into: Collector
) -> tuple[ByteAccount, TimeIndex | None]:
    """Check a time index by itself; also returns its entries, None if the file is missing.

    Raises:
        OSError: the file cannot be read.
    """
    size = time_index.ENTRY_BYTES
    file = read_index(path, size, scope.used_index_bytes and scope.used_index_bytes[1])
    if file is None:
        return ByteAccount(), None
    account, used = _check_size(path, file, size, scope, into)
    index = time_index.decode(file.data[: used * size], scope.base_offset)
    entries = CheckedEntries.of_one(scope.base_offset, index.offset, index.timestamp)
    _check_entries(OF_TIME_INDEX, entries, path, into)
    return account, index


def _check_entries(
    checks: Iterable[IndexCheck], entries: CheckedEntries, path: Location, into: Collector
) -> None:
    for each in checks:
        rows = np.flatnonzero(each.find(entries)).tolist()
        into.add_each(
            each.invariant.code,
            rows,
            functools.partial(_described, each, entries, path),
        )


def _described(check: IndexCheck, entries: CheckedEntries, path: Location, slot: int) -> Finding:
    return check.describe(entries, slot, path)


def _after(entries: CheckedEntries, slot: int, name: str) -> str:
    if slot == 0:
        return f"offset {entries.base_offset} or more"
    before = slot - 1
    return f"more than offset {int(entries.offset[before])}, {name} {int(entries.value[before])}"


def has_odd_size(data: bytes, entry_bytes: int) -> bool:
    """Whether an index ends in a partial entry, or in padding."""
    if len(data) % entry_bytes:
        return True
    return len(data) > entry_bytes and not any(data[-entry_bytes:])


def _check_size(
    path: Location, file: IndexBytes, entry_bytes: int, scope: SegmentScope, into: Collector
) -> tuple[ByteAccount, int]:
    """Check size and padding; returns the account and the number of used entries."""
    if file.size_bytes == len(file.data) and not has_odd_size(file.data, entry_bytes):
        return ByteAccount(file.size_bytes), file.size_bytes // entry_bytes
    count, trailing = divmod(file.size_bytes, entry_bytes)
    padding = file.count_padding(entry_bytes)
    if trailing:
        into.add(partial_entry(path, file.size_bytes, entry_bytes))
    if padding and not scope.is_padded:
        into.add(
            invariants.INDEX_PADDING.finding(
                Place(str(path), (count - padding) * entry_bytes),
                "zeroes follow the last entry of an index, as a killed broker leaves it"
                if scope.is_active
                else "zeroes follow the last entry of an index that should be trimmed",
                found=f"{padding * entry_bytes} bytes",
                severity=Severity.INFO if scope.may_be_torn else None,
            )
        )
    used = count - padding
    return ByteAccount(used * entry_bytes, padding * entry_bytes, trailing), used


def partial_entry(path: Location, size_bytes: int, entry_bytes: int) -> Finding:
    """The finding for an index that ends in a partial entry."""
    trailing = size_bytes % entry_bytes
    return invariants.INDEX_SIZE.finding(
        Place(str(path), size_bytes - trailing),
        "an index ends in a partial entry",
        expected=f"a multiple of {entry_bytes} bytes",
        found=counted(size_bytes, "byte"),
    )


def check_transaction_index(
    path: Location, into: Collector, kafka: KafkaVersion
) -> tuple[TransactionIndex | None, ByteAccount]:
    """Check a transaction index by itself, for the broker of a version.

    Also returns its content, None if it is missing.

    Raises:
        OSError: the file cannot be read.
    """
    data = read_if_there(path)
    if data is None:
        return None, ByteAccount()
    index = transaction_index.decode(data)
    size = transaction_index.ENTRY_BYTES
    if index.trailing_bytes:
        into.add(partial_entry(path, len(data), size))
    for slot, entry in enumerate(index.entries):
        if not entry.is_known_to(kafka):
            into.add(
                invariants.TRANSACTION_INDEX_VERSION.finding(
                    Place(str(path), slot * size),
                    "an entry of the transaction index has a version that Kafka refuses",
                    expected=transaction_index.CURRENT_VERSION,
                    found=entry.version_in(kafka),
                )
            )
    return index, ByteAccount(len(data) - index.trailing_bytes, 0, index.trailing_bytes)


def used_bytes(path: Location, entry_bytes: int) -> int:
    """Number of bytes of whole entries before the padding of an index; 0 if it is missing.

    Raises:
        OSError: the file cannot be read.
    """
    file = read_index(path, entry_bytes)
    if file is None:
        return 0
    return (file.size_bytes // entry_bytes - file.count_padding(entry_bytes)) * entry_bytes
