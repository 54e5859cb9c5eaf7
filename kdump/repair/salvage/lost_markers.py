"""Replace lost transaction markers if Kafka would not load the log without them.

A producer with an open transaction writes nothing outside of it until a marker ends it. If the
marker is lost with damaged bytes and the producer continued outside, the loader refuses a valid
batch. An abort marker at a free offset keeps that batch and those after it. It states only that the
transaction ended and did not commit, as when an operator aborts a hanging transaction. Where no
offset is free, the refused batch is dropped.

The batches are looked at once, in the order of their offsets, and only what the open transactions
need is remembered: memory depends on the producers with open transactions and on the lost markers,
not on the batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import numpy as np
from msgspec import Struct

from kdump.broker.loader.valid_batches import ValidBatches
from kdump.formats.end_txn_marker import ABORTED, encode_end_txn_batch
from kdump.formats.record_batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, BatchHeader
from kdump.scan.batches import Column


class BatchPlace(Struct, frozen=True):
    """Where a batch is: the base offset of its log, and its position in it."""

    base_offset: int
    position: int


class RowCut(Struct, frozen=True):
    """What it takes to begin a new row of a log at a batch, in the middle of a run.

    Attributes:
        number: of the batches of the log before it.
        last_before: last offset of the batch before it.
        first: first offset of the batch.
    """

    place: BatchPlace
    number: int
    last_before: int
    first: int


class FreeOffsets(Struct, frozen=True):
    """Offsets that no batch has.

    Attributes:
        before: the batch before them.
        cut: for the batch after them.
        begins_log: whether that is the first of its log.
    """

    before: BatchPlace
    cut: RowCut
    begins_log: bool


class LostMarker(Struct, frozen=True):
    """A marker to insert.

    Attributes:
        before: the batch before it.
        following: the batch after it.
        txn: the last batch of the transaction that it ends.
    """

    offset: int
    before: BatchPlace
    following: BatchPlace
    txn: BatchPlace


class OutsideBatch(Struct, frozen=True):
    """A batch that its producer wrote outside of its open transaction, and that cannot stay."""

    place: BatchPlace
    producer_id: int
    offset: int
    records_count: int


class _OpenTxn(Struct):
    """An open transaction: its last batch, and the first free offsets after that.

    ``row`` is the row of that batch in the chunk with the number ``chunk``.
    """

    place: BatchPlace
    chunk: int
    row: int
    free: FreeOffsets | None = None

    def find_free(self, chunk: _Chunk, end: int, before: tuple[BatchPlace, int] | None) -> None:
        """Find the free offsets, if some are before the row ``end`` of a chunk."""
        if self.free is None:
            row = self.row if chunk.serial == self.chunk else -1
            self.free = chunk.first_free(row, end, before)


class LostMarkers:
    """Finds the markers that are lost, and the batches for which no marker fits.

    Args:
        base_offsets: of all logs: no new log may have the name of an existing one.
        since_offset: transactions that end below are not known to the loader.

    Attributes:
        markers: to insert, in order.
        outside: the batches to drop, in order.
        cuts: where runs of batches have to be cut for these.
        has_txns: whether there was a batch of a transaction.
    """

    def __init__(self, base_offsets: Collection[int], since_offset: int) -> None:
        self.since_offset = since_offset
        self.markers: list[LostMarker] = []
        self.outside: list[OutsideBatch] = []
        self.cuts: list[RowCut] = []
        self.has_txns = False
        self._base_offsets = frozenset(base_offsets)
        self._open: dict[int, _OpenTxn] = {}
        self._without_free: dict[int, _OpenTxn] = {}
        self._begun: set[int] = set()
        self._chunks = 0
        self._used: Counter[int] = Counter()
        self._before: tuple[BatchPlace, int] | None = None
        self._dropped: tuple[BatchPlace, int, int] | None = None

    def add(self, base_offset: int, batches: ValidBatches, number: int) -> None:
        """Look at the next batches that stay.

        Args:
            base_offset: of their log.
            batches: one in each row; their offsets rise.
            number: of the batches of the log before them.
        """
        while batches.count:
            self._chunks += 1
            begins_log = base_offset not in self._begun
            chunk = _Chunk(self._chunks, base_offset, batches, number, begins_log=begins_log)
            self._begun.add(base_offset)
            self._cut_after_dropped(chunk)
            end = self._look_at(chunk)
            if end == batches.count:
                return
            chunk.end = end
            self._close(chunk)
            self._drop(chunk, end)
            batches, number = batches.chosen(slice(end + 1, None)), number + end + 1

    def _look_at(self, chunk: _Chunk) -> int:
        """Look at a chunk up to the first batch that has to be dropped; returns its row."""
        batches = chunk.batches
        is_data = (batches.attributes & CONTROL_FLAG) == 0
        in_txn = (batches.attributes & TRANSACTIONAL_FLAG) != 0
        # A control batch that compaction has emptied ends nothing.
        counts = (batches.producer_id >= 0) & (is_data | (batches.records_count != 0))
        begins = counts & is_data & in_txn & (batches.last_offset >= self.since_offset)
        self.has_txns |= bool(begins.any())
        chunk.find_gaps(self._before)
        if self._open or begins.any():
            ids = np.concatenate((np.array([*self._open], np.int64), batches.producer_id[begins]))
            counts &= np.isin(batches.producer_id, ids)
            rows = np.flatnonzero(counts)
            is_followed = (
                begins[rows[:-1]]
                & begins[rows[1:]]
                & (batches.producer_id[rows[:-1]] == batches.producer_id[rows[1:]])
            )
            rows = rows[np.append(~is_followed, np.ones(min(1, rows.size), np.bool_))]
            row: int
            for row, producer_id, is_begin, is_outside in zip(
                rows.tolist(),
                batches.producer_id[rows].tolist(),
                begins[rows].tolist(),
                (is_data & ~in_txn)[rows].tolist(),
                strict=True,
            ):
                if is_begin:
                    txn = _OpenTxn(chunk.place(row), chunk.serial, row)
                    self._open[producer_id] = self._without_free[producer_id] = txn
                    continue
                if producer_id not in self._open:
                    continue
                if is_outside and not self._end(self._open[producer_id], chunk, row):
                    return row
                del self._open[producer_id]
                self._without_free.pop(producer_id, None)
        self._close(chunk)
        return batches.count

    def _end(self, txn: _OpenTxn, chunk: _Chunk, row: int) -> bool:
        """Insert a marker before a batch outside of the transaction, if there is a free offset."""
        txn.find_free(chunk, row + 1, self._before)
        free = txn.free
        if free is None:
            return False
        following = free.cut.place
        offset = free.cut.last_before + 1 + self._used[free.cut.last_before]
        is_own_name = free.begins_log and offset == following.base_offset
        if offset >= free.cut.first or (offset in self._base_offsets and not is_own_name):
            return False
        self._used[free.cut.last_before] += 1
        self.markers.append(LostMarker(offset, free.before, following, txn.place))
        self.cuts.append(free.cut)
        return True

    def _close(self, chunk: _Chunk) -> None:
        """Remember what the transactions that are open after the chunk need of it."""
        if chunk.gaps.size and chunk.gaps[0] < chunk.end:
            for producer_id, txn in list(self._without_free.items()):
                txn.find_free(chunk, chunk.end, self._before)
                if txn.free is not None:
                    del self._without_free[producer_id]
        if chunk.end:
            last = int(chunk.batches.last_offset[chunk.end - 1])
            self._before = chunk.place(chunk.end - 1), last

    def _drop(self, chunk: _Chunk, row: int) -> None:
        batches = chunk.batches
        place, offset = chunk.place(row), int(batches.first_offset[row])
        producer_id, records = int(batches.producer_id[row]), int(batches.records_count[row])
        self.outside.append(OutsideBatch(place, producer_id, offset, records))
        last_before = -1 if self._before is None else self._before[1]
        self.cuts.append(RowCut(place, chunk.number + row, last_before, offset))
        end = BatchPlace(place.base_offset, place.position + int(batches.size_bytes[row]))
        self._dropped = end, chunk.number + row + 1, int(batches.last_offset[row])

    def _cut_after_dropped(self, chunk: _Chunk) -> None:
        """Begin a new row after a dropped batch, where the next batch touches it."""
        if self._dropped is not None:
            place, number, last = self._dropped
            if place == chunk.place(0):
                first = int(chunk.batches.first_offset[0])
                self.cuts.append(RowCut(place, number, last, first))
            self._dropped = None


class _Chunk:
    """Consecutive batches of one log.

    Attributes:
        serial: tells it from the other chunks.
        batches: their columns.
        number: of the batches of the log before them.
        gaps: rows before which offsets are free.
        end: how many of them are looked at.
    """

    def __init__(
        self,
        serial: int,
        base_offset: int,
        batches: ValidBatches,
        number: int,
        *,
        begins_log: bool,
    ) -> None:
        self.serial = serial
        self.batches = batches
        self.number = number
        self.gaps: Column = np.empty(0, np.int64)
        self.end = batches.count
        self._base_offset = base_offset
        self._begins_log = begins_log

    def place(self, row: int) -> BatchPlace:
        return BatchPlace(self._base_offset, int(self.batches.position[row]))

    def find_gaps(self, before: tuple[BatchPlace, int] | None) -> None:
        """Find the rows before which offsets are free; ``before`` is the batch before."""
        first, last = self.batches.first_offset, self.batches.last_offset
        last_before = last[:-1] if before is None else np.append(before[1], last[:-1])
        skipped = len(first) - len(last_before)
        self.gaps = np.flatnonzero(first[skipped:] > last_before + 1) + skipped

    def first_free(
        self, after: int, end: int, before: tuple[BatchPlace, int] | None
    ) -> FreeOffsets | None:
        """The first free offsets after the row ``after`` and before the row ``end``."""
        at = int(np.searchsorted(self.gaps, after, side="right"))
        if at == self.gaps.size or self.gaps[at] >= end:
            return None
        row = int(self.gaps[at])
        if row:
            before = self.place(row - 1), int(self.batches.last_offset[row - 1])
        assert before is not None, "a gap is after a batch"
        first = int(self.batches.first_offset[row])
        cut = RowCut(self.place(row), self.number + row, before[1], first)
        return FreeOffsets(before[0], cut, self._begins_log and not row)


def abort_marker(offset: int, txn: BatchHeader, timestamp: int) -> bytes:
    """Encode a control batch that aborts the transaction to which the batch ``txn`` belongs."""
    return encode_end_txn_batch(
        ABORTED,
        txn.producer_id,
        txn.producer_epoch,
        offset=offset,
        partition_leader_epoch=txn.partition_leader_epoch,
        timestamp=timestamp,
    )
