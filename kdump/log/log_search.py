"""Find an offset, a time, the start and the end of a log, by its indexes and batch headers.

An index lookup reads a few entries, however large the index is, and gives a position at or before
the one sought; a short scan forward from there finds the batch (``LogSegment.translateOffset``).
But an index is a hint here: it may be stale, damaged, cut short or another segment's. An entry
counts only once the batch that it points to agrees with it. Where it does not, the scan starts at
the first byte: slower, never wrong. How closely that batch, and those after it, are looked at is a
:class:`Trust`, which depends on what the answer is for.

What a broker makes of a wrong index is another question: :mod:`kdump.broker.loader` repeats that.
:mod:`kdump.log.record_search` finds records with a limit on what is read. Modules that need NumPy
are imported where checksums are verified, because ``ls`` and ``lookup`` seldom need it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field, replace  # noqa: TID251 - not of a struct
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeVar

from kdump.formats.names import FileKind, PartitionState
from kdump.formats.record_batch import NO_PARTITION_LEADER_EPOCH, NO_TIMESTAMP
from kdump.log.directory import Offsets
from kdump.log.headers import BatchSpan, batch_span_at, batch_spans, end_after
from kdump.log.index_tail import (
    OffsetIndexEntry,
    TimeIndexEntry,
    earlier_offset_entries,
    last_offset_entry,
    last_time_entry,
    offset_entry_at_or_below,
    time_entry_below,
)
from kdump.log.partition import Partition
from kdump.log.segment import Segment
from kdump.storage.byte_source import ByteSource
from kdump.storage.location import Location, StoredFile

if TYPE_CHECKING:
    from kdump.log.valid_windows import Damage, OnDamage

Entry = TypeVar("Entry")

_FIRST_BYTES: Final = 16 << 10
"""Usually only the first batch is needed, or the next one."""
_MAX_BYTES_AFTER_LAST_ENTRY: Final = 1 << 20
"""The batch with the largest time is usually among the last: this bounds what is read after it."""


class Trust(enum.Enum):
    """What a search believes without looking further; no level believes an index on its own."""

    LENGTHS = "lengths"
    """As a broker that starts after a clean shutdown: whatever the offsets of batches are, their
    lengths lead from one to the next, and the last one is the end. For ``info`` and ``ls``, which
    say what that broker would."""

    HEADERS = "headers"
    """Batches whose headers follow each other count. A few small reads must do to choose among
    the replicas of thousands of partitions, and whoever decodes the batch that is found verifies
    it."""

    CHECKSUMS = "checksums"
    """Only valid batches count: a batch that was not written completely is no end, and the records
    decide what the largest time is, not a header. For what is read, exported, restored or deleted
    on the strength of the answer."""


# ---- One segment ----


class SegmentEnd(NamedTuple):
    """The end of one segment.

    Attributes:
        offset: after its last batch; its base offset if it is empty.
        start: the byte from which batches were read.
        position: the byte after its last batch; ``start`` if there is none.
        leader_epoch: of the last batch; -1 if there is none, or if it has none.
        timestamp: the largest of the headers that were read; -1 for none, and with
            ``Trust.CHECKSUMS``.
        damage: what was read and is not valid; only with ``Trust.CHECKSUMS``.
    """

    offset: int
    start: int
    position: int
    leader_epoch: int = NO_PARTITION_LEADER_EPOCH
    timestamp: int = NO_TIMESTAMP
    damage: tuple[Damage, ...] = ()


@dataclass(slots=True)
class SegmentSearch:
    """The log of a segment, and where its indexes are; a context that closes what it opened.

    Attributes:
        log: its bytes.
        offset_index: the file; None if it is known to be missing or empty.
        time_index: the file.
        trust: what counts.
    """

    log: StoredFile
    base_offset: int
    offset_index: Location | None
    time_index: Location
    trust: Trust
    _opened_index: StoredFile | None = field(default=None, init=False)
    _opened_log: StoredFile | None = field(default=None, init=False)

    @classmethod
    def of(cls, partition: Partition, segment: Segment, trust: Trust) -> Self:
        """Open the log of a segment for a search.

        Raises:
            OSError: it cannot be opened.
        """
        path = partition.segment_path
        log = path(segment, FileKind.LOG).open_file()
        index = path(segment, FileKind.OFFSET_INDEX) if segment.offset_index_bytes else None
        times = path(segment, FileKind.TIME_INDEX)
        search = cls(log, segment.base_offset, index, times, trust)
        search._opened_log = log
        return search

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for opened in (self._opened_index, self._opened_log):
            if opened is not None:
                opened.close()

    # ---- By offset ----

    def position_of(self, offset: int) -> int:
        """The start of a batch before which all offsets are below ``offset``; 0 in doubt.

        Raises:
            OSError: the log cannot be read.
        """
        return self.indexed_position(offset) or 0

    def last_indexed_position(self) -> int:
        """Where the batch of the offset index's last true entry begins; 0 in doubt.

        Raises:
            OSError: the log cannot be read.
        """
        return self.indexed_position(None) or 0

    def indexed_position(self, offset: int | None) -> int | None:
        """As :meth:`position_of`; None if the offset index is missing or has only false entries.

        Args:
            offset: None for the last batch that the index leads to.

        Raises:
            OSError: the log cannot be read.
        """
        return self._indexed_position(offset, self.trust)

    def _indexed_position(self, offset: int | None, trust: Trust) -> int | None:
        if offset is not None and offset <= self.base_offset:
            return 0
        relative_offset = None if offset is None else offset - self.base_offset
        found = self._find(lambda index: _nearest(index, relative_offset))
        if not found:
            return None if found is None else 0
        if self._is_true_for(found[0], offset, trust):
            return found[0].position
        earlier = self._find(lambda index: earlier_offset_entries(index, relative_offset))
        for entry in earlier or ():
            if self._is_true_for(entry, offset, trust):
                return entry.position
        return None

    def _find(self, find: Callable[[ByteSource], Entry]) -> Entry | None:
        """What a lookup in the offset index finds; None if the index cannot be read."""
        if self.offset_index is None:
            return None
        try:
            if self._opened_index is None:
                self._opened_index = self.offset_index.open_file()
            return find(self._opened_index)
        except OSError:
            return None

    def _is_true_for(self, entry: OffsetIndexEntry, offset: int | None, trust: Trust) -> bool:
        """Whether the batch of an entry is there, and does not begin after ``offset``.

        Before Kafka 4 an entry could stand for several batches that were appended together: it has
        the last one's offset and the first one's position.
        """
        if entry.position == 0:
            return True
        if not 0 < entry.position < self.log.size_bytes:
            return False
        span = batch_span_at(self.log, entry.position)
        most = self.base_offset + entry.relative_offset
        if offset is not None:
            most = min(most, offset)
        if span is None or not self.base_offset <= span.base_offset <= most:
            return False
        if trust is not Trust.CHECKSUMS:
            return True
        from kdump.scan.batches import read_windows

        batches = next(read_windows(self.log, span.position, first_bytes=_FIRST_BYTES)).batches
        return bool(batches.count and batches.is_valid[0])

    def find_batch(self, offset: int) -> BatchSpan | None:
        """The batch that holds ``offset``, or else the first after it; None if the log ends before.

        The batches from the index entry on are read by headers alone, with any trust; follows
        ``FileRecords.searchForOffsetFromPosition``.

        Raises:
            OSError: the log cannot be read.
        """
        for span in batch_spans(self.log, self.position_of(offset), self.base_offset):
            if span.last_offset >= offset:
                return span
        return None

    # ---- By time ----

    def start_of(self, offset: int | None, timestamp_ms: int | None) -> int:
        """Where to begin reading for records from an offset and a time on; None for any.

        Raises:
            OSError: the log cannot be read.
        """
        return max(
            0 if offset is None else self.position_of(offset),
            0 if timestamp_ms is None else self.position_after_times_below(timestamp_ms),
        )

    def position_after_times_below(self, timestamp_ms: int) -> int:
        """The start of a batch before which all records are older; 0 in doubt.

        Follows ``LogSegment.findOffsetByTimestamp``.

        Raises:
            OSError: the log cannot be read.
        """
        entry = find_in_index(self.time_index, lambda index: time_entry_below(index, timestamp_ms))
        if entry is None:
            return 0
        if self.trust is Trust.CHECKSUMS:
            return self._position_after(entry) or 0
        return self.position_of(self._offset_of(entry)) if self.is_true(entry) else 0

    def is_true(self, entry: TimeIndexEntry) -> bool:
        """Whether the batch at the offset of a time index entry has its timestamp, by its header.

        Raises:
            OSError: the log cannot be read.
        """
        span = self.find_batch(self._offset_of(entry))
        return span is not None and span.max_timestamp_ms == entry.timestamp

    def largest_timestamp(self) -> int | None:
        """The largest timestamp of the records; None if that takes reading much of the log.

        It is that of the time index's last entry, or of a record after the batch of that entry.
        Only valid batches are read for it, with any trust.

        Raises:
            OSError: the log cannot be read.
        """
        from kdump.log.record_times import largest_timestamp_of_small

        entry = find_in_index(self.time_index, last_time_entry)
        if entry is None:
            return None
        found = largest_timestamp_of_small(self.log, self.base_offset, entry)
        if found is not None:
            return found
        position = self._position_after(entry)
        if position is None or self.log.size_bytes - position > _MAX_BYTES_AFTER_LAST_ENTRY:
            return None
        after = self.read_largest_timestamp(position)
        return None if after is None else max(entry.timestamp, after)

    def read_largest_timestamp(self, position: int = 0) -> int | None:
        """The same from the records alone; None if some of them are damaged.

        Raises:
            OSError: the log cannot be read.
        """
        from kdump.log.record_times import largest_timestamp_in
        from kdump.scan.batches import read_windows

        largest = NO_TIMESTAMP
        for window in read_windows(self.log, position):
            if window.stop is not None and window.stop.problem is not None:
                return None
            found = largest_timestamp_in(window)
            if found is None:
                return None
            largest = max(largest, found)
        return largest

    def _position_after(self, entry: TimeIndexEntry) -> int | None:
        """Where the batch of a time index entry ends; None if the entry is not true.

        The batch has to hold the entry's offset, and the largest time of its records has to be the
        entry's.
        """
        from kdump.log.record_times import end_of_dated_batch

        if entry.timestamp < 0 or entry.relative_offset < 0:
            return None
        offset = self._offset_of(entry)
        start = self.position_of(offset)
        return end_of_dated_batch(self.log, start, offset, entry.timestamp, _FIRST_BYTES)

    def _offset_of(self, entry: TimeIndexEntry) -> int:
        return self.base_offset + entry.relative_offset

    # ---- The end ----

    def end(self, *, may_be_padded: bool = True) -> SegmentEnd:
        """Find the end by the batches after the last entry of the offset index.

        That entry needs only the header of its batch to count, because the batches from there on
        are looked at as the trust demands.

        Args:
            may_be_padded: whether zeroes at the end are preallocated space, as in the active
                segment, and no damage.

        Raises:
            OSError: the log cannot be read.
        """
        start = self._indexed_position(None, Trust.HEADERS) or 0
        if self.trust is Trust.CHECKSUMS:
            found = self._valid_end(start, may_be_padded)
            if start and found.offset <= self.base_offset:
                # The last indexed batch itself is damaged.
                found = self._valid_end(0, may_be_padded)
            return found
        last, timestamp = None, NO_TIMESTAMP
        for last in batch_spans(self.log, start, self.base_offset):
            timestamp = max(timestamp, last.largest_timestamp)
        if last is None:
            offset, position, epoch = self.base_offset, start, NO_PARTITION_LEADER_EPOCH
        else:
            offset, position, epoch = last.last_offset + 1, last.next_position, last.leader_epoch
        if self.trust is Trust.LENGTHS:
            offset = end_after(self.log, position, offset)
        return SegmentEnd(offset, start, position, epoch, timestamp)

    def _valid_end(self, start: int, may_be_padded: bool) -> SegmentEnd:
        from kdump.log.batch_validity import LogPart
        from kdump.log.valid_windows import Damage, valid_windows

        end, damage = SegmentEnd(self.base_offset, start, start), []
        part = LogPart(start, least_offset=self.base_offset, may_be_padded=may_be_padded)
        for step in valid_windows(self.log, part):
            if isinstance(step, Damage):
                damage.append(step)
                continue
            last = step.batches
            end = SegmentEnd(
                int(last.last_offset[-1]) + 1,
                start,
                int(last.next_position[-1]),
                int(last.partition_leader_epoch[-1]),
            )
        return end._replace(damage=tuple(damage))


def _nearest(index: ByteSource, relative_offset: int | None) -> tuple[OffsetIndexEntry, ...]:
    """The last entry not above an offset, None for any, if there is one."""
    if relative_offset is None:
        entry = last_offset_entry(index)
    else:
        entry = offset_entry_at_or_below(index, relative_offset)
    return () if entry is None else (entry,)


def find_in_index(path: Location, find: Callable[[ByteSource], Entry]) -> Entry | None:
    """What a lookup in an index finds; None if the index cannot be read."""
    try:
        with path.open_file() as index:
            return find(index)
    except OSError:
        return None


# ---- The segments of a log ----


@dataclass(frozen=True, slots=True, order=True)
class ReplicaEnd:
    """Where a replica's log ends; the greater one wins an election.

    Attributes:
        leader_epoch: of the last batch; -1 if there is none, or if it has none.
        offset: after the last batch; the base offset of the last segment in a log without one.
        damage: what follows the last offset index entry and is not valid, such as a torn tail; only
            with ``Trust.CHECKSUMS``.
    """

    leader_epoch: int
    offset: int
    damage: tuple[Damage, ...] = field(default=(), compare=False)
    has_batches: bool = field(default=True, compare=False)


EMPTY: Final = ReplicaEnd(NO_PARTITION_LEADER_EPOCH, 0, has_batches=False)
"""The end of a log without a segment."""


def log_end(partition: Partition, trust: Trust) -> ReplicaEnd:
    """Find the end of a log by the batches after the last entry of the active segment's index.

    If the active segment is empty, the epoch is that of the segment before it. A log of Kafka 0.7
    ends with its last file.

    Args:
        partition: as a starting broker loads it.
        trust: what counts as a batch.

    Raises:
        OSError: a log cannot be read.
    """
    if partition.is_0_7:
        active = partition.segments[-1]
        return ReplicaEnd(NO_PARTITION_LEADER_EPOCH, active.base_offset + active.log_bytes)
    damage: tuple[Damage, ...] = ()
    least = None
    for segment in reversed(partition.segments):
        with SegmentSearch.of(partition, segment, trust) as search:
            found = search.end(may_be_padded=least is None)
        damage = (*found.damage, *damage)
        if found.offset > segment.base_offset:
            return ReplicaEnd(found.leader_epoch, max(found.offset, least or 0), damage)
        least = segment.base_offset if least is None else least
    return EMPTY if least is None else replace(EMPTY, offset=least, damage=damage)


def find_log_start(partition: Partition, checkpointed_offset: int | None) -> int | None:
    """Return where a log begins: its first segment or the checkpoint, whichever is larger."""
    if not partition.segments:
        return checkpointed_offset
    return max(partition.segments[0].base_offset, checkpointed_offset or 0)


def checkpointed(offsets: Offsets | None, partition: Partition) -> int | None:
    """Return the offset of a partition in a checkpoint.

    A log that moves between directories is in it by the plain name of its partition. A deleted or
    stray log is not: its name may now be that of another log.
    """
    if offsets is None or partition.topic_partition is None:
        return None
    if partition.state in (PartitionState.DELETE, PartitionState.STRAY):
        return None
    return offsets.get(partition.topic_partition)


def within_log(high_watermark: int, log_start: int, log_end: int) -> int:
    """A high watermark as the log's broker has it; follows ``UnifiedLog.updateHighWatermark``."""
    return max(min(high_watermark, log_end), log_start)


def is_older(
    partition: Partition, segment: Segment, following: Segment | None, timestamp_ms: int
) -> bool:
    """Whether all records of a segment are known to be older, without reading much.

    Raises:
        OSError: a file cannot be read.
    """
    if not segment.time_index_bytes or following is None:
        return False
    with SegmentSearch.of(partition, segment, Trust.CHECKSUMS) as search:
        largest = search.largest_timestamp()
    return largest is not None and largest < timestamp_ms


def offset_of_time(
    partition: Partition, timestamp_ms: int, start_offset: int, on_damage: OnDamage
) -> int | None:
    """The offset of the first valid record from ``start_offset`` on that is not older than a time.

    Follows ``UnifiedLog.searchOffsetInLocalLog``, but trusts no index and no header unseen. None if
    there is no such record.

    Args:
        partition: as a starting broker loads it.
        start_offset: the first offset that counts.
        on_damage: takes the damage found on the way, which may have held that record.

    Raises:
        OSError: a file of the partition cannot be read.
    """
    from kdump.log.record_times import first_offset
    from kdump.log.valid_windows import segment_part, valid_windows
    from kdump.scan.selection import Selection

    selection = Selection(from_offset=start_offset, from_time_ms=timestamp_ms)
    for segment, following in partition.with_following():
        if following is not None and following.base_offset <= start_offset:
            continue
        if is_older(partition, segment, following, timestamp_ms):
            continue
        with SegmentSearch.of(partition, segment, Trust.CHECKSUMS) as search:
            start = search.start_of(start_offset, timestamp_ms)
            steps = valid_windows(search.log, segment_part(segment, following, start))
            found = first_offset(steps, selection, str(search.log.location), on_damage)
            if found is not None:
                return found
    return None
