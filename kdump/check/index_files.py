"""Check an index file by itself: its size, the order of its entries, its padding."""

from __future__ import annotations

import numpy as np

from kdump.check import invariants
from kdump.check.batches import SegmentScope
from kdump.check.collector import Collector
from kdump.check.findings import Finding, Place, Severity
from kdump.check.part import ByteAccount
from kdump.formats import offset_index, time_index, transaction_index
from kdump.formats.index_search import Column
from kdump.formats.kafka_versions import KafkaVersion
from kdump.formats.offset_index import OffsetIndex
from kdump.formats.time_index import TimeIndex
from kdump.formats.transaction_index import TransactionIndex
from kdump.scan.index_bytes import IndexBytes, read_index
from kdump.storage.location import Location
from kdump.words import counted


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
    is_bad = np.zeros(used, np.bool_)
    if used:
        is_bad[0] = index.offset[0] < scope.base_offset or index.position[0] < 0
        is_bad[1:] = (index.offset[1:] <= index.offset[:-1]) | (
            index.position[1:] <= index.position[:-1]
        )

    def describe(slot: int) -> Finding:
        return invariants.OFFSET_INDEX_ORDER.finding(
            Place(str(path), slot * size, int(index.offset[slot])),
            "an entry of the offset index is not after the one before it",
            expected=_after(index.offset, index.position, slot, scope.base_offset),
            found=f"offset {int(index.offset[slot])} at byte {int(index.position[slot])}",
        )

    rows = np.flatnonzero(is_bad).tolist()
    into.add_each(invariants.OFFSET_INDEX_ORDER.code, rows, describe)
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
    is_bad = np.zeros(used, np.bool_)
    if used:
        is_bad[0] = index.offset[0] < scope.base_offset
        is_bad[1:] = (index.offset[1:] < index.offset[:-1]) | (
            index.timestamp[1:] <= index.timestamp[:-1]
        )

    def describe(slot: int) -> Finding:
        return invariants.TIME_INDEX_ORDER.finding(
            Place(str(path), slot * size, int(index.offset[slot])),
            "an entry of the time index is not after the one before it",
            expected=_after(index.offset, index.timestamp, slot, scope.base_offset, "timestamp"),
            found=f"offset {int(index.offset[slot])}, timestamp {int(index.timestamp[slot])}",
        )

    rows = np.flatnonzero(is_bad).tolist()
    into.add_each(invariants.TIME_INDEX_ORDER.code, rows, describe)
    return account, index


def _after(offset: Column, other: Column, slot: int, base_offset: int, name: str = "byte") -> str:
    if slot == 0:
        return f"offset {base_offset} or more"
    return f"more than offset {int(offset[slot - 1])}, {name} {int(other[slot - 1])}"


def _check_size(
    path: Location, file: IndexBytes, entry_bytes: int, scope: SegmentScope, into: Collector
) -> tuple[ByteAccount, int]:
    """Check size and padding; returns the account and the number of used entries."""
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
    data = _read(path)
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


def _read(path: Location) -> bytes | None:
    try:
        return path.read()
    except FileNotFoundError:
        return None
