"""What must hold of the batches of a segment, as far as their headers and checksums tell.

Each function looks at the batches of a window together. Those of the first group say which
batches are damaged in themselves; the others take only what is left, since nothing in a damaged
header can be believed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from kdump.check import invariants
from kdump.check.collector import Collector
from kdump.check.findings import Finding, Place, Severity
from kdump.formats import record_batch
from kdump.formats.compression import Codec
from kdump.formats.names import FileKind
from kdump.scan.batches import BatchColumns, Column, Flags
from kdump.storage.location import Location
from kdump.words import counted

MOST_RELATIVE_OFFSET: Final = 2**31 - 1
"""What an index entry can hold (``IndexEntry`` is relative to the segment's base offset)."""
GREATEST_OFFSET: Final = 2**63 - 2
"""Kafka's offsets have 64 bits, and the end of a log is one above its last offset."""
CLOCK_SKEW_MS: Final = 60 * 60 * 1000
"""How far ahead a broker lets timestamps be (``message.timestamp.after.max.ms``)."""

HIGHEST_CODEC: Final = max(Codec)
_NEWEST_MAGIC: Final = 2


@dataclass(frozen=True, slots=True)
class SegmentScope:
    """What has to be known of a segment to check a part of it.

    Attributes:
        log: its log.
        base_offset: from its name.
        next_base_offset: of the segment behind it; None where it is the last one.
        is_active: whether it is the last one, which a broker appends to.
        is_clean: whether the log directory was left by a clean stop.
        used_index_bytes: how many bytes of its offset index, and of its time index, stand before
            the padding; None where nobody has looked yet.
    """

    log: Location
    base_offset: int
    next_base_offset: int | None = None
    is_active: bool = True
    is_clean: bool = False
    used_index_bytes: tuple[int, int] | None = None

    @property
    def path(self) -> str:
        """The name of its log in messages."""
        return str(self.log)

    @property
    def is_0_7(self) -> bool:
        """Whether it is one of Kafka 0.7."""
        return self.log.name.endswith(FileKind.LOG_0_7.value)

    @property
    def may_be_torn(self) -> bool:
        """Whether it may end as it does when a broker is killed."""
        return self.is_active and not self.is_clean

    def file(self, kind: FileKind) -> Location:
        """Another file of the segment, whether it is there or not."""
        return self.log.with_name(self.log.name.removesuffix(FileKind.LOG.value) + kind.value)

    def place(self, position: int, offset: int | None = None) -> Place:
        """A place in the log."""
        return Place(self.path, int(position), None if offset is None else int(offset))

    def of_batch(self, batches: BatchColumns, row: int) -> Place:
        """Where a batch is."""
        return self.place(int(batches.position[row]), int(batches.base_offset[row]))


# ---- Batches that are damaged in themselves ----


def bad_checksums(batches: BatchColumns, scope: SegmentScope, into: Collector) -> Flags:
    """The batches whose checksum does not hold, or that are too small for their header."""
    is_bad = ~batches.is_valid
    if not is_bad.any():
        return is_bad
    from_row = np.flatnonzero(is_bad).tolist()

    def describe(row: int) -> Finding:
        size_bytes = int(batches.size_bytes[row])
        if batches.magic[row] >= 2 and size_bytes < record_batch.HEADER_BYTES:
            return invariants.BATCH_LENGTH.finding(
                scope.place(int(batches.position[row])),
                "a batch is too small for its own header",
                expected=f"{record_batch.HEADER_BYTES} bytes or more",
                found=f"{size_bytes} bytes",
                loss="the batch, and on recovery all behind it",
            )
        return invariants.BATCH_CHECKSUM.finding(
            scope.of_batch(batches, row),
            "the checksum of a batch does not hold",
            found=f"stored {int(batches.crc[row]):#010x} over {size_bytes} bytes",
            loss=_loss_of(batches, row),
        )

    into.add_each(invariants.BATCH_CHECKSUM.code, from_row, describe)
    return is_bad


def _loss_of(batches: BatchColumns, row: int) -> str:
    count = int(batches.records_count[row])
    records = (
        counted(count, "record") if 0 <= count <= int(batches.size_bytes[row]) else "its records"
    )
    return f"the batch at offset {int(batches.base_offset[row])} ({records})"


def unknown_magics(batches: BatchColumns, scope: SegmentScope, into: Collector) -> Flags:
    """The batches of a format that Kafka does not have; the magic is outside the checksum."""
    is_bad = (batches.magic > _NEWEST_MAGIC) | (batches.magic < 0)
    if is_bad.any():

        def describe(row: int) -> Finding:
            return invariants.BATCH_MAGIC.finding(
                scope.of_batch(batches, row),
                "a batch has a magic that Kafka does not know",
                expected=f"0 to {_NEWEST_MAGIC}",
                found=int(batches.magic[row]),
                loss=_loss_of(batches, row),
            )

        into.add_each(invariants.BATCH_MAGIC.code, np.flatnonzero(is_bad).tolist(), describe)
    return is_bad


def impossible_headers(batches: BatchColumns, scope: SegmentScope, into: Collector) -> Flags:
    """The batches whose fields cannot all be true, though the checksum may hold."""
    delta, count = batches.last_offset_delta, batches.records_count
    is_bad = (delta < 0) | (batches.base_offset < 0) | (count > delta + 1)
    is_bad |= (batches.attributes & record_batch.CODEC_MASK) > HIGHEST_CODEC
    if (count < 0).any():
        is_bad |= (count < 0) & (batches.magic >= 2)
    is_bad |= batches.base_offset > GREATEST_OFFSET - np.maximum(delta, 0)
    if is_bad.any():

        def describe(row: int) -> Finding:
            return _impossible_header(batches, row, scope)

        into.add_each(invariants.BATCH_HEADER.code, np.flatnonzero(is_bad).tolist(), describe)
    return is_bad


def _impossible_header(batches: BatchColumns, row: int, scope: SegmentScope) -> Finding:
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


# ---- Batches that are sound in themselves ----


def offsets_out_of_order(
    batches: BatchColumns, last_offset_before: int, scope: SegmentScope, into: Collector
) -> Flags:
    """The batches that begin at or below the last offset of the one before."""
    before = previous(batches.last_offset, last_offset_before)
    is_bad = batches.base_offset <= before
    if is_bad.any():

        def describe(row: int) -> Finding:
            return offset_order_finding(
                scope.of_batch(batches, row), int(before[row]), int(batches.base_offset[row])
            )

        into.add_each(invariants.BATCH_OFFSET_ORDER.code, np.flatnonzero(is_bad).tolist(), describe)
    return is_bad


def offset_order_finding(place: Place, last_offset_before: int, base_offset: int) -> Finding:
    """A batch at ``place`` that begins at or below the last offset before it."""
    return invariants.BATCH_OFFSET_ORDER.finding(
        place,
        "a batch begins at or below the last offset of the one before",
        expected=f"{last_offset_before + 1} or more",
        found=base_offset,
    )


def offset_gaps(
    batches: BatchColumns,
    last_offset_before: int,
    end_before: int,
    scope: SegmentScope,
    into: Collector,
) -> Flags:
    """The batches of magic 2 before which offsets are missing, though no byte is between.

    A compressed set of magic 0 or 1 does not say where it begins. ``end_before`` is the byte
    behind the batch that ends with ``last_offset_before``: what is missing with damaged bytes is
    no gap.
    """
    before = previous(batches.last_offset, last_offset_before)
    is_next = batches.position == previous(batches.next_position, end_before)
    has_gap: Flags = (batches.base_offset > before + 1) & (batches.magic >= 2) & is_next
    if has_gap.any():

        def describe(row: int) -> Finding:
            return offset_gap_finding(
                scope.of_batch(batches, row), int(before[row]), int(batches.base_offset[row])
            )

        into.add_each(invariants.OFFSET_GAP.code, np.flatnonzero(has_gap).tolist(), describe)
    return has_gap


def offset_gap_finding(place: Place, last_offset_before: int, base_offset: int) -> Finding:
    """A batch at ``place`` that begins further behind the last offset before it than it might."""
    return invariants.OFFSET_GAP.finding(
        place,
        f"offsets {last_offset_before + 1} to {base_offset - 1} are missing",
    )


def outside_segment(batches: BatchColumns, scope: SegmentScope, into: Collector) -> Flags:
    """The batches with offsets that the name of this segment, or the next one's, rules out."""
    is_bad = batches.base_offset < scope.base_offset
    if scope.next_base_offset is not None:
        is_bad |= batches.last_offset >= scope.next_base_offset
    if is_bad.any():
        end = scope.next_base_offset

        def describe(row: int) -> Finding:
            return invariants.BATCH_OUTSIDE_SEGMENT.finding(
                scope.of_batch(batches, row),
                "a batch has offsets that belong into another segment",
                expected=f"{scope.base_offset} or more" + ("" if end is None else f", below {end}"),
                found=f"{int(batches.base_offset[row])} to {int(batches.last_offset[row])}",
                loss=_loss_of(batches, row),
            )

        into.add_each(
            invariants.BATCH_OUTSIDE_SEGMENT.code, np.flatnonzero(is_bad).tolist(), describe
        )
    return is_bad


def beyond_index(batches: BatchColumns, scope: SegmentScope, into: Collector) -> Flags:
    """The batches whose offsets are further from the base than an index entry can say."""
    is_bad = batches.last_offset - scope.base_offset > MOST_RELATIVE_OFFSET
    if is_bad.any():

        def describe(row: int) -> Finding:
            return invariants.BATCH_OFFSET_OVERFLOW.finding(
                scope.of_batch(batches, row),
                "an offset is too far from the segment's base offset for an index;"
                " a starting broker splits the segment",
                expected=f"at most {scope.base_offset + MOST_RELATIVE_OFFSET}",
                found=int(batches.last_offset[row]),
            )

        into.add_each(
            invariants.BATCH_OFFSET_OVERFLOW.code, np.flatnonzero(is_bad).tolist(), describe
        )
    return is_bad


def in_the_future(
    batches: BatchColumns, now_ms: int, scope: SegmentScope, into: Collector
) -> Flags:
    """The batches whose greatest timestamp is more than an hour ahead of ``now_ms``."""
    is_ahead = batches.max_timestamp > now_ms + CLOCK_SKEW_MS
    if is_ahead.any():

        def describe(row: int) -> Finding:
            return invariants.FUTURE_TIMESTAMP.finding(
                scope.of_batch(batches, row),
                "a batch has a timestamp in the future; retention.ms keeps its segment until then",
                expected=f"at most {now_ms + CLOCK_SKEW_MS}",
                found=int(batches.max_timestamp[row]),
            )

        into.add_each(invariants.FUTURE_TIMESTAMP.code, np.flatnonzero(is_ahead).tolist(), describe)
    return is_ahead


def previous(column: Column, first: int) -> Column:
    """What stands one row before each row; ``first`` before the first."""
    shifted = np.empty_like(column)
    shifted[0] = first
    shifted[1:] = column[:-1]
    return shifted


# ---- Bytes that are no batch ----


def passed_over(
    data: bytes, start: int, end: int, file_bytes: int, *, is_zero: bool, scope: SegmentScope
) -> tuple[Finding, bool]:
    """What bytes are that no batch could be found in.

    Args:
        data: the first of them, as many as a batch begins with.
        start: byte of the file at which they begin.
        end: byte behind them.
        file_bytes: size of the file.
        is_zero: whether all of them are zeroes.
        scope: the segment.

    Returns:
        The finding, and whether they are padding rather than damage.
    """
    place = scope.place(start)
    size = f"{end - start} bytes"
    is_tail = end == file_bytes
    at_most = Severity.WARNING if scope.may_be_torn and is_tail else None
    # Fewer zeroes may as well be how an offset begins.
    if is_zero and end - start > record_batch.PREFIX_BYTES:
        what = (
            "zeroes stand behind the last batch: space that was set aside and never written"
            if is_tail
            else "zeroes stand where batches should be"
        )
        finding = invariants.ZERO_FILL.finding(
            place, what, found=size, loss=None if is_tail else "what stood there", severity=at_most
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
            "the last batch is not whole",
            expected=f"{claimed} bytes" if len(data) > record_batch.PREFIX_BYTES else None,
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
            loss=f"{size}, up to the next sound batch" if not is_tail else f"{size}, to the end",
        )
        return finding, False
    finding = invariants.BATCH_CHECKSUM.finding(
        place,
        "a batch is damaged, and no batch follows where it says that it ends",
        found=f"{size} up to " + ("the end" if is_tail else "the next sound batch"),
        loss=f"what stood in these {size}",
    )
    return finding, False
