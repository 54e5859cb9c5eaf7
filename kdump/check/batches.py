"""Check the headers and checksums of the batches of a segment.

Each check is one function over columns, which may hold the batches of one segment or of many. The
first group finds batches that are damaged by themselves. The second group takes only the others,
because no field of a damaged header can be believed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Self

import numpy as np
from msgspec import Struct

from kdump.check import invariants
from kdump.check.collector import Collector
from kdump.check.findings import Finding, Place, Severity
from kdump.check.invariants import Invariant
from kdump.formats import record_batch
from kdump.formats.compression import Codec
from kdump.formats.names import FileKind
from kdump.formats.record_batch import GREATEST_OFFSET as GREATEST_OFFSET
from kdump.formats.record_batch import NEWEST_MAGIC, wrap_int64
from kdump.log.batch_validity import has_known_magic, has_possible_offsets
from kdump.scan.batches import BatchColumns, Column, Flags, Window
from kdump.scan.record_validity import has_more_records, reaching_records
from kdump.scan.usual_batches import LARGEST_SMALL_LOG_BYTES as LARGEST_SMALL_LOG_BYTES
from kdump.storage.location import Location
from kdump.words import counted

MOST_RELATIVE_OFFSET: Final = 2**31 - 1
"""The most that an index entry holds, relative to the segment's base offset (``IndexEntry``)."""
CLOCK_SKEW_MS: Final = 60 * 60 * 1000
"""How far in the future a broker accepts timestamps (``message.timestamp.after.max.ms``)."""

NO_END: Final = 2**63 - 1
"""The end offset of the last segment."""

HIGHEST_CODEC: Final = max(Codec)

_LARGEST_SMALL_INDEX_BYTES: Final = 4096
"""More than the entries of a small log take: preallocated space, which may be any size."""


def is_small(log_bytes: int, *index_bytes: int | None) -> bool:
    """Whether a segment with files of these sizes is worth checking together with others."""
    return log_bytes <= LARGEST_SMALL_LOG_BYTES and all(
        each is None or each <= _LARGEST_SMALL_INDEX_BYTES for each in index_bytes
    )


class SegmentScope(Struct, frozen=True):
    """What the check of a part of a segment needs to know about the segment.

    Attributes:
        base_offset: from its name.
        next_base_offset: of the segment after it; None for the last one.
        is_active: whether it is the last segment, to which a broker appends.
        is_clean: whether the log directory has a clean shutdown marker.
        is_padded: whether its indexes keep the size that a broker allocates when it stops.
        used_index_bytes: number of bytes before the padding of its offset index and of its time
            index; None if not determined yet.
        is_small: whether its log and its indexes are small by a listing; False if unknown.
        is_left_out: whether it is not to be read.
    """

    log: Location
    base_offset: int
    next_base_offset: int | None = None
    is_active: bool = True
    is_clean: bool = False
    is_padded: bool = False
    used_index_bytes: tuple[int, int] | None = None
    is_small: bool = False
    is_left_out: bool = False

    @property
    def path(self) -> str:
        """The path of its log, for findings."""
        return str(self.log)

    @property
    def is_0_7(self) -> bool:
        """Whether it is a segment of Kafka 0.7."""
        return self.log.name.endswith(FileKind.LOG_0_7.value)

    @property
    def may_be_torn(self) -> bool:
        """Whether it may end as after a broker was killed."""
        return self.is_active and not self.is_clean

    def file(self, kind: FileKind) -> Location:
        """The location of another file of the segment, which may not exist."""
        return self.log.with_name(self.log.name.removesuffix(FileKind.LOG.value) + kind.value)

    def place(self, position: int, offset: int | None = None) -> Place:
        """A place in the log, for a finding."""
        return Place(self.path, int(position), None if offset is None else int(offset))

    def of_batch(self, batches: BatchColumns, row: int) -> Place:
        return self.place(int(batches.position[row]), int(batches.base_offset[row]))


class Surroundings(Struct, frozen=True):
    """What batches are compared with, beside themselves.

    For the batches of one segment, what is of the segment is a number; for those of several
    segments, a column with a row for each batch.

    Attributes:
        end_offset: the base offset of the segment after it; :data:`NO_END` for the last one.
        last_offset_before: of the batch before; for the first batch of a segment, one below its own
            base offset.
        end_before: byte at which the batch before ends; for the first, where the segment begins.
    """

    base_offset: int | Column
    end_offset: int | Column
    last_offset_before: Column
    end_before: Column
    now_ms: int

    @classmethod
    def in_segment(
        cls,
        batches: BatchColumns,
        scope: SegmentScope,
        last_offset_before: int | None,
        end_before: int,
        now_ms: int,
    ) -> Self:
        """The surroundings of consecutive batches of a segment.

        Args:
            batches: one or more.
            last_offset_before: of the valid batch before them; None if there is none.
            end_before: the byte after that batch.
        """
        if last_offset_before is None:
            last_offset_before = wrap_int64(int(batches.base_offset[0]) - 1)
        return cls(
            scope.base_offset,
            NO_END if scope.next_base_offset is None else scope.next_base_offset,
            previous(batches.last_offset, last_offset_before),
            previous(batches.next_position, end_before),
            now_ms,
        )


class BatchCheck(NamedTuple):
    """An invariant of batches: once, for those of one segment and of many.

    Attributes:
        invariant: whose code the limit of findings counts.
        find: which batches violate it.
        describe: the finding for the batch in a row, which is of the segment.
    """

    invariant: Invariant
    find: Callable[[BatchColumns, Surroundings], Flags]
    describe: Callable[[BatchColumns, Surroundings, int, SegmentScope], Finding]

    def report(
        self, batches: BatchColumns, around: Surroundings, scope: SegmentScope, into: Collector
    ) -> Flags:
        """Add a finding for each batch of a segment that violates it; returns which do."""
        is_bad = self.find(batches, around)
        if is_bad.any():
            into.add_each(
                self.invariant.code,
                np.flatnonzero(is_bad).tolist(),
                lambda row: self.describe(batches, around, row, scope),
            )
        return is_bad


# ---- Batches that are damaged by themselves ----


def _has_wrong_checksum(batches: BatchColumns, around: Surroundings) -> Flags:
    """The checksum does not match, or the batch is too small for its header."""
    return ~batches.is_valid


def _wrong_checksum(
    batches: BatchColumns, around: Surroundings, row: int, scope: SegmentScope
) -> Finding:
    size_bytes = int(batches.size_bytes[row])
    if batches.magic[row] >= 2 and size_bytes < record_batch.HEADER_BYTES:
        return invariants.BATCH_LENGTH.finding(
            scope.place(int(batches.position[row])),
            "a batch is too small for its own header",
            expected=f"{record_batch.HEADER_BYTES} bytes or more",
            found=counted(size_bytes, "byte"),
            loss="the batch, and on recovery everything after it",
        )
    return invariants.BATCH_CHECKSUM.finding(
        scope.of_batch(batches, row),
        "the checksum of a batch does not match",
        found=f"stored {int(batches.crc[row]):#010x} over {size_bytes} bytes",
        loss=_loss_of(batches, row),
    )


def _loss_of(batches: BatchColumns, row: int) -> str:
    count = int(batches.records_count[row])
    records = (
        counted(count, "record") if 0 <= count <= int(batches.size_bytes[row]) else "its records"
    )
    return f"the batch at offset {int(batches.base_offset[row])} ({records})"


def _has_unknown_magic(batches: BatchColumns, around: Surroundings) -> Flags:
    """The batch is of an unknown format; the magic is outside the checksum."""
    return ~has_known_magic(batches)


def _unknown_magic(
    batches: BatchColumns, around: Surroundings, row: int, scope: SegmentScope
) -> Finding:
    return invariants.BATCH_MAGIC.finding(
        scope.of_batch(batches, row),
        "a batch has a magic that Kafka does not know",
        expected=f"0 to {NEWEST_MAGIC}",
        found=int(batches.magic[row]),
        loss=_loss_of(batches, row),
    )


def _has_impossible_header(batches: BatchColumns, around: Surroundings) -> Flags:
    """Header fields contradict each other, though the checksum may match."""
    is_bad = ~has_possible_offsets(batches) | has_more_records(batches)
    is_bad |= (batches.records_count < 0) & (batches.magic == NEWEST_MAGIC)
    is_bad |= (batches.attributes & record_batch.CODEC_MASK) > HIGHEST_CODEC
    return is_bad


def _impossible_header(
    batches: BatchColumns, around: Surroundings, row: int, scope: SegmentScope
) -> Finding:
    header = batches.header(row)
    place = scope.of_batch(batches, row)
    loss = _loss_of(batches, row)
    if header.codec_id > HIGHEST_CODEC:
        return invariants.BATCH_CODEC.finding(
            place,
            "a batch is compressed with a codec that Kafka does not have",
            expected=f"0 to {int(HIGHEST_CODEC)}",
            found=header.codec_id,
            loss=loss,
        )
    if header.base_offset < 0 or header.last_offset < header.base_offset:
        expected, found = "offsets from 0 up", f"{header.base_offset} to {header.last_offset}"
    else:
        expected = f"0 to {header.last_offset_delta + 1} records"
        found = str(header.records_count)
    return invariants.BATCH_HEADER.finding(
        place, "the header of a batch contradicts itself", expected=expected, found=found, loss=loss
    )


def more_records_than_offsets(window: Window, scope: SegmentScope, into: Collector) -> Window:
    """Find batches that have more records than offsets, and give each record an offset.

    Until then they contradict themselves, so they are among those with an impossible header.
    """
    batches = window.batches
    reaching = reaching_records(window)
    rows = np.flatnonzero(reaching.batches.last_offset_delta != batches.last_offset_delta).tolist()
    if rows:

        def describe(row: int) -> Finding:
            return invariants.BATCH_FEW_OFFSETS.finding(
                scope.of_batch(batches, row),
                "a batch has more records than its header has offsets",
                expected=f"0 to {int(batches.last_offset_delta[row]) + 1} records",
                found=int(batches.records_count[row]),
            )

        into.add_each(invariants.BATCH_FEW_OFFSETS.code, rows, describe)
    return reaching


OF_ONE_BATCH: Final = (
    BatchCheck(invariants.BATCH_CHECKSUM, _has_wrong_checksum, _wrong_checksum),
    BatchCheck(invariants.BATCH_MAGIC, _has_unknown_magic, _unknown_magic),
    BatchCheck(invariants.BATCH_HEADER, _has_impossible_header, _impossible_header),
)
"""They find batches that are damaged by themselves; each takes what the one before left."""


# ---- Batches that are valid by themselves ----


def _goes_back(batches: BatchColumns, around: Surroundings) -> Flags:
    """The batch begins at or below the last offset of the one before."""
    is_bad: Flags = batches.base_offset <= around.last_offset_before
    return is_bad


def _out_of_order(
    batches: BatchColumns, around: Surroundings, row: int, scope: SegmentScope
) -> Finding:
    return offset_order_finding(
        scope.of_batch(batches, row),
        int(around.last_offset_before[row]),
        int(batches.base_offset[row]),
    )


def offset_order_finding(place: Place, last_offset_before: int, base_offset: int) -> Finding:
    """The finding for a batch that begins at or below the last offset before it."""
    return invariants.BATCH_OFFSET_ORDER.finding(
        place,
        "a batch begins at or below the last offset of the one before",
        expected=f"{last_offset_before + 1} or more",
        found=base_offset,
    )


def _is_after_gap(batches: BatchColumns, around: Surroundings) -> Flags:
    """Offsets are missing before a batch of magic 2, though no bytes are.

    A compressed set of magic 0 or 1 does not tell its first offset. Offsets lost with damaged bytes
    are no gap.
    """
    is_next = batches.position == around.end_before
    has_gap: Flags = (batches.base_offset > around.last_offset_before + 1) & is_next
    has_gap &= batches.magic >= 2
    return has_gap


def _gap(batches: BatchColumns, around: Surroundings, row: int, scope: SegmentScope) -> Finding:
    return offset_gap_finding(
        scope.of_batch(batches, row),
        int(around.last_offset_before[row]),
        int(batches.base_offset[row]),
    )


def offset_gap_finding(place: Place, last_offset_before: int, base_offset: int) -> Finding:
    """The finding for a batch with missing offsets before it."""
    return invariants.OFFSET_GAP.finding(
        place,
        f"offsets {last_offset_before + 1} to {base_offset - 1} are missing",
    )


def _is_outside(batches: BatchColumns, around: Surroundings) -> Flags:
    """The batch has offsets below its segment, or in the next one."""
    is_bad: Flags = batches.base_offset < around.base_offset
    is_bad |= batches.last_offset >= around.end_offset
    return is_bad


def _outside(batches: BatchColumns, around: Surroundings, row: int, scope: SegmentScope) -> Finding:
    end = scope.next_base_offset
    return invariants.BATCH_OUTSIDE_SEGMENT.finding(
        scope.of_batch(batches, row),
        "a batch has offsets that belong to another segment",
        expected=f"{scope.base_offset} or more" + ("" if end is None else f", below {end}"),
        found=f"{int(batches.base_offset[row])} to {int(batches.last_offset[row])}",
        loss=_loss_of(batches, row),
    )


def _is_beyond_index(batches: BatchColumns, around: Surroundings) -> Flags:
    """An offset is too far from the segment's base offset for an index entry."""
    is_bad: Flags = batches.last_offset - around.base_offset > MOST_RELATIVE_OFFSET
    return is_bad


def _beyond_index(
    batches: BatchColumns, around: Surroundings, row: int, scope: SegmentScope
) -> Finding:
    return invariants.BATCH_OFFSET_OVERFLOW.finding(
        scope.of_batch(batches, row),
        "an offset is too far from the segment's base offset for an index;"
        " a starting broker splits the segment",
        expected=f"at most {scope.base_offset + MOST_RELATIVE_OFFSET}",
        found=int(batches.last_offset[row]),
    )


def _is_in_the_future(batches: BatchColumns, around: Surroundings) -> Flags:
    """The maximum timestamp is more than an hour after now."""
    is_ahead: Flags = batches.max_timestamp > around.now_ms + CLOCK_SKEW_MS
    return is_ahead


def _in_the_future(
    batches: BatchColumns, around: Surroundings, row: int, scope: SegmentScope
) -> Finding:
    return invariants.FUTURE_TIMESTAMP.finding(
        scope.of_batch(batches, row),
        "a batch has a timestamp in the future; retention.ms keeps its segment until then",
        expected=f"at most {around.now_ms + CLOCK_SKEW_MS}",
        found=int(batches.max_timestamp[row]),
    )


OFFSET_ORDER: Final = BatchCheck(invariants.BATCH_OFFSET_ORDER, _goes_back, _out_of_order)
AMONG_BATCHES: Final = (
    OFFSET_ORDER,
    BatchCheck(invariants.OFFSET_GAP, _is_after_gap, _gap),
    BatchCheck(invariants.BATCH_OUTSIDE_SEGMENT, _is_outside, _outside),
    BatchCheck(invariants.BATCH_OFFSET_OVERFLOW, _is_beyond_index, _beyond_index),
    BatchCheck(invariants.FUTURE_TIMESTAMP, _is_in_the_future, _in_the_future),
)
"""They take batches that are valid by themselves: a damaged header says nothing about others."""
ALL: Final = (*OF_ONE_BATCH, *AMONG_BATCHES)


def previous(column: Column, first: int) -> Column:
    """The value of the previous row for each row; ``first`` for the first row."""
    shifted = np.empty_like(column)
    shifted[0] = first
    shifted[1:] = column[:-1]
    return shifted


# ---- Bytes that are not a batch ----


def classify_bytes(
    data: bytes, start: int, end: int, file_bytes: int, *, is_zero: bool, scope: SegmentScope
) -> tuple[Finding, bool]:
    """Classify bytes in which no batch was found.

    Args:
        data: the first of them, as many as a batch header has.
        start: byte of the file at which they begin.
        end: byte after them.
        file_bytes: size of the file.
        is_zero: whether all of them are zeroes.

    Returns:
        The finding, and whether they are padding rather than damage.
    """
    place = scope.place(start)
    size = counted(end - start, "byte")
    is_tail = end == file_bytes
    at_most = Severity.WARNING if scope.may_be_torn and is_tail else None
    # Fewer zeroes may be the start of an offset.
    if is_zero and end - start > record_batch.PREFIX_BYTES:
        what = (
            "zeroes follow the last batch: space that was allocated and never written"
            if is_tail
            else "there are zeroes where batches should be"
        )
        finding = invariants.ZERO_FILL.finding(
            place,
            what,
            found=size,
            loss=None if is_tail else "the data that was there",
            severity=at_most,
        )
        return finding, is_tail
    length = int.from_bytes(data[record_batch.LENGTH_START :][:4], "big", signed=True)
    claimed = record_batch.LOG_OVERHEAD_BYTES + length
    if is_tail and (
        len(data) <= record_batch.PREFIX_BYTES
        or (length >= record_batch.MIN_LENGTH_BYTES and start + claimed > file_bytes)
    ):
        finding = invariants.TORN_TAIL.finding(
            place,
            "the last batch is incomplete",
            expected=counted(claimed, "byte") if len(data) > record_batch.PREFIX_BYTES else None,
            found=size,
            loss="the batch that was being written",
        )
        return finding, False
    if length < record_batch.MIN_LENGTH_BYTES or start + claimed > file_bytes:
        finding = invariants.BATCH_LENGTH.finding(
            place,
            "a length that no batch can have",
            expected=f"{record_batch.MIN_LENGTH_BYTES} to "
            f"{file_bytes - start - record_batch.LOG_OVERHEAD_BYTES}",
            found=length,
            loss=f"{size}, up to the next valid batch" if not is_tail else f"{size}, to the end",
        )
        return finding, False
    finding = invariants.BATCH_CHECKSUM.finding(
        place,
        "a batch is damaged, and no batch follows at its claimed end",
        found=f"{size} up to " + ("the end" if is_tail else "the next valid batch"),
        loss=f"the data in these {size}",
    )
    return finding, False
