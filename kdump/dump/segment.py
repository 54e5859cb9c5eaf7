"""A segment or a metadata snapshot: what is read of it, and what is said about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from kdump.dump.dumped_file import DumpedFile
from kdump.dump.log_text import (
    TextOptions,
    batches_text,
    message_set_text,
    records_text,
)
from kdump.dump.problems import Problem
from kdump.dump.report import DumpReport
from kdump.formats import offset_index, time_index
from kdump.formats.errors import FormatError
from kdump.formats.index_search import NO_SLOT, largest_lower_bounds
from kdump.formats.names import (
    BOOTSTRAP_CHECKPOINT,
    FileKind,
    parse_metadata_snapshot_name,
)
from kdump.scan.batches import BatchColumns, Column, Stop, Window, read_windows
from kdump.scan.records import RecordColumns
from kdump.scan.selection import Selection
from kdump.scan.source import FileSource
from kdump.scan.walk import MessageSet, Skipped, Step, walk_segment

MOST_PROBLEMS: Final = 20
"""Of one file, this many are said one by one, the others only counted."""


@dataclass(frozen=True, slots=True)
class SegmentOptions:
    """What of a segment is dumped.

    Attributes:
        deep: its records too.
        max_bytes: read no more than that; None for all.
        selection: which records, or which batches where records are not read.
        follow_bad: go on behind damage at the next sound batch.
        text: what the lines of records show.
    """

    deep: bool = False
    max_bytes: int | None = None
    selection: Selection = field(default_factory=Selection)
    follow_bad: bool = False
    text: TextOptions = field(default_factory=TextOptions)


def dump(
    file: DumpedFile, options: SegmentOptions, report: DumpReport
) -> Iterator[bytes | memoryview]:
    """Print a segment as the official tool's ``dumpLog`` does.

    Yields:
        Text for standard output, in pieces.

    Raises:
        OSError: when the file cannot be read.
    """
    with FileSource(file.path) as source:
        yield _opening(file, report)
        reading = SegmentReading(file, source, options, report)
        for step in reading.steps():
            if isinstance(step, Window):
                yield batches_text(step, reading.damage)
            elif isinstance(step, RecordColumns):
                yield records_text(step, options.text, reading.damage)
            elif isinstance(step, MessageSet):
                yield message_set_text(step, options.text, reading.damage)
            elif isinstance(step, Stop):
                yield reading.trailing_text(step)
        reading.finish()


def _opening(file: DumpedFile, report: DumpReport) -> bytes:
    name = file.path.name
    if name.startswith(BOOTSTRAP_CHECKPOINT):
        return b"KRaft bootstrap snapshot\n"
    snapshot = parse_metadata_snapshot_name(name)
    if snapshot is not None:
        return f"Snapshot end offset: {snapshot.end_offset}, epoch: {snapshot.epoch}\n".encode()
    if file.base_offset_problem is not None:
        report.problem(file.base_offset_problem)
        return b""
    return f"Log starting offset: {file.base_offset}\n".encode()


class SegmentReading:
    """One pass over a segment that keeps the book of what is wrong with it.

    Args:
        file: what is dumped.
        source: its bytes.
        options: what of it.
        report: where to say what is wrong.
    """

    def __init__(
        self,
        file: DumpedFile,
        source: FileSource,
        options: SegmentOptions,
        report: DumpReport,
    ) -> None:
        self._file = file
        self._source = source
        self._options = options
        self._report = report
        self._previous_offset = -1
        self._problems = 0

    @property
    def size_bytes(self) -> int:
        """Of the file."""
        return self._source.size_bytes

    def steps(self) -> Iterator[Step]:
        """What the options ask for, front to back; the damage between is reported on the way."""
        options = self._options
        steps = walk_segment(
            self._source,
            0 if options.follow_bad else self._start(),
            options.max_bytes,
            with_records=options.deep,
            selection=options.selection,
            follow_bad=options.follow_bad,
        )
        for step in steps:
            if isinstance(step, Window):
                self._note_batches(step.batches)
            elif isinstance(step, RecordColumns):
                self._note_batches(step.batches)
                self._note_offsets(step.offset)
            elif isinstance(step, MessageSet):
                self._note_batches(step.window.batches)
                offsets = [message.offset for message in step.messages]
                self._note_offsets(np.array(offsets, np.int64))
            elif isinstance(step, Skipped):
                self._note_skipped(step)
            else:
                self._note_stop(step)
            yield step

    def damage(self, position: int, problem: FormatError) -> None:
        """Say what is wrong with the batch at ``position`` of the file."""
        self._problem(Problem.from_format_error(self._file.path, problem, at=position))

    def trailing_text(self, stop: Stop) -> bytes:
        """The official tool's line on what stands behind the last batch."""
        trailing = self._source.size_bytes - stop.position
        if stop.problem is None or stop.is_fatal_to_kafka or self._is_limited:
            return b""
        return f"Found {trailing} invalid bytes at the end of {self._file.path.name}\n".encode()

    def finish(self) -> None:
        """Say how many problems were not said one by one."""
        left = self._problems - MOST_PROBLEMS
        if left > 0:
            self._report.problem(Problem(self._file.path, None, f"{left} more problems like these"))

    @property
    def _is_limited(self) -> bool:
        return self._options.max_bytes is not None

    def _problem(self, problem: Problem) -> None:
        self._problems += 1
        if self._problems <= MOST_PROBLEMS:
            self._report.problem(problem)

    def _note_batches(self, batches: BatchColumns) -> None:
        if not batches.is_valid.all():
            self._report.note_damage()

    def _note_offsets(self, offset: Column) -> None:
        if not len(offset) or not self._options.selection.is_all:
            return
        previous = np.concatenate([[self._previous_offset], offset[:-1]])
        is_gap = offset != previous + 1
        if is_gap.any():
            name = self._file.absolute_name
            self._report.non_consecutives(name, previous[is_gap], offset[is_gap])
        self._previous_offset = int(offset[-1])

    def _note_skipped(self, skipped: Skipped) -> None:
        problem = Problem.from_format_error(self._file.path, skipped.problem)
        size = skipped.end - skipped.start
        where = (
            "to the end of the file"
            if skipped.end == self._source.size_bytes
            else f"to the next sound batch at byte {skipped.end}"
        )
        self._problem(
            Problem(
                problem.path,
                problem.position,
                f"{problem.what}; {size} bytes skipped {where}",
                problem.expected,
                problem.found,
            )
        )

    def _note_stop(self, stop: Stop) -> None:
        if stop.problem is None:
            return
        if stop.is_fatal_to_kafka:
            self._problem(Problem.from_format_error(self._file.path, stop.problem))
        elif not self._is_limited:
            self._report.note_damage()

    def _start(self) -> int:
        """Where to begin reading: behind what the selection leaves out, if an index tells."""
        selection = self._options.selection
        if self._file.base_offset is None or self._options.max_bytes is not None:
            return 0
        wanted = selection.from_offset
        if selection.from_time_ms is not None:
            earlier = self._last_offset_before(selection.from_time_ms)
            wanted = max(wanted or 0, earlier + 1)
        if wanted is None:
            return 0
        return self._position_before(wanted)

    def _last_offset_before(self, time_ms: int) -> int:
        """An offset up to which every record is older than ``time_ms``; -1 for none."""
        path = self._file.neighbour(FileKind.TIME_INDEX)
        if not path.exists():
            return -1
        index = time_index.decode(path.read_bytes(), self._file.base_offset or 0)
        used = slice(0, offset_index.count_before_restart(index.offset, index.base_offset))
        timestamp, offset = index.timestamp[used], index.offset[used]
        if (np.diff(timestamp) < 0).any() or (np.diff(offset) < 0).any():
            return -1
        slot = _slot(timestamp, time_ms - 1, time_index.ENTRY_BYTES)
        return -1 if slot == NO_SLOT else int(offset[slot])

    def _position_before(self, wanted: int) -> int:
        """The start of a batch at or before the one that holds ``wanted``; 0 in doubt."""
        path = self._file.neighbour(FileKind.OFFSET_INDEX)
        if not path.exists():
            return 0
        index = offset_index.decode(path.read_bytes(), self._file.base_offset or 0)
        used = slice(0, offset_index.count_before_restart(index.offset, index.base_offset))
        offset, position = index.offset[used], index.position[used]
        if (np.diff(offset) <= 0).any() or (np.diff(position) <= 0).any():
            return 0
        slot = _slot(offset, wanted - 1, offset_index.ENTRY_BYTES)
        if slot == NO_SLOT or not self._ends_with(int(position[slot]), int(offset[slot])):
            return 0
        return int(position[slot])

    def _ends_with(self, position: int, last_offset: int) -> bool:
        """Whether a sound batch at ``position`` ends with the offset that an index gives it."""
        if not 0 <= position < self._source.size_bytes:
            return False
        window = next(read_windows(self._source, position))
        batches = window.batches
        return (
            batches.count > 0
            and bool(batches.is_valid[0])
            and int(batches.last_offset[0]) == last_offset
        )


def _slot(keys: Column, target: int, entry_bytes: int) -> int:
    return int(largest_lower_bounds(keys, np.array([target], np.int64), entry_bytes)[0])
