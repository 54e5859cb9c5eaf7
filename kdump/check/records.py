"""Check the records of batches: all in a deep check, otherwise those of control batches."""

from __future__ import annotations

import numpy as np

from kdump.check import invariants
from kdump.check.batches import SegmentScope
from kdump.check.collector import Collector
from kdump.check.findings import Finding, Place
from kdump.formats import message_set, record_batch
from kdump.formats.compression import Codec, decompress
from kdump.formats.errors import FillError, FormatError, OverLimitError
from kdump.scan.batches import LARGEST_WINDOW_BYTES, Column, Window
from kdump.scan.control_batches import is_control, malformed_control_batches
from kdump.scan.record_validity import offset_problem, rising_in_batch, undecodable_without_records
from kdump.scan.records import RecordColumns
from kdump.scan.walk import message_bytes
from kdump.scan.window_records import read_records


class BatchRecords:
    """Checks the records of batches; a large batch may come in pieces."""

    def __init__(self, scope: SegmentScope, into: Collector, largest_record_bytes: int) -> None:
        self._scope = scope
        self._into = into
        self._largest_record_bytes = largest_record_bytes
        self._offset_before = -1
        self.records = 0
        self.not_decoded = 0

    def check(self, window: Window) -> set[int]:
        """Check the records of batches of magic 2; returns the rows of damaged batches."""
        damaged: set[int] = set()
        first_row = 0
        for position, problem in undecodable_without_records(window).items():
            row = int(np.searchsorted(window.batches.position, position))
            damaged.add(row)
            self._into.add(
                invariants.BATCH_CODEC.of_error(
                    self._scope.of_batch(window.batches, row),
                    problem,
                    f"a batch without records stops a consumer: {problem.what}",
                )
            )
        for columns in read_records(window, self._largest_record_bytes):
            if columns.is_continued:
                first_row -= 1
            damaged |= {row + first_row for row in self._check(window, columns)}
            self.records += columns.count
            first_row += columns.batches.count
        return damaged

    def _check(self, window: Window, columns: RecordColumns) -> set[int]:
        damaged = set()
        for row, problem in columns.problems.items():
            if isinstance(problem, OverLimitError):
                self.not_decoded += 1
                self._into.add(not_decoded(self._scope.of_batch(columns.batches, row), problem))
                continue
            damaged.add(row)
            self._into.add(record_problem(self._scope, window, columns, row, problem))
        return damaged | self._check_offsets(columns) | self._check_timestamps(columns)

    def _check_offsets(self, columns: RecordColumns) -> set[int]:
        """Check that offsets increase in each batch, within what its header says."""
        batches, batch = columns.batches, columns.batch
        if not columns.count:
            return set()
        is_bad = ~rising_in_batch(columns, self._offset_before if columns.is_continued else -1)
        self._offset_before = int(columns.offset[-1])
        if not is_bad.any():
            return set()
        rows = np.flatnonzero(is_bad).tolist()

        def describe(row: int) -> Finding:
            problem = offset_problem(columns, row)
            return invariants.RECORD_OFFSETS.of_error(
                self._scope.of_batch(batches, int(batch[row])), problem
            )

        self._into.add_each(invariants.RECORD_OFFSETS.code, rows, describe)
        return set(batch[is_bad].tolist())

    def _check_timestamps(self, columns: RecordColumns) -> set[int]:
        """Check that the maximum timestamp of a batch is that of one of its records."""
        batches = columns.batches
        if not columns.count:
            return set()
        greatest = np.full(batches.count, np.iinfo(np.int64).min)
        edges = np.flatnonzero(np.diff(columns.batch, prepend=-1))
        greatest[columns.batch[edges]] = np.maximum.reduceat(columns.timestamp, edges)
        if columns.is_continued or batches.count == 1:
            # Only the last piece of a batch that comes in pieces can tell.
            whole = int(batches.records_count[0]) == columns.count
            if not whole:
                return set()
        has_records = greatest != np.iinfo(np.int64).min
        is_bad = has_records & (greatest != batches.max_timestamp)
        for row in columns.problems:
            is_bad[row] = False
        if not is_bad.any():
            return set()

        def describe(row: int) -> Finding:
            return invariants.BATCH_MAX_TIMESTAMP.finding(
                self._scope.of_batch(batches, row),
                "the header's maximum timestamp is not that of a record",
                expected=int(greatest[row]),
                found=int(batches.max_timestamp[row]),
            )

        self._into.add_each(
            invariants.BATCH_MAX_TIMESTAMP.code, np.flatnonzero(is_bad).tolist(), describe
        )
        return set(np.flatnonzero(is_bad).tolist())

    def check_message_set(self, window: Window, row: int) -> tuple[int | None, bool]:
        """Check the messages of one entry of magic 0 or 1.

        Returns:
            The number of messages, None if they are over the limit, and whether they are damaged.
        """
        largest = max(self._largest_record_bytes, message_set.LARGEST_INNER_BYTES)
        place = self._scope.of_batch(window.batches, row)
        count = 0
        greatest = message_set.NO_TIMESTAMP
        offset_before: int | None = None
        try:
            outer = message_set.decode_message(message_bytes(window, row, largest))
            if outer.codec is Codec.NONE:
                _ = outer.value
                return 1, False
            for message in message_set.inner_messages(outer, largest_bytes=largest):
                _ = message.value
                if not message.is_valid:
                    raise FormatError(
                        "the checksum of a message in a compressed set does not match",
                        position=message.position,
                    )
                if offset_before is not None and message.offset <= offset_before:
                    self._into.add(
                        invariants.RECORD_OFFSETS.finding(
                            place,
                            "the offsets in a compressed message set go back",
                            expected=f"more than {offset_before}",
                            found=message.offset,
                        )
                    )
                    return count, True
                offset_before = message.offset
                greatest = max(greatest, message.timestamp)
                count += 1
        except OverLimitError as problem:
            self.not_decoded += 1
            self._into.add(not_decoded(place, problem))
            return None, False
        except FormatError as problem:
            invariant = (
                invariants.BATCH_CODEC
                if count == 0 and window.batches.attributes[row] & record_batch.CODEC_MASK
                else invariants.RECORD_MALFORMED
            )
            self._into.add(invariant.of_error(place, problem))
            return count, True
        if outer.magic == 1 and greatest != outer.timestamp:
            self._into.add(
                invariants.BATCH_MAX_TIMESTAMP.finding(
                    place,
                    "the timestamp of a compressed message set is not the maximum of its messages",
                    expected=greatest,
                    found=outer.timestamp,
                )
            )
            return count, True
        return count, False


def not_decoded(place: Place, problem: OverLimitError) -> Finding:
    """The finding for records over the decoding limit."""
    return invariants.BATCH_NOT_DECODED.of_error(place, problem)


def record_problem(
    scope: SegmentScope, window: Window, columns: RecordColumns, row: int, problem: FormatError
) -> Finding:
    """The finding for a batch whose records cannot all be decoded."""
    batches = columns.batches
    place = scope.of_batch(batches, row)
    loss = f"some of {int(batches.records_count[row])} records"
    if _is_undecodable(window, int(batches.position[row]), int(batches.attributes[row])):
        invariant = invariants.BATCH_CODEC
    elif isinstance(problem, FillError):
        invariant = invariants.BATCH_FILL
    else:
        invariant = invariants.RECORD_MALFORMED
    return invariant.of_error(place, problem, loss=loss)


def _is_undecodable(window: Window, position: int, attributes: int) -> bool:
    """Whether the records of a batch cannot be decompressed, rather than decoded."""
    if attributes & record_batch.CODEC_MASK == Codec.NONE or window.is_giant:
        return False
    row = int(np.searchsorted(window.batches.position, position))
    body = window.batch_bytes(row)[record_batch.HEADER_BYTES :]
    try:
        decompress(Codec.of_attributes(attributes), body, limit_bytes=LARGEST_WINDOW_BYTES)
    except FormatError:
        return True
    return False


def valid_control_batches(window: Window, scope: SegmentScope, into: Collector) -> Column:
    """Check the record of each control batch; returns the rows of valid ones with a producer.

    Control batches without a record are skipped.
    """
    batches = window.batches
    is_valid = is_control(batches) & (batches.records_count != 0)
    for row, problem in malformed_control_batches(window, is_valid).items():
        is_valid[row] = False
        into.add(
            invariants.CONTROL_RECORD.of_error(
                scope.of_batch(batches, row),
                problem,
                f"a control record is malformed: {problem.what}",
                loss="the outcome: for a transaction, whether it was committed",
            )
        )
    valid: Column = np.flatnonzero(is_valid & (batches.producer_id >= 0))
    return valid
