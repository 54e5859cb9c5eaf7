"""The remote segments of a partition in tiered storage, from the records of remote log metadata."""

from __future__ import annotations

import bisect
import enum
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from kdump.formats.checkpoints import EpochEntry

if TYPE_CHECKING:
    from kdump.formats.message_decoder import MessageValue


class SegmentState(enum.IntEnum):
    """The state of a remote segment (``RemoteLogSegmentState``); the value is the one on disk."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


_TRANSITIONS: Final = frozenset(
    {
        (SegmentState.COPY_SEGMENT_STARTED, SegmentState.COPY_SEGMENT_FINISHED),
        (SegmentState.COPY_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_STARTED),
        (SegmentState.COPY_SEGMENT_FINISHED, SegmentState.DELETE_SEGMENT_STARTED),
        (SegmentState.DELETE_SEGMENT_STARTED, SegmentState.DELETE_SEGMENT_FINISHED),
    }
)
"""The valid changes of state; from a state to itself is valid, too."""


class RemoteSegment(Struct, frozen=True):
    """A remote segment, as its metadata describe it.

    Attributes:
        start_offset: the first offset that it may hold.
        end_offset: the last one, inclusive.
        leader_epochs: the epochs in it, each with its first offset in it; by epoch.
        size_bytes: of its log; None if unknown.
        state: as of the last record.
        broker_id: the broker that copied it, or changed its state; None if unknown.
        max_timestamp_ms: the largest timestamp in it; None if unknown.
        has_transaction_index: whether it has aborted transactions; None if unknown.
    """

    segment_id: str
    start_offset: int
    end_offset: int
    leader_epochs: tuple[EpochEntry, ...]
    size_bytes: int | None
    state: SegmentState
    broker_id: int | None = None
    max_timestamp_ms: int | None = None
    has_transaction_index: bool | None = None

    @classmethod
    def of_record(cls, record: MessageValue) -> RemoteSegment:
        """The segment of a ``RemoteLogSegmentMetadataRecord`` that was decoded without an error."""
        epochs = {each["leaderEpoch"]: each["offset"] for each in record["segmentLeaderEpochs"]}
        return cls(
            record["remoteLogSegmentId"]["id"],
            record["startOffset"],
            record["endOffset"],
            tuple(EpochEntry(epoch, epochs[epoch]) for epoch in sorted(epochs)),
            record["segmentSizeInBytes"],
            SegmentState(record["remoteLogSegmentState"]),
            record["brokerId"],
            record["maxTimestampMs"],
            not record["txnIndexEmpty"],
        )

    def end_of(self, epoch: int) -> int:
        """The last offset of an epoch in this segment (``highestOffsetForEpoch``)."""
        for each in self.leader_epochs:
            if each.epoch > epoch:
                return each.start_offset - 1
        return self.end_offset


class _Epoch(Struct):
    """The finished segments of a leader epoch by the offset at which the epoch begins in each.

    Follows ``RemoteLogLeaderEpochState``.
    """

    offsets: list[int] = field(default_factory=list)
    segments: list[str] = field(default_factory=list)
    highest_offset: int | None = None

    def add(self, start_offset: int, segment_id: str, end_offset: int) -> None:
        highest = -1 if self.highest_offset is None else self.highest_offset
        while self.offsets and self.offsets[-1] >= start_offset and highest <= end_offset:
            self.offsets.pop()
            self.segments.pop()
        at = bisect.bisect_left(self.offsets, start_offset)
        if at < len(self.offsets) and self.offsets[at] == start_offset:
            self.segments[at] = segment_id
        else:
            self.offsets.insert(at, start_offset)
            self.segments.insert(at, segment_id)
        self.highest_offset = max(highest, end_offset)

    def remove(self, start_offset: int, segment_id: str) -> None:
        at = bisect.bisect_left(self.offsets, start_offset)
        if at < len(self.offsets) and (self.offsets[at], self.segments[at]) == (
            start_offset,
            segment_id,
        ):
            del self.offsets[at], self.segments[at]


class RemoteRange(NamedTuple):
    """A range of offsets that is read from a remote segment.

    Attributes:
        segment: the segment; None if no finished segment has these offsets.
        from_offset: the first offset.
        to_offset: the end, exclusive.
    """

    segment: RemoteSegment | None
    from_offset: int
    to_offset: int


class RemoteSegments:
    """The remote segments of one partition of one topic id; takes events in their order.

    Follows ``RemoteLogMetadataCache``: events that are no valid transition are dropped.

    Attributes:
        segments: by id; those whose deletion is finished are not in it.
    """

    def __init__(self) -> None:
        self.segments: dict[str, RemoteSegment] = {}
        self._epochs: dict[int, _Epoch] = {}
        self._copied = set[str]()
        self._deleted_to: dict[int, int] = {}

    def add(self, segment: RemoteSegment) -> None:
        """Take a segment whose copy starts."""
        if segment.state is not SegmentState.COPY_SEGMENT_STARTED:
            return
        before = self.segments.get(segment.segment_id)
        if before is None or before.state is segment.state:
            self.segments[segment.segment_id] = segment

    def add_finished(self, segment: RemoteSegment) -> None:
        """Take a segment whose copy is finished, with nothing known of how it was copied."""
        self.add(replace(segment, state=SegmentState.COPY_SEGMENT_STARTED))
        self.update(segment.segment_id, SegmentState.COPY_SEGMENT_FINISHED)

    def update(self, segment_id: str, state: SegmentState, broker_id: int | None = None) -> None:
        """Take a new state of a segment."""
        before = self.segments.get(segment_id)
        if before is None or state is SegmentState.COPY_SEGMENT_STARTED:
            return
        if before.state is not state and (before.state, state) not in _TRANSITIONS:
            return
        segment = replace(before, state=state, broker_id=broker_id)
        self.segments[segment_id] = segment
        for entry in segment.leader_epochs:
            epoch = self._epochs.setdefault(entry.epoch, _Epoch())
            if state is SegmentState.COPY_SEGMENT_FINISHED:
                epoch.add(entry.start_offset, segment_id, segment.end_of(entry.epoch))
            else:
                epoch.remove(entry.start_offset, segment_id)
        if state is SegmentState.COPY_SEGMENT_FINISHED:
            self._copied.add(segment_id)
        elif segment_id in self._copied:
            for entry in segment.leader_epochs:
                to_offset = max(segment.end_of(entry.epoch) + 1, entry.start_offset)
                before_to = self._deleted_to.get(entry.epoch, 0)
                self._deleted_to[entry.epoch] = max(before_to, to_offset)
        if state is SegmentState.DELETE_SEGMENT_FINISHED:
            del self.segments[segment_id]

    def segment_for(self, epoch: int, offset: int) -> RemoteSegment | None:
        """The finished segment that a broker reads an offset of an epoch from, if there is one.

        Follows ``remoteLogSegmentMetadata``.
        """
        known = self._epochs.get(epoch)
        if known is None:
            return None
        at = bisect.bisect_right(known.offsets, offset) - 1
        if at < 0:
            return None
        segment = self.segments[known.segments[at]]
        return segment if offset <= segment.end_of(epoch) else None

    def read_ranges(self, lineage: Sequence[EpochEntry], end_offset: int) -> list[RemoteRange]:
        """From which segments a consumer gets the offsets of a partition, each offset once.

        A consumer asks for the segment of an offset, reads that to its end, and asks again; which
        segment it is depends on the leader epoch of the offset (``RemoteLogManager.read``).

        Args:
            lineage: the leader epochs of the replica that is read, by offset.
            end_offset: where the local log begins, or a large number.

        Returns:
            Adjacent ranges in order. The last one ends where the last segment does.
        """
        found: list[RemoteRange] = []
        for entry, end in _epoch_ends(lineage, end_offset):
            offset = entry.start_offset
            while offset < end:
                segment = self.segment_for(entry.epoch, offset)
                if segment is None:
                    to_offset = min(self._next_start(entry.epoch, offset) or end, end)
                else:
                    to_offset = min(segment.end_of(entry.epoch) + 1, end)
                last = found[-1] if found else None
                if last is not None and last.segment == segment:
                    found[-1] = last._replace(to_offset=to_offset)
                else:
                    found.append(RemoteRange(segment, offset, to_offset))
                offset = to_offset
        if found and found[-1].segment is None:
            found.pop()
        return found

    def highest_offset(self, lineage: Sequence[EpochEntry]) -> int | None:
        """The last offset that was copied, also if its segment was deleted; None if none was.

        Follows ``RemoteLogManager.findHighestRemoteOffset``.
        """
        ends = [entry.start_offset - 1 for entry in lineage[1:]]
        for entry, end in zip_longest(reversed(lineage), [None, *reversed(ends)]):
            assert entry is not None
            known = self._epochs.get(entry.epoch)
            if known is not None and known.highest_offset is not None:
                return known.highest_offset if end is None else min(end, known.highest_offset)
        return None

    def deleted_to(self, lineage: Sequence[EpochEntry]) -> int:
        """The offset after the last one that was in the tier, and whose deletion was begun.

        Segments whose copy failed were deleted, too, and those that an abandoned leader had copied:
        the first do not have the records of the log, the others were never read by it.

        Args:
            lineage: the leader epochs of the replica; without any, every epoch counts.
        """
        if not lineage:
            return max(self._deleted_to.values(), default=0)
        first = lineage[0]
        starts = [each.start_offset for each in lineage[1:]]
        ends = dict(zip_longest((each.epoch for each in lineage), starts))
        found = 0
        for epoch, to_offset in self._deleted_to.items():
            if epoch >= first.epoch and epoch not in ends:
                continue  # of an abandoned leader
            # The epochs of a log that were deleted are before its first one.
            end = ends.get(epoch, first.start_offset)
            found = max(found, to_offset if end is None else min(to_offset, end))
        return found

    def _next_start(self, epoch: int, offset: int) -> int | None:
        """Where the next finished segment of an epoch begins."""
        known = self._epochs.get(epoch)
        starts = [] if known is None else known.offsets
        at = bisect.bisect_right(starts, offset)
        return starts[at] if at < len(starts) else None


def missing_ranges(
    ranges: Sequence[RemoteRange], log_start_offset: int | None, local_start_offset: int | None
) -> list[RemoteRange]:
    """The offsets that no segment has, and that the log should have before its local part.

    Args:
        ranges: as :meth:`RemoteSegments.read_ranges` gives them.
        log_start_offset: where the log begins; None if unknown, and what is before the first
            segment is not missing.
        local_start_offset: where its local part begins; None if there is none.
    """
    first = next((each for each in ranges if each.segment is not None), None)
    found = [each for each in ranges[1:] if each.segment is None]
    if first is not None and first.segment is not None:
        begin: int | None = min(first.from_offset, first.segment.start_offset)
        if local_start_offset is not None and ranges[-1].to_offset < local_start_offset:
            found.append(RemoteRange(None, ranges[-1].to_offset, local_start_offset))
    else:
        begin = local_start_offset
    if log_start_offset is None:
        return found
    if begin is not None:
        found.insert(0, RemoteRange(None, log_start_offset, begin))
    clipped = [each._replace(from_offset=max(each.from_offset, log_start_offset)) for each in found]
    return [each for each in clipped if each.from_offset < each.to_offset]


def _epoch_ends(lineage: Iterable[EpochEntry], end_offset: int) -> Iterator[tuple[EpochEntry, int]]:
    """Each epoch that begins before ``end_offset``, and its end."""
    entries = list(lineage)
    for at, entry in enumerate(entries):
        end = entries[at + 1].start_offset if at + 1 < len(entries) else end_offset
        if entry.start_offset < end_offset:
            yield entry, min(end, end_offset)
