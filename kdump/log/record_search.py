"""Find records of a partition by offset and by time as a broker does, by its indexes.

A search reads a few entries of indexes and a few headers, then one batch. An index counts only
where the batches agree with it. Where it is missing or wrong, the headers of the segment are read
one after the other, so that the answer is the same.

A search reads at most :data:`LIMIT_BYTES`, whatever the size of the log, if the indexes hold.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from kdump.formats import record_batch
from kdump.formats.names import FileKind
from kdump.formats.record_batch import NO_TIMESTAMP
from kdump.log.first_record import FoundRecord, first_record
from kdump.log.headers import BatchSpan, batch_spans
from kdump.log.index_tail import TimeIndexEntry, last_time_entry, time_entry_below
from kdump.log.log_search import SegmentSearch, Trust, find_in_index
from kdump.log.partition import Partition
from kdump.log.segment import Segment
from kdump.scan.selection import Selection
from kdump.scan.source import is_zero, read_at
from kdump.storage.location import Location, StoredFile
from kdump.storage.metered import MeteredStorage

if TYPE_CHECKING:
    from kdump.log.valid_windows import Damage
    from kdump.scan.batches import BatchColumns

LIMIT_BYTES: Final = 1 << 20
"""The most that a search reads where the indexes hold."""
_VERIFIED_BYTES: Final = LIMIT_BYTES // 2
"""After so many bytes, time indexes of other segments count without a look at their batches."""
_IN_DOUBT: Final = 2
"""So many batches before one that does not follow may have the wrong offsets themselves."""
_MARKER: Final = bytes((0x20, 0, 0, 0, 0x08, 0, 0, 0))
"""How the record of a transaction marker begins; :mod:`kdump.formats.end_txn_marker` has all of it,
and needs NumPy."""
_MARKER_BYTES: Final = 17
_TAIL_BYTES: Final = LIMIT_BYTES // 4
"""Checksums at the end of the log are verified if its last batches have no more bytes."""
_NEAR_BYTES: Final = 64 << 10
"""All headers after the batch of a time index's last entry are read if they are so near."""
_RESERVED_BYTES: Final = 32 << 10
"""Left for what is read after the batch of the answer."""
_AFTER_DAMAGE_BYTES: Final = 64 << 10


class RecordInSegment(Struct, frozen=True):
    """A record that was found, and the log that holds it."""

    log: Location
    record: FoundRecord


@dataclass(slots=True)
class RecordSearch:
    """Searches the log of one partition, and remembers what it found on the way.

    Attributes:
        partition: as a starting broker loads it; what is read of its files is counted.
        damages: the damage that was met, each once, in the order in which it was met.
        unused_indexes: names of the indexes that are missing or wrong where one was needed.
        unverified_indexes: how many time indexes counted without a look at their batches.
        damages_before: the damage between the batch that the last search by offset found, or the
            end of the log, and the last valid batch before: an offset in between is lost with it.
    """

    partition: Partition
    damages: dict[tuple[str, int], Damage] = field(default_factory=dict)
    unused_indexes: set[str] = field(default_factory=set)
    unverified_indexes: int = 0
    damages_before: list[Damage] = field(default_factory=list)
    _meter: MeteredStorage = field(init=False)

    def __post_init__(self) -> None:
        path = self.partition.path
        self._meter = MeteredStorage(path.storage)
        self.partition = replace(self.partition, path=Location(self._meter, path.path))

    @property
    def read_bytes(self) -> int:
        """How many bytes were read so far."""
        return self._meter.read_bytes

    @property
    def _left_bytes(self) -> int:
        """How much may be read of one batch."""
        if self.read_bytes > LIMIT_BYTES:
            return LIMIT_BYTES  # an index was of no use, and nothing is left to keep to
        return max(LIMIT_BYTES - self.read_bytes - _RESERVED_BYTES, _RESERVED_BYTES)

    # ---- By offset ----

    def at_or_after(self, offset: int) -> RecordInSegment | None:
        """The first record from an offset on; compaction and damage leave holes.

        Follows ``LocalLog.read``.

        Raises:
            OSError: a file of the partition cannot be read.
        """
        wanted = Selection(from_offset=offset)
        self.damages_before.clear()
        for segment, following in self.partition.with_following():
            if following is not None and following.base_offset <= offset:
                continue
            with self._search(segment) as search:
                log, start = search.log, self._start(search, segment, offset)
                for span in self._spans(log, segment, following, start):
                    if span.base_offset <= offset:
                        self.damages_before.clear()
                    found = self._first_in(log, span, wanted)
                    if found is not None:
                        return found
        return None

    def log_end_offset(self) -> int:
        """One above the last offset of the last valid batch of the active segment.

        Unlike :func:`~kdump.log.log_search.log_end`, it reads only a part of a long tail, so that
        a lookup stays within its limit, and imports NumPy only if there is damage.

        Raises:
            OSError: the log cannot be read.
        """
        active = self.partition.segments[-1]
        self.damages_before.clear()
        with self._search(active) as search:
            log, start = search.log, self._start(search, active, None)
            spans = list(batch_spans(log, start, active.base_offset))
            end, reached = active.base_offset, start
            if spans:
                end, reached = spans[-1].last_offset + 1, spans[-1].next_position
            is_followed = reached < log.size_bytes and not _is_padding(log, reached)
            is_short = bool(spans) and reached - start <= _TAIL_BYTES
            if is_short and (is_followed or not _are_valid(log, spans)):
                # What follows may be wrong, or what is before it: they are judged together.
                return self._valid_end(search, active, start, spans[0].base_offset)
            for span in self._spans_after(log, active, None, reached, active.base_offset):
                end = span.last_offset + 1
                self.damages_before.clear()
        return end

    def _valid_end(
        self, search: SegmentSearch, segment: Segment, start: int, first_offset: int
    ) -> int:
        """One above the last offset of the last valid batch from a byte on, or before.

        ``first_offset`` is that of the batch at ``start``.
        """
        from kdump.log.valid_windows import Damage, segment_part, valid_windows

        end = None
        part = segment_part(segment, None, start)
        for step in valid_windows(search.log, part, window_bytes=_AFTER_DAMAGE_BYTES):
            if isinstance(step, Damage):
                self._note(step)
            else:
                end = int(step.batches.last_offset[-1]) + 1
                self.damages_before.clear()
        if end is not None:
            return end
        before = self._start(search, segment, first_offset - 1)
        last = segment.base_offset
        for span in batch_spans(search.log, before, segment.base_offset):
            if span.position < start:
                last = span.last_offset + 1
        return last

    # ---- By time ----

    def not_older(self, timestamp_ms: int, start_offset: int) -> RecordInSegment | None:
        """The first record from ``start_offset`` on that is not older than a time.

        Only the first segment that has such a time is searched. Follows
        ``UnifiedLog.searchOffsetInLocalLog`` and ``LogSegment.findOffsetByTimestamp``.

        Raises:
            OSError: a file of the partition cannot be read.
        """
        for segment, following in self.partition.with_following():
            largest = self._largest_time(segment, following)
            if largest < 0:
                largest = self.partition.segment_path(segment, FileKind.LOG).status().modified_ms
            if largest >= timestamp_ms:
                return self._of_time(segment, following, timestamp_ms, start_offset)
        return None

    def with_max_timestamp(self) -> RecordInSegment | None:
        """The first record with the largest timestamp of the log.

        None if the records have no times. Follows ``UnifiedLog.fetchOffsetByTimestamp``.

        Raises:
            OSError: a file of the partition cannot be read.
        """
        best: tuple[Segment, Segment | None] | None = None
        largest = NO_TIMESTAMP - 1
        for segment, following in self.partition.with_following():
            found = self._largest_time(segment, following)
            if found > largest:
                best, largest = (segment, following), found
        if best is None:
            return None
        record = self._of_time(*best, largest, self.partition.segments[0].base_offset)
        return None if record is None or record.record.magic == 0 else record

    def _of_time(
        self, segment: Segment, following: Segment | None, timestamp_ms: int, start_offset: int
    ) -> RecordInSegment | None:
        """The first record of a segment that is not before an offset and not before a time."""
        wanted = Selection(from_offset=start_offset, from_time_ms=timestamp_ms)
        with self._search(segment) as search:
            start = max(
                self._start(search, segment, start_offset),
                self._position_after_older(search, segment, timestamp_ms),
            )
            for span in self._spans(search.log, segment, following, start):
                if span.last_offset >= start_offset and span.largest_timestamp >= timestamp_ms:
                    found = self._first_in(search.log, span, wanted)
                    if found is not None:
                        return found
        return None

    def _largest_time(self, segment: Segment, following: Segment | None) -> int:
        """The largest time in the headers of a segment; -1 if there is none, or only negative ones.

        Follows ``LogSegment.maxTimestampSoFar``.
        """
        if not segment.log_bytes:
            return NO_TIMESTAMP
        path = self.partition.segment_path(segment, FileKind.TIME_INDEX)
        entry = find_in_index(path, last_time_entry)
        is_enough = self.read_bytes > _VERIFIED_BYTES
        if is_enough and entry is not None and _is_plausible(entry, segment, following):
            self.unverified_indexes += 1
            return entry.timestamp
        with self._search(segment) as search:
            start, known = 0, NO_TIMESTAMP
            if self._holds(entry, search):
                start = search.last_indexed_position()
                if entry is not None:
                    known = entry.timestamp
                    start = self._checked_from(search, entry, start)
            elif entry is not None or not _may_lack_times(segment):
                self.unused_indexes.add(path.name)
            spans = self._spans(search.log, segment, following, start)
            return max(known, max((span.largest_timestamp for span in spans), default=known))

    @staticmethod
    def _checked_from(search: SegmentSearch, entry: TimeIndexEntry, last: int) -> int:
        """Where headers are read from to find a larger time than that of the last entry.

        From the last entry of the offset index at ``last``, because entries of both are written
        together; from the batch of the time index entry itself if that is near.
        """
        first = search.position_of(search.base_offset + entry.relative_offset)
        return min(first, last) if search.log.size_bytes - first <= _NEAR_BYTES else last

    @staticmethod
    def _holds(entry: TimeIndexEntry | None, search: SegmentSearch) -> bool:
        """Whether the batches agree with the last entry of a time index, or with its absence."""
        if entry is not None:
            return search.is_true(entry)
        first = next(batch_spans(search.log, 0, search.base_offset), None)
        return first is None or first.max_timestamp_ms is None

    def _position_after_older(
        self, search: SegmentSearch, segment: Segment, timestamp_ms: int
    ) -> int:
        """The start of a batch before which all records are older; 0 in doubt."""
        path = search.time_index
        entry = find_in_index(path, lambda index: time_entry_below(index, timestamp_ms))
        if entry is None:
            return 0
        if not search.is_true(entry):
            self.unused_indexes.add(path.name)
            return 0
        return self._start(search, segment, segment.base_offset + entry.relative_offset)

    # ---- Batches ----

    def _search(self, segment: Segment) -> AbstractContextManager[SegmentSearch]:
        """By headers, because the checksum of the batch that is found is verified afterwards."""
        return SegmentSearch.of(self.partition, segment, Trust.HEADERS)

    def _start(self, search: SegmentSearch, segment: Segment, offset: int | None) -> int:
        """As ``SegmentSearch.indexed_position``; 0 in doubt, noting the index."""
        if not search.log.size_bytes:
            return 0
        position = search.indexed_position(offset)
        # Nothing was due yet for an empty index.
        if position is None and segment.offset_index_bytes != 0:
            path = self.partition.segment_path(segment, FileKind.OFFSET_INDEX)
            self.unused_indexes.add(path.name)
        return position or 0

    def _first_in(
        self, log: StoredFile, span: BatchSpan, wanted: Selection
    ) -> RecordInSegment | None:
        """The first wanted record of a batch; notes a damaged batch."""
        if wanted.from_offset is not None and span.last_offset < wanted.from_offset:
            return None
        found = first_record(log, span, wanted, self._left_bytes)
        if isinstance(found, FoundRecord):
            return RecordInSegment(log.location, found)
        if found is not None:
            from kdump.log.valid_windows import Damage

            self._note(Damage(str(log.location), span.position, span.next_position, found))
        return None

    def _spans(
        self, log: StoredFile, segment: Segment, following: Segment | None, start: int
    ) -> Iterator[BatchSpan]:
        """The batches of a segment from byte ``start`` on; after damage only valid ones.

        Up to the first damage that is seen in headers, checksums are not verified.
        """
        position, least_offset = start, segment.base_offset
        held = deque[BatchSpan]()
        for span in batch_spans(log, start, segment.base_offset):
            if len(held) == _IN_DOUBT:
                sure = held.popleft()
                yield sure
                position, least_offset = sure.next_position, sure.last_offset + 1
            held.append(span)
            if span.reached_offset > span.last_offset:
                break
        end, end_offset = (held[-1].next_position, held[-1].last_offset + 1) if held else (start, 0)
        is_end = all(each.reached_offset == each.last_offset for each in held)
        is_end &= end == log.size_bytes or (following is None and _is_padding(log, end))
        is_inside = following is None or end_offset <= following.base_offset
        if held and is_end and is_inside:
            yield from held
            return
        # The offsets of the last ones may be wrong, rather than those of what follows.
        yield from self._spans_after(log, segment, following, position, least_offset)

    def _spans_after(
        self,
        log: StoredFile,
        segment: Segment,
        following: Segment | None,
        position: int,
        least_offset: int,
    ) -> Iterator[BatchSpan]:
        """The valid batches after ``position``, where headers do not lead further."""
        if position >= log.size_bytes or (following is None and _is_padding(log, position)):
            return
        from kdump.log.valid_windows import Damage, segment_part, valid_windows

        part = replace(segment_part(segment, following, position), least_offset=least_offset)
        for step in valid_windows(log, part, window_bytes=_AFTER_DAMAGE_BYTES):
            if isinstance(step, Damage):
                self._note(step)
            else:
                yield from _spans_of(step.batches)

    def _note(self, damage: Damage) -> None:
        self.damages.setdefault((damage.path, damage.start), damage)
        self.damages_before.append(damage)


def _is_plausible(entry: TimeIndexEntry, segment: Segment, following: Segment | None) -> bool:
    """Whether the last entry of a time index can be of its segment, as far as it says itself."""
    offset = segment.base_offset + entry.relative_offset
    is_inside = following is None or offset < following.base_offset
    return entry.timestamp >= 0 and entry.relative_offset >= 0 and is_inside


def _may_lack_times(segment: Segment) -> bool:
    """Whether a time index may be empty although records have times: nothing was due yet."""
    return segment.time_index_bytes is not None and segment.data_bytes <= _NEAR_BYTES


def _is_padding(log: StoredFile, position: int) -> bool:
    """Whether space that was preallocated follows, by the first and last zeroes of it.

    ``valid_windows`` reads all of it, which may be more than a lookup reads at most.
    """
    end = log.size_bytes
    return is_zero(log, position, min(end, position + _AFTER_DAMAGE_BYTES)) and is_zero(
        log, max(position, end - _AFTER_DAMAGE_BYTES), end
    )


def _are_valid(log: StoredFile, spans: Sequence[BatchSpan]) -> bool:
    """Whether all of some batches in a row are valid without decoding them; no in doubt.

    They have the right checksum, each continues the offsets before it, and control batches are
    markers as brokers write them. No for magic 0 and 1.
    """
    if not spans:
        return True
    start = spans[0].position
    data = memoryview(read_at(log, start, spans[-1].next_position - start))
    for span in spans:
        batch = data[span.position - start : span.next_position - start]
        if len(batch) < span.size_bytes or batch[record_batch.MAGIC_START] != 2:
            return False
        if span.reached_offset > span.last_offset or not record_batch.has_right_crc(batch):
            return False
        is_control = record_batch.decode_header(batch).attributes & record_batch.CONTROL_FLAG
        body = batch[record_batch.HEADER_BYTES :]
        if is_control and (len(body) != _MARKER_BYTES or body[: len(_MARKER)] != _MARKER):
            return False
    return True


def _spans_of(batches: BatchColumns) -> Iterator[BatchSpan]:
    """The headers of batches as :mod:`kdump.log.headers` gives them."""
    for row in range(batches.count):
        largest = int(batches.max_timestamp[row])
        yield BatchSpan(
            position=int(batches.position[row]),
            size_bytes=int(batches.size_bytes[row]),
            base_offset=int(batches.base_offset[row]),
            last_offset=int(batches.last_offset[row]),
            first_timestamp_ms=None,
            max_timestamp_ms=None if largest == NO_TIMESTAMP else largest,
            leader_epoch=int(batches.partition_leader_epoch[row]),
            reached_offset=int(batches.last_offset[row]),
        )
