"""The times of records in valid batches, where headers and time indexes are not believed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from kdump.formats.record_batch import NO_TIMESTAMP
from kdump.log.index_tail import TimeIndexEntry
from kdump.log.valid_windows import Damage, OnDamage, batch_damage
from kdump.scan import compiled_loops
from kdump.scan.batches import Window, read_windows
from kdump.scan.records import RecordColumns
from kdump.scan.selection import Selection
from kdump.scan.source import read_at
from kdump.scan.usual_batches import LARGEST_SMALL_LOG_BYTES, UnusualError, usual_batches
from kdump.scan.walk import MessageSet, expand_window
from kdump.storage.byte_source import ByteSource

_OFFSETS_END: Final = 2**63


def largest_timestamp_in(window: Window) -> int | None:
    """The largest timestamp of the records in a window, not of headers; None if it is damaged."""
    if not window.batches.is_valid.all():
        return None
    largest = NO_TIMESTAMP
    for step in expand_window(window, with_records=True):
        if isinstance(step, RecordColumns):
            if step.problems:
                return None
            largest = max(largest, int(step.timestamp.max(initial=NO_TIMESTAMP)))
        elif isinstance(step, MessageSet):
            if step.problem is not None:
                return None
            largest = max([largest, *(message.timestamp for message in step.messages)])
    return largest


def end_of_dated_batch(
    log: ByteSource, start: int, offset: int, timestamp: int, first_bytes: int
) -> int | None:
    """Where the batch ends that holds ``offset`` and whose largest time is ``timestamp``.

    None if there is no such batch, or a damaged one before it.

    Args:
        log: the segment's log.
        start: a batch at or before the one sought.
        offset: that it holds.
        timestamp: of its records.
        first_bytes: about how much is read first.

    Raises:
        OSError: the log cannot be read.
    """
    for window in read_windows(log, start, first_bytes=first_bytes):
        batches = window.batches
        reaches = batches.last_offset >= offset
        row = int(np.argmax(reaches)) if reaches.any() else batches.count
        if not batches.is_valid[: row + 1].all():
            return None
        if row == batches.count:
            continue
        is_inside = int(batches.base_offset[row]) <= offset or int(batches.magic[row]) < 2
        batch = window.rows(slice(row, row + 1))
        if is_inside and largest_timestamp_in(batch) == timestamp:
            return int(batches.next_position[row])
        return None
    return None


def largest_timestamp_of_small(
    log: ByteSource, base_offset: int, entry: TimeIndexEntry
) -> int | None:
    """As :func:`largest_timestamp_of_usual`; None if the log is not small.

    Raises:
        OSError: the log cannot be read.
    """
    if log.size_bytes > LARGEST_SMALL_LOG_BYTES:
        return None
    return largest_timestamp_of_usual(read_at(log, 0, log.size_bytes), base_offset, entry)


def largest_timestamp_of_usual(data: bytes, base_offset: int, entry: TimeIndexEntry) -> int | None:
    """The largest timestamp of the records of a small log; None if anything is unusual.

    Whatever the offset index says then, it leads to the batch that holds the entry's offset.

    Args:
        data: all of the log.
        entry: the last one of its time index.
    """
    largest = compiled_loops.largest_timestamps(data)
    if largest is None or entry.timestamp < 0 or entry.relative_offset < 0:
        return None
    offset = base_offset + entry.relative_offset
    last_offset, row_of_entry = -1, -1
    try:
        for row, (_, _, header) in enumerate(usual_batches(data, checksums=False)):
            if not last_offset < header[0] <= header[0] + header[6] < _OFFSETS_END:
                return None
            last_offset = header[0] + header[6]
            if row_of_entry < 0 and last_offset >= offset:
                if header[0] > offset or largest[row] != entry.timestamp:
                    return None
                row_of_entry = row
    except UnusualError:
        return None
    return max(largest[row_of_entry:]) if row_of_entry >= 0 else None


def first_offset(
    steps: Iterable[Window | Damage], selection: Selection, path: str, on_damage: OnDamage
) -> int | None:
    """The offset of the first selected record; None if there is none.

    Args:
        steps: the valid batches of a log, and the damage between them.
        selection: offsets and times of the record.
        path: of the log.
        on_damage: takes the damage before that record.
    """
    for step in steps:
        if isinstance(step, Damage):
            on_damage(step)
            continue
        for found in _first_in(step, selection, path):
            if isinstance(found, int):
                return found
            on_damage(found)
    return None


def _first_in(window: Window, selection: Selection, path: str) -> Iterator[int | Damage]:
    """Offsets of selected records, and damage, in order; those after the first may be left out."""
    for step in expand_window(window, selection, with_records=True, only_valid=True):
        if isinstance(step, RecordColumns):
            problems = {
                int(step.batches.position[row]): batch_damage(
                    window,
                    int(window.batches.position.searchsorted(step.batches.position[row])),
                    path,
                    problem,
                )
                for row, problem in step.problems.items()
            }
            first = int(step.batches.position[step.batch[0]]) if step.count else None
            yield from (d for at, d in sorted(problems.items()) if first is None or at < first)
            if step.count:
                yield int(step.offset[0])
            yield from problems.values()
        elif isinstance(step, MessageSet):
            if step.messages:
                yield step.messages[0].offset
            if step.problem is not None:
                yield batch_damage(step.window, 0, path, step.problem)
