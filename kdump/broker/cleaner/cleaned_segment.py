"""Write the segment that replaces a group of segments, with its indexes.

Its content is produced in consecutive pieces; after the last one the indexes are known. Unchanged
batches are referenced as ranges of the old log, not copied.

Follows ``Cleaner.cleanSegments``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kdump.broker.cleaner.compaction_parts import Amount, PartToRewrite
from kdump.broker.cleaner.compaction_rewrite import Chunk, Piece, rewrite_part
from kdump.broker.loader.index_builder import IndexBuilder
from kdump.broker.loader.indexes import InvalidOffset
from kdump.broker.loader.load_context import IndexSettings
from kdump.broker.loader.loaded_segment import SEGMENT_KINDS, LoadedSegment
from kdump.formats.names import FileKind, FileStage
from kdump.formats.transaction_index import AbortedTxn
from kdump.scan.batches import BatchColumns
from kdump.storage.location import Location
from kdump.target.refusal import Refusal, Refused
from kdump.target.target_file import CopiedFrom, Gone, Kept, NewBytes, TargetFile
from kdump.target.virtual_directory import (
    VirtualDirectory,
    Written,
    file_name,
    segment_file_names,
)

_INT32_MAX: Final = 2**31 - 1


class GroupToRewrite(Struct, frozen=True):
    """Segments that are merged into one.

    Attributes:
        path: the partition's directory.
        parts: the parts that must be read again, in order.
        skipped: amount of data that need not be read, because nothing of it stays.
        aborted_txns: entries of the new transaction index.
        settings: of the indexes.
        modified_ms: modification time of the last of them, which the new segment gets.
    """

    path: Location
    base_offsets: tuple[int, ...]
    parts: tuple[PartToRewrite, ...]
    skipped: Amount
    aborted_txns: tuple[AbortedTxn, ...]
    settings: IndexSettings
    modified_ms: int

    @property
    def base_offset(self) -> int:
        """Of the new segment."""
        return self.base_offsets[0]


class RewrittenGroup(Struct, frozen=True):
    """A rewritten group, without the content of the new log.

    Attributes:
        base_offset: of the new segment.
        replaced: base offsets of the segments that it replaces, including its own.
        before: amount of data in them.
        after: amount of data in the new segment.
        tombstones_dropped: number of tombstones that were past their delete horizon.
        indexes: target state of the index files by kind; of a transaction index without entries,
            that it is gone.
        modified_ms: modification time of the new segment.
        is_unchanged: whether it replaces one segment with an identical log.
    """

    base_offset: int
    replaced: tuple[int, ...]
    before: Amount
    after: Amount
    tombstones_dropped: int
    indexes: Mapping[FileKind, TargetFile]
    modified_ms: int
    is_unchanged: bool


class GroupRewriter:
    """Rewrites one group, once.

    Consume all of :meth:`pieces`, then read :attr:`outcome`.
    """

    def __init__(self, group: GroupToRewrite) -> None:
        self._group = group
        self._outcome: RewrittenGroup | Refusal | None = None

    @property
    def outcome(self) -> RewrittenGroup | Refusal:
        """The rewritten group; or why Kafka's cleaner cannot rewrite it."""
        assert self._outcome is not None, "not all pieces have been consumed"
        return self._outcome

    def pieces(
        self, rewritten: Iterable[Iterable[Chunk] | Refusal] | None = None
    ) -> Iterator[Piece]:
        """The content of the new log; incomplete if the outcome is a refusal.

        If the new log equals the old one, a range of that is the only piece.

        Args:
            rewritten: the rewritten parts, in order; rewritten here if not given.

        Raises:
            OSError: an old log cannot be read.
        """
        if rewritten is None:
            rewritten = map(rewrite_part, self._group.parts)
        try:
            new = _NewSegment(self._group)
            yield from _coalesced(new.pieces(rewritten))
            self._outcome = new.finish()
        except Refused as refused:
            self._outcome = refused.refusal


def _coalesced(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Join adjacent ranges."""
    pending: CopiedFrom | None = None
    for piece in pieces:
        if not isinstance(piece, CopiedFrom):
            if pending is not None:
                yield pending
                pending = None
            yield piece
        elif pending is not None and (pending.name, pending.end) == (piece.name, piece.start):
            pending = replace(pending, end=piece.end)
        else:
            if pending is not None:
                yield pending
            pending = piece
    if pending is not None:
        yield pending


class _NewSegment:
    """The new segment, as far as it is written."""

    def __init__(self, group: GroupToRewrite) -> None:
        self._group = group
        self._segment = _cleaned_segment(group)
        self._builder = IndexBuilder(group.base_offset, group.settings.interval_bytes)
        self._before = group.skipped
        self._after = Amount()
        self._tombstones_dropped = 0
        self._is_unchanged = len(group.base_offsets) == 1

    def pieces(self, rewritten: Iterable[Iterable[Chunk] | Refusal]) -> Iterator[Piece]:
        for chunks in rewritten:
            if isinstance(chunks, Refusal):
                raise Refused(chunks.reason, chunks.file, chunks.exception, chunks.position)
            for chunk in chunks:
                self._before += chunk.before
                self._tombstones_dropped += chunk.tombstones_dropped
                if chunk.piece is None or chunk.written is None:
                    continue
                self._is_unchanged &= isinstance(chunk.piece, CopiedFrom)
                self._take(chunk.written, chunk.records)
                yield chunk.piece

    def finish(self) -> RewrittenGroup:
        group, segment = self._group, self._segment
        segment.max_timestamp = self._builder.max_timestamp
        self._builder.store(segment.offset_index, segment.time_index)
        try:
            segment.become_inactive()
        except InvalidOffset as problem:
            raise self._refused(str(problem), "InvalidOffsetException") from problem
        for txn in group.aborted_txns:
            segment.transaction_index.append(txn)
        segment.transaction_index.store()
        is_same_size = self._before.size_bytes == self._after.size_bytes
        return RewrittenGroup(
            base_offset=group.base_offset,
            replaced=group.base_offsets,
            before=self._before,
            after=self._after,
            tombstones_dropped=self._tombstones_dropped,
            indexes={kind: self._index(kind) for kind in SEGMENT_KINDS[1:]},
            modified_ms=group.modified_ms,
            is_unchanged=self._is_unchanged and is_same_size,
        )

    def _index(self, kind: FileKind) -> TargetFile:
        directory, name = self._segment.directory, self._segment.name(kind)
        data = directory.read(name) if name in directory else b""
        if kind is FileKind.TRANSACTION_INDEX and not data:
            return Gone()
        location = self._group.path / file_name(self._group.base_offset, kind)
        is_there = (
            location.kind() is not None
            and location.status().size_bytes == len(data)
            and location.read() == data
        )
        return Kept() if is_there else NewBytes(data)

    def _take(self, batches: BatchColumns, records: int) -> None:
        """Add written batches to the indexes.

        Raises:
            Refused: they do not fit.
        """
        size_bytes = batches.size_bytes
        position = self._after.size_bytes + np.cumsum(size_bytes) - size_bytes
        overflow = offset_overflow(batches, self._group.base_offset, self._segment.log_name)
        if overflow is not None:
            raise Refused(overflow.reason, overflow.file, overflow.exception)
        plan = self._builder.plan(BatchColumns(**{**batches.columns(), "position": position}))
        if plan.invalid is not None:
            raise self._refused(str(plan.invalid), "InvalidOffsetException")
        self._builder.commit(
            plan, batches.count, self._segment.offset_index, self._segment.time_index
        )
        self._after += Amount(int(size_bytes.sum()), batches.count, records)
        if self._after.size_bytes > _INT32_MAX:
            raise self._refused(
                "the compacted segment is larger than 2147483647 bytes",
                "IllegalArgumentException",
            )

    def _refused(self, reason: str, exception: str) -> Refused:
        return Refused(reason, self._segment.log_name, exception)


def offset_overflow(batches: BatchColumns, base_offset: int, log_name: str) -> Refusal | None:
    """Why a segment at ``base_offset`` cannot have some batches; None if it can.

    ``LogSegment.ensureOffsetInRange``.
    """
    if (batches.last_offset - base_offset > _INT32_MAX).any():
        reason, exception = (
            "an offset does not fit the segment",
            "LogSegmentOffsetOverflowException",
        )
        return Refusal(reason, log_name, exception)
    return None


def _cleaned_segment(group: GroupToRewrite) -> LoadedSegment:
    """The new segment, still empty."""
    suffix = FileStage.CLEANED.value
    log, *indexes = (name + suffix for name in segment_file_names(group.base_offset))
    # One look at each: a listing for each group would take time for all files of a partition.
    taken = [name for name in (log, *indexes) if (group.path / name).is_directory()]
    directory = VirtualDirectory.without_files(group.path, taken)
    directory.put(log, Written(b""))
    segment = LoadedSegment(directory, group.base_offset, group.settings, suffix)
    segment.load_indexes()
    return segment
