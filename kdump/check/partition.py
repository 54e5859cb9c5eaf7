"""Check a partition: join its parts, and compare its files with each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kdump.check import invariants
from kdump.check.batches import offset_gap_finding, offset_order_finding
from kdump.check.collector import Collector
from kdump.check.directory import unreadable
from kdump.check.epochs import EpochCheck
from kdump.check.findings import Finding, Place, Severity
from kdump.check.gaps import Gap, judged_gaps
from kdump.check.index_files import check_transaction_index
from kdump.check.metadata_snapshot import check_metadata_snapshot
from kdump.check.part import ByteAccount, Level, SegmentPart, total_records
from kdump.check.partition_files import check_files
from kdump.check.producers import ProducerReplay
from kdump.check.scope import PartitionScope
from kdump.check.snapshots import SnapshotFiles, check_snapshot, missing_snapshot, open_transactions
from kdump.check.transactions import check_aborted
from kdump.formats import names
from kdump.formats.names import FileKind, PartitionState
from kdump.formats.record_batch import NO_TIMESTAMP
from kdump.formats.transaction_index import AbortedTxn
from kdump.log.index_tail import last_time_entry
from kdump.log.segment import Segment
from kdump.state.epochs.epoch_history import begin_before

if TYPE_CHECKING:
    from kdump.check.partition_statistics import PartitionStatistics, PartitionStatisticsBuilder

_ENTRY_CODES: Final = frozenset(
    {invariants.OFFSET_INDEX_OFFSET.code, invariants.TIME_INDEX_ENTRY.code}
)
_GAP_CODES: Final = frozenset({invariants.OFFSET_GAP.code, invariants.SEGMENT_GAP.code})
_SEQUENCE_CODES: Final = frozenset(
    {invariants.PRODUCER_SEQUENCE_GAP.code, invariants.PRODUCER_SEQUENCE_REPEAT.code}
)


class PartitionCheck:
    """Joins the parts of a partition in order.

    Attributes:
        account: of all its files, after :meth:`finish`.
        batches: number of valid batches.
        records: number of records in them; None if a compressed message set was not opened, or a
            batch was not decoded.
        not_decoded: number of batches with records over the limit.
        has_legacy: whether any valid batch has magic 0 or 1.
        has_transactions: whether any valid batch is part of a transaction or ends one, or the files
            beside the log have a transaction.
        end_offset: one above the maximum offset; without batches, the last segment's base offset.
        read_bases: base offsets of the segments that were read.
        left_out: the number of segments that were left out.
    """

    def __init__(self, scope: PartitionScope, level: Level) -> None:
        self.scope = scope
        self.level = level
        self.account = ByteAccount()
        self.batches = 0
        self.records: int | None = 0
        self.not_decoded = 0
        self.has_legacy = self.has_transactions = False
        segments = scope.partition.segments
        self.end_offset = segments[-1].base_offset if segments else scope.log_start_offset
        self.read_bases: list[int] = []
        self.left_out = 0
        key = scope.partition.topic_partition
        # Kafka checks only the sequences of clients (``AppendOrigin.CLIENT``): coordinators start
        # at 0 with each transaction.
        self._has_sequences = key is None or key.topic not in names.COORDINATOR_TOPICS
        self._epochs = EpochCheck(scope.log_start_offset)
        self._replay = ProducerReplay(scope.high_watermark)
        self._statistics: PartitionStatisticsBuilder | None = None
        self._segment: Segment | None = None
        self._goes_back = False
        self._index_entries: list[Finding] = []
        self._part: SegmentPart | None = None
        self._max_timestamp = NO_TIMESTAMP
        self._has_untimed = False
        self._aborted: list[AbortedTxn] = []
        self._is_thinned = scope.is_compacted
        self._gaps: list[Gap] = []
        self._data_base = 0
        self._is_damaged = self._has_unread = False
        self._last_offset: int | None = None
        self._snapshot_files = SnapshotFiles(scope.partition)
        self._snapshots = {file.offset for file in scope.partition.producer_snapshots}

    @property
    def is_partial(self) -> bool:
        """Whether segments are left out, as far as is known yet."""
        return self.scope.chosen is not None or self.left_out > 0

    @property
    def _is_whole(self) -> bool:
        """Whether the log has all batches ever written to it, as far as is known."""
        segments = self.scope.partition.segments
        is_missing = self._is_thinned or bool(self._gaps) or self._has_unread
        return not is_missing and bool(segments) and segments[0].base_offset == 0

    @property
    def _may_skip_sequences(self) -> bool:
        """Whether compaction may have removed sequence numbers, or they could not be read."""
        is_expected = self.scope.gap_severity is Severity.INFO
        return self._is_thinned or self._has_unread or (bool(self._gaps) and is_expected)

    @property
    def has_end(self) -> bool:
        """Whether the end of the log could be read."""
        return self._part is None or not self._part.is_unread

    def take(self, segment: Segment, part: SegmentPart) -> Iterator[Finding]:
        """Add the next part; yields its findings, and those between it and the parts before."""
        if part.is_left_out:
            yield from self._readable(self._end_segment())
            self._segment, self._part, self._has_unread = segment, part, True
            self.left_out += 1
            return
        if self._segment is not segment:
            yield from self._readable(self._end_segment())
            yield from self._readable(self._begin_segment(segment, part))
        else:
            yield from self._ordered(self._join(part))
        yield from self._ordered(part.findings)
        if part.statistics is not None:
            if self._statistics is None:
                # Imported here, because only a report asks for them.
                from kdump.check.partition_statistics import PartitionStatisticsBuilder

                self._statistics = PartitionStatisticsBuilder(self.scope.partition.foreign)
            self._statistics.take(segment, part.statistics)
        self._part = part
        self.account += part.account + part.index_account
        self.batches += part.batches
        self.records = total_records(self.records, part.records)
        self.not_decoded += part.not_decoded
        self.has_legacy |= part.has_legacy
        self.has_transactions |= part.has_transactions
        self._is_thinned |= part.is_thinned
        self._has_unread |= part.is_unread
        self._is_damaged |= part.account.damaged_bytes > 0 or part.is_unread
        self._max_timestamp = max(self._max_timestamp, part.max_timestamp)
        self._has_untimed |= part.has_untimed
        if part.last_offset is not None and part.max_offset is not None:
            self._last_offset = part.last_offset
            self._data_base = segment.base_offset
            self.end_offset = max(self.end_offset, part.max_offset + 1)
        yield from self._epochs.take(part)
        if self.level > Level.QUICK:
            for finding in self._replay.take(part.events, part.path, self._aborted):
                is_checked = self._has_sequences and not self._may_skip_sequences
                if is_checked or finding.code not in _SEQUENCE_CODES:
                    yield finding

    def _readable(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Pass on findings up to a file that cannot be read: the log is checked all the same."""
        try:
            yield from findings
        except OSError as failure:
            yield unreadable(self.scope.partition.path, failure)

    def _ordered(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """Pass on findings, except those about index entries and gaps, which are kept for later.

        If the offsets of a segment go back, no entry points to the right batch, and findings about
        entries are dropped. That is known only after all parts of the segment. The severity of gaps
        is known only after all batches.
        """
        for finding in findings:
            if finding.code in _GAP_CODES:
                assert self._segment is not None, "a gap is in a segment"
                base_offset = self._segment.base_offset
                self._gaps.append(Gap(finding, base_offset, base_offset))
                continue
            if finding.code in _ENTRY_CODES:
                self._index_entries.append(finding)
                continue
            self._goes_back |= finding.code == invariants.BATCH_OFFSET_ORDER.code
            yield finding

    def _join(self, part: SegmentPart) -> Iterator[Finding]:
        """Compare the offsets of two adjacent parts of a segment."""
        before = self._part
        if before is None or part.first_offset is None or self._last_offset is None:
            return
        place = Place(part.path, part.first_position, part.first_offset)
        if part.first_offset <= self._last_offset:
            yield offset_order_finding(place, self._last_offset, part.first_offset)
        elif part.first_offset > self._last_offset + 1 and not (
            before.ends_damaged or part.starts_damaged or part.starts_legacy
        ):
            yield offset_gap_finding(place, self._last_offset, part.first_offset)

    def _begin_segment(self, segment: Segment, part: SegmentPart) -> Iterator[Finding]:
        is_after_damage = self._part is not None and self._part.ends_damaged
        self._segment, self._part, self._goes_back = segment, None, False
        self._max_timestamp, self._has_untimed, self._aborted = NO_TIMESTAMP, False, []
        before = self._last_offset
        if before is not None and not is_after_damage:
            self._check_gap_before(segment, part, before)
        if before is not None or segment.base_offset in self._snapshots:
            is_last = segment is self.scope.partition.segments[-1]
            yield from self._check_snapshot(
                segment.base_offset, is_end=is_last and not segment.log_bytes
            )

    def _check_gap_before(self, segment: Segment, part: SegmentPart, before: int) -> None:
        """Check that no offsets are missing before a segment or its first batch."""
        if segment.base_offset > before + 1:
            finding = invariants.SEGMENT_GAP.finding(
                Place(str(self.scope.partition.path), None, before + 1),
                f"offsets {before + 1} to {segment.base_offset - 1} are missing between two"
                " segments",
            )
            self._gaps.append(Gap(finding, self._data_base, segment.base_offset))
        end = max(segment.base_offset - 1, before)
        if part.first_offset is None or part.starts_damaged or part.starts_legacy:
            return
        if part.first_offset > end + 1:
            place = Place(part.path, part.first_position, part.first_offset)
            finding = offset_gap_finding(place, end, part.first_offset)
            self._gaps.append(Gap(finding, self._data_base, segment.base_offset))

    def _check_snapshot(self, offset: int, *, is_end: bool) -> Iterator[Finding]:
        """Compare the producer snapshot at ``offset`` with the state there."""
        if self.level == Level.QUICK or self._has_unread:
            return
        if offset in self._snapshots:
            yield from check_snapshot(
                self._snapshot_files,
                offset,
                self._replay,
                is_whole=self._is_whole,
                log_start_offset=self.scope.log_start_offset,
            )
        elif self._replay and offset > self.scope.log_start_offset:
            # A broker that starts deletes those up to the log start offset, and brokers before 2.8
            # keep only the newest: no older one is missing.
            is_expected = (
                self.scope.is_clean if is_end else any(kept < offset for kept in self._snapshots)
            )
            if is_expected and not self._is_damaged:
                yield missing_snapshot(self.scope.partition, offset)

    def _end_segment(self) -> Iterator[Finding]:
        segment, part = self._segment, self._part
        if segment is None or (part is not None and part.is_left_out):
            return
        if part is not None and not part.is_unread:
            self.read_bases.append(segment.base_offset)
        if not self._goes_back:
            yield from self._index_entries
        self._index_entries = []
        yield from self._check_present(segment)
        yield from self._check_last_time(segment)
        if segment.transaction_index_bytes is None and not self._aborted:
            return  # as in most segments
        path = self.scope.partition.segment_path(segment, FileKind.TRANSACTION_INDEX)
        into = Collector()
        index, account = None, ByteAccount()
        if segment.transaction_index_bytes is not None:
            index, account = check_transaction_index(path, into, self.scope.kafka_version)
            self.has_transactions |= segment.transaction_index_bytes > 0
        self.account += account
        if self.level > Level.QUICK and not self._is_damaged:
            check_aborted(
                path,
                index,
                self._aborted,
                into,
                is_whole=self._is_whole,
                open_before=self._open_before(segment) if self._aborted else {},
            )
        yield from into.findings()

    def _open_before(self, segment: Segment) -> dict[int, int]:
        """The transactions that are open in the snapshot at the start of ``segment``."""
        if self._is_whole or segment.base_offset not in self._snapshots:
            return {}
        return open_transactions(self.scope.partition, segment.base_offset)

    def _check_present(self, segment: Segment) -> Iterator[Finding]:
        """Check that a segment has an offset index, and a time index if batches have timestamps.

        Before 0.10 there were no time indexes and no timestamps.
        """
        for kind, size_bytes in (
            (FileKind.OFFSET_INDEX, segment.offset_index_bytes),
            (FileKind.TIME_INDEX, segment.time_index_bytes),
        ):
            if kind is FileKind.TIME_INDEX and self._max_timestamp == NO_TIMESTAMP:
                continue
            if size_bytes is None and not segment.is_0_7:
                yield invariants.INDEX_MISSING.finding(
                    Place(str(self.scope.partition.segment_path(segment, kind))),
                    "a segment has no "
                    + ("offset index" if kind is FileKind.OFFSET_INDEX else "time index"),
                )

    def _check_last_time(self, segment: Segment) -> Iterator[Finding]:
        """Check that the last entry of the time index has the maximum timestamp of the segment.

        It decides whether a segment is searched for a timestamp (``LogSegment.largestTimestamp``).
        If a broker converted batches to magic 0, they have lost the timestamp.
        """
        if not segment.time_index_bytes and self._max_timestamp == NO_TIMESTAMP:
            return
        is_active = segment is self.scope.partition.segments[-1]
        if segment.time_index_bytes is None or (is_active and not self.scope.is_clean):
            return
        path = self.scope.partition.segment_path(segment, FileKind.TIME_INDEX)
        part = self._part
        if part is not None and part.last_indexed_ms is not None:
            last = part.last_indexed_ms
        else:
            with path.open_file() as source:
                entry = last_time_entry(source)
            last = NO_TIMESTAMP if entry is None else entry.timestamp
        if last < self._max_timestamp:
            yield invariants.TIME_INDEX_LAST.finding(
                Place(str(path)),
                "the time index ends below the maximum timestamp of its segment",
                expected=self._max_timestamp,
                found=last,
            )
        elif last > self._max_timestamp and not (self._has_untimed or self._is_damaged):
            yield invariants.TIME_INDEX_ENTRY.finding(
                Place(str(path)),
                "the time index ends above the maximum timestamp of its segment:"
                " a lookup of a later time finds nothing there, nor in the segments after it",
                expected=self._max_timestamp,
                found=last,
            )

    def finish(self) -> Iterator[Finding]:
        """Check what can be checked only after all parts.

        Raises:
            OSError: a file of the partition cannot be read.
        """
        yield from self._readable(self._end_segment())
        yield from judged_gaps(self._gaps, self.scope, is_thinned=self._is_thinned)
        if self.scope.is_rest:
            return
        partition = self.scope.partition
        bases = {segment.base_offset for segment in partition.segments}
        if partition.segments and self.end_offset not in bases:
            yield from self._check_snapshot(self.end_offset, is_end=True)
        if partition.state is not PartitionState.DELETE:  # no follower reads a deleted partition
            yield from self._epochs.finish(
                partition, self.end_offset, is_expected=self.scope.needs_metadata
            )
        if self.level > Level.QUICK:
            yield from check_metadata_snapshot(partition)
        into = Collector()
        ends = {self.end_offset} if self.has_end else self._snapshots
        account, has_open_transactions = check_files(
            self.scope, bases | ends, self._snapshot_files, into
        )
        self.account += account
        self.has_transactions |= has_open_transactions
        yield from into.findings()

    def statistics(self) -> PartitionStatistics | None:
        """The statistics of all parts; None if they have none. Call it once, at the end."""
        if self._statistics is None:
            return None
        return self._statistics.result(
            self._replay.open_txns(), self._replay.unreplicated_offset, self.end_offset
        )

    def check_offsets(self) -> Iterator[Finding]:
        """Compare the log directory's checkpoints with the end of the log."""
        if not self.has_end:
            return
        partition, end_offset = self.scope.partition, self.end_offset
        key, root = partition.topic_partition, partition.path.parent
        recovery_point = self.scope.recovery_point
        if recovery_point is not None and recovery_point > end_offset:
            yield invariants.RECOVERY_POINT_BEYOND_END.finding(
                Place(str(root / names.RECOVERY_POINT_CHECKPOINT), None, recovery_point),
                f"{key} was flushed up to an offset past the end of its log",
                expected=f"at most {end_offset}",
                found=recovery_point,
                loss=f"offsets {end_offset} to {recovery_point - 1} are missing",
            )
        elif (
            recovery_point is not None
            and recovery_point < end_offset
            and self.scope.is_clean
            and partition.state is PartitionState.LIVE
        ):
            # LogManager.shutdown flushes every log, and writes the marker after the checkpoint.
            yield invariants.RECOVERY_POINT_BEFORE_END.finding(
                Place(str(root / names.RECOVERY_POINT_CHECKPOINT), None, recovery_point),
                f"{key} goes on after the offset at which a broker was shut down cleanly:"
                " its last segment may be that of another log",
                expected=end_offset,
                found=recovery_point,
            )
        log_start_offset = self.scope.log_start_offset
        if log_start_offset > end_offset:
            yield invariants.LOG_START_BEYOND_END.finding(
                Place(str(root / names.LOG_START_OFFSET_CHECKPOINT), None, log_start_offset),
                f"{key} starts past the end of its log: a starting broker deletes every segment",
                expected=f"at most {end_offset}",
                found=log_start_offset,
                loss="the whole log",
            )
        elif self._hides_start(log_start_offset):
            yield invariants.LOG_START_CONTRADICTION.finding(
                Place(str(partition.path / names.LEADER_EPOCH_CHECKPOINT), None, log_start_offset),
                "leader epochs begin before the log start offset: a starting broker does not show"
                " the records before that",
                expected=f"at least {log_start_offset}",
                found=min(epoch.start_offset for epoch in partition.known_leader_epochs()),
                loss="the records before it",
            )
        yield from self._check_first_segment()

    def _check_first_segment(self) -> Iterator[Finding]:
        """Check that the log begins where its leader epochs do.

        Where records are deleted, a broker lets the epochs begin at the log start offset. That is
        checkpointed unless the first segment begins there, and always with tiered storage.
        """
        partition = self.scope.partition
        is_live = partition.state is PartitionState.LIVE
        if not (is_live and self.scope.is_clean and partition.segments) or self.scope.has_log_start:
            return
        first = partition.segments[0].base_offset
        if not first:
            return
        starts = (epoch.start_offset for epoch in partition.known_leader_epochs())
        start = min(starts, default=first)
        if 0 <= start < first:
            yield invariants.FIRST_SEGMENT_MISSING.finding(
                Place(str(partition.path), None, start),
                "the log begins after its leader epochs, and no log start offset explains it",
                expected=f"a segment at offset {start}",
                found=f"the first one at {first}",
                loss=f"offsets {start} to {first - 1} are missing",
            )

    def _hides_start(self, log_start_offset: int) -> bool:
        """Whether batches lie before the log start offset, and leader epochs say they are used."""
        partition = self.scope.partition
        if not partition.segments or partition.segments[0].base_offset >= log_start_offset:
            return False
        return begin_before(partition.known_leader_epochs(), log_start_offset)
