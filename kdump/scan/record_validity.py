"""Which records of a valid batch are valid: those whose offsets rise, within their batch.

A consumer skips a record whose offset is not above that of the record before (``CompletedFetch``).
A record past its batch would take the offset of a later one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from kdump.formats import record_batch
from kdump.formats.compression import Codec, decompress
from kdump.formats.errors import FormatError
from kdump.formats.message_set import Message
from kdump.formats.record_batch import NEWEST_MAGIC
from kdump.scan.batches import LARGEST_WINDOW_BYTES, BatchColumns, Flags, Window
from kdump.scan.records import RecordColumns
from kdump.scan.selection import with_rows
from kdump.scan.window_records import read_records

_READ_BY_ITERATOR = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
"""A consumer stops where there is no valid beginning of such data, even without records."""


def reaching_records(window: Window) -> Window:
    """Let batches that count more records than offsets end at their last record.

    A consumer gets all these records, if they can be decoded.
    """
    batches = window.batches
    is_short = has_more_records(batches)
    if not is_short.any():
        return window
    is_short &= batches.is_valid & (batches.last_offset_delta >= 0)
    deltas = batches.last_offset_delta.copy()
    for row in np.flatnonzero(is_short).tolist():
        reached = last_record(window.rows(slice(row, row + 1)))
        if reached is not None:
            deltas[row] = max(int(deltas[row]), reached - int(batches.base_offset[row]))
    return replace(window, batches=replace(batches, last_offset_delta=deltas))


def has_more_records(batches: BatchColumns) -> Flags:
    """Which headers count more records than offsets."""
    has_more: Flags = batches.records_count - 1 > batches.last_offset_delta
    has_more &= batches.magic == NEWEST_MAGIC
    return has_more


def last_record(window: Window) -> int | None:
    """The offset of the last record of the only batch; None if there is none, or any is damaged."""
    base_offset, count = int(window.batches.base_offset[0]), 0
    greatest = base_offset - 1
    for columns in read_records(window):
        if columns.problems:
            return None
        if columns.count:
            if int(columns.offset[0]) <= greatest or (np.diff(columns.offset) <= 0).any():
                return None
            greatest = int(columns.offset[-1])
            count += columns.count
    return greatest if count else None


def valid_records_of(window: Window, pieces: Iterable[RecordColumns]) -> Iterator[RecordColumns]:
    """Yield only the valid records of a window; a batch that had others has a problem.

    Args:
        pieces: their records, in order.
    """
    undecodable = undecodable_without_records(window)
    greatest = -1
    for columns in pieces:
        is_valid = rising_in_batch(columns, greatest if columns.is_continued else -1)
        problems = {
            row: undecodable[position]
            for row, position in enumerate(columns.batches.position.tolist() if undecodable else ())
            if position in undecodable
        }
        for row in np.flatnonzero(~is_valid)[::-1].tolist():
            problems[int(columns.batch[row])] = offset_problem(columns, row)
        if problems:
            columns = with_rows(replace(columns, problems=problems | columns.problems), is_valid)
        # A batch that comes in pieces comes alone.
        greatest = int(columns.offset[-1]) if columns.count else greatest
        yield columns


def rising_in_batch(columns: RecordColumns, greatest: int = -1) -> Flags:
    """Which records have offsets within their batch, above all before them in it.

    Args:
        greatest: the greatest offset of the first batch in earlier columns.
    """
    offset, batch, batches = columns.offset, columns.batch, columns.batches
    is_valid = np.ones(columns.count, np.bool_)
    if not columns.count or _all_rise(columns, greatest):
        return is_valid
    first, last = batches.base_offset.tolist(), batches.last_offset.tolist()
    owner = least = -1
    for row, (of, own) in enumerate(zip(batch.tolist(), offset.tolist(), strict=True)):
        if of != owner:
            owner, least = of, first[of] if row else max(first[of], greatest + 1)
        is_valid[row] = least <= own <= last[of]
        if is_valid[row]:
            least = own + 1
    return is_valid


def _all_rise(columns: RecordColumns, greatest: int) -> bool:
    offset, batches = columns.offset, columns.batches
    if int(offset[0]) <= greatest or not (offset[1:] > offset[:-1]).all():
        return False
    starts = np.searchsorted(columns.batch, np.arange(batches.count))
    ends = np.append(starts[1:], columns.count)
    rows = np.flatnonzero(ends > starts)
    return bool(
        (offset[starts[rows]] >= batches.base_offset[rows]).all()
        and (offset[ends[rows] - 1] <= batches.last_offset[rows]).all()
    )


def offset_problem(columns: RecordColumns, row: int) -> FormatError:
    """What is wrong with a record that is not valid."""
    batches, owner = columns.batches, int(columns.batch[row])
    return FormatError(
        "a record's offset does not fit its batch, or the record before",
        position=int(batches.position[owner]),
        expected=f"increasing, from {int(batches.base_offset[owner])}"
        f" to {int(batches.last_offset[owner])}",
        found=int(columns.offset[row]),
    )


def valid_messages(messages: Sequence[Message]) -> tuple[list[Message], FormatError | None]:
    """The messages of a set of magic 0 or 1 with rising offsets; and what is wrong with others."""
    valid: list[Message] = []
    problem = None
    for message in messages:
        if valid and message.offset <= valid[-1].offset:
            problem = problem or FormatError(
                "the offsets in a compressed message set go back",
                expected=f"more than {valid[-1].offset}",
                found=message.offset,
            )
        else:
            valid.append(message)
    return valid, problem


def undecodable_without_records(window: Window) -> dict[int, FormatError]:
    """What is wrong with compressed batches without records, by position of the batch."""
    batches = window.batches
    codec = batches.attributes & record_batch.CODEC_MASK
    rows = np.flatnonzero((batches.records_count == 0) & (codec > 0) & (batches.magic >= 2))
    found: dict[int, FormatError] = {}
    if window.is_giant:
        return found
    for row in rows.tolist():
        if int(codec[row]) not in _READ_BY_ITERATOR:
            continue
        try:
            body = window.batch_bytes(row)[record_batch.HEADER_BYTES :]
            decompress(Codec(int(codec[row])), body, limit_bytes=LARGEST_WINDOW_BYTES)
        except FormatError as problem:
            found[int(batches.position[row])] = problem.as_value()
    return found
