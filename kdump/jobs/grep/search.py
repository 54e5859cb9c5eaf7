"""Search one split for records, without a step of Python for each record that does not match.

A split may hold far more than it has bytes on disk, and all of it may match. So a result has a
limit, and says where to continue after it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from kdump.dump import kafka07 as dump_0_7
from kdump.dump.contents import Utf8Contents
from kdump.dump.log_text import message_lines, timestamp_type
from kdump.dump.record_lines import join_lines
from kdump.dump.segment_rows import message_row, record_row
from kdump.dump.text_options import TextOptions
from kdump.engine.job import describe_failure
from kdump.engine.range_splits import RangeSplit
from kdump.formats import kafka07
from kdump.formats.compression import Codec
from kdump.formats.errors import FormatError, OverLimitError
from kdump.formats.java.java_text import java_utf8_bytes
from kdump.formats.message_set import Message
from kdump.formats.names import is_0_7_log
from kdump.log.lock_holders import is_in_use_around
from kdump.log.valid_windows import Damage, batch_damage
from kdump.payloads.record_payloads import Pair, RecordPayloads
from kdump.payloads.undecoded import NONE_UNDECODED, Undecoded
from kdump.scan.batches import Flags, Window
from kdump.scan.record_patterns import RecordPatterns
from kdump.scan.records import RecordColumns
from kdump.scan.selection import Selection, with_rows
from kdump.scan.walk import MessageSet, expand_window
from kdump.scan.walk_0_7 import Skipped07, valid_messages
from kdump.tables.kafka_log.visible_windows import visible_windows

Row = dict[str, Any]

RESULT_BYTES: Final = 12 << 20
"""A result ends soon after this much: results wait in memory until they are shown in order."""
_ROW_BYTES: Final = 1500
"""What a row takes besides its key and value."""
_DAMAGE_BYTES: Final = 500
_CONTENTS: Final = ("key", "value", "decoded_key", "decoded_value")
_MESSAGES_TOGETHER: Final = 4096


class Shown(enum.Enum):
    """What is shown of the records found."""

    LINES = "lines"
    ROWS = "rows"
    COUNTS = "counts"


class SearchResult(Struct, frozen=True):
    """What was found in a split, or in the first part of it.

    Attributes:
        text: their lines, with ``LINES``.
        rows: one for each, with ``ROWS``.
        not_decoded: batches with records over the limit, which were not searched.
        undecoded: records that have no text; their bytes were searched.
        failure: why the rest of the split cannot be read; None if it can.
        rest: where to continue; None at the end.
    """

    matches: int = 0
    text: bytes = b""
    rows: tuple[Row, ...] = ()
    damages: tuple[Damage, ...] = ()
    not_decoded: tuple[Damage, ...] = ()
    undecoded: Undecoded = NONE_UNDECODED
    failure: str | None = None
    rest: RangeSplit | None = None

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes."""
        problems = len(self.damages) + len(self.not_decoded)
        contents = sum(len(row.get(name) or "") for row in self.rows for name in _CONTENTS)
        return len(self.text) + contents + len(self.rows) * _ROW_BYTES + problems * _DAMAGE_BYTES


class GrepJob(Struct, frozen=True):
    """Searches splits.

    Attributes:
        times: also restricts the records, by time only.
        is_committed: leave out records of aborted and open transactions.
        most: stop after so many records of a split; None for no limit.
        text: how lines are formatted, and which records are too large to decode.
        payloads: what makes text of keys and values, which is then searched and shown; None for
            their bytes as they are.
    """

    patterns: RecordPatterns
    shown: Shown
    times: Selection = field(default_factory=Selection)
    is_committed: bool = False
    most: int | None = None
    text: TextOptions = field(default_factory=lambda: TextOptions(Utf8Contents()))
    payloads: RecordPayloads | None = None

    def run(self, split: RangeSplit) -> SearchResult:
        """Search a split, up to the limit of a result."""
        parts: list[SearchResult] = []
        size_bytes = 0
        try:
            for part in self.parts(split):
                parts.append(part)
                size_bytes += part.size_bytes
                if size_bytes >= RESULT_BYTES:
                    return _joined(parts, rest=part.rest)
        except OSError as failure:
            return _joined(parts, failure=describe_failure(failure))
        return _joined(parts)

    def parts(self, split: RangeSplit) -> Iterator[SearchResult]:
        """Search a split, and yield what is found as it is found.

        Raises:
            OSError: the log cannot be read.
        """
        search = _Search(self, split)
        for part in search.parts_0_7() if is_0_7_log(split.path.name) else search.parts():
            yield part
            if search.left == 0:
                return


def _joined(
    parts: Sequence[SearchResult], *, rest: RangeSplit | None = None, failure: str | None = None
) -> SearchResult:
    return SearchResult(
        matches=sum(part.matches for part in parts),
        text=b"".join(part.text for part in parts),
        rows=tuple(row for part in parts for row in part.rows),
        damages=tuple(damage for part in parts for damage in part.damages),
        not_decoded=tuple(damage for part in parts for damage in part.not_decoded),
        undecoded=sum((part.undecoded for part in parts), NONE_UNDECODED),
        failure=failure,
        rest=rest,
    )


class _Search:
    """One search of one split."""

    def __init__(self, job: GrepJob, split: RangeSplit) -> None:
        self.job = job
        self.split = split
        self.left = job.most
        self.is_living = is_in_use_around(split.path.around)
        self.next_offset = split.from_offset
        self.line_start = f"{split.path}:".encode("utf-8", "surrogateescape")
        self.selection = replace(
            job.times, from_offset=split.from_offset, to_offset=split.to_offset
        )

    def parts(self) -> Iterator[SearchResult]:
        ahead: list[Damage] = []
        for step in visible_windows(
            self.split, ahead.append, is_committed=self.job.is_committed, with_control=False
        ):
            if ahead:
                yield self._damaged(ahead, self.split.start)
                ahead.clear()
            if isinstance(step, Damage):
                yield self._damaged([step], step.end)
            else:
                yield from self._in_window(step.window)

    def _rest(self, position: int, from_offset: int | None = None) -> RangeSplit:
        """What is left of the split: from a byte on, or of a log in use only from an offset on.

        Args:
            from_offset: after the last record that was searched; None if none was since.
        """
        if self.is_living:
            self.next_offset = self.next_offset if from_offset is None else from_offset
            return replace(self.split, from_offset=self.next_offset)
        start = self.split.from_offset if from_offset is None else from_offset
        return replace(self.split, start=position, from_offset=start)

    def _damaged(self, damages: Sequence[Damage], position: int) -> SearchResult:
        """What is damaged; the search continues at ``position``."""
        # Text, because errors keep much that is not needed.
        values = tuple(replace(damage, problem=str(damage.problem)) for damage in damages)
        is_over = [isinstance(damage.problem, OverLimitError) for damage in damages]
        return SearchResult(
            damages=tuple(value for value, over in zip(values, is_over, strict=True) if not over),
            not_decoded=tuple(value for value, over in zip(values, is_over, strict=True) if over),
            rest=self._rest(position),
        )

    def _in_window(self, window: Window) -> Iterator[SearchResult]:
        if self.job.payloads is None:  # a match in decoded text need not be in the bytes
            flags = self.job.patterns.may_be_in(window)
            if not flags.any():
                return
            window = window if flags.all() else window.rows(flags)
        sets: list[MessageSet] = []
        for step in expand_window(
            window,
            self.selection.needed_for(window.batches),
            with_records=True,
            largest_record_bytes=self.job.text.largest_record_bytes,
            only_valid=True,
        ):
            if isinstance(step, MessageSet):
                sets.append(step)
                if sum(len(each.messages) for each in sets) < _MESSAGES_TOGETHER:
                    continue
            yield from self._in_sets(sets)
            sets.clear()
            if isinstance(step, RecordColumns):
                yield from self._in_columns(step)
        yield from self._in_sets(sets)

    def _kept(self, flags: Flags) -> Flags:
        """The matches that are still wanted."""
        if self.left is None:
            return flags
        rows = np.flatnonzero(flags)[: self.left]
        self.left -= len(rows)
        kept = np.zeros(len(flags), np.bool_)
        kept[rows] = True
        return kept

    def _in_columns(self, columns: RecordColumns) -> Iterator[SearchResult]:
        path, batches = str(self.split.path), columns.batches
        if columns.count:
            last = int(columns.batch[-1])
            rest = self._rest(int(batches.position[last]), int(columns.offset[-1]) + 1)
            payloads = self.job.payloads
            contents, undecoded = None, NONE_UNDECODED
            if payloads is not None:
                keys, values = payloads.searched(columns)
                contents = keys.column, values.column
                undecoded = Undecoded.of(columns.offset.tolist(), keys.problems, values.problems)
            flags = self._kept(self.job.patterns.in_columns(columns, contents))
            yield replace(self._shown(columns, flags), rest=rest, undecoded=undecoded)
        for row, problem in columns.problems.items():
            start, end = int(batches.position[row]), int(batches.next_position[row])
            yield self._damaged([Damage(path, start, end, problem)], end)

    def _shown(self, columns: RecordColumns, flags: Flags) -> SearchResult:
        matches = int(np.count_nonzero(flags))
        if not matches or self.job.shown is Shown.COUNTS:
            return SearchResult(matches)
        kept = columns if flags.all() else with_rows(columns, flags)
        batches = kept.batches
        if self.job.shown is Shown.LINES:
            return SearchResult(matches, self._record_lines(kept))
        kinds = map(timestamp_type, batches.magic.tolist(), batches.attributes.tolist())
        of_batch = list(zip(batches.position.tolist(), kinds, strict=True))
        rows = []
        for record, batch in enumerate(kept.batch.tolist()):
            row = record_row(kept, record, *of_batch[batch])
            if self.job.payloads is not None:
                key, value = kept.key(record), kept.value(record)
                row |= self.job.payloads.fields(key, value, kept.headers(record))
            rows.append(row)
        return SearchResult(matches, rows=tuple(rows))

    def _record_lines(self, columns: RecordColumns) -> bytes:
        start = self.line_start
        if java_utf8_bytes(start) is start:
            return self._joined_lines(columns, start)
        # The bytes of a path stay as they are, those of keys and values do not.
        each = np.arange(columns.count)
        lines = (self._joined_lines(with_rows(columns, each == n), b"") for n in each.tolist())
        return b"".join(start + line for line in lines)

    def _joined_lines(self, columns: RecordColumns, line_start: bytes) -> bytes:
        options = replace(self.job.text, line_start=line_start)
        heads = [""] * columns.batches.count
        text = join_lines(columns, heads, options, lambda _position, _problem: None)
        return bytes(java_utf8_bytes(text))

    def _in_sets(self, sets: Sequence[MessageSet]) -> Iterator[SearchResult]:
        """Search messages of magic 0 and 1."""
        if not sets:
            return
        path = str(self.split.path)
        valid: list[tuple[MessageSet, Message]] = []
        pairs: list[tuple[bytes | None, bytes | None]] = []
        for each in sets:
            problem: FormatError | str | None = each.problem
            for message in each.messages:
                try:
                    pair = message.key, message.value
                except FormatError as unread:
                    problem = problem or unread.as_value()
                    continue
                if message.is_valid:
                    valid.append((each, message))
                    pairs.append(pair)
                else:
                    problem = problem or "the checksum of a message in it is wrong"
            if problem is not None:
                damage = batch_damage(each.window, 0, path, problem)
                yield self._damaged([damage], damage.end)
        if valid:
            flags, undecoded = self._in_pairs(pairs, [message.offset for _, message in valid])
            last, message = valid[-1]
            rest = self._rest(int(last.window.batches.position[0]), message.offset + 1)
            found = [valid[number] for number in np.flatnonzero(flags).tolist()]
            yield replace(self._shown_messages(found), rest=rest, undecoded=undecoded)

    def _in_pairs(self, pairs: Sequence[Pair], offsets: Sequence[int]) -> tuple[Flags, Undecoded]:
        """Which records match that have no headers, and which of them have no text."""
        payloads, undecoded = self.job.payloads, NONE_UNDECODED
        if payloads is not None:
            keys, values = payloads.searched_pairs(pairs)
            undecoded = Undecoded.of(offsets, keys.problems, values.problems)
            contents = keys.column.to_pylist(), values.column.to_pylist()
            pairs = list(zip(*contents, strict=True))
        return self._kept(self.job.patterns.in_pairs(pairs)), undecoded

    def _shown_messages(self, found: Sequence[tuple[MessageSet, Message]]) -> SearchResult:
        if self.job.shown is Shown.LINES:
            lines = [
                line
                for each, message in found
                for line in message_lines(
                    replace(each, messages=[message]),
                    self.job.text,
                    lambda _position, _problem: None,
                )
            ]
            return SearchResult(len(found), self._lines(lines))
        if self.job.shown is Shown.ROWS:
            rows = [
                message_row(message, int(each.window.batches.position[0]), self.job.payloads)
                for each, message in found
            ]
            return SearchResult(len(found), rows=tuple(rows))
        return SearchResult(len(found))

    def _lines(self, lines: Iterable[str]) -> bytes:
        return b"".join(self.line_start + line.encode() + b"\n" for line in lines)

    def parts_0_7(self) -> Iterator[SearchResult]:
        """Search a log of Kafka 0.7, whose offsets are positions in all that was written."""
        with self.split.path.open_file() as source:
            for entry in valid_messages(source, self.split.start):
                if isinstance(entry, Skipped07):
                    damage = Damage(str(self.split.path), entry.start, entry.end, entry.problem)
                    yield self._damaged([damage], entry.end)
                else:
                    yield from self._in_entry(entry)

    def _in_entry(self, entry: kafka07.Message07) -> Iterator[SearchResult]:
        end = entry.position + entry.size_bytes
        base_offset = self.split.segment.least_offset
        entry = replace(
            entry,
            offset=base_offset + entry.position,
            next_offset=base_offset + end,
        )
        if not self.selection.wants_offset(entry.offset):
            return
        messages: list[kafka07.Message07] = []
        try:
            if entry.codec is Codec.NONE:
                messages.append(entry)
            else:
                messages.extend(kafka07.inner_messages(entry))
        except FormatError as problem:
            damage = Damage(str(self.split.path), entry.position, end, problem.as_value())
            yield self._damaged([damage], end)
        flags, undecoded = self._in_pairs(
            [(None, each.value) for each in messages], [each.offset for each in messages]
        )
        found = [messages[number] for number in np.flatnonzero(flags).tolist()]
        rest = replace(self.split, start=end)
        yield replace(self._shown_0_7(found, entry.position), rest=rest, undecoded=undecoded)

    def _shown_0_7(self, found: Sequence[kafka07.Message07], position: int) -> SearchResult:
        if self.job.shown is Shown.LINES:
            lines = [dump_0_7.record_line(message, self.job.text.contents) for message in found]
            return SearchResult(len(found), self._lines(lines))
        if self.job.shown is Shown.ROWS:
            rows = tuple(dump_0_7.record_row(message, position) for message in found)
            return SearchResult(len(found), rows=rows)
        return SearchResult(len(found))
