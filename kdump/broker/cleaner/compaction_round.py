"""A round of compaction of one partition, in steps that can run in other processes.

1. :func:`begin_round` loads the partition as a broker does, and finds the range and the groups.
2. If transactions were aborted (:attr:`Round.needs_survey`), the parts of
   :meth:`Round.parts_to_survey` are surveyed.
3. The parts of :meth:`Round.parts_to_scan` are scanned; a part may be divided at the start of a
   batch. :meth:`Round.disorder` checks that offsets rise across parts.
4. :meth:`Round.groups_to_rewrite` says what to write, and each group is rewritten.
5. :meth:`Round.finish` returns the target state of the partition's files.

Steps 2 to 4 are pure functions of values that can be pickled: of a part (``survey_part``,
``scan_part``), or of a group (``GroupRewriter``), whose parts can be rewritten separately
(``rewrite_part``).

Follows ``Cleaner.doClean``, ``UnifiedLog.replaceSegments`` and what ``LogManager`` does before and
after.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kdump.broker.cleaner.cleanable_log import CompactedLog, SegmentFiles, loaded_log
from kdump.broker.cleaner.cleanable_range import CleanableRange, cleanable_range
from kdump.broker.cleaner.cleaned_segment import GroupToRewrite, RewrittenGroup
from kdump.broker.cleaner.cleaned_transactions import (
    CleanedTransactions,
    Marker,
    TxnBatches,
    collect_aborted,
)
from kdump.broker.cleaner.compaction_parts import (
    Amount,
    Extents,
    PartToRewrite,
    ScannedSegment,
    parts_to_rewrite,
)
from kdump.broker.cleaner.compaction_scan import PartToScan, ScannedPart
from kdump.broker.cleaner.live_records import LiveRecords
from kdump.broker.cleaner.record_retention import (
    EMPTY_AT_HIGH_WATERMARK,
    LastRecords,
    RetentionRules,
)
from kdump.broker.cleaner.segment_groups import Group, group_segments
from kdump.broker.loader.load_context import LoadContext
from kdump.broker.loader.loaded_segment import SEGMENT_KINDS
from kdump.broker.loader.loader import load_directory
from kdump.broker.loader.recovered_partition import Recovered
from kdump.formats import offset_index, transaction_index
from kdump.formats.names import FileKind, FileStage
from kdump.formats.transaction_index import AbortedTxn
from kdump.log.partition import Partition
from kdump.state.metadata.settings import TopicSettings
from kdump.state.transactions.producer_state_manager import snapshot_name
from kdump.storage.location import Location
from kdump.target.refusal import Refusal
from kdump.target.target_file import Gone, Kept, RenamedFrom, TargetFile
from kdump.target.virtual_directory import VirtualDirectory, file_name

_NOTHING = np.empty(0, np.int64)


class Compacted(Struct, frozen=True):
    """A partition as a round of compaction leaves it.

    Attributes:
        files: target state of each file, by name. A new log is renamed from a file that is not
            written yet: the same name with the suffix ``.cleaned``.
        loaded: the partition as a broker loads it, before it compacts it.
        cleaner_offset: the new line in the cleaner's checkpoint; None if it does not change.
        groups: the replaced groups.
        modified_ms: modification times that files get, by name.
        stopped_by: why the groups after those are not compacted; None if all are.
    """

    files: dict[str, TargetFile]
    loaded: Recovered
    cleaner_offset: int | None
    groups: tuple[RewrittenGroup, ...]
    modified_ms: dict[str, int]
    stopped_by: Refusal | None = None

    def without_files(self) -> Compacted:
        """The same with offsets and amounts only, for when the files have their target state."""
        loaded = replace(self.loaded, files={}, leader_epochs=(), producers=())
        return replace(self, files={}, loaded=loaded, modified_ms={})


def staged_name(base_offset: int) -> str:
    """Name of the log of a new segment while it is written."""
    return file_name(base_offset, FileKind.LOG) + FileStage.CLEANED.value


def begin_round(
    partition: Partition,
    context: LoadContext,
    settings: TopicSettings,
    cleaner_offset: int | None,
) -> Round | Refusal:
    """Load ``partition``, and find what can be compacted.

    Args:
        partition: the partition; its log was closed cleanly.
        context: for loading it; has the high watermark and the clock.
        cleaner_offset: from ``cleaner-offset-checkpoint``; None if it has no line.

    Returns:
        The round; or why the partition cannot be loaded, or has to be recovered first.

    Raises:
        OSError: a file of the partition cannot be read.
    """
    directory = VirtualDirectory(partition.path)
    loaded = load_directory(directory, context)
    if isinstance(loaded, Refusal):
        return loaded
    log = loaded_log(directory, loaded, context.high_watermark, settings, context.now_ms)
    cleanable = cleanable_range(log, cleaner_offset)
    segments = () if cleanable.is_empty else log.between(0, cleanable.end_offset)
    for name in _names_of(segment.base_offset for segment in segments):
        if not isinstance(loaded.files.get(name, Kept()), Kept):
            return Refusal(
                "loading the partition changes it: recover it first", name, "refused by kdump"
            )
    groups = group_segments(segments, settings, cleanable.end_offset)
    return Round(log, loaded, cleanable, tuple(groups), context)


class Round(Struct, frozen=True):
    """A round of compaction of one partition.

    Attributes:
        log: the log before compaction.
        loaded: the partition as a broker loads it.
        groups: groups of segments; each group is merged; none if there is nothing to compact.
        context: with which the partition was loaded.
    """

    log: CompactedLog
    loaded: Recovered
    cleanable: CleanableRange
    groups: tuple[Group, ...]
    context: LoadContext

    @property
    def segments(self) -> list[SegmentFiles]:
        """The segments that are compacted."""
        return [segment for group in self.groups for segment in group]

    @property
    def needs_survey(self) -> bool:
        """Whether a survey is needed: dirty batches may be of aborted transactions."""
        cleanable = self.cleanable
        return bool(self.groups) and bool(
            self._collect_aborted(cleanable.first_dirty_offset, cleanable.end_offset)
        )

    def parts_to_survey(self) -> list[PartToScan]:
        """The dirty part of each segment.

        Raises:
            OSError: an index cannot be read.
        """
        return [
            PartToScan(part.path, part.mapped_position)
            for part in self.parts_to_scan()
            if part.mapped_position is not None
        ]

    def parts_to_scan(
        self, surveyed: Mapping[Location, TxnBatches] | None = None
    ) -> list[PartToScan]:
        """All of each segment.

        Args:
            surveyed: the outcome of the survey, by log; None if there was none.

        Raises:
            OSError: an index cannot be read.
        """
        if not self.groups:
            return []
        first_dirty, end = self.cleanable.first_dirty_offset, self.cleanable.end_offset
        dirty = {segment.base_offset for segment in self.log.between(first_dirty, end)}
        aborted = {} if surveyed is None else self._aborted_batches(surveyed)
        return [
            PartToScan(
                path=self._path(segment),
                mapped_position=(
                    self._indexed_position(segment) if segment.base_offset in dirty else None
                ),
                first_dirty_offset=first_dirty,
                aborted=aborted.get(self._path(segment), _NOTHING),
            )
            for segment in self.segments
        ]

    def disorder(self, scanned: Mapping[Location, Sequence[ScannedPart]]) -> Refusal | None:
        """Why offsets do not identify records; None if they do.

        Args:
            scanned: the scanned parts of each log, in order.
        """
        bases = [segment.base_offset for segment in self.segments]
        ends = [*bases[1:], self.cleanable.end_offset]
        for segment, end in zip(self.segments, ends, strict=True):
            extents = Extents.joined(part.extents for part in scanned[self._path(segment)])
            reached = np.concatenate(([segment.base_offset - 1], extents.last_offset))
            if (extents.first_offset <= reached[:-1]).any() or reached[-1] >= end:
                return Refusal(
                    f"the offsets of its batches do not rise from {segment.base_offset} to {end}",
                    segment.log_name,
                    "refused by kdump",
                )
        return None

    def groups_to_rewrite(
        self, scanned: Mapping[Location, Sequence[ScannedPart]], live: LiveRecords
    ) -> Iterator[GroupToRewrite]:
        """The groups to rewrite.

        Args:
            scanned: the scanned parts of each log, in order; keys are not needed, and there is no
                :meth:`disorder`.
            live: the live records of all logs.
        """
        transactions = CleanedTransactions()
        is_at_mark = EMPTY_AT_HIGH_WATERMARK.holds_in(self.context.settings.kafka_version)
        rules = RetentionRules(
            live=live,
            last_records=LastRecords.of(self.log.producers),
            kept_end=self.log.high_watermark if is_at_mark else self.cleanable.end_offset,
            now_ms=self.log.now_ms,
            delete_retention_ms=self.log.settings.delete_retention_ms,
        )
        for group in self.groups:
            transactions.kept.clear()
            parts: list[PartToRewrite] = []
            skipped = Amount()
            for at, segment in enumerate(group):
                found = self._scanned_segment(
                    segment, group[at + 1 : at + 2], scanned[self._path(segment)], transactions
                )
                own, gone = parts_to_rewrite(found, rules)
                parts.extend(own)
                skipped += gone
            yield GroupToRewrite(
                path=self.log.path,
                base_offsets=tuple(segment.base_offset for segment in group),
                parts=tuple(parts),
                skipped=skipped,
                aborted_txns=tuple(transactions.kept),
                settings=self.context.settings,
                modified_ms=group[-1].modified_ms,
            )

    def _scanned_segment(
        self,
        segment: SegmentFiles,
        following: Group,
        parts: Sequence[ScannedPart],
        transactions: CleanedTransactions,
    ) -> ScannedSegment:
        """A scanned segment; ``transactions`` have processed the segments before it."""
        batches = TxnBatches.joined(part.txn_batches for part in parts)
        found = ScannedSegment(
            path=self._path(segment),
            base_offset=segment.base_offset,
            extents=Extents.joined(part.extents for part in parts),
            txn_batches=batches,
            discardable=np.zeros(len(batches.position), np.bool_),
            keeps_legacy_tombstones=segment.modified_ms > self._legacy_delete_horizon_ms(),
        )
        end = following[0].base_offset if following else found.end_offset
        transactions.add(self._collect_aborted(segment.base_offset, end))
        return replace(found, discardable=transactions.discardable(batches))

    def finish(self, outcomes: Sequence[RewrittenGroup | Refusal] = ()) -> Compacted:
        """The target state of the partition's files.

        Args:
            outcomes: of all groups, in order, or of the first ones. Kafka's cleaner stops at the
                first group that it cannot rewrite: that one and those after it stay unchanged.
        """
        groups: list[RewrittenGroup] = []
        stopped_by = None
        for outcome in outcomes:
            if isinstance(outcome, Refusal):
                stopped_by = outcome
                break
            groups.append(outcome)
        files = dict(self.loaded.files)
        modified_ms: dict[str, int] = {}
        for group in groups:
            files.update(self.files_of(group))
            for kind in (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX):
                name = file_name(group.base_offset, kind)
                if not isinstance(files[name], Kept):
                    modified_ms[name] = group.modified_ms
        cleaner_offset = self.cleanable.first_dirty_offset if self.cleanable.is_reset else None
        if self.groups and len(groups) == len(self.groups):
            cleaner_offset = self.cleanable.end_offset
        return Compacted(files, self.loaded, cleaner_offset, tuple(groups), modified_ms, stopped_by)

    def files_of(self, group: RewrittenGroup) -> dict[str, TargetFile]:
        """The target state of the files of one group, independent of the others."""
        files: dict[str, TargetFile] = {}
        for base_offset in group.replaced:
            if base_offset != group.base_offset:
                gone = [*_names_of([base_offset]), snapshot_name(base_offset)]
                files.update((name, Gone()) for name in gone if name in self.loaded.files)
        log = file_name(group.base_offset, FileKind.LOG)
        files[log] = Kept()
        if not group.is_unchanged:
            staged = staged_name(group.base_offset)
            files[log] = RenamedFrom(staged, group.after.size_bytes)
            files[staged] = Gone()
        for kind, index in group.indexes.items():
            name = file_name(group.base_offset, kind)
            if not isinstance(index, Gone) or name in self.loaded.files:
                files[name] = index
        return files

    def _path(self, segment: SegmentFiles) -> Location:
        return self.log.path / segment.log_name

    def _indexed_position(self, segment: SegmentFiles) -> int:
        """Position from which Kafka reads a segment to find the first dirty offset."""
        first_dirty = self.cleanable.first_dirty_offset
        if segment.base_offset >= first_dirty or not segment.offset_index_bytes:
            return 0
        data = (self.log.path / file_name(segment.base_offset, FileKind.OFFSET_INDEX)).read()
        index = offset_index.decode(data, segment.base_offset)
        return offset_index.lookup(index, first_dirty)[1]

    def _aborted_batches(
        self, surveyed: Mapping[Location, TxnBatches]
    ) -> dict[Location, np.ndarray[tuple[int], np.dtype[np.int64]]]:
        """Base offsets of the dirty batches whose transactions were aborted, by log."""
        transactions = CleanedTransactions()
        first_dirty, end = self.cleanable.first_dirty_offset, self.cleanable.end_offset
        transactions.add(self._collect_aborted(first_dirty, end))
        found = {}
        for segment in self.log.between(first_dirty, end):
            batches = surveyed[self._path(segment)]
            is_discardable = transactions.discardable(batches)
            is_data = batches.marker == Marker.NONE
            found[self._path(segment)] = batches.base_offset[is_discardable & is_data]
        return found

    def _collect_aborted(self, start: int, end: int) -> list[AbortedTxn]:
        first = self.log.between(start, max(start, self.log.log_end_offset) + 1)[:1]
        indexes = (
            self._aborted_txns(segment)
            for segment in self.log.with_aborted_txns
            if first and segment.base_offset >= first[0].base_offset
        )
        return collect_aborted(indexes, self.log.log_start_offset, end)

    def _aborted_txns(self, segment: SegmentFiles) -> tuple[AbortedTxn, ...]:
        path = self.log.path / file_name(segment.base_offset, FileKind.TRANSACTION_INDEX)
        return transaction_index.decode(path.read()).entries

    def _legacy_delete_horizon_ms(self) -> int:
        """Segments modified later than this keep their tombstones of magic 0 and 1."""
        clean = self.log.between(0, self.cleanable.first_dirty_offset)
        delete_retention_ms = self.log.settings.delete_retention_ms
        if not clean or delete_retention_ms is None:
            return 0
        return clean[-1].modified_ms - delete_retention_ms


def _names_of(base_offsets: Iterator[int] | Sequence[int]) -> Iterator[str]:
    for base_offset in base_offsets:
        for kind in SEGMENT_KINDS:
            yield file_name(base_offset, kind)
