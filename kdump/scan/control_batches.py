"""Control batches: which they are, which are plain markers, and which are damaged.

Nearly all are end transaction markers with the bytes that brokers write, which are decoded as
columns, many at once.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kdump.formats import record_batch
from kdump.formats.compression import Codec, decompress
from kdump.formats.end_txn_marker import (
    NO_COORDINATOR_EPOCH,
    PLAIN_MARKER_BYTES,
    find_plain_markers,
)
from kdump.formats.errors import FormatError
from kdump.scan.batches import LARGEST_WINDOW_BYTES, BatchColumns, Column, Flags, Window

_PLAIN_BATCH_BYTES: Final = record_batch.HEADER_BYTES + PLAIN_MARKER_BYTES


def is_control(batches: BatchColumns) -> Flags:
    """Which batches hold a control record instead of data."""
    return _has_flag(batches, record_batch.CONTROL_FLAG)


def is_transactional(batches: BatchColumns) -> Flags:
    """Which batches are part of a transaction, including its marker."""
    return _has_flag(batches, record_batch.TRANSACTIONAL_FLAG)


def _has_flag(batches: BatchColumns, flag: int) -> Flags:
    has_it: Flags = ((batches.attributes & flag) != 0) & (batches.magic >= 2)
    return has_it


def plain_markers(window: Window, rows: Column) -> tuple[Flags, Flags, Column]:
    """Whether each of ``rows`` is a plain marker; if so, whether it aborts, and its epoch.

    The epoch is that of the coordinator that wrote it.
    """
    batches = window.batches
    is_plain = (
        (batches.size_bytes[rows] == _PLAIN_BATCH_BYTES)
        & (batches.attributes[rows] & record_batch.CODEC_MASK == Codec.NONE)
        & (batches.records_count[rows] == 1)
    )
    is_abort = np.zeros(len(rows), np.bool_)
    coordinator_epoch = np.full(len(rows), NO_COORDINATOR_EPOCH, np.int64)
    may_be = np.flatnonzero(is_plain)
    if may_be.size and not window.is_giant:
        starts = batches.position[rows[may_be]] - window.start + record_batch.HEADER_BYTES
        found = find_plain_markers(window.data[starts[:, None] + np.arange(PLAIN_MARKER_BYTES)])
        is_plain[may_be] = found.is_plain
        is_abort[may_be] = found.is_abort
        coordinator_epoch[may_be] = found.coordinator_epoch
    return is_plain, is_abort, coordinator_epoch


def malformed_control_batches(window: Window, wanted: Flags) -> dict[int, FormatError]:
    """What is wrong with the control batches among ``wanted``, by row.

    Compaction empties a control batch, and one that is too large to hold is not decoded.
    """
    batches = window.batches
    found: dict[int, FormatError] = {}
    if window.is_giant:
        return found
    is_wanted = is_control(batches)
    if not is_wanted.any():
        return found
    rows = np.flatnonzero(is_wanted & wanted & (batches.records_count != 0))
    is_plain = plain_markers(window, rows)[0]
    for row in rows[~is_plain].tolist():
        try:
            _decode(window, row)
        except FormatError as problem:
            found[row] = problem.as_value()
    return found


def _decode(window: Window, row: int) -> None:
    """Decode a control batch.

    Raises:
        FormatError: it cannot be decompressed, or a record of it is malformed.
    """
    # Imported here, because nearly all are markers as brokers write them, and never decoded.
    from kdump.formats.control_records import parse_control_record

    header = window.batches.header(row)
    body = decompress(
        Codec.of_attributes(header.attributes),
        window.batch_bytes(row)[record_batch.HEADER_BYTES :],
        limit_bytes=LARGEST_WINDOW_BYTES,
    )
    for record in record_batch.decode_records(header, body):
        parse_control_record(record.key, record.value)
