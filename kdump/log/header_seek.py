"""Seek in the log of a segment by its indexes and batch headers, with a few small reads.

An index lookup gives a position at or before the one sought, and a short scan forward from there
finds the batch (``LogSegment.translateOffset``). But an index is a hint here: it may be stale,
damaged, cut short or another segment's. An entry counts only once the batch that it points to
agrees with it. Where it does not, the scan starts at the first byte: slower, never wrong. An index
lookup reads a few entries, however large the index is.

What a broker makes of a wrong index is another question: :mod:`kdump.broker.loader` repeats that.
:mod:`kdump.log.seek` also checks checksums, and seeks by time; it costs importing ``kdump.scan``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeVar

from kdump.formats.names import FileKind
from kdump.log.headers import BatchSpan, batch_span_at, batch_spans
from kdump.log.index_tail import (
    OffsetIndexEntry,
    TimeIndexEntry,
    earlier_offset_entries,
    last_offset_entry,
    offset_entry_at_or_below,
)
from kdump.storage.byte_source import ByteSource
from kdump.storage.location import Location

if TYPE_CHECKING:
    from kdump.log.partition import Partition
    from kdump.log.segment import Segment

Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True)
class HeaderSeekableLog:
    """The log of a segment, and where its indexes are, if it has any.

    The header of the batch that an index entry points to decides whether the entry counts.

    Attributes:
        log: its bytes.
        base_offset: of the segment.
        offset_index: the file.
        time_index: the file.
        opened_offset_index: the same file where it is open already.
    """

    log: ByteSource
    base_offset: int
    offset_index: Location
    time_index: Location
    opened_offset_index: ByteSource | None = None

    @classmethod
    def of_segment(
        cls,
        partition: Partition,
        segment: Segment,
        log: ByteSource,
    ) -> Self:
        """A segment of a partition; ``log`` is its opened log."""
        return cls(
            log,
            segment.base_offset,
            partition.segment_path(segment, FileKind.OFFSET_INDEX),
            partition.segment_path(segment, FileKind.TIME_INDEX),
        )

    def position_of(self, offset: int) -> int:
        """The start of a batch before which all offsets are below ``offset``; 0 in doubt.

        Raises:
            OSError: the log cannot be read.
        """
        return self.indexed_position(offset) or 0

    def indexed_position(self, offset: int | None) -> int | None:
        """The same by the offset index; None if that is missing or has only false entries.

        Args:
            offset: None for the last batch that the index leads to.

        Raises:
            OSError: the log cannot be read.
        """
        if offset is not None and offset <= self.base_offset:
            return 0
        relative_offset = None if offset is None else offset - self.base_offset
        found = self._find(lambda index: _nearest(index, relative_offset))
        if not found:
            return None if found is None else 0
        if self._is_true_for(found[0], offset):
            return found[0].position
        earlier = self._find(lambda index: earlier_offset_entries(index, relative_offset))
        for entry in earlier or ():
            if self._is_true_for(entry, offset):
                return entry.position
        return None

    def _find(self, find: Callable[[ByteSource], Entry | None]) -> Entry | None:
        """What a lookup in the offset index finds; None if the index cannot be read."""
        index = self.opened_offset_index
        if index is None:
            return find_in_index(self.offset_index, find)
        try:
            return find(index)
        except OSError:
            return None

    def last_indexed_position(self) -> int:
        """Where the batch of the offset index's last true entry begins; 0 in doubt.

        Raises:
            OSError: the log cannot be read.
        """
        return self.indexed_position(None) or 0

    def find_batch(self, offset: int) -> BatchSpan | None:
        """The batch that holds ``offset``, or else the first after it; None if the log ends before.

        By headers alone; follows ``FileRecords.searchForOffsetFromPosition``.

        Raises:
            OSError: the log cannot be read.
        """
        for span in batch_spans(self.log, self.position_of(offset), self.base_offset):
            if span.last_offset >= offset:
                return span
        return None

    def _is_true_for(self, entry: OffsetIndexEntry, offset: int | None) -> bool:
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
        return self._is_trusted(span)

    def _is_trusted(self, span: BatchSpan) -> bool:
        """Whether the entry that points to this batch counts; a fuller check is a subclass's."""
        return True

    def is_true(self, entry: TimeIndexEntry) -> bool:
        """Whether the batch at the offset of a time index entry has its timestamp, by its header.

        Raises:
            OSError: the log cannot be read.
        """
        span = self.find_batch(self.base_offset + entry.relative_offset)
        return span is not None and span.max_timestamp_ms == entry.timestamp


def _nearest(index: ByteSource, relative_offset: int | None) -> tuple[OffsetIndexEntry, ...]:
    """The last entry not above an offset, None for any, if there is one."""
    if relative_offset is None:
        entry = last_offset_entry(index)
    else:
        entry = offset_entry_at_or_below(index, relative_offset)
    return () if entry is None else (entry,)


def find_in_index(path: Location, find: Callable[[ByteSource], Entry | None]) -> Entry | None:
    """What a lookup in an index finds; None if the index cannot be read."""
    try:
        with path.open_file() as index:
            return find(index)
    except OSError:
        return None
