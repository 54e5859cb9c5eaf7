"""A segment or a metadata snapshot: reading it, and reporting its problems.

What scans and formats with NumPy is imported when it is needed: the compiled loop prints most
segments alone, in less time than that import takes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace

from kdump.dump.dumped_file import DumpedFile
from kdump.dump.problems import DumpProblem
from kdump.dump.report import DumpReport
from kdump.dump.text_options import TextOptions
from kdump.formats.errors import FormatError, OverLimitError
from kdump.formats.names import (
    BOOTSTRAP_CHECKPOINT,
    FileKind,
    parse_metadata_snapshot_name,
)
from kdump.phases import each_during, phase
from kdump.scan.selection import Selection
from kdump.storage.location import StoredFile
from kdump.words import counted

if TYPE_CHECKING:
    from kdump.dump.window_text import Notes
    from kdump.dump.workers import Worker
    from kdump.scan.batches import Stop, Window
    from kdump.scan.walk import Skipped, Step

MOST_PROBLEMS: Final = 20
"""For one file, this many are reported one by one, the others only counted."""

_OTHER_BYTES: Final = 64 << 10
"""How much is printed without the compiled loop once it has stopped."""
_MOST_OTHER_BYTES: Final = 1 << 20
_GROWTH: Final = 4
"""If it stops there again, four times as much, so that a log of old messages is not read twice."""


class SegmentOptions(Struct, frozen=True):
    """What to dump of a segment.

    Attributes:
        deep: also its records.
        max_bytes: read no more than that; None for all.
        selection: which records, or which batches if records are not read.
        follow_bad: after damage, continue at the next valid batch.
        text: what lines of records show.
    """

    deep: bool = False
    max_bytes: int | None = None
    selection: Selection = field(default_factory=Selection)
    follow_bad: bool = False
    text: TextOptions = field(default_factory=TextOptions)

    @property
    def is_whole(self) -> bool:
        """Whether all of a segment is read, from its first batch to where the walk ends."""
        return self.max_bytes is None and self.selection.is_all and not self.follow_bad

    @property
    def is_compiled(self) -> bool:
        """Whether the compiled loop prints what is plain."""
        if not self.is_whole:
            return False
        from kdump.dump.compiled_text import can_be_compiled

        return can_be_compiled(self.text)


def dump(
    file: DumpedFile,
    options: SegmentOptions,
    report: DumpReport,
    workers: Sequence[Worker] = (),
) -> Iterator[bytes | memoryview]:
    """Print a segment as the official tool's ``dumpLog`` does.

    Args:
        report: where to report its problems.
        workers: workers that may produce part of the text.

    Yields:
        Text for standard output, in pieces.

    Raises:
        OSError: when the file cannot be read.
    """
    with file.path.open_file() as source:
        yield _opening(file, report)
        reading = SegmentReading(file, source, options, report)
        if options.is_compiled:
            yield from _compiled_text(reading, source, options)
        elif workers and options.is_whole and options.deep:
            yield from _shared_text(reading, source, options, workers)
        else:
            from kdump.dump.window_text import step_text
            from kdump.scan.batches import Stop
            from kdump.scan.walk import Skipped

            for step in reading.steps():
                if isinstance(step, Stop):
                    yield reading.trailing_text(step)
                elif not isinstance(step, Skipped):
                    yield step_text(step, options.text, reading.damage)
        reading.finish()


def _compiled_text(
    reading: SegmentReading, source: StoredFile, options: SegmentOptions
) -> Iterator[bytes | memoryview]:
    """Format the lines of a whole segment, all that is plain by the compiled loop."""
    from kdump.dump.compiled_text import CompiledText

    plain = CompiledText(source, options.text, deep=options.deep)
    other_bytes = _OTHER_BYTES
    while True:
        plain.previous_offset = reading.previous_offset
        begin = plain.position
        texts = each_during(f"reading {reading.name}", plain.texts(), source)
        for text, gaps in texts:
            reading.take_gaps(gaps, plain.previous_offset)
            yield text
        if plain.position == source.size_bytes:
            return
        from kdump.scan.batches import read_windows

        is_stuck = plain.position == begin
        other_bytes = min(other_bytes * _GROWTH, _MOST_OTHER_BYTES) if is_stuck else _OTHER_BYTES
        window = next(read_windows(source, plain.position, window_bytes=other_bytes))
        yield from _window_text(reading, window, options)
        if window.stop is not None:
            return
        plain.position = int(window.batches.next_position[-1])


def _window_text(
    reading: SegmentReading, window: Window, options: SegmentOptions
) -> Iterator[bytes | memoryview]:
    """Format the lines of ``window``, and of where the segment ends if that is in it."""
    from kdump.dump.window_text import Notes, window_texts

    notes = Notes()
    yield from window_texts(window, options.text, notes, deep=options.deep)
    reading.take(notes)
    if window.stop is not None:
        reading.note_stop(window.stop)
        yield reading.trailing_text(window.stop)


def _shared_text(
    reading: SegmentReading,
    source: StoredFile,
    options: SegmentOptions,
    workers: Sequence[Worker],
) -> Iterator[bytes | memoryview]:
    """Format the lines of a whole segment, in the workers and in this process.

    Windows are assigned in turn, the first of each round to this process, so that it never only
    waits.
    """
    from kdump.scan.batches import read_windows

    windows = each_during(f"reading {reading.name}", read_windows(source), source)
    while group := list(itertools.islice(windows, 1 + len(workers))):
        asked = [
            worker.ask(window)
            for worker, window in zip(workers, group[1:], strict=False)
            if window.batches.count and not window.is_giant
        ]
        for window in group:
            if asked and asked[0].position == window.start:
                answer = asked.pop(0)
                yield from answer.texts()
                reading.take(answer.notes)
            else:
                yield from _window_text(reading, window, options)


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
    """One pass over a segment that collects its problems.

    Args:
        source: its bytes.
        report: where to report problems.

    Attributes:
        previous_offset: of the last record, -1 before the first.
    """

    def __init__(
        self,
        file: DumpedFile,
        source: StoredFile,
        options: SegmentOptions,
        report: DumpReport,
    ) -> None:
        self._file = file
        self._source = source
        self._options = options
        self._report = report
        self.previous_offset = -1
        self._problems = 0

    @property
    def name(self) -> str:
        """Of the file, as it was given."""
        return self._file.name

    @property
    def size_bytes(self) -> int:
        return self._source.size_bytes

    def steps(self) -> Iterator[Step]:
        """Give what the options ask for, in order, and report damage in between."""
        from kdump.dump.window_text import Notes
        from kdump.scan.batches import Stop
        from kdump.scan.walk import Skipped, limited_count, walk_segment

        options = self._options
        with phase(f"reading the indexes of {self._file.name}"):
            start = 0 if options.follow_bad else self._start()
        steps = walk_segment(
            self._source,
            start,
            options.max_bytes,
            with_records=options.deep,
            selection=replace(
                options.selection, limit=self._report.left_of(options.selection.limit)
            ),
            follow_bad=options.follow_bad,
            largest_record_bytes=options.text.largest_record_bytes,
        )
        for step in each_during(f"reading {self._file.name}", steps, self._source):
            self._report.printed(limited_count(step))
            if isinstance(step, Skipped):
                self._note_skipped(step)
            elif isinstance(step, Stop):
                self.note_stop(step)
            else:
                notes = Notes()
                notes.add(step)
                self.take(notes)
            yield step

    def take(self, notes: Notes) -> None:
        """Report the problems of the next part of the segment."""
        if notes.has_invalid:
            self._report.note_damage()
        for position, problem in notes.damage:
            self.damage(position, problem)
        if notes.first_offset is None or not self._options.selection.is_all:
            return
        name = self._file.absolute_name
        if notes.first_offset != self.previous_offset + 1:
            self._report.non_consecutive(name, self.previous_offset, notes.first_offset)
        for previous, offset in notes.gaps:
            self._report.non_consecutives(name, previous, offset)
        assert notes.last_offset is not None
        self.previous_offset = notes.last_offset

    def take_gaps(self, gaps: Sequence[tuple[int, int]], last_offset: int) -> None:
        """Report pairs of offsets that are not consecutive in the next part of the segment."""
        self.previous_offset = last_offset
        for previous, offset in gaps:
            self._report.non_consecutive(self._file.absolute_name, previous, offset)

    def damage(self, position: int, problem: FormatError) -> None:
        """Report a problem of the batch at ``position`` of the file."""
        said = DumpProblem.from_format_error(self._file.path, problem, at=position)
        if isinstance(problem, OverLimitError):
            self._report.not_decoded(said)
        else:
            self._problem(said)

    def note_stop(self, stop: Stop) -> None:
        """Report why the walk over the segment ended, where that is damage."""
        if stop.problem is None or self._is_unwritten(stop.position):
            return
        if stop.is_fatal_to_kafka:
            self._problem(DumpProblem.from_format_error(self._file.path, stop.problem))
        elif not self._is_limited:
            self._report.note_damage()

    def trailing_text(self, stop: Stop) -> bytes:
        """Give the official tool's line about bytes after the last batch."""
        trailing = self._source.size_bytes - stop.position
        if stop.problem is None or stop.is_fatal_to_kafka or self._is_limited:
            return b""
        return f"Found {trailing} invalid bytes at the end of {self._file.path.name}\n".encode()

    def finish(self) -> None:
        """Report how many problems were not reported one by one."""
        left = self._problems - MOST_PROBLEMS
        if left > 0:
            self._report.problem(
                DumpProblem(self._file.path, None, f"{left} more problems like these")
            )

    @property
    def _is_limited(self) -> bool:
        return self._options.max_bytes is not None

    def _problem(self, problem: DumpProblem) -> None:
        self._problems += 1
        if self._problems <= MOST_PROBLEMS:
            self._report.problem(problem)

    def _is_unwritten(self, position: int) -> bool:
        """Whether nothing was written from a byte on; says so."""
        from kdump.dump.unwritten import unwritten_log

        unwritten = unwritten_log(self._file.path, self._source, position)
        if unwritten is not None:
            self._report.remark(str(unwritten), damage=False)
        return unwritten is not None

    def _note_skipped(self, skipped: Skipped) -> None:
        if skipped.end == self._source.size_bytes and self._is_unwritten(skipped.start):
            return
        problem = DumpProblem.from_format_error(self._file.path, skipped.problem)
        size = skipped.end - skipped.start
        where = (
            "to the end of the file"
            if skipped.end == self._source.size_bytes
            else f"to the next valid batch at byte {skipped.end}"
        )
        self._problem(
            DumpProblem(
                problem.path,
                problem.position,
                f"{problem.what}; {counted(size, 'byte')} skipped {where}",
                problem.expected,
                problem.found,
            )
        )

    def _start(self) -> int:
        """Find where to begin reading: after what the selection leaves out, if an index says so."""
        selection = self._options.selection
        if self._file.base_offset is None or self._options.max_bytes is not None:
            return 0
        if selection.from_offset is None and selection.from_time_ms is None:
            return 0
        from kdump.log.log_search import SegmentSearch, Trust

        with SegmentSearch(
            self._source,
            self._file.base_offset,
            self._file.neighbour(FileKind.OFFSET_INDEX),
            self._file.neighbour(FileKind.TIME_INDEX),
            Trust.CHECKSUMS,  # what is before the start is not dumped
        ) as search:
            return search.start_of(selection.from_offset, selection.from_time_ms)
