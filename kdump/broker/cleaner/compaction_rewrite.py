"""Rewrite a part of a log by the rules of compaction.

The outcome depends on the part alone. Kafka's buffers, and with them ``max.message.bytes``, only
decide how much is read at once: they grow as needed.

Follows ``Cleaner.cleanInto``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from kdump.broker.cleaner.compaction_parts import Amount, PartToRewrite
from kdump.broker.cleaner.legacy_compaction import live_messages, rewritten
from kdump.broker.cleaner.live_records import LiveColumns
from kdump.broker.cleaner.rebuilt_batches import (
    NewBatch,
    emptied_batches,
    rebuilt_batches,
    refused_records,
)
from kdump.broker.cleaner.record_retention import Fate, Fates, fates_of
from kdump.formats.record_batch import LARGEST_RECORD_BYTES
from kdump.scan.batches import BatchColumns, Column, Flags, Window, is_among, read_windows
from kdump.scan.control_batches import is_control
from kdump.scan.records import RecordColumns
from kdump.scan.walk import MessageSet, expand_window
from kdump.target.refusal import Refusal, Refused
from kdump.target.target_file import CopiedFrom
from kdump.target.virtual_directory import BytesSource

Piece = bytes | CopiedFrom


class Chunk(Struct, frozen=True):
    """What is written for some consecutive batches.

    Attributes:
        before: their amount.
        piece: what is written; None for nothing.
        written: the batches in ``piece``; their positions are meaningless.
        records: how many records are in ``piece``.
        tombstones_dropped: how many tombstones were past their delete horizon.
    """

    before: Amount
    piece: Piece | None = None
    written: BatchColumns | None = None
    records: int = 0
    tombstones_dropped: int = 0


def rewrite_part(
    part: PartToRewrite, largest_record_bytes: int = LARGEST_RECORD_BYTES
) -> tuple[Chunk, ...] | Refusal:
    """Apply the cleaner's rules to all batches of ``part``, and rewrite those that change.

    Returns:
        What is written, in order; or why Kafka's cleaner fails on the part.

    Raises:
        OSError: the log cannot be read.
    """
    try:
        return tuple(_Rewriter(part, largest_record_bytes).chunks())
    except Refused as refused:
        return refused.refusal


class _Rewriter(Struct, frozen=True):
    """Rewrites one part."""

    part: PartToRewrite
    largest_record_bytes: int

    def chunks(self) -> Iterator[Chunk]:
        """What is written, in order.

        Raises:
            Refused: Kafka's cleaner fails on the part.
        """
        with self.part.path.open_file() as source:
            for start, end in self.part.ranges:
                for window in read_windows(source, start, end, checksums=False):
                    for run in expand_window(window, with_records=False):
                        assert isinstance(run, Window)
                        if run.batches.magic[0] < 2:
                            yield from self._legacy_chunks(run)
                        else:
                            yield self._chunk(run)

    def _chunk(self, window: Window) -> Chunk:
        """Batches of magic 2."""
        batches = window.batches
        records = int(batches.records_count.sum())
        before = Amount(int(batches.size_bytes.sum()), batches.count, records)
        is_discardable = is_among(batches.position, self.part.discardable)
        live = self._live(batches)
        fates = fates_of(batches, is_discardable, self.part.rules, live)
        kept = np.flatnonzero(fates.fate != Fate.DROPPED)
        tombstones_dropped = int(fates.tombstones_dropped.sum())
        if not len(kept):
            return Chunk(before, tombstones_dropped=tombstones_dropped)
        if (fates.fate == Fate.COPIED).all():
            start, end = int(batches.position[0]), int(batches.next_position[-1])
            return Chunk(before, CopiedFrom(self.part.path.name, start, end), batches, records)
        new = self._new_batches(window, fates, live)
        return Chunk(
            before,
            content_of(window, kept, new, self.part.path.name),
            as_written(batches.rows(kept), kept, new),
            int(fates.records_count.sum()),
            tombstones_dropped,
        )

    def _live(self, batches: BatchColumns) -> LiveColumns:
        """The live records of some batches."""
        start, end = int(batches.base_offset.min()), int(batches.last_offset.max()) + 1
        return self.part.rules.live.columns_between(start, end)

    def _new_batches(self, window: Window, fates: Fates, live: LiveColumns) -> dict[int, NewBatch]:
        """The changed batches of ``window``, by row."""
        is_emptied, is_rebuilt = fates.fate == Fate.EMPTIED, fates.fate == Fate.REBUILT
        new = dict(
            zip(
                np.flatnonzero(is_emptied).tolist(),
                emptied_batches(window.batches.rows(is_emptied)),
                strict=True,
            )
        )
        rows = np.flatnonzero(is_rebuilt)

        def is_kept(columns: RecordColumns, own: Column) -> Flags:
            drops = fates.drops_tombstones[rows[own]][columns.batch]
            stays = live.has(columns.offset) & ~(drops & (columns.value_size < 0))
            result: Flags = stays | is_control(columns.batches)[columns.batch]
            return result

        if len(rows):
            horizon_ms = fates.horizon_ms[rows]
            rebuilt = rebuilt_batches(
                window.rows(is_rebuilt),
                horizon_ms,
                is_kept,
                self.part.path.name,
                largest_record_bytes=self.largest_record_bytes,
            )
            new.update(zip(rows.tolist(), rebuilt, strict=True))
        return new

    def _legacy_chunks(self, window: Window) -> Iterator[Chunk]:
        """Messages of magic 0 and 1."""
        rules, log_name = self.part.rules, self.part.path.name
        for found in expand_window(
            window, with_records=True, largest_record_bytes=self.largest_record_bytes
        ):
            assert isinstance(found, MessageSet)
            batches = found.window.batches
            position = int(batches.position[0])
            if found.problem is not None:
                raise refused_records(found.problem, log_name, position)
            before = Amount(int(batches.size_bytes[0]), 1, len(found.messages))
            kept = live_messages(found, rules)
            tombstones_dropped = 0
            if not self.part.keeps_legacy_tombstones:
                live = len(kept)
                kept = [message for message in kept if message.value is not None]
                tombstones_dropped = live - len(kept)
            if kept:
                batch = rewritten(found, kept, rules.new_horizon_ms, log_name)
                (written,) = read_windows(BytesSource(batch.data), checksums=False)
                yield Chunk(before, batch.data, written.batches, len(kept), tombstones_dropped)
                continue
            if rules.keeps_empty(batches).any():
                raise Refused(
                    "compaction would leave the last message of the range empty, and a message of"
                    " magic 0 or 1 cannot be empty",
                    log_name,
                    "IllegalStateException",
                    position,
                )
            yield Chunk(before, tombstones_dropped=tombstones_dropped)


def as_written(batches: BatchColumns, rows: Column, new: dict[int, NewBatch]) -> BatchColumns:
    """The columns of batches, some of them rewritten, by row."""
    size_bytes, max_timestamp = batches.size_bytes.copy(), batches.max_timestamp.copy()
    for at, row in enumerate(rows.tolist()):
        if row in new:
            size_bytes[at] = len(new[row].data)
            max_timestamp[at] = new[row].max_timestamp
    changed = {"size_bytes": size_bytes, "max_timestamp": max_timestamp}
    return BatchColumns(**{**batches.columns(), **changed})


def content_of(window: Window, rows: Column, new: dict[int, NewBatch], log_name: str) -> Piece:
    """The batches ``rows`` of ``window``, rewritten ones replaced."""
    if window.is_giant and 0 not in new:
        return CopiedFrom(log_name, window.start, int(window.batches.next_position[0]))
    return b"".join(
        new[row].data if row in new else window.batch_bytes(row) for row in rows.tolist()
    )
