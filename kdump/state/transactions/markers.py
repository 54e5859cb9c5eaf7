"""The end transaction markers among the batches of a window.

Nearly all markers have the bytes that brokers write: they are decoded as columns, many at once. Any
other marker (compressed, with more records, damaged) is read as Kafka reads it: the first record of
the control batch decides (``EndTransactionMarker``).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from kdump.formats import record_batch
from kdump.formats.compression import Codec
from kdump.formats.end_txn_marker import (
    ControlRecordError,
    EndTxnMarker,
    parse_end_txn_marker,
)
from kdump.scan.batches import BatchColumns, Column, Flags, Window
from kdump.scan.control_batches import is_control, plain_markers
from kdump.scan.window_records import read_records
from kdump.state.decompression import require_decompressible
from kdump.target.refusal import Refused

_NOTHING = np.empty(0, np.int64)


class InvalidMarker(Exception):
    """A control batch that Kafka calls invalid: a recovering broker ends the log after it."""

    def __init__(self, row: int, what: str) -> None:
        super().__init__(what)
        self.row = row


class Markers(Struct, frozen=True):
    """Control batches of producers, as columns of shape (n,) in the order of the window.

    Attributes:
        row: of the batch in the window, int64.
        is_abort: bool.
        coordinator_epoch: of the coordinator that wrote it, int64.
        timestamp: of the record, int64.
        problems: by row, why Kafka cannot read the marker; the columns say nothing about it.
    """

    row: Column
    is_abort: Flags
    coordinator_epoch: Column
    timestamp: Column
    problems: Mapping[int, InvalidMarker | Refused]


NO_MARKERS = Markers(_NOTHING, np.empty(0, np.bool_), _NOTHING, _NOTHING, {})


def marker_rows(batches: BatchColumns) -> Column:
    """Rows of the control batches of producers that hold a record.

    Compaction empties a marker when the data of its transaction is gone.
    """
    rows = np.flatnonzero(is_control(batches))
    of_producers: Column = rows[
        (batches.producer_id[rows] >= 0) & (batches.records_count[rows] != 0)
    ]
    return of_producers


def read_markers(window: Window, file_name: str, rows: Column | None = None) -> Markers:
    """Read the markers of a window.

    Args:
        file_name: of the log, for what is refused.
        rows: those to read; by default all of :func:`marker_rows`.
    """
    rows = marker_rows(window.batches) if rows is None else rows
    if not rows.size:
        return NO_MARKERS
    batches = window.batches
    is_append_time = (batches.attributes[rows] & record_batch.LOG_APPEND_TIME_FLAG) != 0
    timestamp = np.where(is_append_time, batches.max_timestamp[rows], batches.base_timestamp[rows])
    is_plain, is_abort, coordinator_epoch = plain_markers(window, rows)
    problems: dict[int, InvalidMarker | Refused] = {}
    for at in np.flatnonzero(~is_plain).tolist():
        row = int(rows[at])
        try:
            marker, timestamp[at] = _read_marker(window, row, file_name)
        except (InvalidMarker, Refused) as problem:
            problems[row] = problem
        else:
            is_abort[at], coordinator_epoch[at] = marker
    return Markers(rows, is_abort, coordinator_epoch, timestamp, problems)


def _read_marker(window: Window, row: int, file_name: str) -> tuple[EndTxnMarker, int]:
    """A marker and its timestamp, from the first record of its batch.

    Raises:
        InvalidMarker: a recovering broker ends the log after it.
        Refused: Kafka's loading fails on it.
    """
    position = int(window.batches.position[row])
    attributes = int(window.batches.attributes[row])
    is_compressed = attributes & record_batch.CODEC_MASK != Codec.NONE
    one = window
    if not window.is_giant:
        one = window.rows(slice(row, row + 1))
        if is_compressed:
            body = one.batch_bytes(0)[record_batch.HEADER_BYTES :]
            require_decompressible(attributes, body, file_name, position)
    columns = next(read_records(one), None)
    if columns is None:
        raise InvalidMarker(row, "a control batch without a record")
    is_all_read = is_compressed or window.batches.records_count[row] == 1
    problem = next(iter(columns.problems.values()), None)
    if not columns.count or (problem is not None and is_all_read):
        raise InvalidMarker(row, str(problem))
    try:
        marker = parse_end_txn_marker(columns.key(0), columns.value(0))
    except ControlRecordError as error:
        if error.is_invalid_record:
            raise InvalidMarker(row, error.what) from error
        raise Refused(error.what, file_name, error.exception, position) from error
    return marker, int(columns.timestamp[0])
